"""`pool node env` and `pool node cache` on a machine whose node does not run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from computepool.agent.storage.cache_usage import FACTS
from computepool.sdk.client.config import node_folder
from tests.agent.packages.local_index import wheel
from tests.agent.packages.venvs import install
from tests.cli.conftest import Run, reply


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    folder = tmp_path / "packages"
    install(folder, wheel("greet", {"greet.py": ""}))
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755)
    while folder != folder.parent:  # pytest's own folders are closed to others
        folder.chmod(folder.stat().st_mode | 0o011)
        folder = folder.parent
    return tmp_path / "packages"


def test_an_environment_is_added_listed_and_removed(run: Run, packages: Path) -> None:
    added = reply(run("node", "env", "add", "greeting", packages, "--json"))
    assert (added["packages"], added["reads"], added["offered"]) == ({"greet": "1.0"}, [str(packages)], False)
    [listed] = reply(run("node", "env", "list", "--json"))
    assert (listed["name"], listed["path"], listed["problem"]) == ("greeting", str(packages), "")
    again = run("node", "env", "add", "greeting", packages)
    assert again.code != 0
    assert "already" in again.err
    assert run("node", "env", "remove", "greeting").out == "greeting is no longer offered.\n"
    gone = run("node", "env", "remove", "greeting")
    assert gone.code != 0
    assert "no environment" in gone.err


def test_what_is_no_environment_is_refused_in_one_sentence(run: Run, tmp_path: Path) -> None:
    for path in (tmp_path / "nothing", tmp_path, "/usr"):
        refused = run("node", "env", "add", "x", path)
        assert refused.code != 0
        assert len(refused.err.strip().splitlines()) == 1, refused.err
    assert reply(run("node", "env", "list", "--json")) == []


def test_a_lock_file_waits_for_the_node(run: Run, tmp_path: Path) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text("greet==1.0\n")
    assert "when it starts" in run("node", "env", "add", "ml", lock).out
    [listed] = reply(run("node", "env", "list", "--json"))
    assert listed["problem"] == "its packages are not installed yet"
    lock.write_text("greet>=1.0\n")
    refused = run("node", "env", "add", "other", lock)
    assert refused.code != 0
    assert "exact version" in refused.err


def test_the_cache_is_listed_and_cleared_by_kind(run: Run) -> None:
    cache = node_folder(None) / "cache"
    made = cache / "environments" / f"{'0' * 32}-{'1' * 16}"
    made.mkdir(parents=True)
    (made / FACTS).write_text(json.dumps({"label": "torch\x1b[2J", "took_ms": 90_000}))
    (cache / "environments/.building-x").mkdir()
    (cache / "artifacts").mkdir()
    (cache / "artifacts" / ("a" * 64)).write_bytes(bytes(10_000))
    found = {entry["kind"]: entry for entry in reply(run("node", "cache", "list", "--json"))}
    assert found.keys() == {"packages", "inputs"}
    assert (found["packages"]["took_ms"], found["inputs"]["size"]) == (90_000, 10_000)
    assert "\x1b" not in run("node", "cache", "list").out
    assert reply(run("node", "cache", "list", "--kind", "pythons", "--json")) == []
    assert run("node", "cache", "clear", "--kind", "inputs").code == 0
    assert [entry["kind"] for entry in reply(run("node", "cache", "list", "--json"))] == ["packages"]
    unknown = run("node", "cache", "clear", "--kind", "everything")
    assert unknown.code != 0
    assert "inputs, packages, pythons" in unknown.err
    assert run("node", "cache", "clear").code == 0
    assert reply(run("node", "cache", "list", "--json")) == []
