"""The runtime of jobs by command line: shown, carried to another machine, and put back."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from computepool.agent.sandbox.runtime import tree
from computepool.agent.sandbox.scratch import remove_tree
from computepool.cli.node.runtime import app


@pytest.fixture
def ground() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="computepool-runtimes-", dir="/tmp"))
    yield folder
    remove_tree(folder)


def call(*words: object) -> Any:
    ran = CliRunner().invoke(app, [*map(str, words), "--json"], catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    return json.loads(ran.output)


@pytest.mark.soak
def test_carried_elsewhere_and_put_back(ground: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "_FOLDERS", ())  # Fewer files; what is in it does not matter here.
    here, there, file = ground / "here", ground / "there", ground / "runtime.tar"
    made = call("show", "--data", here)
    assert len(made["digest"]) == 64
    assert made["files"] > 1000
    assert call("export", file, "--data", here)["digest"] == made["digest"]
    monkeypatch.setattr(tree, "_PROGRAMS", ("sh",))  # A machine with other programs.
    own = call("show", "--data", there)
    assert own["digest"] != made["digest"]
    assert call("import", file, "--data", there)["digest"] == made["digest"]
    assert call("show", "--data", there)["digest"] == made["digest"]
    assert call("reset", "--data", there)["digest"] == own["digest"]


def test_a_damaged_file_is_refused(ground: Path) -> None:
    (ground / "runtime.tar").write_bytes(b"no tar" * 1000)
    ran = CliRunner().invoke(app, ["import", str(ground / "runtime.tar"), "--data", str(ground)])
    assert ran.exit_code != 0
    assert "not an exported runtime" in str(ran.exception)
