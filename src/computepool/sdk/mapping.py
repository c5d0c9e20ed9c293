"""`pool.map`: results in order, a bounded number of items in flight, a progress bar on a terminal."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from computepool.sdk.bar import Bar
from computepool.sdk.errors import JobError
from computepool.sdk.futures import JobFuture
from computepool.sdk.session import Session, Submission

#: Items submitted and not yet taken by the caller. A million items need the memory of this many.
IN_FLIGHT_MAX = 10_000


class MapRun(Iterator[Any]):
    """Iterate over it for the results. Leaving early, or an item's failure, cancels what is still open."""

    def __init__(
        self,
        session: Session,
        submission: Submission,
        items: Iterator[str],
        *,
        total: int | None,
        progress: bool | None = None,
        return_exceptions: bool = False,
        in_flight_max: int | None = None,
    ) -> None:
        self._session = session
        self._submission = submission
        self._items = items
        self._return_exceptions = return_exceptions
        self._limit = max(1, in_flight_max or IN_FLIGHT_MAX)
        self._pending: deque[JobFuture] = deque()
        self._open = True
        self._bar = Bar("map", total=total, show=progress)
        self._fill()

    @property
    def group_id(self) -> str | None:
        """The group at the hub, once something was sent; its results can be fetched from anywhere."""
        return self._session.group_id

    def __next__(self) -> Any:
        self._fill()
        if not self._pending:
            self.close()
            raise StopIteration
        try:
            return self._pending[0].result()
        except JobError as error:
            if self._return_exceptions:
                return error
            self.close()
            raise
        except BaseException:
            self.close()
            raise
        finally:
            if self._pending:
                self._pending.popleft()

    def close(self) -> None:
        """Cancel what is still open at the hub, and stop the bar."""
        if not self._open:
            return
        self._open = False
        self._bar.stop()
        if all(future.done() for future in self._pending):
            self._session.close()
        else:
            self._session.abandon()
        self._pending.clear()

    def __enter__(self) -> MapRun:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_open", False):
            self.close()

    def _fill(self) -> None:
        while self._open and len(self._pending) < self._limit:
            item = next(self._items, None)
            if item is None:
                return
            future = self._session.submit(self._submission, item)
            future.add_done_callback(self._bar.one_done)
            self._pending.append(future)
