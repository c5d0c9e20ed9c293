"""The hub's address and key, from the environment or the user's config file; and the location of data."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from computepool.core.errors import BadRequest

CONFIG_ENV = "COMPUTEPOOL_CONFIG"
HUB_ENV = "COMPUTEPOOL_HUB"
KEY_ENV = "COMPUTEPOOL_KEY"
DATA_ENV = "COMPUTEPOOL_DATA"
DEFAULT_HUB = "http://127.0.0.1:8000"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    hub: str = DEFAULT_HUB
    key: str | None = None
    hub_keys: Mapping[str, str] = field(default_factory=dict)  #: the hub's public keys by name, to verify receipts


def config_path() -> Path:
    if override := os.environ.get(CONFIG_ENV):
        return Path(override)
    from platformdirs import user_config_dir

    return Path(user_config_dir("computepool")) / "config.json"


def data_folder(given: Path | None = None) -> Path:
    """The base folder of hub and node: `given`, $COMPUTEPOOL_DATA, or the default for root or for this user."""
    if chosen := given or os.environ.get(DATA_ENV):
        return Path(chosen).expanduser().absolute()
    if getattr(os, "geteuid", lambda: 1)() == 0:  # some systems have no geteuid
        return Path("/var/lib/computepool")
    from platformdirs import user_data_dir

    return Path(user_data_dir("computepool"))


def hub_folder(base: Path | None = None) -> Path:
    return data_folder(base) / "hub"


def node_folder(base: Path | None = None) -> Path:
    return data_folder(base) / "node"


def load_config() -> Config:
    """The config file, overridden by the environment. The file's key is only ever sent to the file's hub."""
    stored = _read_file()
    hub = hub_url(os.environ.get(HUB_ENV) or (stored and stored.hub) or DEFAULT_HUB)
    own = stored if stored is not None and hub_url(stored.hub) == hub else Config()
    return Config(hub=hub, key=os.environ.get(KEY_ENV) or own.key, hub_keys=own.hub_keys)


def stored_hub_keys(hub: str) -> Mapping[str, str]:
    """The keys stored for this hub; empty if the config file is for another hub."""
    stored = _read_file()
    return stored.hub_keys if stored is not None and hub_url(stored.hub) == hub else {}


def save_hub_keys(hub: str, keys: Mapping[str, str]) -> None:
    """Store the hub's keys, unless the config file is for another hub."""
    stored = _read_file() or Config(hub=hub)
    if hub_url(stored.hub) == hub:
        save_config(replace(stored, hub_keys=keys))


def save_config(config: Config) -> Path:
    keys = {"hub_keys": dict(config.hub_keys)} if config.hub_keys else {}
    return write_private(config_path(), json.dumps({"hub": config.hub, "key": config.key, **keys}, indent=2) + "\n")


def write_private(path: Path, text: str) -> Path:
    """Replace the file atomically. Only its owner can read it, from the first byte on."""
    path = replaceable(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(open_private(fresh), "w") as file:
        file.write(text)
    return fresh.replace(path)


def readable_file(path: str | os.PathLike[str], *, what: str = "file") -> Path:
    """The path, or BadRequest if the file cannot be read."""
    file = Path(path).expanduser()
    try:
        if file.is_dir():
            raise BadRequest(f"{what}: {file} is a folder, not a file.")
        with file.open("rb"):
            return file
    except OSError as error:
        raise BadRequest(f"{what}: cannot read {file}: {error.strerror or error}.") from error


def replaceable(path: Path) -> Path:
    """The file that a new one may replace, through links. A device or a pipe would be replaced, too: by root even /dev/null."""
    target = path.resolve()
    if target.exists() and not target.is_file():
        raise BadRequest(f"{path} is not a file, so nothing can be written to it.")
    return target


def open_private(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)


def hub_url(text: str) -> str:
    """Normalise `host:8000` or a full URL; no trailing slash."""
    address = text.strip() if "://" in text else f"http://{text.strip()}"
    parts = urlsplit(address)
    try:
        valid = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:  # the port is not a number
        valid = False
    if not valid:
        raise BadRequest(f"{text!r} is not a hub address; use a URL like http://127.0.0.1:8000.")
    return address.rstrip("/")


def _read_file() -> Config | None:
    path = config_path()
    try:
        stored = json.loads(path.read_text())
        keys = {str(name): str(key) for name, key in (stored.get("hub_keys") or {}).items()}
        return Config(hub=stored.get("hub") or DEFAULT_HUB, key=stored.get("key"), hub_keys=keys)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, AttributeError) as error:
        raise BadRequest(f"Cannot read {path}: {error}. Repair or remove it, then run `pool login`.") from error
