"""The folders of the pool's data on a machine: one base folder, the hub's and the node's part in it."""

from __future__ import annotations

import os
from pathlib import Path

DATA_ENV = "COMPUTEPOOL_DATA"
SYSTEM_FOLDER = Path("/var/lib/computepool")


def data_folder(given: Path | None = None) -> Path:
    """What was asked for, else $COMPUTEPOOL_DATA, else the system's place (as root) or the user's own."""
    if given is not None:
        return given.expanduser().absolute()
    if os.environ.get(DATA_ENV):
        return Path(os.environ[DATA_ENV]).expanduser().absolute()
    if os.geteuid() == 0:
        return SYSTEM_FOLDER
    from platformdirs import user_data_dir

    return Path(user_data_dir("computepool"))


def hub_folder(base: Path) -> Path:
    return base / "hub"


def node_folder(base: Path) -> Path:
    return base / "node"
