"""`pool volume` with a real hub."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from computepool.sdk.client.config import Config, save_config
from computepool.sdk.pool import connect
from tests.cli.conftest import Run, reply
from tests.hub.serving import serving


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Config]:
    with serving(tmp_path_factory.mktemp("hub")) as hub:
        yield Config(hub=f"http://{hub.address[0]}:{hub.address[1]}", key=hub.key)


@pytest.fixture
def folder(tmp_path: Path, config: Config) -> Iterator[Path]:
    """With one file; and a hub without volumes, to which the command line is signed in."""
    made = tmp_path / "folder"
    (made / "d").mkdir(parents=True)
    (made / "d" / "a.txt").write_text("one")
    save_config(config)
    yield made
    with connect() as pool:
        for one in pool.volumes.list():
            pool.volumes.remove(one.name)


def test_a_folder_is_put_fetched_and_rolled_back(folder: Path, tmp_path: Path, run: Run) -> None:
    assert reply(run("volume", "create", "data", "--json"))["head"] == 0
    assert reply(run("volume", "put", "data", folder, "--json"))["outcome"] == "head"
    assert reply(run("volume", "put", "data", folder, "--json"))["outcome"] == "unchanged"
    (folder / "d" / "a.txt").write_text("two")
    (folder / "out").symlink_to("/etc/passwd")
    put = run("volume", "put", "data", folder)
    assert (put.code, put.out) == (0, "data: version 2 is the head (3 B in 1 files)\n")
    assert "Not kept: out: is a link that leads out of the volume" in put.err
    for arguments, text in ((("--version", 1), "one"), ((), "two")):
        assert run("volume", "get", "data", tmp_path / text, *arguments).code == 0
        assert (tmp_path / text / "d" / "a.txt").read_text() == text
    assert reply(run("volume", "rollback", "data", 1, "--json"))["head"] == 1
    states = [(one["number"], one["is_head"]) for one in reply(run("volume", "versions", "data", "--json"))]
    assert states == [(2, False), (1, True)]
    assert reply(run("volume", "list", "--json"))[0]["versions"] == 2
    assert "version 1" in run("volume", "show", "data").out
    assert run("volume", "remove", "data").code == 2, "without a terminal it needs --yes"
    assert run("volume", "remove", "data", "--yes").code == 0
    assert run("volume", "show", "data").code == 2


def test_a_head_that_moved_is_a_conflict_and_an_error(folder: Path, run: Run) -> None:
    run("volume", "create", "data")
    with connect() as pool:
        pool.volumes.put("data", folder)
        (folder / "d" / "a.txt").write_text("mine")

        def meanwhile() -> None:
            """Another change, after this one was read and before it is published."""
            (folder / "d" / "a.txt").write_text("theirs")
            pool.volumes.put("data", folder)

        made = pool.volumes.put("data", folder, progress=lambda done, total: meanwhile() if done == total else None)
    assert (made.outcome, made.version.number) == ("conflict", 3)
    listed = run("volume", "versions", "data")
    assert "version 3 started from 1, but the head is 2" in listed.err
    assert "pool volume rollback data 3" in listed.err


def test_bad_input_gets_a_sentence(folder: Path, tmp_path: Path, run: Run) -> None:
    run("volume", "create", "data")
    said = {
        ("volume", "create", "data"): "You already have a volume named data",
        ("volume", "create", "No"): "name:",
        ("volume", "put", "data", tmp_path / "none"): "is not a folder",
        ("volume", "put", "other", folder): "You have no volume named other",
        ("volume", "get", "data", tmp_path / "x"): "is empty",
        ("volume", "get", "data", tmp_path / "x", "--version", 5): "no version 5",
        ("volume", "rollback", "data", 5): "no version 5",
        ("submit", "--volume", "data", "--", "true"): "is not NAME:/path",
        ("submit", "--volume", "data:/usr", "--", "true"): "overlaps a folder of the sandbox",
        ("submit", "--volume", "data:/d:rx", "--", "true"): "is not NAME:/path",
        ("submit", "--volume", "none:/d", "--", "true"): "You have no volume named none",
    }
    for arguments, sentence in said.items():
        ran = run(*arguments)
        assert ran.code == 2, arguments
        assert sentence in ran.err
        assert "Traceback" not in ran.err
    assert run("volume", "put", "data", folder).code == 0
    full = run("volume", "get", "data", folder)
    assert (full.code, "not an empty folder" in full.err) == (2, True)
