"""What a function raised elsewhere is raised here: the same kind where it is Python's own, with its traceback, and picklable."""

from __future__ import annotations

import builtins
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from computepool import JobFailed, Pool
from computepool.core.jobs.lifecycle import JobState, Reason
from computepool.protocol.jobs.jobs import JobResult
from computepool.sdk.errors import ResultUnreadable, job_error, raised_error
from computepool.sdk.jobs.outcome import read_value

#: Kinds that mean something to the interpreter, or cannot be made from a sentence.
PLAIN = (StopIteration, StopAsyncIteration, SyntaxError, MemoryError, BaseExceptionGroup, Warning)
KINDS = [
    kind
    for kind in vars(builtins).values()
    if isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, PLAIN)
    and kind not in (UnicodeDecodeError, UnicodeEncodeError, UnicodeTranslateError)
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_pythons_own_exceptions_keep_their_kind_also_through_pickle(kind: type[Exception]) -> None:
    error = raised_error("job_1", f"Traceback (most recent call last):\n  File x\n{kind.__name__}: why\nmore")
    for one in (error, pickle.loads(pickle.dumps(error))):
        assert isinstance(one, kind)
        assert isinstance(one, JobFailed)
        assert (one.job_id, one.reason, one.remote_error) == ("job_1", "exception", error.remote_error)
        assert "why\nmore" in str(one)


@pytest.mark.parametrize(
    "name", ["StopIteration", "SystemExit", "KeyboardInterrupt", "SyntaxError", "print", "mine.Own", "Own"]
)
def test_others_are_plain_failures(name: str) -> None:
    error = raised_error("job_1", f"Traceback\n{name}: why")
    assert type(error) is JobFailed
    assert type(pickle.loads(pickle.dumps(error))) is JobFailed


def test_a_package_that_the_node_lacks_is_named_with_what_to_pass() -> None:
    said = "Traceback (most recent call last):\n  File x\nModuleNotFoundError: No module named 'numpy.linalg'"
    error = raised_error("job_1", said)
    assert f"dependencies=['numpy=={np.__version__}']" in str(error)
    assert error.remote_error == said, "the node's words stay the node's"
    assert "dependencies=" not in str(raised_error("job_1", "ValueError: No module named 'numpy'"))
    assert "dependencies=" not in str(
        raised_error("job_1", "ModuleNotFoundError: No module named '; rm -rf'")
    )


@given(st.text())
def test_whatever_a_node_says_is_an_error_that_can_be_shown_and_pickled(text: str) -> None:
    error = raised_error("job_1", text)
    assert isinstance(error, JobFailed)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_result_that_is_no_longer_kept_is_not_taken_for_none(pool: Pool) -> None:
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


def test_it_can_be_caught_by_its_kind(pool: Pool) -> None:
    with pytest.raises(KeyError) as caught:
        pool.submit(look_up).result(10)
    assert "in look_up" in str(caught.value)
    assert "KeyError: 'nothing'" in str(caught.value)
