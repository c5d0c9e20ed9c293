"""Layers as strangers write them: what is unpacked, and what is refused."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from pathlib import Path

import pytest

from computepool.agent.images import unpack
from computepool.agent.images.unpack import Budget, Refused
from tests.agent.images.image_files import ImageFile, entry, folder, hard_link, layer, link

MB = 1024 * 1024


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As in the sandbox, where the program runs in an empty folder."""
    (tmp_path / "inside").mkdir()
    monkeypatch.chdir(tmp_path / "inside")
    return tmp_path / "inside"


def unpack_data(data: bytes, *, bytes_max: int = 100 * MB, entries_max: int = 1_000) -> None:
    unpack.unpack_layer(io.BytesIO(data), 0, Budget(bytes_max, entries_max))


@pytest.mark.parametrize("compress", ["", "gzip", "zstd"])
def test_files_folders_and_links(place: Path, compress: str) -> None:
    content = os.urandom(3 * MB)
    unpack_data(
        layer(
            {"usr/bin/tool": content, "./etc/tool.conf": "x", "/srv/data": "y"},
            [folder("empty"), link("usr/lib64", "/lib"), link("up", "../../../etc")],
            compress=compress,
        )
    )
    made = place / "0"
    assert (made / "usr/bin/tool").read_bytes() == content
    assert (made / "usr/bin/tool").stat().st_mode & 0o7777 == 0o755
    assert (made / "etc/tool.conf").stat().st_mode & 0o7777 == 0o644
    assert (made / "srv/data").read_text() == "y"
    assert (made / "usr/lib64").readlink() == Path("/lib")
    assert (made / "up").readlink() == Path("../../../etc")
    assert (made / "empty").is_dir()


def test_several_gzip_members_and_hard_links(place: Path) -> None:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        tar.addfile(entry("a", size=3), io.BytesIO(b"one"))
        for _ in range(2):
            tar.addfile(hard_link("b", "a"))
    data, half = raw.getvalue(), 700
    unpack_data(gzip.compress(data[:half]) + gzip.compress(data[half:]))
    assert (place / "0/a").samefile(place / "0/b")


def test_whiteouts_are_noted_and_never_written(place: Path) -> None:
    data = layer({"a/.wh.gone": "", "b/.wh..wh..opq": "", ".wh.top": "", "c/.wh..wh.plnk": ""})
    unpack_data(data)
    assert (place / "0.json").read_text() == '{"removed": ["a/gone", "top"], "opaque": ["b"]}'
    assert [path for path in (place / "0").rglob("*") if path.is_file()] == []


def test_devices_and_setuid_bits_do_not_survive(place: Path) -> None:
    others = [
        entry("dev/mem", type=tarfile.CHRTYPE, devmajor=1, devminor=1, mode=0o666),
        entry("dev/sda", type=tarfile.BLKTYPE, devmajor=8, devminor=0, mode=0o666),
        entry("pipe", type=tarfile.FIFOTYPE, mode=0o666),
    ]
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for info in (*others, entry("su", mode=0o6755, size=0, uid=0)):
            tar.addfile(info)
    unpack_data(data.getvalue())
    assert sorted(path.name for path in (place / "0").rglob("*")) == ["dev", "su"]
    assert (place / "0/su").stat().st_mode & 0o7777 == 0o755


OUTSIDE = [
    ("climbs out", [entry("../evil", size=0)], "leads out"),
    ("climbs out in the middle", [entry("a/../../evil", size=0)], "leads out"),
    ("through a link", [link("a", "/tmp"), entry("a/evil", size=0)], "not a folder in it"),
    ("through a relative link", [link("a", "../.."), folder("a/b")], "not a folder in it"),
    ("below a file", [entry("a", size=0), entry("a/b", size=0)], "not a folder in it"),
    ("hard link out", [hard_link("a", "../../etc/passwd")], "leads out"),
    ("hard link through a link", [link("a", "/etc"), hard_link("b", "a/passwd")], "not a folder in it"),
    ("removes what is outside", [entry("a/.wh...", size=0)], "leads out"),
    ("removes its root", [entry(".wh..", size=0)], "removes its own root"),
    ("deep", [folder("d/" * 200)], "too long"),
    ("long", [folder("d" * 300)], "too long"),
    ("a folder becomes a link", [folder("a"), link("a", "/etc")], "as something else"),
]


