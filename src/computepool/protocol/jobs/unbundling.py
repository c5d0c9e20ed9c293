"""Results of the single items of a bundle. For clients only, so that the hub need not load the codec."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from computepool.protocol.jobs import bundles
from computepool.protocol.jobs.groups import GroupItem
from computepool.protocol.jobs.views import JobResult

#: The key of a bundle of a map (sdk/jobs/bundles.py): the prefix of the map's keys, the first and the last number.
_NUMBERS = re.compile(r"(|.*/)([0-9]{1,18})-([0-9]{1,18})", re.DOTALL)


def key_of(job: GroupItem | JobResult, index: int | None) -> str:
    """The name of a result: its job's key or id. For an item of a bundle: its key in the map, or else KEY/index."""
    name = job.key or job.job_id or ""
    if index is None:
        return name
    numbers = _NUMBERS.fullmatch(job.key or "")
    if numbers is not None and int(numbers[3]) - int(numbers[2]) + 1 == _count_carried(job):
        return f"{numbers[1]}{int(numbers[2]) + index}"
    return f"{name}/{index}"


def _count_carried(job: GroupItem | JobResult) -> int:
    return job.bundled if job.carried is None else job.carried


def answers(text: str, job: GroupItem | JobResult) -> list[tuple[int, int, str]] | None:
    """Number, kind and text (see `bundles.each`) of the answers that count in this job; None if its result is one value.

    Items that were submitted again no longer count here. They are the first ones that raised.
    """
    carried = _count_carried(job)
    parts = None if carried == 1 else bundles.each(text, carried)
    if parts is None:
        return None
    sent_again = carried - job.bundled
    kept = []
    for index, (kind, part) in enumerate(parts):
        if kind == bundles.RAISED and sent_again > 0:
            sent_again -= 1
        else:
            kept.append((index, kind, part))
    return kept


def each_item(items: Iterable[GroupItem], which: str = "all") -> Iterator[GroupItem]:
    """The entries of one of a group's lists, with bundles split into their items."""
    for item in items:
        for index, part in apart(item):
            if index is None:
                yield part
            # A bundle with items of both kinds is in both lists.
            elif which == "all" or (part.state == "failed") == (which == "failures"):
                yield part.model_copy(update={"key": key_of(item, index)})


def apart(item: GroupItem) -> list[tuple[int | None, GroupItem]]:
    """The items of a bundle, each with its number in the job. Any other entry is returned as it is, with None.

    Items that were submitted again belong only to their new jobs, so a bundle without other items has none.
    """
    if item.bundled == 0:
        return []
    if item.result is None or (parts := answers(item.result, item)) is None:
        return [(None, item)]
    return [
        (index, item.model_copy(update={"bundled": 1, "carried": None, "items_failed": 0} | _item_result(kind, text)))
        for index, kind, text in parts
    ]


def _item_result(kind: int, text: str) -> dict[str, str | None]:
    if kind == bundles.VALUE:
        return {"result": text}
    return {"result": None, "state": "failed", "sentence": "it raised an exception", "error": text}
