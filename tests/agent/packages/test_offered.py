"""What an agent reads in an environment of the owner's, whoever wrote its metadata; no code of it runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from computepool.agent.owner import environment_list
from computepool.agent.packages import offered
from computepool.agent.packages.interpreters import PYTHON
from computepool.agent.packages.offered import read
from computepool.core.errors import BadRequest, ComputePoolError, Conflict, NotFound

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only jobs of a root agent run as other users")


def package(site: Path, name: str, version: str, more: str = "") -> None:
    info = site / f"{name.replace(os.sep, '_')[:40]}-1.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{more}")


@pytest.fixture
def folder(shared: Path) -> Path:
    """An installation of Python of its own, as conda makes it. Its program is never run."""
    shared.chmod(0o755)
    made = shared / "env"
    (made / "bin").mkdir(parents=True)
    (made / "bin/python3.12").write_bytes(b"")
    for name in ("python", "python3"):
        (made / "bin" / name).symlink_to("python3.12")
    (made / "lib/python3.12/site-packages").mkdir(parents=True)
    return made


def site_of(folder: Path) -> Path:
    return folder / "lib/python3.12/site-packages"


def test_an_installation_of_its_own(folder: Path) -> None:
    package(site_of(folder), "Torch", "2.11.0+cu130")
    package(site_of(folder), "ruamel.yaml", "0.18")
    found = read("torch", folder)
    assert (found.minor, found.cuda, found.base, found.links) == ("3.12", "13.0", None, ())
    assert dict(found.packages) == {"torch": "2.11.0+cu130", "ruamel-yaml": "0.18"}
    assert found.mounts == {folder: str(folder)}


def test_a_folder_of_packages_is_for_the_agents_own_python(shared: Path) -> None:
    shared.chmod(0o755)
    package(shared / "packages", "greet", "1.0")
    found = read("greet", shared / "packages")
    assert (found.minor, found.python, dict(found.packages)) == (PYTHON, None, {"greet": "1.0"})


def test_a_virtual_environment_shows_the_installation_behind_it(folder: Path, shared: Path) -> None:
    (folder / "lib/python3.12/os.py").touch()
    venv = shared / "venv"
    (venv / "bin").mkdir(parents=True)
    site_of(venv).mkdir(parents=True)
    (venv / "bin/python3").symlink_to(folder / "bin/python3")
    config = venv / "pyvenv.cfg"
    config.write_text(f"home = {folder}/bin\nversion = 3.12.3\n")
    assert list(read("venv", venv).mounts) == [folder, venv]
    for wrong in ("home = relative", f"home = {shared}", "", "home = /nowhere\x1b[2J"):
        config.write_text(wrong)
        with pytest.raises(BadRequest, match="names no Python"):
            read("venv", venv)
    config.unlink()
    with pytest.raises(BadRequest, match="leads to"):
        read("venv", venv)


def test_hostile_metadata_is_left_out(folder: Path) -> None:
    site = site_of(folder)
    package(site, "good", "1.0", "Summary: x\n\n" + "x" * 50_000_000)
    package(site, "bad-version", "not.a.version")
    package(site, "long-version", "1" * 65)
    package(site, "control\x1b[2J", "1.0")
    package(site, "n" * 101, "1.0")
    package(site, "digits", "1" * 64 + ".1")
    package(site, "dash-", "1.0")
    os.mkfifo(_metadata(site, "pipe"))
    _metadata(site, "loop").symlink_to("METADATA")
    _metadata(site, "dangling").symlink_to("/nowhere")
    _metadata(site, "device").symlink_to("/dev/zero")
    _metadata(site, "binary").write_bytes(bytes(range(256)) * 100)
    _metadata(site, "late").write_text("\n\nName: late\nVersion: 1.0\n")
    _metadata(site, "folded").write_text("Name: folded\nX: y\n Version: 1\n")
    assert set(read("x", folder).packages) == {"good"}


def _metadata(site: Path, name: str) -> Path:
    info = site / f"{name}-1.dist-info"
    info.mkdir()
    return info / "METADATA"


def test_no_more_packages_than_a_node_may_offer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offered, "PACKAGES_MAX", 3)
    for number in range(5):
        package(site_of(folder), f"p{number}", "1")
    assert len(read("x", folder).packages) == 3


def test_links_that_leave_are_shown_and_loops_do_no_harm(folder: Path, shared: Path) -> None:
    site = site_of(folder)
    (shared / "elsewhere").mkdir(mode=0o755)
    (site / "module").symlink_to(shared / "elsewhere")
    (site / "self").symlink_to("self")
    (site / "one").symlink_to("two")
    (site / "two").symlink_to("one")
    (site / "up").symlink_to("..")
    (site / "gone").symlink_to("/nowhere/at/all")
    (site / "tool").symlink_to("/usr/bin/env")
    assert read("x", folder).links == (shared / "elsewhere",)
    for number in range(offered.LINKS_MAX + 1):
        (shared / f"target{number}").mkdir()
        (site / f"link{number}").symlink_to(shared / f"target{number}")
    with pytest.raises(BadRequest, match="links"):
        read("x", folder)


def test_folders_that_are_no_environments_are_refused(folder: Path, shared: Path) -> None:
    (shared / "file").touch()
    (shared / "a:b").mkdir()
    for path, why in (
        (shared / "a:b", "PATH"),
        (shared / "nothing", "is not a folder"),
        (shared / "file", "is not a folder"),
        (shared, "neither"),
        (Path("/"), "cannot be shown"),
        (Path("/usr/lib"), "cannot be shown"),
        (Path(sys.prefix) / "../../../../../../usr", "cannot be shown"),
    ):
        with pytest.raises(BadRequest, match=why):
            read("x", path)
    for name in ("", "a b", "../x", "x\x1b[2J", "-x"):
        with pytest.raises(BadRequest, match="is not a name"):
            read(name, folder)
    (folder / "lib/python3.11/site-packages").mkdir(parents=True)
    with pytest.raises(BadRequest, match="exactly one"):
        read("x", folder)


@needs_root
def test_what_jobs_could_not_read_is_refused(folder: Path, shared: Path) -> None:
    shared.chmod(0o700)
    with pytest.raises(BadRequest, match=f"{shared} is closed to them"):
        read("x", folder)


def test_the_owners_list(folder: Path, shared: Path, data_dir: Path) -> None:
    package(site_of(folder), "greet", "1.0")
    assert environment_list.load(data_dir) == []
    environment_list.add(data_dir, "one", folder)
    with pytest.raises(Conflict, match="already"):
        environment_list.add(data_dir, "one", folder)
    [reading] = environment_list.read_all(data_dir)
    assert reading.found is not None
    (shared / "secret").mkdir(mode=0o755)
    link = site_of(folder) / "later"
    link.symlink_to(shared / "secret")
    [reading] = environment_list.read_all(data_dir)
    assert (reading.found, "other places" in reading.problem) == (None, True), (
        "a link that appeared later is not followed"
    )
    link.unlink()
    environment_list.remove(data_dir, "one")
    with pytest.raises(NotFound):
        environment_list.remove(data_dir, "one")
    (data_dir / environment_list.FILE).write_text("{")
    with pytest.raises(ComputePoolError, match="damaged"):
        environment_list.load(data_dir)


def test_an_environment_never_shows_the_nodes_own_folder(folder: Path) -> None:
    inside = folder / "share/node"
    inside.mkdir(parents=True)
    with pytest.raises(BadRequest, match="keys"):
        environment_list.add(inside, "one", folder)
