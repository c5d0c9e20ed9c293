"""The hub's memory of groups: their owners, and which of them have no new results."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from computepool.hub.db.signals import Watch

_KEPT_MAX = 10_000


class NothingNew:
    """Groups whose results were delivered up to a cursor, each with a watch since before they were read.

    While the watch has not fired there is nothing after the cursor, and a client can wait for more without a query.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[int, Watch]] = OrderedDict()

    def keep(self, group_id: str, cursor: int, watch: Watch) -> None:
        self.take(group_id, None)
        self._kept[group_id] = (cursor, watch)
        if len(self._kept) > _KEPT_MAX:
            self._kept.popitem(last=False)[1][1].close()

    def take(self, group_id: str, cursor: int | None) -> Watch | None:
        """The watch, which the caller closes; None if it is not known whether there is something after this cursor."""
        known, watch = self._kept.pop(group_id, (None, None))
        if watch is None or (known == cursor and not watch.fired):
            return watch
        watch.close()
        return None


@dataclass(slots=True)
class GroupsState:
    owners: dict[str, str] = field(default_factory=dict)
    nothing_new: NothingNew = field(default_factory=NothingNew)
