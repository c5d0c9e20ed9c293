"""Groups of job classes: registration, submission, refusal and continuation."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from computepool import ComputeJob, ComputeJobState, Pool, submit_compute_job_group
from computepool.core.errors import BadRequest, InsufficientCredits, OutOfSpace, QuotaExceeded, RateLimited
from computepool.sdk.classes import job_groups
from computepool.sdk.errors import HubUnreachable
from computepool.testing.processes import RealPool
from computepool.testing.waiting import wait_until
from tests.sdk.conftest import NODE

pytestmark = [pytest.mark.process, pytest.mark.filterwarnings("ignore:.*is the home and the only host")]


@dataclass
class LengthState(ComputeJobState):
    text: str = ""


class Length(ComputeJob[LengthState]):
    def run_compute_job(self) -> None:
        if not self.state.text:
            raise ValueError("nothing to measure")
        if "file" in self.state.text:
            path = self.work_dir() / "text.txt"
            path.write_text(self.state.text)
            self.report_compute_artifact(path, result=self.build_result_payload())

    def build_result_payload(self) -> dict[str, Any]:
        return {"length": len(self.state.text), "home": self.state.home_host_name}


@pytest.fixture
def pool(class_pool: RealPool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Pool:
    monkeypatch.setenv("COMPUTEPOOL_DATA", str(tmp_path / "data"))
    monkeypatch.delenv("COMPUTEPOOL_HOME_HOST", raising=False)
    return class_pool.client()


def states(count: int = 3, **wishes: Any) -> list[LengthState]:
    return [LengthState(job_key=f"key-{n}", text="x" * (n + 1), **wishes) for n in range(count)]


def test_every_key_has_one_outcome_and_reports_have_files(pool: Pool, tmp_path: Path) -> None:
    """Missing keys are assigned, and a failed job is an outcome, too."""
    given = [
        LengthState(job_key="good", text="four"),
        LengthState(job_key="bad"),
        LengthState(text="a file", required_host_tags=("linux",)),
    ]
    made = submit_compute_job_group(pool, Length, given, return_home_when_complete=False, name="lengths")
    assert (sorted(made.job_ids), made.failures) == (["bad", "good", "job-3"], {})
    summary = made.drain(60)
    assert (summary.name, summary.succeeded, summary.failed, summary.pending) == ("lengths", 2, 1, 0)
    assert list(summary.failures) == ["bad"]
    assert "ValueError: nothing to measure" in summary.failures["bad"]
    assert {key: payload["length"] for key, payload in summary.results.items()} == {"good": 4, "job-3": 6}
    assert (dict(summary.waiting), repr(summary.failures)) == ({}, "<1 failures: 'bad'>")
    reports = {report.key: report for report in made.reports()}
    assert {key: report["length"] for key, report in reports.items()} == {"good": 4, "job-3": 6}
    assert [path.read_text() for path in reports["job-3"].download(tmp_path)] == ["a file"]
    assert given[2].job_key == "", "the caller's states are unchanged"


@pytest.mark.soak
def test_keys_are_registered_before_any_job_and_specs_are_shared(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, tuple[str, ...]]] = []
    submit = pool.jobs.submit

    def watched(spec: Any, **request: Any) -> Any:
        known = list(pool.groups.items(request["group_id"]))
        seen.append((len(known), tuple(item.key for item in request["items"])))
        assert spec.needs.exclude_hosts == [home]
        return submit(spec, **request)

    home = pool.nodes.find(NODE).id
    monkeypatch.setattr(pool.jobs, "submit", watched)
    mixed = states(3, required_host_tags=("never",))
    mixed.insert(1, LengthState(job_key="other", text="y", preferred_host_tags=("gpu",)))
    made = submit_compute_job_group(pool, Length, mixed, home=NODE)
    assert seen == [(4, ("key-0", "key-1", "key-2")), (4, ("other",))]
    assert made.home == NODE
    group = pool.groups.get(made.group_id)
    assert (group.home.node_name, group.home.state, group.pending) == (NODE, "when_complete", 4)
    made.collector.cancel()


def test_an_interrupted_submission_is_continued_without_duplicates(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_groups, "ITEMS_MAX", 2)
    submit, calls = pool.jobs.submit, list[int]()

    def dying(spec: Any, **request: Any) -> Any:
        calls.append(len(request["items"]))
        if len(calls) == 2:
            submit(spec, **request)  # it reached the hub, but the reply was lost
            raise HubUnreachable("gone")
        return submit(spec, **request)

    with monkeypatch.context() as patched:
        patched.setattr(pool.jobs, "submit", dying)
        with pytest.raises(HubUnreachable) as stopped:
            submit_compute_job_group(pool, Length, states(7), home=NODE, name="interrupted")
    [note] = stopped.value.__notes__
    group_id = pool.groups.list(name="interrupted", limit=1)[0].id
    assert group_id in note
    before = {item.key: item.job_id for item in pool.groups.items(group_id)}
    assert (len(before), sum(job is not None for job in before.values())) == (7, 4)

    again = submit_compute_job_group(pool, Length, states(7), group_id=group_id)
    assert again.home == NODE
    assert len(again.job_ids) == 7
    assert {key: job for key, job in before.items() if job}.items() <= again.job_ids.items()
    assert pool.groups.get(group_id).total == 7
    third = submit_compute_job_group(pool, Length, states(7), group_id=group_id)
    assert third.job_ids == again.job_ids
    again.collector.cancel()


SUBMITTER = """
from computepool import connect
from computepool.sdk.classes import job_groups
from tests.sdk.classes.test_job_groups import Length, states
job_groups.ITEMS_MAX = 1
with connect() as pool:
    job_groups.submit_compute_job_group(pool, Length, states(1000, required_host_tags=("never",)), name="killed",
                                       return_home_when_complete=False)
