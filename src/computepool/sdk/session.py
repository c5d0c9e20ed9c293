"""One group of jobs seen from the client: submissions leave in batches, results come through one long poll.

Two background threads, started when they are needed: the sender takes what has gathered while its last
request was under way (so a loop of submits needs no delay to be batched), the receiver follows the results.
Both outlive restarts of the hub; nothing is submitted twice, because each batch keeps its idempotency key.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from computepool.protocol.groups import GroupRequest, GroupView, ResultPage
from computepool.protocol.jobs import ITEMS_MAX, JobResult, SubmitReply
from computepool.sdk.errors import ComputePoolError
from computepool.sdk.futures import JobFuture, Reader
from computepool.sdk.transport import WAIT_MS, Transport

if TYPE_CHECKING:
    from computepool.sdk.pool import Pool

#: Well below what the hub accepts as one body.
BATCH_BYTES_MAX = 4 * 1024 * 1024
RESULTS_PER_PAGE = 500
#: How long jobs may wait for a hub that is away before their futures fail.
OUTAGE_MAX_S = 24 * 3600.0
CLOSE_TIMEOUT_S = 30.0
DOWNLOADS_MAX = 4
#: With this many jobs open, a short rest between polls makes each of them bring more, and saves the hub work.
_BUSY_OPEN = 200
_BUSY_REST_S = 0.01

_log = logging.getLogger("computepool.sdk")


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What jobs of one batch have in common, as JSON; `read` turns their results into values."""

    spec: str
    terms: str  #: further fields of the request, each with a leading comma
    read: Reader
    budget_each: int | None = None  #: microcredits; a batch is sent with the sum of its jobs' shares


