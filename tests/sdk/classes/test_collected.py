"""Reading a map later: each item has its own value, even if several shared a job."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from computepool import Pool
from computepool.core.jobs.lifecycle import JobState, Reason
from computepool.protocol import sealing
from computepool.protocol.jobs import bundles
from computepool.protocol.jobs.groups import GroupItem, GroupSummary, ItemPage, LocationView
from computepool.protocol.jobs.views import JobResult, OutputFile
from computepool.protocol.sealing import OUTPUT, RESULT, About
from computepool.protocol.values import values
from computepool.sdk.classes.collector import Collector
from computepool.sdk.errors import ResultUnreadable
from computepool.sdk.files import sealing as keys
from computepool.sdk.files.fetching import fetch_group
from computepool.sdk.resources.groups import GroupApi
from tests.sdk.fake_hub import FakeHub

BUNDLE = bundles.answer([bundles.value_answer(values.encode((1, b"x"))), bundles.raised_answer("ValueError: bad")])
#: The result of a job that claims to have three items but returned a list.
LIST = values.encode([7, 8])
#: Job, items that count, items in its result, failed items, and the result.
Kind = tuple[str, int, int | None, int, str]
JOBS: tuple[Kind, ...] = (
    ("job_1", 2, None, 1, BUNDLE),
    ("job_2", 1, None, 0, values.encode("alone")),
    ("job_3", 3, None, 0, LIST),
)
#: Jobs whose items were resent after they raised: two of the first job, one of the second, all of the third. The last one
#: is a batch of two calls that returned pairs.
RESENT: tuple[Kind, ...] = (
    (
        "job_1",
        1,
        3,
        0,
        bundles.answer([bundles.raised_answer("E: 1"), bundles.value_answer("7"), bundles.raised_answer("E: 2")]),
    ),
    (
        "job_2",
        2,
        3,
        1,
        bundles.answer([bundles.raised_answer("E: 3"), bundles.value_answer("8"), bundles.raised_answer("E: 4")]),
    ),
    ("job_3", 0, 2, 0, values.encode("no answer to two items")),
    ("job_4", 1, 1, 0, "9"),
    ("job_5", 2, 1, 0, values.encode([[0, 1], [0, 2]])),
)


class FakeGroup(GroupApi):
    """A group with these jobs."""

    def __init__(self, jobs: tuple[Kind, ...] = JOBS) -> None:
        self.jobs = jobs

    def results(self, group_id: str, *, follow: bool = False, after: int = 0) -> Iterator[JobResult]:
        for seq, (job_id, bundled, carried, _, text) in enumerate(self.jobs):
            yield JobResult(
                seq=seq,
                job_id=job_id,
                state=JobState.SUCCEEDED,
                reason=Reason.COMPLETED,
                result=text,
                bundled=bundled,
                carried=carried,
            )

    def items(self, group_id: str, *, which: str = "all", after: str | None = None) -> Iterator[GroupItem]:
        for job_id, bundled, carried, failed, text in self.jobs:
            matches = {"all": True, "results": bundled > failed, "failures": failed > 0}
            if matches[which]:
                item = GroupItem(job_id=job_id, state="succeeded", result=text, bundled=bundled, carried=carried)
                yield item.model_copy(update={"items_failed": failed})

    def summary(self, group_id: str) -> GroupSummary:
        nothing: Any = ItemPage(items=[])
        return GroupSummary(
            id=group_id, name="map", kind="map", account_id="acc_1", created_at_ms=0, counts={}, total=6,
            location=LocationView(hub_id="hub", address=""), results=nothing, failures=nothing, waiting=nothing,
        )  # fmt: skip


def test_each_item_of_a_bundle_has_its_value_or_error() -> None:
    collector = Collector(FakeGroup(), "grp_1")
    assert list(collector.values()) == [("job_1/0", (1, b"x")), ("job_2", "alone"), ("job_3", [7, 8])]
    assert [item.key for item in collector.items()] == ["job_1/0", "job_1/1", None, None]
    assert [item.key for item in collector.items("results")] == ["job_1/0", None, None]
    [failed] = collector.items("failures")
    assert (failed.key, failed.job_id, failed.error, failed.bundled) == (
        "job_1/1", "job_1", "ValueError: bad", 1,
    )  # fmt: skip


def test_a_fetched_group_has_a_line_for_each_item(tmp_path: Path) -> None:
    pool: Any = SimpleNamespace(groups=FakeGroup())
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


def test_a_sealed_file_is_fetched_once_and_the_manifest_lists_the_opened_file(
    hub: FakeHub, pool: Pool, tmp_path: Path
) -> None:
    public = sealing.public_bytes(keys.init().public)
    secret = sealing.seal_bytes(b"secret", to=public, about=About("job_1", OUTPUT, "a.bin"))
    files = [pool.artifacts.put_bytes(secret, name="a.bin"), pool.artifacts.put_bytes(b"plain", name="b.bin")]

    class Sealed(FakeGroup):
        def items(self, group_id: str, *, which: str = "all", after: str | None = None) -> Iterator[GroupItem]:
            outputs = [OutputFile(name=file.name, digest=file.digest, size=file.size) for file in files]
            yield GroupItem(job_id="job_1", state="succeeded", outputs=outputs)

    there: Any = SimpleNamespace(groups=Sealed(), artifacts=pool.artifacts)
    folder = tmp_path / "group"
    for _ in range(2):
        fetched = fetch_group(there, "grp_1", folder)
        assert (fetched.files, fetched.bytes) == (2, 11)
        assert (folder / "files" / "job_1" / "a.bin").read_bytes() == b"secret"
        manifest = [line.split("  ", 1) for line in (folder / "manifest.txt").read_text().splitlines()]
        assert len(manifest) == 4
        for digest, path in manifest:
            assert hashlib.sha256((folder / path).read_bytes()).hexdigest() == digest
        [line] = map(json.loads, (folder / "results.jsonl").read_text().splitlines())
        assert [(file["sha256"], file.get("sealed")) for file in line["files"]] == [
            (hashlib.sha256(b"secret").hexdigest(), files[0].digest),
            (files[1].digest, None),
        ]
    assert hub.count("GET", f"/artifacts/{files[0].digest}") == 2, "once for the upload, and once for the download"
    (folder / "files" / "job_1" / "a.bin").write_bytes(b"edited")
    fetch_group(there, "grp_1", folder)
    assert (folder / "files" / "job_1" / "a.bin").read_bytes() == b"secret"


def test_an_unreadable_value_is_replaced_by_its_error(pool: Pool) -> None:
    words = pool.artifacts.put_bytes(b"\xff\xfe", name="result").digest
    sealed = sealing.seal_bytes(b"1", to=bytes(32 * [9]), about=About("job_3", RESULT))
    locked = pool.artifacts.put_bytes(sealed, name="result").digest

    class Unreadable(FakeGroup):
        def results(self, group_id: str, *, follow: bool = False, after: int = 0) -> Iterator[JobResult]:
            odd, both = '{"$set":5}', bundles.answer([bundles.value_answer('{"$set":5}'), bundles.value_answer("7")])
            artifacts = [{"result_artifact": digest} for digest in (words, locked, "0" * 64)]
            all_of_them: list[Any] = [{"result": odd}, *artifacts, {"result": both, "bundled": 2}, {"result": "8"}]
            for seq, result in enumerate(all_of_them, start=1):
                fields: Any = {"state": "succeeded", "reason": "completed", **result}
                yield JobResult(seq=seq, job_id=f"job_{seq}", **fields)

    groups = Unreadable()
    groups._transport, groups._artifacts = pool.groups._transport, pool.artifacts
    found = dict(Collector(groups, "grp_1").values())
    unreadable = {key for key, value in found.items() if isinstance(value, ResultUnreadable)}
    assert unreadable == {"job_1", "job_2", "job_3", "job_4", "job_5/0"}
    assert [(key, value) for key, value in found.items() if key not in unreadable] == [("job_5/1", 7), ("job_6", 8)]
    for result in list(groups.results("grp_1"))[:2]:
        with pytest.raises(ResultUnreadable):
            groups.read(result)


def test_resent_items_are_read_from_their_new_jobs(tmp_path: Path) -> None:
    collector = Collector(FakeGroup(RESENT), "grp_1")
    pairs = ("job_5", [[0, 1], [0, 2]])
    assert list(collector.values()) == [("job_1/1", 7), ("job_2/1", 8), ("job_4", 9), pairs]
    names = ["job_1/1", "job_2/1", "job_2/2", "job_4", "job_5"]
    assert [item.key or item.job_id for item in collector.items()] == names
    assert [item.key or item.job_id for item in collector.items("results")] == [
        name for name in names if name != "job_2/2"
    ]
    assert [(item.key, item.error) for item in collector.items("failures")] == [("job_2/2", "E: 4")]

    fetch_group(SimpleNamespace(groups=FakeGroup(RESENT)), "grp_1", tmp_path)  # type: ignore[arg-type]
    lines = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert [(line["job_id"], line.get("item")) for line in lines] == [
        ("job_1", 1), ("job_2", 1), ("job_2", 2), ("job_4", None), ("job_5", None),
    ]  # fmt: skip


def test_the_items_of_a_map_are_named_by_their_numbers(tmp_path: Path) -> None:
    answer = bundles.answer([bundles.raised_answer("E: 1"), bundles.value_answer("7"), bundles.raised_answer("E: 2")])

    class Numbered(FakeGroup):
        """Jobs of three items: of a map with its own group, of a map in a shared group, and with a key like a range."""

        def items(self, group_id: str, *, which: str = "all", after: str | None = None) -> Iterator[GroupItem]:
            for key in ("10-12", "map-0a/1000-1002", "10-20"):
                yield GroupItem(key=key, job_id="job_1", state="succeeded", result=answer, bundled=2, carried=3)

    collector = Collector(Numbered(), "grp_1")
    assert [item.key for item in collector.items()] == [
        "11", "12", "map-0a/1001", "map-0a/1002", "10-20/1", "10-20/2",
    ]  # fmt: skip
    assert dict(collector.summary().results) == {"11": 7, "map-0a/1001": 7, "10-20/1": 7}
    assert dict(collector.summary().failures) == {"12": "E: 2", "map-0a/1002": "E: 2", "10-20/2": "E: 2"}
    fetch_group(SimpleNamespace(groups=Numbered()), "grp_1", tmp_path)  # type: ignore[arg-type]
    lines = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert [line["key"] for line in lines] == [item.key for item in collector.items()]