"""


@pytest.mark.soak
def test_the_submission_of_a_killed_program_is_continued(class_pool: RealPool, pool: Pool) -> None:
    env = {**os.environ, "COMPUTEPOOL_HUB": class_pool.hubs[0].url, "COMPUTEPOOL_KEY": class_pool.admin_key}
    child = subprocess.Popen([sys.executable, "-c", SUBMITTER], env=env, cwd=Path(__file__).parents[3])

    def some() -> str | None:
        found = pool.groups.list(name="killed", limit=1)
        return found[0].id if found and found[0].counts.get("queued") else None

    group_id = wait_until(some, 60, "the first jobs are there")
    child.kill()
    child.wait(60)
    counts = pool.groups.get(group_id).counts
    assert 0 < counts["queued"] < 1000 == counts["queued"] + counts["expected"]
    made = submit_compute_job_group(pool, Length, states(1000, required_host_tags=("never",)), group_id=group_id)
    assert len(set(made.job_ids.values())) == 1000
    assert pool.groups.get(group_id).counts == {"queued": 1000}
    made.collector.cancel()


@pytest.mark.soak
def test_two_programs_may_submit_the_same_group(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    group = pool.groups.create("both")
    submit = pool.jobs.submit

    def raced(spec: Any, **request: Any) -> Any:
        monkeypatch.setattr(pool.jobs, "submit", submit)
        submit(spec, **{**request, "items": request["items"][:2]})  # the other program submitted two of them first
        return submit(spec, **request)

    monkeypatch.setattr(pool.jobs, "submit", raced)
    made = submit_compute_job_group(pool, Length, states(5, required_host_tags=("never",)), group_id=group.id)
    assert len(set(made.job_ids.values())) == 5
    assert pool.groups.get(group.id).total == 5
    made.collector.cancel()


@pytest.mark.soak
def test_a_job_that_is_refused_fails_its_key(pool: Pool) -> None:
    mixed = [LengthState(job_key="bad", required_host_tags=("no such tag!" * 20,)), *states(1)]
    made = submit_compute_job_group(pool, Length, mixed, return_home_when_complete=False)
    assert (set(made.job_ids), set(made.failures)) == ({"key-0"}, {"bad"})
    assert "tags" in made.failures["bad"]
    summary = made.drain(60)
    assert (summary.succeeded, summary.failed) == (1, 1)
    assert summary.failures["bad"] == made.failures["bad"]


@pytest.mark.soak
def test_a_temporary_refusal_does_not_fail_keys(
    class_pool: RealPool, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_groups, "ITEMS_MAX", 2)
    client = class_pool.account("small", "submitter")
    client.transport.retry_for = 0.3
    account = client.accounts.me().id
    request: Any = {"states": states(6, required_host_tags=("never",)), "return_home_when_complete": False}
    pool.accounts.set_quotas(account, jobs_open_max=4)
    with pytest.raises(RateLimited) as stopped:
        submit_compute_job_group(client, Length, **request)
    [group] = client.groups.list()
    assert group.id in stopped.value.__notes__[0]
    assert (group.counts, group.failed) == ({"queued": 4, "expected": 2}, 0)

    pool.accounts.set_quotas(account, jobs_open_max=100)
    for refusal in (InsufficientCredits, OutOfSpace, QuotaExceeded):
        with (
            mock.patch.object(client.jobs, "submit", side_effect=refusal("not now")),
            pytest.raises(refusal, match="not now"),
        ):
            submit_compute_job_group(client, Length, **request, group_id=group.id)
    made = submit_compute_job_group(client, Length, **request, group_id=group.id)
    assert (len(made.job_ids), made.failures) == (6, {})
    assert client.groups.get(group.id).counts == {"queued": 6}
    made.collector.cancel()


Call = Callable[[Pool], Any]
REFUSED: list[tuple[str, Call, str]] = [
    ("none", lambda pool: submit_compute_job_group(pool, Length, []), "the list is empty"),
    (
        "one",
        lambda pool: submit_compute_job_group(pool, Length, LengthState()),  # type: ignore[arg-type]
        r"for a single one, \[state\]",
    ),
    (
        "one key twice",
        lambda pool: submit_compute_job_group(pool, Length, [*states(2), *states(1)]),
        "same job_key: 'key-0'",
    ),
    (
        "a field",
        lambda pool: submit_compute_job_group(pool, Length, [LengthState(text=object())], home=NODE),  # type: ignore[arg-type]
        "LengthState.text: object cannot be sent",
    ),
    (
        "two homes",
        lambda pool: submit_compute_job_group(
            pool, Length, [LengthState(home_host_name="a"), LengthState(home_host_name="b")]
        ),
        r"2 homes \(a, b\)",
    ),
    (
        "a home of nobody",
        lambda pool: submit_compute_job_group(pool, Length, states(), home="elsewhere"),
        f"'elsewhere' cannot be home: your nodes are {NODE}",
    ),
    (
        "no home",
        lambda pool: submit_compute_job_group(pool, Length, states()),
        "Where is home.* COMPUTEPOOL_HOME_HOST, or pass return_home_when_complete=False",
    ),
    ("mapped", lambda pool: pool.map(Length, states()), "Length is a job class; pass it with its states"),
    ("an option", lambda pool: submit_compute_job_group(pool, Length, states(), cores=-1), "cores"),
]


@pytest.mark.parametrize(("call", "words"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_an_error_in_all_jobs_is_raised_before_there_is_a_group(pool: Pool, call: Call, words: str) -> None:
    before = len(pool.groups.list(limit=1000))
    with pytest.raises(BadRequest, match=words):
        call(pool)
    assert len(pool.groups.list(limit=1000)) == before


@pytest.mark.soak
def test_the_home_comes_from_the_states_the_environment_or_this_machine(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def home(**wishes: Any) -> str | None:
        made = submit_compute_job_group(pool, Length, states(1, **wishes))
        made.collector.cancel()
        return made.home

    assert home(home_host_name=NODE) == NODE
    monkeypatch.setenv("COMPUTEPOOL_HOME_HOST", pool.nodes.find(NODE).id)
    assert home() == NODE
    monkeypatch.delenv("COMPUTEPOOL_HOME_HOST")
    identity = tmp_path / "data" / "hosts" / "mine" / "node" / "identity.json"
    identity.parent.mkdir(parents=True)
    identity.write_text(json.dumps({"node_id": pool.nodes.find(NODE).id}))
    assert home() == NODE
    identity.unlink()
    monkeypatch.setattr(platform, "node", lambda: NODE)
    assert home() == NODE


@pytest.mark.soak
def test_jobs_know_their_home_and_may_run_there_if_allowed(pool: Pool) -> None:
    made = submit_compute_job_group(pool, Length, states(2, allow_home_compute=True), home=NODE)
    made.drain(60)
    assert {report["home"] for report in made.reports()} == {NODE}
    assert pool.groups.get(made.group_id).complete


@pytest.mark.soak
def test_a_home_that_is_the_only_node_causes_a_warning(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    home = pool.nodes.find(NODE)
    monkeypatch.setattr(pool.nodes, "list", lambda **_: [home])
    with pytest.warns(UserWarning, match=f"{NODE} is the home and the only host.*allow_home_compute=True"):
        submit_compute_job_group(pool, Length, states(1), home=NODE).collector.cancel()
