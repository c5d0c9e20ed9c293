"""The hub's address and key: environment first, then the person's config file. Owns that file."""

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
DEFAULT_HUB = "http://127.0.0.1:8000"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    hub: str = DEFAULT_HUB
    key: str | None = None
    hub_keys: Mapping[str, str] = field(
        default_factory=dict
    )  #: the hub's public keys, by name; receipts need them


def config_path() -> Path:
    if override := os.environ.get(CONFIG_ENV):
        return Path(override)
    from platformdirs import user_config_dir

    return Path(user_config_dir("computepool")) / "config.json"


def load_config() -> Config:
    """The file, overlaid by the environment. The file's key is only ever sent to the file's hub."""
    stored = _read_file()
    hub_now = hub_url(os.environ.get(HUB_ENV) or (stored and stored.hub) or DEFAULT_HUB)
    own = stored if stored is not None and hub_url(stored.hub) == hub_now else Config()
    return Config(hub=hub_now, key=os.environ.get(KEY_ENV) or own.key, hub_keys=own.hub_keys)


def kept_hub_keys(hub: str) -> Mapping[str, str]:
    """What the file has of this hub; nothing where it is for another one."""
    stored = _read_file()
    return stored.hub_keys if stored is not None and hub_url(stored.hub) == hub else {}


def save_hub_keys(hub: str, keys: Mapping[str, str]) -> bool:
    """Keep them beside the key that the file has for this hub. False if the file is for another hub."""
    stored = _read_file() or Config(hub=hub)
    if hub_url(stored.hub) != hub:
        return False
    save_config(replace(stored, hub_keys=keys))
    return True


def save_config(config: Config) -> Path:
    """Written to a new file that replaces the old one, readable by its owner alone from the first byte."""
    path = config_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        keys = {"hub_keys": dict(config.hub_keys)} if config.hub_keys else {}
        json.dump({"hub": config.hub, "key": config.key, **keys}, file, indent=2)
        file.write("\n")
    fresh.replace(path)
    return path


def hub_url(text: str) -> str:
    """`host:8000` or a full address, without a trailing slash."""
    address = text.strip() if "://" in text else f"http://{text.strip()}"
    parts = urlsplit(address)
    try:
        known = (
            parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
        )
    except ValueError:  # the port is no number
        known = False
    if not known:
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
        raise BadRequest(
            f"Cannot read {path}: {error}. Repair or remove it, then run `pool login`."
        ) from error
