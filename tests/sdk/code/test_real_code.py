"""Typical code on a real node: maps with misbehaving items, scikit-learn, and local modules."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import joblib
import numpy
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score

from computepool import JobFailed, Pool, outputs
from computepool.core.jobs.lifecycle import Reason
from computepool.sdk.files.fetching import fetch_group
from computepool.testing.processes import RealPool

pytestmark = pytest.mark.process

ENDS = {11: Reason.SIGNAL, 42: Reason.TIMEOUT, 43: Reason.OUT_OF_MEMORY, 70: Reason.EXCEPTION, 71: Reason.EXCEPTION}


def misbehaving(number: int) -> Any:
    import os
    import time

    if number == 11:
        os.kill(os.getpid(), 9)
    if number == 42:
        time.sleep(60)
    if number == 43:
        raise MemoryError
    if number == 70:
        raise KeyError(number)
    if number == 71:
        return object()
    return number


def writing(number: int) -> int:
    if number % 40 == 0:
        (outputs() / "note.txt").write_text(str(number))
    return number


@pytest.fixture(scope="module")
def real() -> Iterator[Pool]:
    with RealPool() as pool:
        pool.start_hub()
        pool.start_agent()
        yield pool.client()


def test_only_the_misbehaving_items_fail(real: Pool, tmp_path: Path) -> None:
    results = list(
        real.map(misbehaving, range(100), chunksize=50, timeout=5, retries=1, return_exceptions=True, progress=False)
    )
    bad = {place: result for place, result in enumerate(results) if isinstance(result, JobFailed)}
    assert {place: error.reason for place, error in bad.items()} == ENDS
    assert isinstance(bad[70], KeyError)
    assert [result for result in results if not isinstance(result, JobFailed)] == [
        number for number in range(100) if number not in ENDS
    ]
    group = real.groups.list(limit=1)[0]
    assert group.counts == {"succeeded": 100 - len(ENDS), "failed": len(ENDS)}
    # A later reader finds each item once, by its number, whichever job it ran in last.
    collector = real.groups.collector(group)
    good = {str(number): number for number in range(100) if number not in ENDS}
    assert dict(collector.values()) == dict(collector.summary().results) == good
    assert sorted(item.key or "" for item in collector.items("results")) == sorted(good)
    assert sorted(int(item.key or "") for item in collector.items("failures")) == sorted(ENDS)
    assert {int(key) for key in collector.summary().failures} == set(ENDS)
    assert len(list(collector.items())) == fetch_group(real, group.id, tmp_path).items == 100
    lines = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert sorted(int(line["key"]) for line in lines) == list(range(100))


@pytest.mark.soak
def test_a_map_in_which_every_item_raises_has_only_failures(real: Pool) -> None:
    for retries in (0, 1):
        list(real.map(int, ["x"] * 20, chunksize=10, retries=retries, return_exceptions=True, progress=False))
        assert real.groups.list(limit=1)[0].counts == {"failed": 20}


@pytest.mark.soak
def test_each_item_has_its_own_output_files(real: Pool) -> None:
    run = real.map(writing, range(120), chunksize=60, progress=False)
    assert list(run) == list(range(120))
    jobs = [real.jobs.get(job.id) for job in real.jobs.list(group_id=run.group_id, limit=500)]
    files = [job.outputs for job in jobs if job.outputs]
    assert [len(names) for names in files] == [1, 1, 1]


@pytest.mark.soak
def test_grid_search_finds_the_same_as_locally(real: Pool) -> None:
    """The node uses the local installation of scikit-learn."""
    features, classes = load_iris(return_X_y=True)
    model = LogisticRegression(max_iter=200)
    search = GridSearchCV(model, {"C": [0.01, 0.1, 1.0], "tol": [1e-3, 1e-4]}, cv=3)
    here = dict(search.fit(features, classes).cv_results_)
    scores_here = cross_val_score(model, features, classes, cv=4)
    options = {"dependencies": [], "env": {"PYTHONPATH": ":".join(filter(None, sys.path))}, "ram": "1GB"}
    with joblib.parallel_backend("computepool", pool=real, **options):
        search.fit(features, classes)
        scores = cross_val_score(model, features, classes, cv=4)
    for key in ("mean_test_score", "rank_test_score", "split2_test_score"):
        numpy.testing.assert_allclose(search.cv_results_[key], here[key])
    numpy.testing.assert_allclose(scores, scores_here)
    groups = [group for group in real.groups.list(limit=10) if group.name == "joblib"]
    assert [group.total for group in groups] == [4, 18]


def test_local_modules_work_on_a_node_and_tracebacks_show_their_code(
    real: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "beside_the_code.py").write_text("def inverse(x):\n    return 1 / x  # in the module\n")
    (tmp_path / "script.py").write_text("import beside_the_code\nprint(beside_the_code.inverse(4))\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    def work(number: int) -> Any:
        import beside_the_code  # type: ignore[import-not-found]

        return beside_the_code.inverse(number)  # in the function

    assert real.run(tmp_path / "script.py").output == "0.25\n"
    assert real.submit(work, 4).result(60) == 0.25
    error = real.submit(work, 0).exception(60)
    assert isinstance(error, ZeroDivisionError)
    assert "# in the module" in str(error)
    assert "# in the function" in str(error)
    (bundled, _) = real.map(work, [0, 1], chunksize=2, return_exceptions=True, progress=False)
    assert "# in the function" in str(bundled)
