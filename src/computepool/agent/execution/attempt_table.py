"""The attempts that this node holds, from their grant until the hub has answered their report."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from computepool.agent.execution.attempts import Attempt


class AttemptTable:
    """Shared by the poll loop, which fills it, the executor and the reporter."""

    def __init__(self, *, remembered_max: int) -> None:
        self._remembered_max = remembered_max
        self.active: dict[str, Attempt] = {}  #: waiting or running: they have no result yet
        self.held: dict[str, None] = {}  #: counted as this node's by the hub, oldest first
        self._answered: OrderedDict[str, None] = OrderedDict()

    def is_known(self, attempt_id: str) -> bool:
        """True also for an attempt that was answered lately: a grant of it is a repetition."""
        return attempt_id in self.held or attempt_id in self._answered

    def hold(self, attempt_ids: Iterable[str]) -> None:
        self.held.update(dict.fromkeys(attempt_ids))

    def drop(self, attempt_id: str) -> None:
        """Forget a grant that was not started, so that the hub grants it again."""
        self.held.pop(attempt_id, None)

    def settle(self, attempt_id: str) -> None:
        """The hub has answered the report, or it was given up."""
        self.held.pop(attempt_id, None)
        self._answered[attempt_id] = None
        while len(self._answered) > self._remembered_max:
            self._answered.popitem(last=False)
