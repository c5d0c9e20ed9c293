"""`pool submit --compare`: a method by name, or a function in a file."""

from __future__ import annotations

import pickle
from base64 import b64decode
from pathlib import Path

import pytest

from computepool.cli.options import comparison
from computepool.sdk import BadRequest, connect
from tests.cli.conftest import Run
from tests.sdk.fake_hub import FakeHub

FILE = """
LEAST = 0.5
def same(a, b):
    return difference(a, b) < LEAST
def difference(a, b):
    return abs(a - b)
"""


def test_a_function_in_a_file_is_sent_with_everything_it_uses(tmp_path: Path) -> None:
    file = tmp_path / "same.py"
    file.write_text(FILE)
    function = comparison(f"{file}:same")
    assert callable(function)
    terms = connect("http://127.0.0.1:1", "cp_test").options(verify="quorum:2", compare=function).terms
    sent = terms["compare_function"]
    assert (terms["verify"], sent["python"][:2]) == ("quorum:2", "3.")
    file.unlink()
    there = pickle.loads(b64decode(sent["function"]))
    assert (there(1.0, 1.2), there(1.0, 2.0)) == (True, False)


def test_a_method_is_sent_by_name() -> None:
    pool = connect("http://127.0.0.1:1", "cp_test")
    assert pool.options(compare="tolerance:1e-6").terms["compare"] == "tolerance:1e-6"
    with pytest.raises(BadRequest, match="tolerance:1e-6"):
        assert pool.options(compare="tolerance:x").terms
    with pytest.raises(BadRequest, match="not callable"):
        assert pool.options(compare=3).terms  # type: ignore[arg-type]


@pytest.mark.soak
def test_an_invalid_comparison_is_refused_before_submission(hub: FakeHub, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "same.py"
    file.write_text(FILE)
    broken = tmp_path / "broken.py"
    broken.write_text("def same(:")
    for compare, message in (
        ("near", "tolerance:1e-6"),
        (f"{file}:other", "no function 'other'"),
        (f"{file}:LEAST", "no function 'LEAST'"),
        (f"{tmp_path}/nowhere.py:same", "No such file"),
        (f"{broken}:same", "SyntaxError"),
    ):
        done = run("submit", "--verify", "quorum:2", "--compare", compare, "--", "true")
        assert done.code == 2, done
        assert message in " ".join(done.err.replace("│", " ").split())
    assert hub.count("POST", "/jobs") == 0
    assert run("submit", "--verify", "quorum:2", "--compare", f"{file}:same", "--", "true").code == 0
    assert hub.count("POST", "/jobs") == 1
