"""Client of a group's collector, which lives at the hub, knows the group's expected keys, and stores what arrives.

A program that ends or is interrupted loses nothing: the same calls continue from any machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from computepool.core.errors import BadRequest, NotFound
from computepool.core.jobs.lifecycle import JobState
from computepool.protocol.base import LIST_MAX, TEXT_MAX
from computepool.protocol.jobs import groups as wire
from computepool.protocol.jobs.unbundling import each_item, key_of
from computepool.protocol.jobs.views import JobResult
from computepool.protocol.values import values
from computepool.sdk.classes.summary import Message, Summary
from computepool.sdk.client.resource import validate
from computepool.sdk.client.sizes import batches
from computepool.sdk.client.transport import WAIT_MS
from computepool.sdk.client.waiting import WaitNotice
from computepool.sdk.jobs.notify import group_text, notify as show_notification

if TYPE_CHECKING:
    from computepool.sdk.pool import Pool
    from computepool.sdk.resources.groups import GroupApi

#: The interval of progress updates is this multiple of the reply time, since counting a huge group is slow.
_PROGRESS_INTERVAL_FACTOR = 20
_PROGRESS_MIN_MS = 500
#: Limit on the results and errors in one request.
_REPORT_BYTES = 4 * 1024 * 1024

Meta = Mapping[str, str | bool | int | float | None] | None
Keys = Iterable[str] | Mapping[str, Meta]


class DrainTimeout(TimeoutError):
    """The group is not complete yet. `summary` is its current state; call `drain` again to keep waiting."""

    def __init__(self, summary: Summary) -> None:
        super().__init__(f"group {summary.name} has {summary.pending} of {summary.total} pending; none was cancelled")
        self.summary = summary


class Collector:
    """`Collector(pool, group_id)`, or `pool.groups.collector(name)`."""

    def __init__(self, pool: Pool | GroupApi, group_id: str) -> None:
        self._api = pool.groups
        self.group_id = group_id

    def __repr__(self) -> str:
        return f"Collector({self.group_id!r})"

    def summary(self) -> Summary:
        """The current state of the group: counts, location and delivery; results, failures and pending keys.

        >>> collector.summary().results["seed-7"]
        0.93
        """
        return Summary.of(self, self._api.summary(self.group_id))

    def drain(
        self,
        timeout: float | None = None,
        progress: Callable[[wire.GroupView], object] | None = None,
        *,
        notify: bool = False,
    ) -> Summary:
        """Wait until every expected key has succeeded or failed; `progress` is called with the current counts.

        `notify`: show a desktop or terminal notification when the group completes.

        Raises DrainTimeout, a TimeoutError with the current state as `.summary`, after `timeout` seconds.
        """
        end = None if timeout is None else time.monotonic() + timeout
        wait_ms = 0
        notice = WaitNotice(partial(self._api.reason, self.group_id))
        while True:
            notice.check()
            began = time.monotonic()
            view = self._api.drain(self.group_id, timeout=wait_ms / 1000)
            took_ms = round((time.monotonic() - began) * 1000)
            if progress is not None:
                progress(view)
            if view.complete:
                if notify:
                    show_notification(group_text(view))
                return self.summary()
            left_ms = None if end is None else round((end - time.monotonic()) * 1000)
            if left_ms is not None and left_ms <= 0:
                raise DrainTimeout(self.summary())
            counting_ms = took_ms if wait_ms == 0 else max(0, took_ms - wait_ms)
            step_ms = WAIT_MS if progress is None else max(_PROGRESS_MIN_MS, counting_ms * _PROGRESS_INTERVAL_FACTOR)
            wait_ms = notice.cap_ms(min(WAIT_MS, step_ms, WAIT_MS if left_ms is None else left_ms))

    def register_jobs(self, keys: Keys) -> int:
        """Register expected keys, with metadata if `keys` is a mapping. Returns the number of new keys.

        A known key gets the new metadata. A single string is one key.
        """
        several = [keys] if isinstance(keys, str) else keys
        pairs = several.items() if isinstance(several, Mapping) else ((key, None) for key in several)
        entries = (
            validate(wire.ExpectedKey, key=key, **({} if meta is None else {"meta": dict(meta)})) for key, meta in pairs
        )
        added = 0
        while batch := list(islice(entries, LIST_MAX)):
            added += self._api.register(self.group_id, wire.RegisterKeysRequest(keys=batch)).added
        return added

    def job_result(self, key: str, result: object = None) -> bool:
        """Report a key without a job as succeeded. False if it was already reported, or has a job, which counts instead."""
        return self.report([_success(key, result)])[key]

    def job_failure(self, key: str, error: str | BaseException) -> bool:
        """Report a key without a job as failed."""
        return self.report([_failure(key, error)])[key]

    def job_failures(self, errors: Mapping[str, str | BaseException]) -> dict[str, bool]:
        return self.report(_failure(key, error) for key, error in errors.items())

    def report(self, reports: Iterable[wire.KeyReport]) -> dict[str, bool]:
        """Send several reports; returns which of them were accepted."""
        accepted: dict[str, bool] = {}
        for batch in batches(reports, _length, count_max=LIST_MAX, size_max=_REPORT_BYTES):
            for reply in self._api.report(self.group_id, wire.KeyReportsRequest(reports=batch)).verdicts:
                if reply.verdict == "unknown":
                    raise NotFound(f"The group does not expect {reply.key!r}; register it first.")
                accepted[reply.key] = accepted.get(reply.key, False) or reply.verdict == "accepted"
        return accepted

    def return_home(self, home: str | None = None, *, enabled: bool = True) -> wire.GroupView:
        """Deliver everything to one of your nodes once the group is complete; enabled=False cancels delivery."""
        return self._api.return_home(self.group_id, home=home, enabled=enabled)

    def results(self, *, follow: bool = False, after: int = 0) -> Iterator[JobResult]:
        """Iterate over results in order of arrival; with `follow`, until nothing is pending."""
        return self._api.results(self.group_id, follow=follow, after=after)

    def messages(self, *, follow: bool = False, after: int = 0) -> Iterator[Message]:
        """Iterate over messages that running jobs sent with `send_to_collector`; with `follow`, until nothing is pending.

        A restarted job sends its messages again: check `attempt`.
        """
        return map(Message.of, self._api.messages(self.group_id, follow=follow, after=after))

    def values(self, *, follow: bool = False) -> Iterator[tuple[str, Any]]:
        """Iterate over (key, value) of successful jobs and items, in order of arrival.

        A job without a key has its ID as the key. The key of a map's item is its number in the map, from 0, as text; in a
        group with other jobs, the map's `key_prefix` precedes it. Items that raised are in `items("failures")`.
        A value that cannot be read is replaced by a ResultUnreadable with the reason.
        """
        for result in self.results(follow=follow):
            if result.state is JobState.SUCCEEDED:
                for index, value in self._api.read_each(result):
                    yield key_of(result, index), value

    def items(self, which: str = "all") -> Iterator[wire.GroupItem]:
        """Iterate over the jobs and keys of the group: all, results, failures or waiting.

        A job with several items of a map yields each of them, unless its result is an artifact; `values` reads that, too.
        """
        return each_item(self._api.items(self.group_id, which=which), which)

    def cancel(self) -> wire.GroupView:
        return self._api.cancel(self.group_id)


def _success(key: str, result: object) -> wire.KeyReport:
    try:
        text = values.encode(result)
    except ValueError as error:
        raise BadRequest(f"The result of {key!r} cannot be sent: {error}.") from error
    if len(text) > wire.KEY_RESULT_MAX:
        raise BadRequest(
            f"The result of {key!r} has {len(text)} characters; the limit is {wire.KEY_RESULT_MAX}. "
            "Upload it with pool.artifacts.put and report its digest."
        )
    return validate(wire.KeyReport, key=key, outcome="succeeded", result=text)


def _failure(key: str, error: str | BaseException) -> wire.KeyReport:
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    return validate(wire.KeyReport, key=key, outcome="failed", error=text[:TEXT_MAX])


def _length(report: wire.KeyReport) -> int:
    return len(report.result or "") + len(report.error or "")
