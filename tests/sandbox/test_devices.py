"""A job's /dev is the same whether its launcher makes it once or bubblewrap makes it for each job."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any

import pytest

from computepool.agent.sandbox.backends import bubblewrap
from computepool.agent.sandbox.backends.bubblewrap import BubblewrapSandbox, devices_folder
from computepool.agent.sandbox.slots import SandboxConfig
from tests.sandbox.running import run_python

_LOOK = """
import json, os, pty, stat

def kind(name):
    found = os.lstat(f"/dev/{name}")
    return os.readlink(f"/dev/{name}") if stat.S_ISLNK(found.st_mode) else [found.st_mode, found.st_rdev]

refused = 0
for change in (lambda: open("/dev/own", "x"), lambda: os.unlink("/dev/null"), lambda: os.chmod("/dev/null", 0o600)):
    try:
        change()
    except OSError:
        refused += 1
terminals = os.listdir("/dev/pts")
kept = pty.openpty()
opened = os.listdir("/dev/pts")
for name in ("/dev/shm/mine", "/dev/null"):
    with open(name, "w") as file:
        file.write("x")
with open("/dev/zero", "rb") as zero:
    read = zero.read(3).hex()
found = {name: kind(name) for name in sorted(os.listdir("/dev"))}
print(json.dumps([found, refused, terminals, opened, os.listdir("/dev/shm"), read]))
"""


def _seen(config: SandboxConfig) -> list[Any]:
    """What the second job of a slot sees."""
    with contextlib.closing(BubblewrapSandbox(config)) as sandbox:
        return [json.loads(run_python(sandbox, _LOOK).out) for _ in range(2)][1]


def test_devices_are_the_same_for_every_job(config: SandboxConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    made_once = _seen(config)
    monkeypatch.setattr(bubblewrap, "devices_folder", lambda _: None)
    assert made_once == _seen(config)
    names, refused, terminals, opened, shared, read = made_once
    assert {"null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm"} <= set(names)
    assert (refused, terminals, sorted(opened), shared, read) == (3, ["ptmx"], ["0", "ptmx"], ["mine"], "000000")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
def test_only_root_makes_devices_and_nobody_else_sees_them(
    config: SandboxConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert devices_folder(config.cache_dir) == str(config.cache_dir / "dev")
    assert not os.listdir(config.cache_dir / "dev")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert devices_folder(config.cache_dir) is None
