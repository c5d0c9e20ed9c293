"""Finds redis-server, or unpacks Debian's package under .make/peers.

Installing the package would start an unwanted server and require root.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from bench.peers.environment import HOME, INSTALL_S, run

_FOLDER = HOME / "redis"
_WRAPPER = """#!/bin/sh
LD_LIBRARY_PATH="{libraries}" exec "{binary}" "$@"
"""


def redis_server(*, limit_s: float = INSTALL_S) -> Path:
    if found := shutil.which("redis-server"):
        return Path(found)
    wrapper = _FOLDER / "redis-server"
    if not wrapper.exists():
        shutil.rmtree(_FOLDER, ignore_errors=True)
        _unpack(deadline=time.monotonic() + limit_s)
        binary = _FOLDER / "root" / "usr" / "bin" / "redis-server"
        libraries = ":".join(str(path) for path in (_FOLDER / "root" / "usr" / "lib").glob("*-linux-gnu*"))
        wrapper.write_text(_WRAPPER.format(libraries=libraries, binary=binary))
        wrapper.chmod(0o755)
    return wrapper


def _unpack(*, deadline: float) -> None:
    """Download the package and its missing libraries."""
    (_FOLDER / "partial").mkdir(parents=True)
    # Nothing is installed, so neither the lock of the package system nor root is needed.
    private = ["-o", f"Dir::Cache::archives={_FOLDER}", "-o", "Debug::NoLocking=1"]
    command = ["apt-get", "install", "-qq", "--yes", "--download-only", "--no-install-recommends"]
    run([*command, *private, "redis-server"], deadline=deadline)
    for package in sorted(_FOLDER.glob("*.deb")):
        run(["dpkg-deb", "--extract", str(package), str(_FOLDER / "root")], deadline=deadline)
