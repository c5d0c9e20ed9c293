"""The client's side of a group of jobs: sends submissions in batches, and receives results through one long poll.

Two background threads start on demand. The sender takes what was queued during its last request, so a loop of submits
is batched without any delay. The receiver follows the results. Both survive restarts of the hub, and nothing is
submitted twice because each batch keeps its idempotency key.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from computepool.core.errors import BadRequest, ComputePoolError, Conflict
from computepool.core.words import pluralize
from computepool.protocol.jobs.groups import GroupRequest, GroupView, ResultPage
from computepool.protocol.jobs.jobs import ITEMS_MAX, JobSpec, SubmitReply
from computepool.protocol.jobs.views import JobResult
from computepool.sdk.client.background import CLOSE_TIMEOUT_S, BackgroundThreads
from computepool.sdk.client.transport import WAIT_MS, Transport
from computepool.sdk.client.waiting import WaitWatcher, warn_of_running_map
from computepool.sdk.errors import HubUnreachable
from computepool.sdk.files.sealing import with_error
from computepool.sdk.jobs.bundles import Bundle, Feed, Task
from computepool.sdk.jobs.futures import JobFuture, Reader

if TYPE_CHECKING:
    from computepool.sdk.pool import Pool

#: Well below what the hub accepts as one body.
BATCH_BYTES_MAX = 4 * 1024 * 1024
RESULTS_PER_PAGE = 500
#: How long jobs wait for an unreachable hub before their futures fail.
OUTAGE_MAX_S = 24 * 3600.0
DOWNLOADS_MAX = 4
#: With this many open jobs, a short pause between polls lets each one bring more results, which saves the hub work.
_BUSY_OPEN = 200
_BUSY_PAUSE_S = 0.01
#: How many refused jobs are remembered until the program ends.
_REFUSED_MAX = 100

_log = logging.getLogger("computepool.sdk")


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """The part of a request that jobs of one batch share, as JSON; `read` turns their results into values."""

    spec: str
    terms: str  #: further fields of the request, each with a leading comma
    read: Reader
    budget_each: int | None = None  #: microcredits per job; a batch is sent with the sum
    retries: int = 0
    allow_pickle: bool = False
    batch: object = None  #: jobs with the same object form one batch, in which they are numbered
    takes_results: bool = False  #: their arguments contain results of other jobs

    def taking_results(self) -> Submission:
        return replace(self, spec=_taking_results(self.spec), takes_results=True)


@lru_cache(maxsize=16)
def _taking_results(spec: str) -> str:
    return JobSpec.model_validate_json(spec).model_copy(update={"takes_results": True}).body()


#: Receives the ID and the result of a job: the future of a single job, or a bundle of a map's items.
Receiver = JobFuture | Bundle
#: A job to be sent: what it shares with others, the JSON of its Item, and the receiver of its result.
Outgoing = tuple[Submission, str, Receiver]


class GroupSession:
    def __init__(
        self, pool: Pool, *, request: GroupRequest | None = None, group_id: str | None = None, lingers: bool = False
    ) -> None:
        """For an existing group, or for one that the first submission creates from `request`.

        With `lingers`, a poll stays open for a while after the last result, ready for a caller who submits one job
        after another.
        """
        self.pool = pool
        self._transport: Transport = pool.transport
        self._request = request
        self._lingers = lingers
        self._pid = os.getpid()
        self.lock = lock = threading.Lock()
        #: Two conditions on one lock, so that a submit wakes only the sender.
        self._state = threading.Condition(lock)
        self._to_send = threading.Condition(lock)
        # The lock guards everything below.
        self.group_id = group_id
        self._queue: deque[Outgoing] = deque()
        self._feeds: list[Feed] = []
        self._sending = 0
        self._open: dict[str, Receiver] = {}
        self._early: dict[str, JobResult] = {}  #: results that arrived before the reply with their job IDs
        self._cursor = 0
        self._lingering = False  #: polling on after the last result
        self._sender: threading.Thread | None = None
        self._closing = False
        self._abandoned = False
        self._failure: ComputePoolError | None = None
        self._refused: deque[JobFuture] = deque(maxlen=_REFUSED_MAX)
        self._downloads = BackgroundThreads("computepool-download", threads=DOWNLOADS_MAX)
        weakref.finalize(self, self._downloads.stop).atexit = False
        self.waits = WaitWatcher(self._transport, self._oldest)

    @property
    def _unsent(self) -> int:
        return len(self._queue) + sum(map(len, self._feeds)) + self._sending

    def submit(self, submission: Submission, item: str) -> JobFuture:
        """`item` is the JSON of one Item. Returns at once; the sender does the rest."""
        self._check_process()
        with self._state:
            return self._enqueue(submission, item)

    def _check_process(self) -> None:
        """Must come before taking the lock: in a forked child, a thread that no longer exists may hold it."""
        if self._pid != os.getpid():
            raise RuntimeError("this process was forked: call connect() again in it")

    def _check_open(self) -> None:
        if self._closing:
            raise self._failure or RuntimeError("cannot submit after close()")

    def _enqueue(self, submission: Submission, item: str) -> JobFuture:
        self._check_open()
        future = JobFuture(self, submission.read)
        self._queue.append((submission, item, future))
        if self._sender is None:
            self._start()
        elif len(self._queue) == 1:
            self._to_send.notify()
        return future

    def submit_batch(self, submission: Submission, items: Sequence[str]) -> list[JobFuture]:
        """Submit at most ITEMS_MAX jobs in one batch, so that each one knows its number and how many there are."""
        self._check_process()
        with self._state:  # held until all are queued: the sender must not take only some of them
            one_batch = replace(submission, batch=object())
            return [self._enqueue(one_batch, item) for item in items]

    def add_tasks(self, feed: Feed, tasks: Sequence[Task], *, complete: bool) -> None:
        """Add items of a map; `complete`: these are the last ones."""
        self._check_process()
        with self._state:
            self._check_open()
            feed.put(tasks)
            feed.complete = complete
            if feed not in self._feeds and len(feed):
                self._feeds.append(feed)
            if self._sender is None and len(feed):
                self._start()
            else:
                self._to_send.notify()

    def resend(self, feed: Feed, parts: Sequence[list[Task]]) -> bool:
        """Send the items again, grouped into jobs as given. False if it is too late. The caller holds the lock."""
        if self._closing and parts:
            return False
        feed.resend(parts)
        if parts and feed not in self._feeds:
            self._feeds.append(feed)
        self._to_send.notify()  # the sender may also have waited for this answer
        return True

    def withdraw_feed(self, feed: Feed) -> list[str]:
        """Drop what was not sent; returns the IDs of the jobs that were sent and have no result yet."""
        with self._state:
            feed.drop()
            self._state.wait_for(lambda: not self._sending, CLOSE_TIMEOUT_S)
            self._state.notify_all()
            return [job.job_id for job in feed.unanswered if job.job_id is not None]

    def attach(self, job_id: str, read: Reader) -> JobFuture:
        """A future for an existing job of this group. The caller must check for a result that came earlier."""
        with self._state:
            known = self._open.get(job_id)
            if isinstance(known, JobFuture):
                return known
            if known is not None:
                raise Conflict(f"Job {job_id} belongs to a running map; iterate over it for its results.")
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
        """Take back a job that was not sent yet. False if it was sent."""
        with self._state:
            for entry in self._queue:
                if entry[2] is future:
                    self._queue.remove(entry)
                    self._state.notify_all()
                    return True
        return False

    def flush(self, timeout: float = CLOSE_TIMEOUT_S) -> bool:
        """Wait until the hub has acknowledged everything submitted so far."""
        with self._state:
            return self._state.wait_for(lambda: not self._unsent, timeout)

    def abandon(self) -> None:
        """Cancel all open jobs without waiting: the sender notifies the hub before it ends."""
        with self._state:
            dropped = [future for _, _, future in self._queue]
            self._queue.clear()
            for feed in self._feeds:
                feed.drop()
            self._abandoned = True
            self._begin_closing()
        for future in dropped:
            future.drop()
        self._release_open()

    def close(self, timeout: float = CLOSE_TIMEOUT_S) -> None:
        """Flush and disconnect. Jobs keep running; futures without a result fail."""
        if self._pid != os.getpid():
            return
        end = time.monotonic() + timeout
        if not self.flush(timeout):
            unsent = pluralize(self._unsent, "job")
            url = self._transport.url
            _log.warning("%s could not be sent to the hub at %s before the program closed", unsent, url)
        self._report_refusals()
        with self._state:
            self._begin_closing()
            sender = self._sender
        if sender is not None and sender is not threading.current_thread():
            sender.join(max(0.0, end - time.monotonic()))
        self._release_open()

    def _report_refusals(self) -> None:
        """Report the jobs that the hub refused, if the program has not looked at their futures."""
        refused = [future for future in self._refused if not future.examined and not future.cancelled()]
        if refused:
            count = pluralize(len(refused), "job was", "jobs were")
            _log.warning("%s not accepted: %s", count, refused[-1].exception())

    def _begin_closing(self) -> None:
        """The caller holds the lock."""
        self._closing = True
        self.waits.end()
        self._to_send.notify()
        self._state.notify_all()

    def _release_open(self) -> None:
        """End the receivers of all open jobs: no more results will be read."""
        with self._state:
            receivers = list(self._open.values())
            self._open.clear()
            self._state.notify_all()
        if not self._abandoned and self._failure is None:
            warn_of_running_map(sum(not isinstance(one, JobFuture) for one in receivers), self.group_id)
        closed = HubUnreachable("The connection was closed. The job keeps running; its result stays at the hub.")
        for receiver in receivers:
            if self._abandoned:
                receiver.drop()
            else:
                receiver.fail(self._failure or closed)

    # ------------------------------------------------------------ the two threads
    def _start(self) -> None:
        for run in (self._send_all, self._receive_all, self.waits.watch):
            name = f"computepool-{run.__name__.strip('_')}"
            thread = threading.Thread(target=self._run_guarded, args=(run,), name=name, daemon=True)
            self._sender = self._sender or thread
            thread.start()

    def _run_guarded(self, run: Callable[[], None]) -> None:
        """If a thread dies, fail everything that waits for it."""
        try:
            run()
        except BaseException as error:  # noqa: BLE001 - passed to every waiting receiver
            with self._state:
                self._sending = 0
            self._fail_open(_unexpected_error(error))

    def _send_all(self) -> None:
        while batch := self._next_batch():
            self._submit(batch)
        if self._abandoned and self.group_id is not None:
            with suppress(ComputePoolError):
                self._transport.call("POST", f"/groups/{self.group_id}/cancel", body=b"{}")

    def _submit(self, batch: list[Outgoing]) -> None:
        receivers = [receiver for _, _, receiver in batch]
        try:
            self._acknowledge(receivers, self._send(batch).job_ids)
        except (BadRequest, Conflict) as error:
            if len(batch) == 1 or not batch[0][0].takes_results:
                self._reject(receivers, error)
                return
            for entry in batch:  # the argument of one may have failed already, and the hub takes all jobs or none
                self._submit([entry])
        except ComputePoolError as error:
            self._reject(receivers, error)
        except Exception as error:  # noqa: BLE001 - see _run_guarded
            self._reject(receivers, _unexpected_error(error))

    def _next_batch(self) -> list[Outgoing]:
        """The next jobs that share a spec, in order; empty when closing."""
        with self._state:
            batch: list[Outgoing] = []
            while not batch:
                batch = self._take_from_queue() or self._take_from_feeds()
                if not batch:
                    # Until a feed has jobs to send; None if no feed has items.
                    delays = [delay for feed in self._feeds if (delay := feed.delay()) is not None]
                    due_s = min(delays, default=None)
                    if self._closing and due_s is None:
                        break
                    self._to_send.wait(due_s)
            self._sending = len(batch)
            return batch

    def _take_from_queue(self) -> list[Outgoing]:
        """The longest run of jobs with the same submission at the head of the queue."""
        batch: list[Outgoing] = []
        size = 0
        while self._queue and len(batch) < ITEMS_MAX and size < BATCH_BYTES_MAX:
            entry = self._queue[0]
            if batch and entry[0] is not batch[0][0] and entry[0] != batch[0][0]:
                break
            batch.append(self._queue.popleft())
            size += len(entry[1])
        return batch

    def _take_from_feeds(self) -> list[Outgoing]:
        """Jobs of the first feed that has some; it then moves to the end of the list."""
        for feed in list(self._feeds):
            if feed.delay() == 0.0:
                self._feeds.remove(feed)
                jobs = feed.take(ITEMS_MAX, BATCH_BYTES_MAX)
                if len(feed):
                    self._feeds.append(feed)
                return [(job.submission, job.item, job) for job in jobs]
        return []

    def _send(self, batch: list[Outgoing]) -> SubmitReply:
        head = batch[0][0]
        items = ",".join([item for _, item, _ in batch])
        terms = head.terms
        if head.budget_each is not None:
            terms += f',"budget":{head.budget_each * len(batch)}'
        if head.retries:
            terms += f',"retries":{head.retries}'
        body = f'{{"spec":{head.spec},"items":[{items}],"group_id":"{self._ensure_group()}"{terms}}}'
        reply = self._transport.request(SubmitReply, "POST", "/jobs", body=body.encode(), retry_for=OUTAGE_MAX_S)
        if reply.warning:
            self.waits.notify(reply.job_ids[0], reply.warning)
        return reply

    def _ensure_group(self) -> str:
        if self.group_id is None:
            assert self._request is not None
            body = self._request.model_dump_json().encode()
            group = self._transport.request(GroupView, "POST", "/groups", body=body, retry_for=OUTAGE_MAX_S)
            with self._state:
                self.group_id = group.id
        return self.group_id

    def _reject(self, receivers: Sequence[Receiver], error: ComputePoolError) -> None:
        with self._state:
            self._sending -= len(receivers)
            self._state.notify_all()
        for receiver in receivers:  # without the lock: they may submit more jobs and wait until those are sent
            receiver.fail(error)
        self._refused.extend(receiver for receiver in receivers if isinstance(receiver, JobFuture))

    def _acknowledge(self, receivers: Sequence[Receiver], job_ids: list[str]) -> None:
        finished: list[tuple[Receiver, JobResult]] = []
        with self._state:
            for receiver, job_id in zip(receivers, job_ids, strict=True):
                receiver.assign(job_id)
                early = self._early.pop(job_id, None)
                if early is None:
                    self._open[job_id] = receiver
                else:
                    finished.append((receiver, early))
            self._sending -= len(receivers)
            self._early.clear()
            open_ = not self._closing
            self._state.notify_all()
        for receiver, result in finished:
            self._finish(receiver, result)
        if not open_:
            self._release_open()

    def _oldest(self) -> str:
        with self._state:
            return next(iter(self._open), "")

    def _receive_all(self) -> None:
        while self._wait_for_open():
            has_open = bool(self._open)
            try:
                page = self._results_page(OUTAGE_MAX_S if has_open else 0)
            except ComputePoolError as error:
                if has_open:
                    self._fail_open(error)
                    return
                self._lingering = False  # no job was open, so neither retry nor report it
                continue
            self._deliver(page)
            if len(self._open) >= _BUSY_OPEN:
                time.sleep(_BUSY_PAUSE_S)

    def _wait_for_open(self) -> bool:
        with self._state:
            self._state.wait_for(lambda: self._closing or self._open or self._lingering)
            return not self._closing

    def _results_page(self, retry_for: float) -> ResultPage:
        path = f"/groups/{self.group_id}/results"
        params = {"after": self._cursor, "limit": RESULTS_PER_PAGE, "wait_ms": WAIT_MS}
        wait_s = WAIT_MS / 1000
        return self._transport.request(ResultPage, "GET", path, params=params, wait_s=wait_s, retry_for=retry_for)

    def _deliver(self, page: ResultPage) -> None:
        finished: list[tuple[Receiver, JobResult]] = []
        with self._state:
            self._cursor = page.cursor
            self._lingering = self._lingers and bool(page.results)
            for result in page.results:
                receiver = self._open.pop(result.job_id, None)
                if receiver is not None:
                    finished.append((receiver, result))
                elif self._sending:
                    self._early[result.job_id] = result
        for receiver, result in finished:
            self._finish(receiver, result)

    def _finish(self, receiver: Receiver, result: JobResult) -> None:
        result = with_error(result, result.job_id)
        if result.result_artifact is None:
            _finish(receiver, result)
            return
        # A large result is fetched by another thread, so that it does not delay the others.
        self._downloads.start()
        self._downloads.put(partial(_finish, receiver, result))

    def _fail_open(self, error: ComputePoolError) -> None:
        """The results cannot be read any more: key revoked, group removed, or the hub gone for good."""
        with self._state:
            receivers = [*self._open.values(), *(receiver for _, _, receiver in self._queue)]
            waiting = [(feed, feed.drop()) for feed in self._feeds]
            self._open.clear()
            self._queue.clear()
            self._feeds.clear()
            self._failure = error
            self._begin_closing()
        for receiver in receivers:
            receiver.fail(error)
        for feed, tasks in waiting:
            feed.deliver([(task.index, None, error) for task in tasks])


def _finish(receiver: Receiver, result: JobResult) -> None:
    """Whatever the receiver raises, the thread continues and the receiver ends."""
    try:
        receiver.finish(result)
    except BaseException as error:  # noqa: BLE001 - a pickled value may even raise SystemExit
        receiver.fail(_unexpected_error(error))


def _unexpected_error(error: BaseException) -> ComputePoolError:
    _log.error("unexpected", exc_info=error)
    wrapped = ComputePoolError(f"Unexpected error: {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped
