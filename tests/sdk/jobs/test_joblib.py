"""The joblib backend, with joblib and scikit-learn."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from typing import Any

import joblib
import numpy
import pytest
from sklearn.linear_model import LogisticRegression

from computepool import JobFailed, Pool
from computepool.core.jobs.lifecycle import JobState
from computepool.sdk.client.sizes import megabytes
from computepool.sdk.jobs import joblib_backend
from tests.sdk.fake_hub import FakeHub


def inverse(number: int) -> float:
    return 1 / number


def nested(number: int) -> list[Any]:
    backend, _ = joblib.parallel.get_active_backend()
    inner = joblib.Parallel(n_jobs=2)(joblib.delayed(abs)(-n) for n in range(number))
    return [type(backend).__name__, inner]


@pytest.fixture(autouse=True)
def _own_pool(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection for contexts without `pool=`."""
    monkeypatch.setattr(joblib_backend, "_default", pool)


@pytest.mark.soak
@pytest.mark.parametrize("order", [("computepool", "joblib"), ("joblib", "computepool")])
def test_the_backend_is_registered_in_any_order_of_imports(order: tuple[str, str]) -> None:
    """Importing computepool loads neither joblib nor the SDK."""
    code = f"""
import sys, {order[0]}
if {order[0]!r} == "computepool":
    assert not {{"joblib", "computepool.sdk", "numpy"}} & set(sys.modules), set(sys.modules)
import {order[1]}, joblib
try:
    joblib.parallel_backend("computepool", nonsense=1)
except TypeError as error:
    print(error)
"""
    env = {"COMPUTEPOOL_HUB": "http://127.0.0.1:9", "COMPUTEPOOL_KEY": "cp_none", "HOME": "/nonexistent"}
    done = subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True)
    assert "'nonsense' is not a job option" in done.stdout


def test_calls_become_jobs_of_a_group_and_return_in_order(hub: FakeHub, pool: Pool) -> None:
    with joblib.parallel_backend("computepool", n_jobs=3, cores=2, env={"A": "1"}):
        assert joblib.Parallel()(joblib.delayed(inverse)(n) for n in range(1, 200)) == [1 / n for n in range(1, 200)]
    assert [group.name for group in hub.groups.values()] == ["joblib"]
    assert sum(job["item"].bundled for job in hub.jobs.values()) == 199
    spec = next(iter(hub.jobs.values()))["request"].spec
    assert (spec.needs.cores, spec.env["A"], spec.env["OMP_NUM_THREADS"]) == (2, "1", "2")
    assert f"joblib=={joblib.__version__}" in spec.dependencies
    assert f"numpy=={numpy.__version__}" in spec.dependencies


def test_the_backend_takes_job_options(hub: FakeHub, pool: Pool) -> None:
    with joblib.parallel_config(backend="computepool", pool=pool, n_jobs=2, dependencies=[], ram="1GB"):
        assert joblib.Parallel()(joblib.delayed(abs)(-n) for n in range(3)) == [0, 1, 2]
    spec = next(iter(hub.jobs.values()))["request"].spec
    assert (spec.dependencies, spec.needs.ram_mb) == ([], megabytes("1GB", what="ram"))


@pytest.mark.parametrize(("options", "sent"), [({}, "none"), ({"verify": "quorum:2"}, "quorum:2")])
def test_results_are_verified_only_on_request(hub: FakeHub, options: dict[str, Any], sent: str) -> None:
    """Those of scikit-learn contain the time that each fit took."""
    with joblib.parallel_backend("computepool", n_jobs=2, **options):
        joblib.Parallel()([joblib.delayed(abs)(-1)])
    assert next(iter(hub.jobs.values()))["request"].verify == sent


def test_a_failing_call_raises_its_exception_and_cancels_the_rest(hub: FakeHub, pool: Pool) -> None:
    with joblib.parallel_backend("computepool", n_jobs=2), pytest.raises(ZeroDivisionError) as raised:
        joblib.Parallel()(joblib.delayed(inverse)(n) for n in range(5, -500, -1))
    assert isinstance(raised.value, JobFailed)
    assert "in inverse" in (raised.value.remote_error or "")
    states = Counter(job["state"] for job in hub.jobs.values())
    assert states[JobState.SUCCEEDED] + states[JobState.FAILED] < 200


def test_an_abort_cancels_all_jobs_and_the_next_call_works(hub: FakeHub, pool: Pool) -> None:
    backend = joblib_backend.ComputePoolBackend(pool=pool)
    nested = backend.get_nested_backend()
    hub.hold = True
    open_calls = [backend.submit(joblib.parallel.BatchedCalls([(abs, (-n,), {})], nested)) for n in range(3)]
    assert pool.flush()
    backend.abort_everything()
    with hub.lock:
        ended = lambda: [job["state"] for job in hub.jobs.values()] == [JobState.CANCELLED] * 3  # noqa: E731
        assert hub.lock.wait_for(ended, 60)
    hub.hold = False
    again = backend.submit(joblib.parallel.BatchedCalls([(abs, (-7,), {})], nested))
    assert again.result(60) == [7]
    assert len(open_calls) == 3
    backend.terminate()


def test_an_argument_that_cannot_be_sent_raises(pool: Pool) -> None:
    generator = (n for n in range(3))
    with joblib.parallel_backend("computepool", n_jobs=2), pytest.raises(Exception, match="Cannot send"):
        joblib.Parallel()(joblib.delayed(list)(item) for item in [[1], [2], generator, [3]])


def test_results_that_need_pickle_require_allow_pickle(hub: FakeHub, pool: Pool) -> None:
    model = joblib.delayed(LogisticRegression)()
    with joblib.parallel_backend("computepool", n_jobs=2), pytest.raises(Exception, match="allow_pickle=True"):
        joblib.Parallel()([model, model])
    with joblib.parallel_backend("computepool", n_jobs=2, allow_pickle=True):
        (first, _) = joblib.Parallel()([model, model])
    assert isinstance(first, LogisticRegression)


@pytest.mark.parametrize(("cores", "backend"), [(1, "SequentialBackend"), (2, "ThreadingBackend")])
def test_nested_calls_run_on_the_same_node(hub: FakeHub, pool: Pool, cores: int, backend: str) -> None:
    with joblib.parallel_backend("computepool", n_jobs=2, cores=cores):
        found = joblib.Parallel()(joblib.delayed(nested)(n) for n in (3, 4))
    assert found == [[backend, [0, 1, 2]], [backend, [0, 1, 2, 3]]]
