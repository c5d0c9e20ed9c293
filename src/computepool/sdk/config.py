"""Which hub, and with which key: environment first, then the person's config file. Owns that file."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from platformdirs import user_config_dir

from computepool.core.errors import BadRequest

CONFIG_ENV = "COMPUTEPOOL_CONFIG"
HUB_ENV = "COMPUTEPOOL_HUB"
KEY_ENV = "COMPUTEPOOL_KEY"
DEFAULT_HUB = "http://127.0.0.1:8000"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    hub: str = DEFAULT_HUB
    key: str | None = None


def config_path() -> Path:
    override = os.environ.get(CONFIG_ENV)
    return Path(override) if override else Path(user_config_dir("computepool")) / "config.json"


def load_config() -> Config:
    """The file, overlaid by the environment. The file's key is only ever sent to the file's hub."""
    hub, key = _read_file()
    hub_now = hub_url(os.environ.get(HUB_ENV) or hub or DEFAULT_HUB)
    own_key = key if hub is not None and hub_url(hub) == hub_now else None
    return Config(hub=hub_now, key=os.environ.get(KEY_ENV) or own_key)


def save_config(config: Config) -> Path:
    """Written to a new file that replaces the old one, readable by its owner alone from the first byte."""
    path = config_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump({"hub": config.hub, "key": config.key}, file, indent=2)
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
        raise BadRequest(f"{text!r} is not a hub's address; write it like http://127.0.0.1:8000.")
    return address.rstrip("/")


def _read_file() -> tuple[str | None, str | None]:
    path = config_path()
    try:
        stored = json.loads(path.read_text())
        return stored.get("hub"), stored.get("key")
    except FileNotFoundError:
        return None, None
    except (OSError, ValueError, AttributeError) as error:
        raise BadRequest(f"Cannot read {path}: {error}. Mend or remove it, then `pool login`.") from error
