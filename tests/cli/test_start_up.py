"""Modules that a command loads, which take most of the time of a short command."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from computepool.cli.main import app
from tests.cli.conftest import Run
from tests.sdk.fake_hub import FakeHub

#: Modules that none of these commands needs.
NEVER = {"computepool.hub", "computepool.agent", "cryptography", "httpx2", "cloudpickle", "rich", "asyncio"}
NEVER |= {"packaging", "numpy", "sqlalchemy", "fastapi", "jwt"}
MODELS = {"pydantic", "computepool.protocol.base"}
LOADED = """
import json, os, sys
before = set(sys.modules)
from computepool.cli.main import main
sys.argv = ["pool", *sys.argv[1:]]
try:
    main()
finally:
    sys.stderr.write("\\n" + json.dumps(sorted(set(sys.modules) - before)))
"""


def loaded_by(*argv: str, code: str = LOADED) -> set[str]:
    done = subprocess.run([sys.executable, "-c", code, *argv], capture_output=True, text=True, check=True)
    return set(json.loads(done.stderr.splitlines()[-1]))


@pytest.mark.parametrize(
    ("argv", "absent", "modules_max"),
    [
        (["--help"], NEVER | MODELS | {"computepool.sdk", "http.client"}, 130),
        (["nodes"], NEVER | MODELS, 230),
        (["nodes", "--mine", "--json"], NEVER | MODELS, 230),
        (["jobs", "list", "--json"], NEVER | MODELS, 230),
        (["submit", "--json", "--", "true"], NEVER, 350),
    ],
    ids=["help", "nodes", "own nodes as JSON", "jobs", "submit"],
)
def test_a_short_command_loads_no_more_than_it_needs(
    hub: FakeHub, argv: list[str], absent: set[str], modules_max: int
) -> None:
    loaded = loaded_by(*argv)
    assert absent & loaded == set()
    assert len(loaded) <= modules_max


def test_connecting_loads_no_models() -> None:
    code = LOADED.replace("computepool.cli.main import main", "computepool import connect as main")
    assert (NEVER | MODELS | {"typer"}) & loaded_by(code=code) == set()


def elsewhere(group: Any, path: str = "pool") -> Iterator[tuple[str, Any, Any]]:
    for name in getattr(group, "elsewhere", ()):
        command = group.load(name)
        yield f"{path} {name}", group.commands[name], command
        yield from elsewhere(command, f"{path} {name}")


@pytest.mark.parametrize(
    ("listed", "own"),
    [pytest.param(listed, own, id=path) for path, listed, own in elsewhere(typer.main.get_command(app))],
)
def test_the_help_line_of_each_command_is_the_first_line_of_its_help(listed: Any, own: Any) -> None:
    assert listed.get_short_help_str(300) == own.get_short_help_str(300)


def test_a_mistyped_command_and_an_invalid_value_are_explained(hub: FakeHub, run: Run) -> None:
    assert "Did you mean 'nodes', 'node'?" in run("nods").err
    assert "--limit" in run("nodes", "--limit", "0").err
    assert run("nodes", "--limit", "7", "--json").code == 0
    assert hub.requests[-1][2]["limit"] == "7"
