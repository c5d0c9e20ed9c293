"""Who comes back to a map finds a value for each item, also where several travelled in one job."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from computepool.core.jobs import JobState, Reason
from computepool.protocol import bundles, values
from computepool.protocol.groups import GroupItem, GroupSummary, ItemPage, LocationView
from computepool.protocol.jobs import JobResult
from computepool.sdk.collector import Collector
from computepool.sdk.fetching import fetch_group
from computepool.sdk.groups import GroupApi

BUNDLE = bundles.answer([bundles.returned(values.encode((1, b"x"))), bundles.raised("ValueError: bad")])
#: A job of three items, by its own word, whose result answers something else.
LIST = values.encode([7, 8])
JOBS = (("job_1", 2, BUNDLE), ("job_2", 1, values.encode("alone")), ("job_3", 3, LIST))


class Kept(GroupApi):
    """What a hub would say of a group with these jobs."""

    def __init__(self) -> None:
        pass

    def results(self, group_id: str, *, follow: bool = False, after: int = 0) -> Iterator[JobResult]:
        for seq, (job_id, bundled, text) in enumerate(JOBS):
            yield JobResult(
                seq=seq,
                job_id=job_id,
                state=JobState.SUCCEEDED,
                reason=Reason.COMPLETED,
                result=text,
                bundled=bundled,
            )

    def items(self, group_id: str, *, which: str = "all", after: str | None = None) -> Iterator[GroupItem]:
        if which in ("all", "results"):
            for job_id, bundled, text in JOBS:
                yield GroupItem(job_id=job_id, state="succeeded", result=text, bundled=bundled)

    def summary(self, group_id: str) -> GroupSummary:
        nothing: Any = ItemPage(items=[])
        return GroupSummary(
            id=group_id, name="map", kind="map", account_id="acc_1", created_at_ms=0, counts={}, total=6,
            location=LocationView(hub_id="hub", address=""), results=nothing, failures=nothing, waiting=nothing,
        )  # fmt: skip


def test_values_and_items_are_those_of_each_item() -> None:
    collector = Collector(Kept(), "grp_1")
    assert list(collector.values()) == [("job_1/0", (1, b"x")), ("job_2", "alone"), ("job_3", [7, 8])]
    assert [item.key for item in collector.items()] == ["job_1/0", "job_1/1", None, None]
    assert [item.key for item in collector.items("results")] == ["job_1/0", None, None]
    [failed] = collector.items("failures")
    assert (failed.key, failed.job_id, failed.error, failed.bundled) == (
        "job_1/1", "job_1", "ValueError: bad", 1,
    )  # fmt: skip


def test_a_fetched_group_has_a_line_for_each_item(tmp_path: Path) -> None:
    pool: Any = SimpleNamespace(groups=Kept())
    fetched = fetch_group(pool, "grp_1", tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert fetched.items == len(lines) == 4
    assert [(line["job_id"], line.get("item"), line["state"]) for line in lines] == [
        ("job_1", 0, "succeeded"),
        ("job_1", 1, "failed"),
        ("job_2", None, "succeeded"),
        ("job_3", None, "succeeded"),
    ]
    assert values.decode(lines[0]["result"]) == (1, b"x")
    assert (lines[1]["error"], "result" in lines[1]) == ("ValueError: bad", False)
