"""`pool node runtime`: show, export, import and reset."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from computepool.agent.sandbox.runtime import tree
from computepool.agent.sandbox.scratch import remove_tree
from tests.cli.conftest import Run, reply


@pytest.fixture
def ground() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="computepool-runtimes-", dir="/tmp"))
    yield folder
    remove_tree(folder)


@pytest.mark.soak
def test_a_runtime_is_exported_imported_and_reset(ground: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def call(*arguments: object) -> Any:
        return reply(run("node", "runtime", *arguments, "--json"))

    monkeypatch.setattr(tree, "_FOLDERS", ())  # fewer files
    here, there, file = ground / "here", ground / "there", ground / "runtime.tar"
    made = call("show", "--data", here)
    assert len(made["digest"]) == 64
    assert made["files"] > 1000
    assert call("export", file, "--data", here)["digest"] == made["digest"]
    monkeypatch.setattr(tree, "_PROGRAMS", ("sh",))  # a machine with other programs
    own = call("show", "--data", there)
    assert own["digest"] != made["digest"]
    assert call("import", file, "--data", there)["digest"] == made["digest"]
    assert call("show", "--data", there)["digest"] == made["digest"]
    assert call("reset", "--data", there)["digest"] == own["digest"]


def test_a_damaged_runtime_is_refused(ground: Path, run: Run) -> None:
    (ground / "runtime.tar").write_bytes(b"no tar" * 1000)
    ran = run("node", "runtime", "import", ground / "runtime.tar", "--data", ground)
    assert ran.code != 0
    assert "not an exported runtime" in ran.err
