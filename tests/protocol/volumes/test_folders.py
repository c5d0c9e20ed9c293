"""Folders into packs and back: nothing is lost, little is sent twice, and nothing leads out."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from computepool.core.errors import BadRequest, TooLarge
from computepool.protocol.volumes import folders, manifest, packing
from computepool.protocol.volumes.folders import FolderContent, FolderReader, FolderWriter
from computepool.protocol.volumes.manifest import CHUNK_MAX, EMPTY, VolumeManifest

MB = 1024 * 1024
Tree = dict[str, bytes]


class Packs:
    """A store of packs, and folders below `top`."""

    def __init__(self, top: Path) -> None:
        self.top, self.stored, self._number = top, dict[str, Path](), 0

    def folder(self) -> Path:
        self._number += 1
        made = self.top / str(self._number)
        made.mkdir()
        return made

    def read(self, folder: Path, base: VolumeManifest = EMPTY, **limits: int) -> FolderContent:
        found = FolderReader(folder=folder, spool=self.folder(), base=base, **limits).read()
        self.stored.update({pack.digest: pack.path for pack in found.packs})
        assert manifest.read(found.manifest.body()) == found.manifest
        return found

    def write(self, listed: VolumeManifest) -> Path:
        writer = FolderWriter(listed, self.folder())
        writer.begin()
        for number, (digest, _) in enumerate(listed.packs):
            with self.stored[digest].open("rb") as source:
                writer.fill(number, source.fileno())
        writer.finish()
        return writer.folder


@pytest.fixture
def packs(tmp_path: Path) -> Packs:
    return Packs(tmp_path)


def fill(folder: Path, tree: Tree) -> Path:
    for name, data in tree.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def listing(folder: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        elif path.is_dir():
            found[name] = "folder"
        else:
            found[name] = (path.stat().st_mode & 0o777, path.read_bytes())
    return found


contents = st.dictionaries(
    st.sampled_from(["a", "b", "c/d", "c/e/f", "g/h"]),
    st.one_of(st.binary(max_size=50), st.integers(0, 3).map(lambda seed: random.Random(seed).randbytes(300_000))),
    max_size=5,
)


@settings(max_examples=30)
@given(contents, contents)
def test_every_version_comes_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, first: Tree, then: Tree) -> None:
    packs = Packs(tmp_path_factory.mktemp("packs"))
    one = packs.read(before := fill(packs.folder(), first))
    two = packs.read(after := fill(packs.folder(), then), one.manifest)
    assert listing(packs.write(one.manifest)) == listing(before)
    assert listing(packs.write(two.manifest)) == listing(after)
    assert (one.manifest.content() == two.manifest.content()) == (first == then)
    if first == then:
        assert two.packs == []


def test_modes_links_and_empty_folders_are_kept(packs: Packs) -> None:
    folder = fill(packs.folder(), {"run.sh": b"#!/bin/sh\n", "d/data": b"x"})
    (folder / "run.sh").chmod(0o750)
    (folder / "empty").mkdir()
    (folder / "d" / "link").symlink_to("../run.sh")
    found = packs.read(folder)
    assert found.left_out == []
    assert listing(packs.write(found.manifest)) == listing(folder)


def test_an_insertion_changes_little(packs: Packs) -> None:
    data = random.Random(1).randbytes(4 * MB)
    one = packs.read(fill(packs.folder(), {"big": data}))
    inserted = data[: 2 * MB] + b"inserted" + data[2 * MB :]
    two = packs.read(fill(packs.folder(), {"big": inserted, "copy": data}), one.manifest)
    assert sum(pack.size for pack in two.packs) <= 3 * CHUNK_MAX
    assert (packs.write(two.manifest) / "big").read_bytes() == inserted


def test_many_small_files_are_one_pack(packs: Packs) -> None:
    tree = {f"d{n % 10}/f{n}": str(n).encode() for n in range(1_000)}
    found = packs.read(fill(packs.folder(), tree))
    assert len(found.packs) == 1
    assert len(list(packs.write(found.manifest).rglob("f*"))) == 1_000


def test_a_pack_of_which_little_is_left_is_written_again(packs: Packs) -> None:
    blocks = [random.Random(n).randbytes(MB) for n in range(4)]
    folder = fill(packs.folder(), {f"f{n}": block for n, block in enumerate(blocks)})
    one = packs.read(folder)
    for n in (1, 2, 3):
        (folder / f"f{n}").unlink()
    two = packs.read(folder, one.manifest)
    assert two.manifest.packs != one.manifest.packs
    assert sum(size for _, size in two.manifest.packs) == MB
    assert (packs.write(two.manifest) / "f0").read_bytes() == blocks[0]


def test_a_long_history_of_small_changes_does_not_leave_many_packs(packs: Packs) -> None:
    folder, listed = packs.folder(), EMPTY
    for n in range(60):
        (folder / f"f{n}").write_bytes(random.Random(n).randbytes(100))
        listed = packs.read(folder, listed).manifest
    assert len(listed.packs) <= folders._SMALL_MAX + 1
    assert listing(packs.write(listed)) == listing(folder)


def test_what_leads_out_of_a_folder_is_left_out(packs: Packs, tmp_path: Path) -> None:
    folder = fill(packs.folder(), {"kept": b"x"})
    (tmp_path / "secret").write_text("secret")
    (folder / "out").symlink_to(tmp_path / "secret")
    (folder / "up").symlink_to("../secret")
    (folder / "dir").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    (folder / "bell\x07").write_text("x")
    os.close(os.open(os.fsencode(folder) + b"/\xff\xfe", os.O_CREAT | os.O_WRONLY))
    found = packs.read(folder)
    assert [path for path, _, _ in found.manifest.files] == ["kept"]
    assert found.manifest.links == []
    assert len(found.left_out) == 6
    assert all(one.path.isprintable() and one.reason.isprintable() for one in found.left_out)


def test_a_link_in_place_of_the_folder_is_not_followed(packs: Packs, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(fill(packs.folder(), {"a": b"x"}))
    with pytest.raises(OSError):
        packs.read(tmp_path / "link")


def test_the_limits_hold(packs: Packs) -> None:
    folder = fill(packs.folder(), {f"f{n}": b"12345" for n in range(10)})
    with pytest.raises(TooLarge, match="more than 9 files"):
        packs.read(folder, files_max=9)
    with pytest.raises(TooLarge, match="more than 49 bytes"):
        packs.read(folder, size_max=49)
    assert packs.read(folder, files_max=10, size_max=50).manifest.size == 50


def test_a_damaged_pack_is_found(packs: Packs) -> None:
    found = packs.read(fill(packs.folder(), {"a": b"x" * 100}))
    [pack] = found.packs
    pack.path.write_bytes(b"y" * 100)
    with pytest.raises(BadRequest, match="damaged"):
        packs.write(found.manifest)


def test_a_file_that_changes_while_it_is_read_is_found(packs: Packs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pack of the version before has little left in use, so the file is read a second time."""
    folder = fill(packs.folder(), {"a": random.Random(1).randbytes(MB), "b": b"x" * 100})
    base = packs.read(folder).manifest
    (folder / "a").unlink()
    real = packing.digest_of

    def digest_of(data: bytes | memoryview) -> str:
        found = real(data)
        if len(data) == 100:
            (folder / "b").write_bytes(b"z" * 100)
        return found

    monkeypatch.setattr(folders, "digest_of", digest_of)
    with pytest.raises(BadRequest, match="changed while it was read"):
        packs.read(folder, base)
