"""What came of each item of a job that did several. For who reads results: the hub has no use for the codec behind it."""

from __future__ import annotations

from computepool.protocol import bundles
from computepool.protocol.groups import GroupItem
from computepool.protocol.jobs import JobResult


def answers(text: str, job: GroupItem | JobResult) -> list[tuple[int, int, str]] | None:
    """Number, kind and text (see `bundles.each`) of the answers that count in this job; None: its result is one value.

    Who tries items again sends those that raised, in their order: as many as do not count here any more.
    """
    carried = job.bundled if job.carried is None else job.carried
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


def apart(item: GroupItem) -> list[tuple[int | None, GroupItem]]:
    """What came of each item of a job that did several, with its number in the job; all else is as it is, with None.

    An item that was sent again is read in its new job alone: nothing is left of a job whose items all were.
    """
    if item.bundled == 0:
        return []
    if item.result is None or (parts := answers(item.result, item)) is None:
        return [(None, item)]
    return [
        (
            index,
            item.model_copy(update={"bundled": 1, "carried": None, "items_failed": 0} | _told(kind, text)),
        )
        for index, kind, text in parts
    ]


def _told(kind: int, text: str) -> dict[str, str | None]:
    if kind == bundles.VALUE:
        return {"result": text}
    return {"result": None, "state": "failed", "sentence": "it raised an exception", "error": text}
