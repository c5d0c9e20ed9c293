"""Bundles: jobs that contain several small items of a map. Decides how many, and the outcome of each item.

A Feed holds the unsent items of one map. The session's sender takes jobs from it, and its receiver brings their results.
The session's lock guards all state of a feed; the caller holds it, except where a comment says otherwise.
"""

from __future__ import annotations

import json
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from computepool.core.errors import ComputePoolError
from computepool.core.jobs.lifecycle import JobState, Reason
from computepool.protocol.jobs import bundles
from computepool.protocol.jobs.jobs import PAYLOAD_MAX
from computepool.protocol.jobs.views import JobResult
from computepool.sdk.code import functions
from computepool.sdk.errors import JobCancelled, ResultUnreadable, job_error, raised_error

if TYPE_CHECKING:
    from computepool.sdk.client.session import GroupSession, Submission

#: Items per job, unless the caller asks for more.
BUNDLE_MAX = 500
#: Bytes of arguments per job: what fits into one message to a node's worker.
BUNDLE_BYTES_MAX = 40 * 1024
#: Characters of results per job: more would become an artifact.
RESULT_CHARS_MAX = 128 * 1024
#: Intended run time of a job: short enough to spread the work, long enough to be worth a job.
BUNDLE_S = 0.2
#: Share of the job's time limit, which is meant for one item, that a bundle may use.
_SHARE_OF_TIMEOUT = 0.1
_GROWTH = 16
#: While the run time of an item is unknown: unanswered jobs allowed at first, and added per second.
_AHEAD = 64
_AHEAD_PER_S = 800
_RETRY_S = 0.02
#: How long an incomplete bundle waits for more items: while nodes are idle, and while they are busy.
_LINGER_IDLE_S, _LINGER_BUSY_S = 0.003, 0.05
_BUSY_JOBS = 4
#: A failed bundle is split into this many parts, or, if it has at most twice as many items, into single items.
_PARTS = 16
#: Reasons that say nothing about single items: all of them would fail in the same way.
_SHARED_REASONS = frozenset(
    {Reason.BAD_JOB, Reason.DEPENDENCY_FAILED, Reason.NODES_KEPT_FAILING, Reason.NOT_CONFIRMED, Reason.UNRUNNABLE}
)


@dataclass(slots=True, eq=False)
class Task:
    """One item of a map. Large arguments are in `artifact` instead of `data`."""

    index: int
    data: bytes
    artifact: str | None = None
    tried: bool = False  #: it raised once in a bundle, which used up one retry
    replaces: str | None = None  #: the job that contained it before
    uses: tuple[str, ...] = ()  #: jobs whose results are among its arguments

    @property
    def is_single(self) -> bool:
        """It is a job of its own."""
        return self.artifact is not None or bool(self.uses)


#: The index of an item, its value, and the exception if there is no value.
Outcome = tuple[int, Any, BaseException | None]


