"""Layers put together: what an upper layer hides, and paths that lead nowhere else."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from computepool.agent.images import roots
from computepool.agent.images.roots import FACTS, FILES, LayerFacts
from computepool.agent.sandbox.base import SandboxError


def make_layer(
    parent: Path,
    files: dict[str, str],
    *,
    links: dict[str, str] | None = None,
    removed: Sequence[str] = (),
    opaque: Sequence[str] = (),
) -> Path:
    made = parent / f"layer{len(list(parent.iterdir()))}"
    (made / FILES).mkdir(parents=True)
    for name, content in files.items():
        (made / FILES / name).parent.mkdir(parents=True, exist_ok=True)
        (made / FILES / name).write_text(content)
    for name, target in (links or {}).items():
        (made / FILES / name).parent.mkdir(parents=True, exist_ok=True)
        (made / FILES / name).symlink_to(target)
    (made / FACTS).write_text(LayerFacts(removed=list(removed), opaque=list(opaque)).model_dump_json())
    return made


def content(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): f"-> {path.readlink()}" if path.is_symlink() else path.read_text()
        for path in sorted(root.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    (tmp_path / "layers").mkdir()
    return tmp_path / "layers"


def merged(parent: Path, *layers: Path) -> dict[str, str]:
    roots.merge(layers, parent.parent / "root")
    return content(parent.parent / "root")


def test_upper_layers_replace_and_remove(parent: Path) -> None:
    lower = make_layer(parent, {"a": "1", "d/x": "1", "d/y": "1", "o/x": "1", "f/deep/x": "1"}, links={"l": "a"})
    upper = make_layer(
        parent, {"a": "2", "d/z": "2", "o/y": "2"}, removed=["d/x", "f", "nothing", "l"], opaque=["o", "new"]
    )
    assert merged(parent, lower, upper) == {"a": "2", "d/y": "1", "d/z": "2", "o/y": "2"}
    assert content(lower / FILES)["a"] == "1", "the layer itself is unchanged"


def test_a_folder_replaces_a_link_and_the_other_way_round(parent: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "x").write_text("mine")
    lower = make_layer(parent, {"b/x": "1", "c/x": "1"}, links={"a": str(victim)})
    upper = make_layer(parent, {"a/x": "2", "c": "file"}, links={"b": str(victim)})
    assert merged(parent, lower, upper) == {"a/x": "2", "b": f"-> {victim}", "c": "file"}
    assert (victim / "x").read_text() == "mine"


@pytest.mark.parametrize("path", ["a/x", "../victim/x", "/../victim/x", "a/../../victim/x", "a", "..", "a\0b"])
def test_what_a_layer_removes_is_in_the_image(parent: Path, tmp_path: Path, path: str) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "x").write_text("mine")
    lower = make_layer(parent, {"k": "1"}, links={"a": str(victim)})
    upper = make_layer(parent, {}, removed=[path], opaque=[path])
    assert merged(parent, lower, upper)["k"] == "1"
    assert (victim / "x").read_text() == "mine"


def test_files_are_shared_with_their_layer(parent: Path, tmp_path: Path) -> None:
    lower = make_layer(parent, {"a": "1"})
    merged(parent, lower)
    assert (tmp_path / "root/a").samefile(lower / FILES / "a")


def test_folders_of_the_node_take_the_place_of_anything(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "tmp").symlink_to("/etc")
    (root / "opt").write_text("a file")
    for path in ("/tmp", "/opt/python", "/tmp"):
        assert roots.make_folder(root, path).is_dir()
    assert not (root / "tmp").is_symlink()
    assert os.listdir(root / "tmp") == []


def test_a_working_folder_is_added_without_replacing_anything(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to(tmp_path)
    for path in ("/srv/app", "srv/app/", "link/x", "../up", "/", "", "a\0b"):
        roots.add_folder(root, path)
    assert sorted(str(path.relative_to(root)) for path in root.rglob("*")) == ["link", "srv", "srv/app"]
    assert os.listdir(tmp_path) == ["root"]


def test_mount_points_do_not_follow_links(tmp_path: Path) -> None:
    root, file = tmp_path / "root", tmp_path / "driver.so"
    root.mkdir()
    file.touch()
    (root / "lib").symlink_to(tmp_path)
    roots.make_mount_points(root, {file: "/usr/lib/driver.so", tmp_path: "/opt/packages"})
    assert (root / "usr/lib/driver.so").is_file()
    assert (root / "opt/packages").is_dir()
    with pytest.raises(SandboxError, match="something else than a folder"):
        roots.make_mount_points(root, {file: "/lib/other.so"})
    assert not (tmp_path / "other.so").exists()