class Session:
    def __init__(
        self,
        pool: Pool,
        *,
        request: GroupRequest | None = None,
        group_id: str | None = None,
        lingers: bool = False,
    ) -> None:
        """Of a group that exists, or of one that is created by the first submission.

        One that lingers keeps a poll parked for a while after its last result, so that a caller who submits
        one job after the other finds it there already.
        """
        self.pool = pool
        self._transport: Transport = pool.transport
        self._request = request
        self._lingers = lingers
        self._pid = os.getpid()
        lock = threading.Lock()
        #: Two conditions over one lock: a submit wakes the sender alone, not everybody who waits for news.
        self._state = threading.Condition(lock)
        self._to_send = threading.Condition(lock)
        # All below is guarded by that lock.
        self._group_id = group_id
        self._queue: deque[tuple[Submission, str, JobFuture]] = deque()
        self._sending = 0
        self._open: dict[str, JobFuture] = {}
        self._early: dict[str, JobResult] = {}  #: results that came before the reply that names their jobs
        self._cursor = 0
        self._warm = False  #: a result came a moment ago, and this session lingers
        self._sender: threading.Thread | None = None
        self._closing = False
        self._abandoned = False
        self._lost_by: ComputePoolError | None = None
        self._downloads: ThreadPoolExecutor | None = None

    @property
    def group_id(self) -> str | None:
        return self._group_id

    @property
    def unfinished(self) -> int:
        return len(self._queue) + self._sending + len(self._open)

    def submit(self, submission: Submission, item: str) -> JobFuture:
        """`item` is the JSON of one Item. Returns at once; the sender takes it from here."""
        if self._pid != os.getpid():
            raise RuntimeError("this process was forked: call connect() again in it")
        future = JobFuture(self, submission.read)
        with self._state:
            if self._closing:
                raise self._lost_by or RuntimeError("cannot submit after close()")
            self._queue.append((submission, item, future))
            if self._sender is None:
                self._start()
            elif len(self._queue) == 1:
                self._to_send.notify()
        return future

    def attach(self, job_id: str, read: Reader) -> JobFuture:
        """A future for a job that this group has already. The caller looks for a result that came earlier."""
        with self._state:
            if job_id in self._open:
                return self._open[job_id]
            future = JobFuture(self, read)
            future.assign(job_id)
            self._open[job_id] = future
            if self._sender is None:
                self._start()
            self._state.notify_all()
        return future

    def settle(self, result: JobResult) -> None:
        with self._state:
            future = self._open.pop(result.job_id, None)
            self._state.notify_all()
        if future is not None:
            self._finish(future, result)

    def wait_for_id(self, future: JobFuture) -> None:
        with self._state:
            self._state.wait_for(lambda: future.assigned or future.done())

    def withdraw(self, future: JobFuture) -> bool:
        """Take back what was not sent yet."""
        with self._state:
            for entry in self._queue:
                if entry[2] is future:
                    self._queue.remove(entry)
                    self._state.notify_all()
                    return True
        return False

    def flush(self, timeout_s: float = CLOSE_TIMEOUT_S) -> bool:
        """Wait until the hub has acknowledged everything submitted so far."""
        with self._state:
            return self._state.wait_for(lambda: not self._queue and not self._sending, timeout_s)

    def abandon(self) -> None:
        """Cancel all that is open, without waiting: the sender tells the hub as its last act."""
        with self._state:
            dropped = [future for _, _, future in self._queue]
            self._queue.clear()
            self._abandoned = self._closing = True
            self._to_send.notify()
            self._state.notify_all()
        for future in dropped:
            future.drop()

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Flush and stop listening. The jobs go on; their futures here will not hear of it."""
        if self._pid != os.getpid():
            return
        end = time.monotonic() + timeout_s
        if not self.flush(timeout_s):
            _log.warning("%d jobs could not be handed to the hub before closing", self.unfinished)
        with self._state:
            self._closing = True
            self._to_send.notify()
            self._state.notify_all()
            sender, downloads = self._sender, self._downloads
        if sender is not None and sender is not threading.current_thread():
            sender.join(max(0.0, end - time.monotonic()))
        if downloads is not None:
            downloads.shutdown(wait=False, cancel_futures=True)

    # ------------------------------------------------------------ the two threads
    def _start(self) -> None:
        for run in (self._send_all, self._receive_all):
            thread = threading.Thread(target=run, name=f"computepool-{run.__name__.strip('_')}", daemon=True)
            self._sender = self._sender or thread
            thread.start()

    def _send_all(self) -> None:
        while batch := self._next_batch():
            futures = [future for _, _, future in batch]
            try:
                reply = self._send(batch)
            except ComputePoolError as error:
                self._refused(futures, error)
            else:
                self._acknowledged(futures, reply.job_ids)
        if self._abandoned and self._group_id is not None:
            with suppress(ComputePoolError):
                self._transport.call("POST", f"/groups/{self._group_id}/cancel", body=b"{}")

    def _next_batch(self) -> list[tuple[Submission, str, JobFuture]]:
        """The longest run of jobs with the same spec from the head of the queue; empty when closing."""
        with self._state:
            self._to_send.wait_for(lambda: self._queue or self._closing)
            batch: list[tuple[Submission, str, JobFuture]] = []
            size = 0
            while self._queue and len(batch) < ITEMS_MAX and size < BATCH_BYTES_MAX:
                entry = self._queue[0]
                if batch and entry[0] is not batch[0][0] and entry[0] != batch[0][0]:
                    break
                batch.append(self._queue.popleft())
                size += len(entry[1])
            self._sending = len(batch)
            return batch

    def _send(self, batch: list[tuple[Submission, str, JobFuture]]) -> SubmitReply:
        head = batch[0][0]
        items = ",".join([item for _, item, _ in batch])
        budget = "" if head.budget_each is None else f',"budget":{head.budget_each * len(batch)}'
        body = f'{{"spec":{head.spec},"items":[{items}],"group_id":"{self._ensure_group()}"{head.terms}{budget}}}'
        reply = self._transport.call("POST", "/jobs", body=body.encode(), patience_s=OUTAGE_MAX_S)
        return SubmitReply.model_validate_json(reply)

    def _ensure_group(self) -> str:
        if self._group_id is None:
            assert self._request is not None
            body = self._request.model_dump_json().encode()
            reply = self._transport.call("POST", "/groups", body=body, patience_s=OUTAGE_MAX_S)
            with self._state:
                self._group_id = GroupView.model_validate_json(reply).id
        return self._group_id

    def _refused(self, futures: list[JobFuture], error: ComputePoolError) -> None:
        for future in futures:
            future.fail(error)
        with self._state:
            self._sending = 0
            self._state.notify_all()

    def _acknowledged(self, futures: list[JobFuture], job_ids: list[str]) -> None:
        finished: list[tuple[JobFuture, JobResult]] = []
        with self._state:
            for future, job_id in zip(futures, job_ids, strict=True):
                future.assign(job_id)
                early = self._early.pop(job_id, None)
                if early is None:
                    self._open[job_id] = future
                else:
                    finished.append((future, early))
            self._sending = 0
            self._early.clear()
            lost = self._lost_by
            self._state.notify_all()
        for future, result in finished:
            self._finish(future, result)
        if lost is not None:
            self._lost(lost)

    def _receive_all(self) -> None:
        while self._wait_for_open():
            awaited = bool(self._open)
            try:
                page = self._results_page(OUTAGE_MAX_S if awaited else 0)
            except ComputePoolError as error:
                if awaited:
                    self._lost(error)
                    return
                self._warm = False  # nobody waited for anything: no need to insist, nor to complain
                continue
            self._deliver(page)
            if len(self._open) >= _BUSY_OPEN:
                time.sleep(_BUSY_REST_S)

    def _wait_for_open(self) -> bool:
        with self._state:
            self._state.wait_for(lambda: self._closing or self._open or self._warm)
            return not self._closing

    def _results_page(self, patience_s: float) -> ResultPage:
        params = {"after": self._cursor, "limit": RESULTS_PER_PAGE, "wait_ms": WAIT_MS}
        reply = self._transport.call(
            "GET",
            f"/groups/{self._group_id}/results",
            params=params,
            wait_s=WAIT_MS / 1000,
            patience_s=patience_s,
        )
        return ResultPage.model_validate_json(reply)

    def _deliver(self, page: ResultPage) -> None:
        finished: list[tuple[JobFuture, JobResult]] = []
        with self._state:
            self._cursor = page.cursor
            self._warm = self._lingers and bool(page.results)
            for result in page.results:
                future = self._open.pop(result.job_id, None)
                if future is not None:
                    finished.append((future, result))
                elif self._sending:
                    self._early[result.job_id] = result
        for future, result in finished:
            self._finish(future, result)

    def _finish(self, future: JobFuture, result: JobResult) -> None:
        if result.result_artifact is None:
            future.finish(result)
            return
        # A large result is fetched beside the stream, or it would hold up all the others.
        with self._state:
            if self._downloads is None:
                self._downloads = ThreadPoolExecutor(DOWNLOADS_MAX, "computepool-download")
            run: Callable[..., object] = self._downloads.submit
        run(future.finish, result)

    def _lost(self, error: ComputePoolError) -> None:
        """The results cannot be followed any more: key revoked, group removed, hub gone for good."""
        with self._state:
            futures = [*self._open.values(), *(future for _, _, future in self._queue)]
            self._open.clear()
            self._queue.clear()
            self._closing = True
            self._lost_by = error
            self._to_send.notify()
            self._state.notify_all()
        for future in futures:
            future.fail(error)
