"""What an agent tells its hub of its cache: packages and large inputs, and only changes."""

from __future__ import annotations

import json
import os
from pathlib import Path

from computepool.agent.storage import cache_usage
from computepool.agent.storage.cache_report import CacheReport
from computepool.agent.storage.cache_usage import FACTS
from computepool.protocol.jobs.jobs import WARM_INPUT_MIN
from computepool.protocol.nodes.software import CACHED_MAX, Cached


def cache_packages(cache: Path, digest: str, facts: str) -> Path:
    folder = cache / "environments" / f"{digest}-{'e' * 16}"
    folder.mkdir(parents=True)
    (folder / FACTS).write_text(facts)
    return folder


def cache_input(cache: Path, digest: str, size: int) -> None:
    (cache / "artifacts").mkdir(exist_ok=True)
    with (cache / "artifacts" / digest).open("wb") as file:
        file.truncate(size)


async def test_only_what_takes_long_to_fetch_and_only_changes_are_reported(tmp_path: Path) -> None:
    sent: list[Cached] = []
    report = CacheReport(tmp_path, sent.append, gap_s=60)
    await report.check()
    assert sent == [], "an empty cache is what the hub assumes"
    folder = cache_packages(tmp_path, "1" * 32, json.dumps({"label": "torch", "took_ms": 90_000}))
    cache_input(tmp_path, "a" * 64, WARM_INPUT_MIN)
    cache_input(tmp_path, "b" * 64, WARM_INPUT_MIN - 1)
    cache_input(tmp_path, f"{'c' * 64}.part", WARM_INPUT_MIN)
    (tmp_path / "environments/.building-x").mkdir()
    await report.check()
    [cached] = sent
    assert {item.key: item.took_ms for item in cached.items} == {
        f"packages:{'1' * 32}": 90_000,
        f"artifact:{'a' * 64}": 0,
    }
    os.utime(folder)
    await report.check()
    assert len(sent) == 1, "another use is no change"
    (tmp_path / "artifacts" / ("a" * 64)).unlink()
    await report.check()
    assert [item.key for item in sent[-1].items] == [f"packages:{'1' * 32}"]


def test_facts_that_somebody_damaged_do_no_harm(tmp_path: Path) -> None:
    for number, facts in enumerate(
        ("", "[]", "{", '{"took_ms": -1}', '{"took_ms": "1"}', '{"took_ms": 1e99}', "[" * 9_000)
    ):
        cache_packages(tmp_path, f"{number:032x}", facts)
    assert {item.took_ms for item in cache_usage.warm_items(tmp_path)} == {0}


def test_no_more_than_a_hub_accepts_is_reported_the_most_recent_first(tmp_path: Path) -> None:
    for number in range(CACHED_MAX + 5):
        folder = cache_packages(tmp_path, f"{number:032x}", "{}")
        os.utime(folder, (number, number))
    items = cache_usage.warm_items(tmp_path)
    assert len(items) == CACHED_MAX
    assert items[0].key == f"packages:{CACHED_MAX + 4:032x}"
