"""A collector's summary: counts, and results, failures and pending items by key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from pydantic import PrivateAttr

from computepool.protocol.jobs.children import MessageView
from computepool.protocol.jobs.groups import GroupItem, GroupSummary, GroupView, LocationView
from computepool.protocol.jobs.unbundling import key_of
from computepool.protocol.values import values

if TYPE_CHECKING:
    from computepool.sdk.classes.collector import Collector
    from computepool.sdk.resources.groups import GroupApi

_SHOWN_MAX = 5
Pairs = Iterator[tuple[str, Any]]


class ByKey(Mapping[str, Any]):
    """A mapping that is loaded from the hub on first use. Large values are fetched one by one, on access."""

    def __init__(self, what: str, read: Callable[[], Pairs]) -> None:
        self._what = what
        self._read = read

    def __getitem__(self, key: str) -> Any:
        value = self._entries[key]
        if isinstance(value, partial):
            value = self._entries[key] = value()
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        keys = list(self._entries)
        more = ", …" if len(keys) > _SHOWN_MAX else ""
        return f"<{len(keys)} {self._what}: {', '.join(map(repr, keys[:_SHOWN_MAX]))}{more}>"

    @cached_property
    def _entries(self) -> dict[str, Any]:
        return dict(self._read())


class Message(MessageView):
    """A message from a running job; `messages(after=number)` continues from it."""

    value: Any

    @classmethod
    def of(cls, view: MessageView) -> Message:
        return cls(**{**view.model_dump(), "value": values.decode(view.value)})


class Summary(GroupView):
    """A snapshot of a group. `view` is the hub's reply, with the beginning of each list."""

    location: LocationView
    message_count: int = 0
    _view: GroupSummary = PrivateAttr()
    _lists: tuple[ByKey, ByKey, ByKey] = PrivateAttr()

    @classmethod
    def of(cls, collector: Collector, view: GroupSummary) -> Summary:
        made = cls.model_validate(view.model_dump(exclude={"results", "failures", "waiting", "messages"}))
        made._view = view
        made._lists = (
            ByKey("results", lambda: _results(collector)),
            ByKey("failures", lambda: _sentences(collector, "failures")),
            ByKey("pending", lambda: _sentences(collector, "waiting")),
        )
        return made

    @property
    def view(self) -> GroupSummary:
        return self._view

    @property
    def results(self) -> Mapping[str, Any]:
        """The value of each key or job. A value that cannot be read is replaced by a ResultUnreadable with the reason."""
        return self._lists[0]

    @property
    def failures(self) -> Mapping[str, str]:
        """The reason for each failure: a traceback or a sentence."""
        return self._lists[1]

    @property
    def waiting(self) -> Mapping[str, str]:
        """The reason why each pending key or job waits."""
        return self._lists[2]

    @property
    def messages(self) -> list[Message]:
        """The latest messages sent with `send_to_collector`, oldest first; `collector.messages()` has all."""
        return [Message.of(view) for view in self._view.messages]


def _fetch(api: GroupApi, item: GroupItem) -> Any:
    return next((value for _, value in api.read_each(item)), None)


def _results(collector: Collector) -> Pairs:
    api = collector._api
    for item in api.items(collector.group_id, which="results"):
        if item.bundled == 1 and item.carried in (None, 1):
            yield key_of(item, None), partial(_fetch, api, item)
            continue
        for index, value in api.read_each(item):
            yield key_of(item, index), value


def _sentences(collector: Collector, which: str) -> Pairs:
    for item in collector.items(which):
        yield key_of(item, None), item.error or item.sentence
