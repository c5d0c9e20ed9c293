"""The locks install the same bytes everywhere: hashed, without host names, in step with pyproject.toml."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from bench.peers.environment import REQUIREMENTS
from tests.tidy.tree import ROOT

#: Ours, and those of the peers in the benchmark.
LOCKS = [*sorted((ROOT / "requirements").glob("*.lock")), *sorted(REQUIREMENTS.iterdir())]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def entries(lock: Path) -> list[str]:
    joined = lock.read_text().replace("\\\n", " ")
    return [line for line in joined.splitlines() if line.strip() and not line.startswith("#")]


def pinned(lock: Path) -> list[Requirement]:
    return [Requirement(entry.split(" --hash")[0]) for entry in entries(lock)]


def here(lock: Path) -> dict[str, Requirement]:
    """What the lock installs on this machine."""
    return {canonicalize_name(r.name): r for r in pinned(lock) if r.marker is None or r.marker.evaluate()}


def declared(*extras: str) -> list[Requirement]:
    lines = [*PROJECT["dependencies"], *(line for extra in extras for line in PROJECT["optional-dependencies"][extra])]
    return [r for r in map(Requirement, lines) if r.name != PROJECT["name"]]


def closure(roots: list[Requirement]) -> set[str]:
    """The names that the roots bring in here, by the metadata of what is installed."""
    seen: set[tuple[str, str]] = set()
    todo = [(canonicalize_name(r.name), extra) for r in roots for extra in ("", *r.extras)]
    while todo:
        if (item := todo.pop()) in seen:
            continue
        seen.add(item)
        for needed in map(Requirement, importlib.metadata.requires(item[0]) or ()):
            if needed.marker is None or needed.marker.evaluate({"extra": item[1]}):
                todo += [(canonicalize_name(needed.name), extra) for extra in ("", *needed.extras)]
    return {name for name, _ in seen}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_every_entry_is_pinned_and_hashed(lock: Path) -> None:
    for entry in entries(lock):
        assert re.match(r"[A-Za-z0-9][\w.-]*(\[[\w,-]+\])?==\S+ ", entry), entry
        assert "--hash=sha256:" in entry, entry


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_no_host_names(lock: Path) -> None:
    assert not re.findall(r"://|--(?:extra-)?index-url|--find-links|--trusted-host| @ ", lock.read_text())


@pytest.mark.parametrize(("lock", "extras"), [("run", ("hub",)), ("dev", ("hub", "s3", "dev"))])
def test_locks_are_in_step_with_pyproject(lock: str, extras: tuple[str, ...]) -> None:
    """`make lock` was run after the last change of a dependency: none missing, left over or too old."""
    locked = here(ROOT / "requirements" / f"{lock}.lock")
    wanted = declared(*extras)
    assert closure(wanted) == set(locked)
    for requirement in wanted:
        version = str(locked[canonicalize_name(requirement.name)].specifier).removeprefix("==")
        assert requirement.specifier.contains(version, prereleases=True), requirement


def test_what_is_installed_is_what_is_locked() -> None:
    for name, requirement in here(ROOT / "requirements" / "dev.lock").items():
        assert requirement.specifier.contains(importlib.metadata.version(name), prereleases=True), name


def test_the_development_lock_contains_the_runtime_lock() -> None:
    """The same bytes; a tool may need a package also where the program alone does not."""
    run, dev = (
        {re.sub(r" ; .*?(?= +--hash)", "", entry) for entry in entries(ROOT / "requirements" / f"{lock}.lock")}
        for lock in ("run", "dev")
    )
    assert run <= dev
