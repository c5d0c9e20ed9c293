"""`pool jobs show` of a job whose result was proven wrong."""

from __future__ import annotations

import pytest

from computepool.core.money.money import CREDIT
from computepool.protocol.jobs.jobs import CorrectedResult
from tests.cli.conftest import Run
from tests.sdk.fake_hub import FakeHub


def test_a_wrong_result_is_shown_with_the_right_one(
    hub: FakeHub, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = run("submit", "--", "echo", "one").out.strip()
    right = {"result": '"right"', "outputs": [{"name": "out.txt", "size": 5, "digest": "d" * 64}]}
    told = {
        "verify": "adaptive",
        "verdict": "refuted",
        "hold": 3 * CREDIT,
        "charge": 2 * CREDIT,
        "taken_back": 2 * CREDIT,
        "corrected": CorrectedResult.model_validate(right),
    }
    as_it_was = hub.view(job_id)
    monkeypatch.setattr(hub, "view", lambda _: as_it_was.model_copy(update=told))
    shown = run("jobs", "show", job_id).out
    assert "WRONG" in shown
    assert "; 2.00 refunded later" in shown
    assert '"right"' in shown
    assert f"out.txt\t5 B\t{'d' * 64}" in shown