@pytest.mark.parametrize(("others", "why"), [case[1:] for case in OUTSIDE], ids=[case[0] for case in OUTSIDE])
def test_a_layer_that_leads_out_of_itself_is_refused(place: Path, others: list[tarfile.TarInfo], why: str) -> None:
    with pytest.raises(Refused, match=why):
        unpack_data(layer({}, others))
    assert [path.name for path in place.iterdir()] == ["0"]


def test_a_hard_link_to_a_missing_file(place: Path) -> None:
    with pytest.raises(FileNotFoundError):  # `main` makes a sentence of it
        unpack_data(layer({}, [hard_link("a", "nothing")]))


@pytest.mark.parametrize("compress", ["gzip", "zstd"])
def test_a_bomb_ends_at_the_limit(place: Path, compress: str) -> None:
    data = layer({"zeros": bytes(60 * MB)}, compress=compress)
    assert len(data) < MB
    with pytest.raises(Refused, match="more than 10 MB") as refused:
        unpack_data(data, bytes_max=10 * MB)
    assert refused.value.code == unpack.TOO_LARGE


def test_many_small_files_are_limited() -> None:
    with pytest.raises(Refused, match="more than 10 files"):
        unpack_data(layer({f"f{number}": "" for number in range(20)}), entries_max=10)
    with pytest.raises(Refused, match="more than 0 MB"):
        unpack_data_again(layer({f"f{number}": "" for number in range(20)}))


def unpack_data_again(data: bytes) -> None:
    unpack.unpack_layer(io.BytesIO(data), 1, Budget(10 * 4096, 1_000))


@pytest.mark.parametrize(
    "data", [b"", b"\x1f\x8b" + b"x" * 100, b"\x28\xb5\x2f\xfd" + b"x" * 100, b"x" * 2000, b"BZh9"]
)
def test_what_is_no_layer(data: bytes) -> None:
    if not data:  # an empty archive is an empty layer
        with pytest.raises(Refused):
            unpack_data(data)
        return
    with pytest.raises(Refused):
        unpack_data(data)


@pytest.mark.parametrize("compress", ["", "gzip", "zstd"])
def test_a_layer_that_is_cut_off(compress: str) -> None:
    data = layer({"a": os.urandom(MB)}, compress=compress)
    with pytest.raises(Refused):
        unpack_data(data[: len(data) // 2])


# ---------------------------------------------------------------- archives
def unpack_image(path: Path) -> None:
    with path.open("rb") as source:
        unpack.unpack_archive(source, Budget(100 * MB, 1_000), "amd64")


def test_archives_of_both_kinds(tmp_path: Path, place: Path) -> None:
    image = ImageFile([layer({"a": "1"}, compress="gzip"), layer({"b": "2"})], {"Cmd": ["a"]}, architecture="amd64")
    for number, save in enumerate((image.save_oci, image.save_docker)):
        os.mkdir(here := place / str(f"run{number}"))
        os.chdir(here)
        unpack_image(save(tmp_path / f"{number}.tar"))
        assert (here / "0/a").read_text() + (here / "1/b").read_text() == "12"
        assert (here / "config.json").read_bytes() == image.config_bytes


BROKEN = [
    ({}, "not an image"),
    ({"manifest.json": "[]"}, "has 0 images"),
    ({"manifest.json": '[{"Config":"c","Layers":[]},{"Config":"c","Layers":[]}]'}, "has 2 images"),
    ({"manifest.json": '[{"Config":"../../etc/passwd","Layers":[]}]'}, "has no"),
    ({"manifest.json": '[{"Config":"c","Layers":["/etc/passwd"]}]', "c": "{}"}, "has no"),
    ({"manifest.json": "{"}, "not a valid archive"),
    ({"manifest.json": '{"a": 1}'}, "not a valid archive"),
    ({"manifest.json": '[{"Config":1,"Layers":1}]'}, "not a valid archive"),
    ({"index.json": '{"manifests":[{"digest":"sha256:00"}]}'}, "has no"),
    ({"index.json": '{"manifests":[{"digest":"sha256:00"}]}', "blobs/sha256/00": "{}"}, "does not match"),
]


@pytest.mark.parametrize(("files", "why"), BROKEN, ids=[case[1] + str(number) for number, case in enumerate(BROKEN)])
def test_what_is_no_archive(tmp_path: Path, files: dict[str, str], why: str) -> None:
    path = tmp_path / "image.tar"
    path.write_bytes(layer(dict(files)))
    with pytest.raises(Refused, match=why):
        unpack_image(path)
