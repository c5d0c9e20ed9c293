"""`pool.map`: a bounded number of items on their way, results in order or as they come, a progress bar.

Items are read in the caller's thread, when results are taken. What happens to them then is in bundles.py.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from computepool.sdk.client.background import closer
from computepool.sdk.client.session import GroupSession, Submission
from computepool.sdk.errors import ComputePoolError, HubUnreachable, JobError
from computepool.sdk.jobs.bundles import Feed, Outcome, Sizer, Task
from computepool.sdk.jobs.progress_bar import Bar

#: Items read and not yet taken by the caller as results. A million items need the memory of this many.
IN_FLIGHT_MAX = 10_000
#: And fewer where they are large: of arguments that wait to be sent, and of results, as their size is up to now.
HELD_BYTES_MAX = 64 * 1024 * 1024
_LEAST_IN_FLIGHT = 16
_READ_AT_ONCE = 256


class MapRun(Iterator[Any]):
    """Iterate over it for the results. Leaving early, or an item's failure, cancels what is still open."""

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
        """`owned`: the session is this map's alone and ends with it."""
        self._session = session
        self._owned = owned
        self._items = items
        self._ordered = ordered
        self._return_exceptions = return_exceptions
        self._limit = max(1, in_flight_max or IN_FLIGHT_MAX)
        #: What stands before an item's number in its key at the hub; nothing, where the group is this map's alone.
        self.key_prefix = "" if owned else f"map-{secrets.token_hex(6)}/"
        self._feed = Feed(session, submission, sizer=sizer, deliver=self._deliver, key_prefix=self.key_prefix)
        self._news = threading.Condition()
        # Both are written by the session's threads and read by the caller; single steps of them are atomic.
        self._by_index: dict[int, Outcome] = {}
        self._arrived: deque[Outcome] = deque()
        self._read = self._taken = 0
        self._sizes: dict[int, int] = {}  #: of the arguments of what has no result yet
        self._bytes_read = self._bytes_done = 0
        self._exhausted = False
        self._open = True
        self._on_news: Callable[[], None] | None = None
        self._bar = Bar("map", total=total, show=progress)
        closer.start()
        self._fill()

    @property
    def group_id(self) -> str | None:
        """The group at the hub, once something was sent; its results can be fetched from anywhere."""
        return self._session.group_id

    def __next__(self) -> Any:
        return self.take()

    def take(self, timeout: float | None = None) -> Any:
        """The next result, as `next()` gives it. TimeoutError when it has not come by then; nothing is lost."""
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
        """What came of the next item, if it is known by now. Raises StopIteration at the end of all."""
        self._fill()
        if self._taken == self._read or not self._open:
            self.close()
            raise StopIteration
        return self._next_outcome()

    def value(self, outcome: Outcome) -> Any:
        self._taken += 1
        error = outcome[2]
        if error is None:
            return outcome[1]
        if self._return_exceptions and isinstance(error, JobError):
            return error
        self.close()
        raise error

    def notify(self, on_news: Callable[[], None] | None) -> None:
        """Call this when results have come; from another thread, and also for nothing."""
        self._on_news = on_news

    @property
    def done(self) -> bool:
        """Every item that was read has its result, or nobody wants them any more."""
        return not self._sizes or not self._open

    @property
    def cut_short(self) -> bool:
        """It was closed before all results were taken."""
        return not self._open and self._taken < self._read

    def wait_done(self) -> None:
        with self._news:
            self._news.wait_for(lambda: self.done)

    def close(self) -> None:
        """Cancel what is still open at the hub, and stop the bar."""
        if not self._open:
            return
        self._open = False
        self._bar.stop()
        self._sizes.clear()
        over = not len(self._feed) and not self._feed.unanswered
        if not self._owned:
            self._withdraw()
        elif over:
            self._session.close()
        else:
            self._session.abandon()
        self._by_index.clear()
        self._arrived.clear()
        with self._news:
            self._news.notify_all()

    def __enter__(self) -> MapRun:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close_later(self) -> None:
        """The same where nothing may be waited for: in a finalizer, which may run while any lock is held."""
        if self._open:
            closer.put(self.close)

    def __del__(self) -> None:
        if hasattr(self, "_open"):
            self.close_later()

    # ------------------------------------------------------------ on the way out
    def _fill(self) -> None:
        """Read as many items as may be on their way. What reading raises (Ctrl-C, too) ends the map."""
        try:
            self._read_items()
        except BaseException:
            self.close()
            raise

    def _read_items(self) -> None:
        while self._open and not self._exhausted and self._may_read():
            tasks: list[Task] = []
            size = self._feed.sizer.size
            whole = max(
                size, _READ_AT_ONCE // size * size
            )  # so that no job is smaller because reading takes time
            while len(tasks) < whole and self._may_read():
                task = next(self._items, None)
                if task is None:
                    self._exhausted = True
                    break
                self._read += 1
                self._bytes_read += len(task.data)
                self._sizes[task.index] = len(task.data)
                tasks.append(task)
            if tasks or (self._exhausted and self._read):
                self._session.feed(self._feed, tasks, complete=self._exhausted)

    def _may_read(self) -> bool:
        waiting = self._read - self._taken
        if waiting < min(self._limit, _LEAST_IN_FLIGHT):
            return True
        results = waiting * self._feed.sizer.result_chars
        arguments = self._bytes_read - self._bytes_done
        return waiting < self._limit and max(arguments, results) < HELD_BYTES_MAX

    def _withdraw(self) -> None:
        """From a session that others use, too: only these jobs are cancelled, without waiting for it."""
        with self._session.lock:
            self._feed.drop()
            sent = bool(self._feed.unanswered)
        if sent:
            closer.put(self._cancel)

    def _cancel(self) -> None:
        job_ids = self._session.withdraw_feed(self._feed)  # waits for a request that is under way
        with suppress(HubUnreachable):  # then it would not hear of the others, either
            for job_id in job_ids:
                self._cancel_job(job_id)

    def _cancel_job(self, job_id: str) -> None:
        try:
            self._session.pool.jobs.cancel(job_id)
        except HubUnreachable:
            raise
        except ComputePoolError:  # it is over
            pass

    # ------------------------------------------------------------ on the way back
    def _deliver(self, outcomes: Sequence[Outcome]) -> None:
        """Called by the session's threads."""
        if not self._open:
            return
        with self._news:
            for outcome in outcomes:
                self._bytes_done += self._sizes.pop(outcome[0], 0)
            if self._ordered:
                self._by_index.update((outcome[0], outcome) for outcome in outcomes)
            else:
                self._arrived.extend(outcomes)
            self._news.notify_all()
        self._bar.add(len(outcomes))
        if self._on_news is not None:
            self._on_news()

    def _next_outcome(self) -> Outcome | None:
        if self._ordered:
            return self._by_index.pop(self._taken, None)
        return self._arrived.popleft() if self._arrived else None

    def _wait(self, timeout: float | None) -> Outcome:
        end = None if timeout is None else time.monotonic() + timeout
        with self._news:
            while True:
                outcome = self._next_outcome()
                if outcome is not None:
                    return outcome
                if not self._open:
                    raise StopIteration
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError(f"no result within {timeout} s{self._session.waits.words(timeout)}")
                self._news.wait(left)
