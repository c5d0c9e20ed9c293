"""`pool.map`: a bounded number of items in flight, results in order or as they arrive, and a progress bar.

Items are read in the caller's thread while it takes results. bundles.py turns them into jobs.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from computepool.core.errors import ComputePoolError
from computepool.sdk.client.background import closer
from computepool.sdk.client.session import GroupSession, Submission
from computepool.sdk.errors import HubUnreachable, JobError
from computepool.sdk.jobs.bundles import Feed, Outcome, Sizer, Task
from computepool.sdk.jobs.progress_bar import Bar

#: Items read whose results were not taken yet. It bounds the memory of a map with a million items.
IN_FLIGHT_MAX = 10_000
#: Bound on the bytes of arguments without a result, and on the expected bytes of results not taken yet.
HELD_BYTES_MAX = 64 * 1024 * 1024
_IN_FLIGHT_MIN = 16
_READ_AT_ONCE = 256


class MapRun(Iterator[Any]):
    """Iterate over it for the results. Leaving early, or a failed item, cancels the unfinished jobs."""

    def __init__(
        self,
        session: GroupSession,
        submission: Submission,
        items: Iterator[Task],
        *,
        total: int | None,
        sizer: Sizer,
        owned: bool = True,
        progress: bool | None = None,
        ordered: bool = True,
        return_exceptions: bool = False,
        in_flight_max: int | None = None,
    ) -> None:
        """`owned`: only this map uses the session, which ends with it."""
        self._session = session
        self._owned = owned
        self._items = items
        self._ordered = ordered
        self._return_exceptions = return_exceptions
        self._limit = max(1, in_flight_max or IN_FLIGHT_MAX)
        #: Precedes an item's number in its key at the hub; empty if the group belongs to this map alone.
        self.key_prefix = "" if owned else f"map-{secrets.token_hex(6)}/"
        self._feed = Feed(session, submission, sizer=sizer, deliver=self._deliver, key_prefix=self.key_prefix)
        self._changed = threading.Condition()
        # The session's threads write both of these, and the caller reads them; single operations are atomic.
        self._by_index: dict[int, Outcome] = {}
        self._arrived: deque[Outcome] = deque()
        self._read = self._taken = 0
        self._sizes: dict[int, int] = {}  #: bytes of arguments by index, of items without a result
        self._bytes_read = self._bytes_done = 0
        self._exhausted = False
        self._open = True
        self._listener: Callable[[], None] | None = None
        self._bar = Bar("map", total=total, show=progress)
        closer.start()
        self._fill()

    @property
    def group_id(self) -> str | None:
        """The ID of the group at the hub, once something was sent; from it, any process can fetch the results."""
        return self._session.group_id

    def __next__(self) -> Any:
        return self.take()

    def take(self, timeout: float | None = None) -> Any:
        """Like `next()`, but raises TimeoutError after `timeout` seconds. No result is lost: call it again."""
        outcome = self.poll()
        if outcome is None:
            try:
                outcome = self._wait(timeout)
            except TimeoutError:
                raise
            except BaseException:  # Ctrl-C
                self.close()
                raise
        return self.value(outcome)

    def poll(self) -> Outcome | None:
        """The next outcome, if it has arrived. Raises StopIteration at the end."""
        self._fill()
        if self._taken == self._read or not self._open:
            self.close()
            raise StopIteration
        return self._next_outcome()

    def value(self, outcome: Outcome) -> Any:
        """Take the outcome: return its value, or raise its error."""
        self._taken += 1
        error = outcome[2]
        if error is None:
            return outcome[1]
        if self._return_exceptions and isinstance(error, JobError):
            return error
        self.close()
        raise error

    def set_listener(self, listener: Callable[[], None] | None) -> None:
        """`listener` is called when results arrive, from another thread and sometimes without need."""
        self._listener = listener

    @property
    def done(self) -> bool:
        """Every item that was read has a result, or the map was closed."""
        return not self._sizes or not self._open

    @property
    def cut_short(self) -> bool:
        """It was closed before all results were taken."""
        return not self._open and self._taken < self._read

    def wait_done(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self.done)

    def close(self) -> None:
        """Cancel the unfinished jobs, and stop the progress bar."""
        if not self._open:
            return
        self._open = False
        self._bar.stop()
        self._sizes.clear()
        if not self._owned:
            self._withdraw()
        elif len(self._feed) or self._feed.unanswered:
            self._session.abandon()
        else:
            self._session.close()
        self._by_index.clear()
        self._arrived.clear()
        with self._changed:
            self._changed.notify_all()

    def __enter__(self) -> MapRun:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close_later(self) -> None:
        """Close in another thread, for finalizers, which may run while any lock is held."""
        if self._open:
            closer.put(self.close)

    def __del__(self) -> None:
        if hasattr(self, "_open"):
            self.close_later()

    # ------------------------------------------------------------ sending
    def _fill(self) -> None:
        """Read items up to the limits. Any exception while reading them, including Ctrl-C, closes the map."""
        try:
            self._read_items()
        except BaseException:
            self.close()
            raise

    def _read_items(self) -> None:
        while self._open and not self._exhausted and self._may_read():
            tasks: list[Task] = []
            size = self._feed.sizer.size
            count = max(size, _READ_AT_ONCE // size * size)  # whole jobs
            while len(tasks) < count and self._may_read():
                task = next(self._items, None)
                if task is None:
                    self._exhausted = True
                    break
                self._read += 1
                self._bytes_read += len(task.data)
                self._sizes[task.index] = len(task.data)
                tasks.append(task)
            if tasks or (self._exhausted and self._read):
                self._session.add_tasks(self._feed, tasks, complete=self._exhausted)

    def _may_read(self) -> bool:
        waiting = self._read - self._taken
        if waiting < min(self._limit, _IN_FLIGHT_MIN):
            return True
        results = waiting * self._feed.sizer.result_chars
        arguments = self._bytes_read - self._bytes_done
        return waiting < self._limit and max(arguments, results) < HELD_BYTES_MAX

    def _withdraw(self) -> None:
        """Cancel this map's jobs in a shared session, without waiting."""
        with self._session.lock:
            self._feed.drop()
            sent = bool(self._feed.unanswered)
        if sent:
            closer.put(self._cancel)

    def _cancel(self) -> None:
        job_ids = self._session.withdraw_feed(self._feed)  # waits for a request in progress
        for job_id in job_ids:
            try:
                self._session.pool.jobs.cancel(job_id)
            except HubUnreachable:
                return
            except ComputePoolError:
                continue  # it has finished

    # ------------------------------------------------------------ receiving
    def _deliver(self, outcomes: Sequence[Outcome]) -> None:
        """Called by the session's threads."""
        if not self._open:
            return
        with self._changed:
            for outcome in outcomes:
                self._bytes_done += self._sizes.pop(outcome[0], 0)
            if self._ordered:
                self._by_index.update((outcome[0], outcome) for outcome in outcomes)
            else:
                self._arrived.extend(outcomes)
            self._changed.notify_all()
        self._bar.add(len(outcomes))
        if self._listener is not None:
            self._listener()

    def _next_outcome(self) -> Outcome | None:
        if self._ordered:
            return self._by_index.pop(self._taken, None)
        return self._arrived.popleft() if self._arrived else None

    def _wait(self, timeout: float | None) -> Outcome:
        end = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while True:
                outcome = self._next_outcome()
                if outcome is not None:
                    return outcome
                if not self._open:
                    raise StopIteration
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError(f"no result within {timeout} s{self._session.waits.timeout_reason(timeout)}")
                self._changed.wait(left)
