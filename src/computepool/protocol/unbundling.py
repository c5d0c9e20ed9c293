"""What came of each item of a job that did several. For who reads results: the hub has no use for the codec behind it."""

from __future__ import annotations

from computepool.protocol import bundles
from computepool.protocol.groups import GroupItem


def apart(item: GroupItem) -> list[tuple[int | None, GroupItem]]:
    """What came of each item of a job that did several, with its number in the job; all else is as it is, with None."""
    if item.bundled == 1 or item.result is None or (parts := bundles.each(item.result, item.bundled)) is None:
        return [(None, item)]
    return [
        (index, item.model_copy(update={"bundled": 1} | _told(kind, text)))
        for index, (kind, text) in enumerate(parts)
    ]


def _told(kind: int, text: str) -> dict[str, str | None]:
    if kind == bundles.VALUE:
        return {"result": text}
    return {"result": None, "state": "failed", "sentence": "it raised an exception", "error": text}
