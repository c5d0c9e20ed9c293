"""The digest of a tree depends on its content alone, unused trees are removed, and a tree can be moved to another node."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from computepool.agent.sandbox.base import SandboxError
from computepool.agent.sandbox.runtime import archive, elf, manifest, runtime
from computepool.agent.sandbox.runtime.runtime import Runtime, RuntimeRecipe

FACTS = {"format": 2, "python": "3.11", "packages": "none"}
RECIPE = RuntimeRecipe("key", FACTS)
#: What a hostile archive would write outside; no other run of these tests looks for it.
EVIL = Path(f"/tmp/computepool-evil-{os.getpid()}")
_NAMES = st.text("abcü", min_size=1, max_size=4)
_FILES = st.dictionaries(_NAMES, st.tuples(st.binary(max_size=40), st.sampled_from([0o644, 0o755])), min_size=1)


def _plant(root: Path, files: dict[str, tuple[bytes, int]]) -> Path:
    root.mkdir()
    for name, (content, mode) in files.items():
        (root / name).write_bytes(content)
        (root / name).chmod(mode)
    return root


@pytest.mark.soak
@settings(max_examples=60)
@given(one=_FILES, other=_FILES, reverse=st.booleans())
def test_only_equal_content_has_an_equal_digest(
    one: dict[str, tuple[bytes, int]],
    other: dict[str, tuple[bytes, int]],
    reverse: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    ground = tmp_path_factory.mktemp("trees")
    first = manifest.summarise(_plant(ground / "first", one))
    again = dict(reversed(one.items())) if reverse else one
    assert manifest.summarise(_plant(ground / "again", again)) == first
    assert (manifest.summarise(_plant(ground / "other", other)) == first) == (one == other)


_CHANGES: dict[str, Callable[[Path], object]] = {
    "content": lambda path: path.write_bytes(b"bbbb"),
    "mode": lambda path: path.chmod(0o755),
    "name": lambda path: path.rename(path.with_name("g")),
    "link": lambda path: (path.unlink(), path.symlink_to("nowhere")),
    "more": lambda path: path.with_name("more").mkdir(),
}


@pytest.mark.parametrize("change", _CHANGES.values(), ids=_CHANGES)
def test_each_change_changes_digest_and_stamp(tmp_path: Path, change: Callable[[Path], object]) -> None:
    root = _plant(tmp_path / "tree", {"f": (b"aaaa", 0o644)})
    digest, stamp = manifest.summarise(root).digest, manifest.stamp(root)
    assert manifest.stamp(root) == stamp
    change(root / "f")
    assert manifest.summarise(root).digest != digest
    assert manifest.stamp(root) != stamp


def test_a_tree_must_not_contain_pipes_or_devices(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SandboxError, match="pipe"):
        manifest.summarise(tmp_path)


@pytest.mark.parametrize("program", ["/bin/bash", sys.executable, "/usr/bin/env"])
def test_a_program_needs_the_libraries_that_the_loader_finds(program: str) -> None:
    listing = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    expected = {line.split(" => ")[0].strip() for line in listing.splitlines() if " => " in line}
    found: set[str] = set()
    pending = [Path(os.path.realpath(program))]
    while pending:
        needs = elf.needs(pending.pop())
        assert needs is not None
        for name in set(needs.libraries) - found:
            found.add(name)
            folders = [*map(Path, needs.folders), *elf.search_folders()]
            pending.append(next(folder / name for folder in folders if (folder / name).is_file()))
    assert {name for name in found if not name.startswith("ld-linux")} == expected


def test_a_file_that_is_no_program_needs_nothing(tmp_path: Path) -> None:
    for content in (b"", b"#!/bin/sh\n", b"\x7fELF", b"\x7fELF\x02\x01" + b"\xff" * 200):
        (tmp_path / "file").write_bytes(content)
        assert elf.needs(tmp_path / "file") is None


# ------------------------------------------------------------------ the store
def _made(cache: Path, content: str, *, facts: dict[str, object] | None = None) -> Runtime:
    store = runtime.open_store(cache)
    with runtime.locked_store(store), runtime.building_folder(store) as folder:
        (folder / runtime._FACTS).parent.mkdir(parents=True)
        (folder / runtime._FACTS).write_text(json.dumps({**(facts or FACTS), "own_libraries": False}))
        (folder / "usr" / "content").write_text(content)
        (folder / "usr" / "link").symlink_to("content")
        return runtime.adopt(store, folder)


def _release(cache: Path) -> None:
    """As if the processes that use the trees of this cache had ended."""
    for path in [path for path in runtime._held if path.is_relative_to(cache)]:
        os.close(runtime._held.pop(path))


def test_old_trees_are_removed_except_the_newest_and_those_in_use(tmp_path: Path) -> None:
    store = runtime.open_store(tmp_path)
    made = [_made(tmp_path, text) for text in "abcd"]
    for age, one in enumerate(reversed(made)):
        os.utime(one.root, (1_000_000 - age, 1_000_000 - age))
    runtime.collect_garbage(store)
    assert all(one.root.is_dir() for one in made)
    _release(tmp_path)
    runtime.hold(store, made[1].digest)
    runtime.collect_garbage(store)
    assert [one.root.is_dir() for one in made] == [False, True, False, True]
    assert runtime.load(store, made[0].digest) is None
    assert runtime.load(store, made[1].digest) == made[1]
    _release(tmp_path)


# ------------------------------------------------------------------ export and import
def test_an_imported_runtime_keeps_its_digest(tmp_path: Path) -> None:
    made = _made(tmp_path / "here", "x")
    archive.write(made, tmp_path / "one.tar")
    archive.write(made, tmp_path / "two.tar")
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()
    there = archive.read(tmp_path / "there", tmp_path / "one.tar", RECIPE)
    assert there.verify() == made.verify()
    assert (there.root / "usr" / "link").read_text() == "x"
    store = runtime.open_store(tmp_path / "there")
    assert (store / runtime.CHOSEN).read_text().strip() == made.digest
    assert runtime.load_chosen(store, RECIPE, made.digest) == there
    _release(tmp_path)


def test_a_runtime_for_another_version_is_refused(tmp_path: Path) -> None:
    archive.write(_made(tmp_path / "here", "x", facts={**FACTS, "packages": "older"}), tmp_path / "one.tar")
    with pytest.raises(SandboxError, match="does not match this node in packages"):
        archive.read(tmp_path / "there", tmp_path / "one.tar", RECIPE)
    assert not (tmp_path / "there" / "runtimes" / runtime.CHOSEN).exists()
    _release(tmp_path)


def _member(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


_D = "d" * 64
_HOSTILE = {
    "changed": [_member(f"{_D}/usr", tarfile.DIRTYPE)],
    "absolute": [_member("/etc/evil", tarfile.REGTYPE)],
    "upwards": [_member(f"{_D}/../../evil", tarfile.REGTYPE)],
    "through a link": [_member(f"{_D}/a", tarfile.SYMTYPE, "/tmp"), _member(f"{_D}/a/{EVIL.name}", tarfile.REGTYPE)],
    "over a link": [_member(f"{_D}/a", tarfile.SYMTYPE, str(EVIL)), _member(f"{_D}/a", tarfile.REGTYPE)],
    "hard link": [_member(f"{_D}/a", tarfile.LNKTYPE, "/etc/shadow")],
    "device": [_member(f"{_D}/a", tarfile.CHRTYPE)],
    "pipe": [_member(f"{_D}/a", tarfile.FIFOTYPE)],
    "two folders": [_member(f"{_D}/a", tarfile.DIRTYPE), _member(f"{'e' * 64}/a", tarfile.DIRTYPE)],
    "no digest": [_member("x/a", tarfile.DIRTYPE)],
    "empty": [],
}


@pytest.mark.parametrize("members", _HOSTILE.values(), ids=_HOSTILE)
def test_hostile_archives_are_refused(tmp_path: Path, members: list[tarfile.TarInfo]) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as written:
        for member in members:
            written.addfile(member, io.BytesIO())
    with pytest.raises(SandboxError, match=r"not an exported runtime|was changed: it claims"):
        archive.read(tmp_path / "cache", tmp_path / "x.tar", RECIPE)
    assert not [*tmp_path.rglob("evil"), *tmp_path.rglob(EVIL.name)]
    assert not EVIL.exists()
    assert sorted(path.name for path in (tmp_path / "cache" / "runtimes").iterdir()) == [".lock"]


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(b"no tar" * 1000)
    with pytest.raises(SandboxError, match="not an exported runtime"):
        archive.read(tmp_path / "cache", tmp_path / "x.tar", RECIPE)
