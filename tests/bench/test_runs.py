"""Every part of the benchmark runs. The numbers mean nothing here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import processes
from bench.children import ROOT, result_of
from bench.comparison import QUESTIONS
from bench.ours import LONG_MODULES, MODULES, SIZES, measure
from bench.table import Figure

pytestmark = [pytest.mark.process, pytest.mark.soak]


#: Those that start no agent; hubs and agents of the others are forked, which is quicker.
APART = ("allocation", "nodes")


@pytest.mark.parametrize("name", [name for name in (*MODULES, *LONG_MODULES) if name not in APART])
def test_our_figures(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "FRESH", False)
    for constant, value in SIZES["tiny"][name].items():
        monkeypatch.setattr(f"bench.{name}.{constant}", value)  # which `measure` does for good
    figures = measure(name, "tiny")
    # The cost of the hub without sockets compares versions; its target is that of `throughput`.
    assert any(figure.target is not None for figure in figures) or name == "hub_cost"
    if name in ("throughput", "groups"):
        # Else the peers' numbers would silently stand beside nothing.
        asked = {question.ours for question in QUESTIONS if (name == "groups") is ("map" in question.ours)}
        assert asked
        assert asked <= {figure.name for figure in figures}


@pytest.mark.parametrize("name", APART)
def test_figures_come_from_a_process_of_their_own(name: str) -> None:
    found = result_of([sys.executable, "-m", "bench.ours", name, "tiny"], limit_s=240)
    assert any(Figure(**figure).target is not None for figure in found["figures"])


def test_the_command_prints_the_floors_and_writes_them(tmp_path: Path) -> None:
    asked = ["--quick", "--no-peers", "--patience", "0", "--only", "floors", "--json", str(tmp_path / "found.json")]
    done = subprocess.run([sys.executable, "-m", "bench", *asked], cwd=ROOT, check=True, capture_output=True, text=True)
    assert "others used" in done.stdout
    assert "is a tie" in done.stdout
    found = json.loads((tmp_path / "found.json").read_text())
    pool, plain, boxed = found["systems"]
    assert pool["calls_per_s"][0] > 0
    assert pool["call_p50_ms"] > 0
    assert plain["processes_per_s"][0] > 0
    assert boxed["boxed_per_s"][0] > 0
    assert [section["name"] for section in found["sections"]] == ["floors"]
