"""Errors of remote functions: of the same built-in type, with the remote traceback, and picklable."""

from __future__ import annotations

import builtins
import pickle

import numpy as np
import pytest
from hypothesis import given, strategies as st

from computepool import JobFailed, Pool
from computepool.core.jobs.lifecycle import JobState, Reason
from computepool.protocol.jobs.views import JobResult
from computepool.sdk.errors import ResultUnreadable, job_error, raised_error
from computepool.sdk.jobs.outcome import read_value

#: Exceptions with a special meaning for the interpreter, or with other arguments.
PLAIN = (StopIteration, StopAsyncIteration, SyntaxError, MemoryError, BaseExceptionGroup, Warning)
KINDS = [
    kind
    for kind in vars(builtins).values()
    if isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, PLAIN)
    and kind not in (UnicodeDecodeError, UnicodeEncodeError, UnicodeTranslateError)
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_built_in_exception_keeps_its_type_even_when_pickled(kind: type[Exception]) -> None:
    error = raised_error("job_1", f"Traceback (most recent call last):\n  File x\n{kind.__name__}: why\nmore")
    for one in (error, pickle.loads(pickle.dumps(error))):
        assert isinstance(one, kind)
        assert isinstance(one, JobFailed)
        assert (one.job_id, one.reason, one.remote_error) == ("job_1", "exception", error.remote_error)
        assert "why\nmore" in str(one)


@pytest.mark.parametrize(
    "name", ["StopIteration", "SystemExit", "KeyboardInterrupt", "SyntaxError", "print", "mine.Own", "Own"]
)
def test_any_other_exception_is_a_plain_job_failure(name: str) -> None:
    error = raised_error("job_1", f"Traceback\n{name}: why")
    assert type(error) is JobFailed
    assert type(pickle.loads(pickle.dumps(error))) is JobFailed


def test_a_missing_package_is_named_with_the_option_to_pass() -> None:
    text = "Traceback (most recent call last):\n  File x\nModuleNotFoundError: No module named 'numpy.linalg'"
    error = raised_error("job_1", text)
    assert f"dependencies=['numpy=={np.__version__}']" in str(error)
    assert error.remote_error == text, "the node's report is unchanged"
    assert "dependencies=" not in str(raised_error("job_1", "ValueError: No module named 'numpy'"))
    assert "dependencies=" not in str(raised_error("job_1", "ModuleNotFoundError: No module named '; rm -rf'"))


@given(st.text())
def test_any_text_of_a_node_becomes_an_error_that_can_be_pickled(text: str) -> None:
    error = raised_error("job_1", text)
    assert isinstance(error, JobFailed)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_deleted_result_is_an_error_rather_than_none(pool: Pool) -> None:
    gone = JobResult(
        seq=1, job_id="job_1", state=JobState.SUCCEEDED, reason=Reason.COMPLETED, result=None, dropped=True
    )
    error = job_error(gone)
    assert isinstance(error, ResultUnreadable)
    assert "no longer kept" in str(error)
    with pytest.raises(ResultUnreadable):
        read_value(pool, gone, allow_pickle=False)
    with pytest.raises(ResultUnreadable):
        pool.groups.read(gone)


def look_up() -> None:
    {}["nothing"]


def test_a_remote_exception_can_be_caught_by_its_type(pool: Pool) -> None:
    with pytest.raises(KeyError) as caught:
        pool.submit(look_up).result(60)
    assert "in look_up" in str(caught.value)
    assert "KeyError: 'nothing'" in str(caught.value)
