"""Databases with the newest schema, copied instead of migrated: that is most of what starting a small hub costs."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from computepool.hub.settings import Settings
from computepool.hub.store import dialect
from computepool.hub.store.schema import migrate


def place(settings: Settings) -> None:
    """Give a hub that would begin with an empty SQLite file one that is migrated already."""
    file = dialect.sqlite_file(settings.url)
    if file is None or file.exists():
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(migrated_sqlite())


@cache
def migrated_sqlite() -> bytes:
    with tempfile.TemporaryDirectory(prefix="computepool-schema-") as folder:
        file = Path(folder, "hub.sqlite")
        migrate(f"sqlite:///{file}")
        return file.read_bytes()