class Sizer:
    """Chooses the number of items per job by the run time of recent jobs, or uses the number that the caller fixed."""

    def __init__(self, *, fixed: int | None = None, timeout_s: float = 3600.0) -> None:
        self._fixed = fixed
        self._aim_s = min(BUNDLE_S, timeout_s * _SHARE_OF_TIMEOUT)
        self._recent: deque[float] = deque(maxlen=9)  #: seconds per item
        self.result_chars = 0.0  #: moving average of the length of a result
        self._most = fixed or BUNDLE_MAX
        self._cap = self._most
        self.size = fixed or 1
        self.bytes_max = BUNDLE_BYTES_MAX if fixed is None else PAYLOAD_MAX - 4 * self._most

    @property
    def ideal(self) -> int:
        if self._fixed is not None:
            return min(self._fixed, self._cap)
        if not self._recent:
            return 1
        from statistics import median

        by_time = self._aim_s / median(self._recent)
        by_size = RESULT_CHARS_MAX / max(1.0, self.result_chars)
        return max(1, min(self._cap, int(min(by_time, by_size))))

    @property
    def steady(self) -> bool:
        """Waiting for another answer would not improve the size."""
        return self._fixed is not None or (bool(self._recent) and self.size >= self.ideal)

    def observe(self, items: int, *, ran_ms: int | None, chars: int) -> None:
        each = chars / items
        self.result_chars = each if not self.result_chars else 0.8 * self.result_chars + 0.2 * each
        if ran_ms is not None:
            self._recent.append((ran_ms + 0.5) / 1000 / items)  # times are rounded to milliseconds
        if items >= self.size:
            self._cap = min(self._most, self._cap * 2)
            self.size = min(self.ideal, self.size * _GROWTH)
        self.size = min(self.size, self.ideal)

    def shrink(self, items: int) -> None:
        """After a failed bundle, make the next ones smaller, so that fewer items share a failure."""
        self._cap = max(1, min(self._cap, items // 4))
        self.size = min(self.size, self.ideal)

    def stop(self) -> None:
        """Send single items from now on."""
        self._fixed = self.size = 1


class Feed:
    def __init__(
        self,
        session: GroupSession,
        submission: Submission,
        *,
        sizer: Sizer,
        deliver: Callable[[Sequence[Outcome]], None],
        key_prefix: str = "",
    ) -> None:
        """`deliver` is a bound method, held weakly; the session's threads call it without the lock.

        `key_prefix` distinguishes the keys of this map's jobs from all others in the group.
        """
        self.session = session
        self.submission = submission
        self.sizer = sizer
        self.key_prefix = key_prefix
        self._deliver = weakref.WeakMethod(deliver)
        self.complete = False  #: no more tasks will be added
        self._tasks: deque[Task] = deque()
        self._resends: deque[list[Task]] = deque()  #: jobs to send before all others
        self._unanswered: set[Bundle] = set()
        self._began = time.monotonic()
        self._since = 0.0  #: when the first waiting task was added

    def __len__(self) -> int:
        return len(self._tasks) + len(self._resends)

    @property
    def unanswered(self) -> list[Bundle]:
        return list(self._unanswered)

    # ------------------------------------------------------------ sending
    def put(self, tasks: Sequence[Task]) -> None:
        if not self._tasks:
            self._since = time.monotonic()
        self._tasks.extend(tasks)

    def delay(self) -> float | None:
        """How long the sender should wait before taking jobs; None: there are none."""
        if self._resends:
            return 0.0
        if not self._tasks:
            return None
        if not self._may_send():
            return _RETRY_S
        if self.complete or len(self._tasks) >= self.sizer.size:
            return 0.0
        linger = _LINGER_BUSY_S if len(self._unanswered) >= _BUSY_JOBS else _LINGER_IDLE_S
        return max(0.0, self._since + linger - time.monotonic())

    def take(self, jobs_max: int, bytes_max: int) -> list[Bundle]:
        """Jobs to send now in one batch: they differ in their items only."""
        jobs: list[Bundle] = []
        size = 0
        while len(jobs) < jobs_max and size < bytes_max and self.delay() == 0.0:
            job = Bundle(self, self._resends.popleft() if self._resends else self._next_tasks())
            if jobs and job.submission != jobs[0].submission:
                self._resends.appendleft(job.tasks)
                break
            jobs.append(job)
            self._unanswered.add(job)
            size += len(job.item)
        self._since = time.monotonic()
        return jobs

    def drop(self) -> list[Task]:
        """Remove and return all unsent tasks."""
        tasks = [*(task for tasks in self._resends for task in tasks), *self._tasks]
        self._resends.clear()
        self._tasks.clear()
        return tasks

    def _may_send(self) -> bool:
        if self.sizer.steady:
            return True
        waited_s = time.monotonic() - self._began
        return len(self._unanswered) < _AHEAD + waited_s * _AHEAD_PER_S

    def _next_tasks(self) -> list[Task]:
        tasks = [self._tasks.popleft()]
        size = len(tasks[0].data)
        if not tasks[0].is_single:
            while self._tasks and len(tasks) < self.sizer.size and not self._tasks[0].is_single:
                size += len(self._tasks[0].data) + 4
                if size > self.sizer.bytes_max:
                    break
                tasks.append(self._tasks.popleft())
        return tasks

    # ------------------------------------------------------------ receiving, without the session's lock
    def receive(self, job: Bundle, result: JobResult) -> None:
        # Of several items, a single one may be the cause.
        if result.state is JobState.FAILED and len(job.tasks) > 1 and result.reason not in _SHARED_REASONS:
            self._split(job, stop=result.error == bundles.WROTE_OUTPUTS)
            return
        try:
            outcomes, retries = job.read(result)
        except ValueError:  # the result does not fit the bundle; single items will show which one is wrong
            self._split(job)
            return
        with self.session.lock:
            self._unanswered.discard(job)
            if result.outputs:
                self.sizer.stop()
            self.sizer.observe(len(job.tasks), ran_ms=result.ran_ms, chars=len(result.result or ""))
            resent = self.session.resend(self, [[task] for task in retries])
        if not resent:
            outcomes += [_cancelled_outcome(task) for task in retries]
        self.deliver(outcomes)

    def deliver(self, outcomes: Sequence[Outcome]) -> None:
        deliver = self._deliver()
        if deliver is not None:
            deliver(outcomes)

    def fail(self, job: Bundle, error: BaseException) -> None:
        with self.session.lock:
            self._unanswered.discard(job)
        self.deliver([(task.index, None, error) for task in job.tasks])

    def _split(self, job: Bundle, *, stop: bool = False) -> None:
        """Send the items again in smaller jobs, down to single items, so that only the faulty item fails."""
        tasks = job.tasks
        for task in tasks:
            task.replaces = job.job_id
        size = len(tasks) // _PARTS if len(tasks) > 2 * _PARTS and not stop else 1
        parts = [tasks[start : start + size] for start in range(0, len(tasks), size)]
        with self.session.lock:
            self._unanswered.discard(job)
            self.sizer.shrink(len(tasks))
            if stop:
                self.sizer.stop()
            resent = self.session.resend(self, parts)
        if not resent:
            self.deliver([_cancelled_outcome(task) for task in tasks])

    def resend(self, parts: Sequence[list[Task]]) -> None:
        self._resends.extend(parts)


class Bundle:
    """A job with one or more items, whose result the session delivers."""

    __slots__ = ("feed", "item", "job_id", "submission", "tasks")

    def __init__(self, feed: Feed, tasks: list[Task]) -> None:
        self.feed = feed
        self.tasks = tasks
        self.job_id: str | None = None
        self.submission = self._submission()
        self.item = self._item()

    def _submission(self) -> Submission:
        given = self.feed.submission
        if self.tasks[0].uses:
            given = given.taking_results()
        if len(self.tasks) > 1:
            # A failed bundle is split at once, so retries are for single items. It gets the budget of all its items.
            each = given.budget_each
            return replace(given, retries=0, budget_each=None if each is None else each * len(self.tasks))
        if self.tasks[0].tried:
            return replace(given, retries=given.retries - 1)
        return given

    def _item(self) -> str:
        first = self.tasks[0]
        before = "" if first.replaces is None else f',"replaces":"{first.replaces}"'  # the same for all tasks
        key = f'"key":"{self._key()}"'
        if first.uses:
            before += f',"uses":{json.dumps(first.uses)}'
        if first.artifact is not None:
            return f'{{{key},"payload_artifact":"{first.artifact}"{before}}}'
        if len(self.tasks) == 1:
            return f'{{{key},"payload":"{functions.text(first.data)}"{before}}}'
        data = bundles.pack([task.data for task in self.tasks])
        return f'{{{key},"payload":"{functions.text(data)}","bundled":{len(self.tasks)}{before}}}'

    def _key(self) -> str:
        """The numbers of its items, for later readers of the results (`unbundling.key_of`).

        Unique within a map: items are in order, and resent items go into smaller jobs.
        """
        first, last = self.tasks[0].index, self.tasks[-1].index
        numbers = str(first) if len(self.tasks) == 1 else f"{first}-{last}"
        return f"{self.feed.key_prefix}{numbers}"

    def assign(self, job_id: str) -> None:
        self.job_id = job_id

    def finish(self, result: JobResult) -> None:
        self.feed.receive(self, result)

    def fail(self, error: ComputePoolError) -> None:
        self.feed.fail(self, error)

    def drop(self) -> None:
        self.feed.fail(self, JobCancelled("It was never sent.", job_id=self.job_id or ""))

    def read(self, result: JobResult) -> tuple[list[Outcome], list[Task]]:
        """The outcomes, and the tasks to retry. Raises ValueError if the result does not fit the bundle."""
        error = job_error(result)
        if error is not None:
            return [(task.index, None, error) for task in self.tasks], []
        if len(self.tasks) > 1:
            return self._read_each(result)
        index = self.tasks[0].index
        try:
            return [(index, self.submission.read(result), None)], []
        except ComputePoolError as unreadable:
            return [(index, None, unreadable)], []

    def _read_each(self, result: JobResult) -> tuple[list[Outcome], list[Task]]:
        text = result.result or ""
        if result.result_artifact is not None:
            try:
                artifacts = self.feed.session.pool.artifacts
                text = artifacts.get_result(result.result_artifact, job_id=result.job_id)
            except ComputePoolError as error:
                return [(task.index, None, error) for task in self.tasks], []
        answers = bundles.read(text, len(self.tasks), allow_pickle=self.submission.allow_pickle)
        outcomes: list[Outcome] = []
        retries: list[Task] = []
        for task, (kind, value) in zip(self.tasks, answers, strict=True):
            if kind == bundles.VALUE:
                outcomes.append((task.index, value, None))
            elif kind == bundles.RAISED and self.feed.submission.retries > 0:
                task.tried, task.replaces = True, self.job_id
                retries.append(task)
            else:
                outcomes.append((task.index, None, _item_error(result.job_id, kind, value)))
        return outcomes, retries


def _item_error(job_id: str, kind: int, value: Any) -> ComputePoolError:
    if kind == bundles.RAISED:
        return raised_error(job_id, str(value))
    error: ComputePoolError = ResultUnreadable(f"A result of job {job_id} cannot be read: {value}", job_id=job_id)
    error.__cause__ = value
    return error


def _cancelled_outcome(task: Task) -> Outcome:
    error: CancelledError = JobCancelled("Its map was closed.", job_id="", reason="cancelled_by_user")
    return task.index, None, error
