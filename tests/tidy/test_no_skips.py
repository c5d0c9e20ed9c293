"""A skipped test is a failure where CI=true, and only there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT

SKIPS = {
    "mark": "@pytest.mark.skip(reason='no GPU')\ndef test_it(): pass",
    "call": "def test_it(): pytest.skip('no GPU')",
    "fixture": "@pytest.fixture\ndef gpu(): pytest.skip('no GPU')\ndef test_it(gpu): pass",
    "module": "pytest.skip('no GPU', allow_module_level=True)",
    "xfail": "@pytest.mark.xfail(reason='no GPU')\ndef test_it(): assert False",
}


def run(folder: Path, body: str, *, ci: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_sample.py").write_text(f"import pytest\n{body}\n\ndef test_other(): pass\n")
    (folder / "pytest.ini").write_text("[pytest]\n")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.no_skips", "-p", "no:cacheprovider", "-q", str(folder)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "CI": ci, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        check=False,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("kind", SKIPS)
def test_a_skip_fails_in_ci(tmp_path: Path, kind: str) -> None:
    done = run(tmp_path, SKIPS[kind], ci="true")
    assert done.returncode != 0, done.stdout
    assert "CI=true allows no skips" in done.stdout
    assert "no GPU" in done.stdout


@pytest.mark.soak
def test_a_skip_is_allowed_elsewhere(tmp_path: Path) -> None:
    done = run(tmp_path, SKIPS["call"], ci="")
    assert done.returncode == 0, done.stdout
    assert "1 passed, 1 skipped" in done.stdout


def test_other_tests_are_left_alone(tmp_path: Path) -> None:
    assert run(tmp_path, "", ci="true").returncode == 0
