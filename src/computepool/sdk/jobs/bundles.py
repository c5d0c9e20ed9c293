"""Tiny items of a map travel several to a job. Here it is decided how many, and what becomes of each of them.

A Feed holds the items of one map that are not sent yet. The session's sender takes jobs from it, its receiver brings
their results. All of a feed's state is guarded by the session's lock, except where a method says otherwise.
"""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from computepool.core.jobs.lifecycle import JobState, Reason
from computepool.protocol.jobs import bundles
from computepool.protocol.jobs.jobs import PAYLOAD_MAX, JobResult
from computepool.sdk.code import functions
from computepool.sdk.errors import ComputePoolError, JobCancelled, ResultUnreadable, job_error, raised_error

if TYPE_CHECKING:
    from computepool.sdk.client.session import GroupSession, Submission

#: Items in one job, unless the person asks for more.
BUNDLE_MAX = 500
#: With their arguments no longer than a message to a node's worker may be.
BUNDLE_BYTES_MAX = 40 * 1024
#: And with results that need no artifact.
RESULT_CHARS_MAX = 128 * 1024
#: How long the items of one job shall take together: short enough to spread, long enough to be worth a job.
BUNDLE_S = 0.2
#: Of the time limit, so that a bundle does not meet the limit that is meant for one item.
_SHARE_OF_TIMEOUT = 0.1
_GROWTH = 16
#: While the time of an item is not known, so many jobs may be unanswered at first, and so many more each second.
_AHEAD = 64
_AHEAD_PER_S = 800
_RETRY_S = 0.02
#: How long fewer items than a job could hold wait for more of them: when nodes are idle, and when they are not.
_LINGER_IDLE_S, _LINGER_BUSY_S = 0.003, 0.05
_BUSY_JOBS = 4
#: A job of more items than this that died is cut into so many parts; a smaller one into its items.
_PARTS = 16
#: Endings that tell nothing about single items: all of them would end the same way.
_COMMON_FATE = frozenset(
    {
        Reason.BAD_JOB,
        Reason.DEPENDENCY_FAILED,
        Reason.NODES_KEPT_FAILING,
        Reason.NOT_CONFIRMED,
        Reason.UNRUNNABLE,
    }
)


@dataclass(slots=True, eq=False)
class Task:
    """One item on its way. `artifact` is set instead of `data` where the arguments are one."""

    index: int
    data: bytes
    artifact: str | None = None
    tried: bool = False  #: it raised once, so its tries are one fewer
    replaces: str | None = None  #: the job that had it before


#: What came of an item: its index, and its value or the exception in its place.
Outcome = tuple[int, Any, BaseException | None]


class Sizer:
    """How many items to a job, by what the last jobs took. Fixed where the person said a number."""

    def __init__(self, *, fixed: int | None = None, timeout_s: float = 3600.0) -> None:
        self._fixed = fixed
        self._aim_s = min(BUNDLE_S, timeout_s * _SHARE_OF_TIMEOUT)
        self._recent: deque[float] = deque(maxlen=9)  #: seconds of one item
        self._chars = 0.0  #: of one item's result, about
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
        by_size = RESULT_CHARS_MAX / max(1.0, self._chars)
        return max(1, min(self._cap, int(min(by_time, by_size))))

    @property
    def steady(self) -> bool:
        """Nothing better is to be expected from waiting for another answer."""
        return self._fixed is not None or (bool(self._recent) and self.size >= self.ideal)

    @property
    def result_chars(self) -> float:
        return self._chars

    def observe(self, items: int, *, ran_ms: int | None, chars: int) -> None:
        each = chars / items
        self._chars = each if not self._chars else 0.8 * self._chars + 0.2 * each
        if ran_ms is not None:
            self._recent.append((ran_ms + 0.5) / 1000 / items)  # a millisecond is the finest that is told
        if items >= self.size:
            self._cap = min(self._most, self._cap * 2)
            self.size = min(self.ideal, self.size * _GROWTH)
        self.size = min(self.size, self.ideal)

    def shrink(self, items: int) -> None:
        """The more often bundles die, the less do others suffer from it."""
        self._cap = max(1, min(self._cap, items // 4))
        self.size = min(self.size, self.ideal)

    def stop(self) -> None:
        """One item to a job from now on."""
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
        """`deliver`, a method, is called by the session's threads, without its lock, while its object is in use.

        `key_prefix`: what tells the keys of its jobs from all others of the group.
        """
        self.session = session
        self.submission = submission
        self.sizer = sizer
        self.key_prefix = key_prefix
        self._deliver = weakref.WeakMethod(deliver)
        self.complete = False  #: nothing more will be put in
        self._tasks: deque[Task] = deque()
        self._again: deque[list[Task]] = deque()  #: what goes out before all others, in exactly these jobs
        self._unanswered: set[Bundle] = set()
        self._began = time.monotonic()
        self._since = 0.0  #: when the first of the waiting tasks came

    def __len__(self) -> int:
        return len(self._tasks) + len(self._again)

    @property
    def unanswered(self) -> list[Bundle]:
        return list(self._unanswered)

    # ------------------------------------------------------------ on the way out
    def put(self, tasks: Sequence[Task]) -> None:
        if not self._tasks:
            self._since = time.monotonic()
        self._tasks.extend(tasks)

    def delay(self) -> float | None:
        """How long the sender should wait before it takes; 0: not at all; None: nothing is here."""
        if self._again:
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
        """Jobs to send now, all alike to the hub but for their items."""
        jobs: list[Bundle] = []
        size = 0
        while len(jobs) < jobs_max and size < bytes_max and self.delay() == 0.0:
            job = Bundle(self, self._again.popleft() if self._again else self._next_tasks())
            if jobs and job.submission != jobs[0].submission:
                self._again.appendleft(job.tasks)
                break
            jobs.append(job)
            self._unanswered.add(job)
            size += len(job.item)
        self._since = time.monotonic()
        return jobs

    def drop(self) -> list[Task]:
        """Take back everything that was not sent."""
        tasks = [*(task for tasks in self._again for task in tasks), *self._tasks]
        self._again.clear()
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
        if tasks[0].artifact is None:
            while self._tasks and len(tasks) < self.sizer.size and self._tasks[0].artifact is None:
                size += len(self._tasks[0].data) + 4
                if size > self.sizer.bytes_max:
                    break
                tasks.append(self._tasks.popleft())
        return tasks

    # ------------------------------------------------------------ on the way back, without the session's lock
    def receive(self, job: Bundle, result: JobResult) -> None:
        if self._is_dead(job, result):
            self._split(job, stop=result.error == bundles.WROTE_OUTPUTS)
            return
        try:
            outcomes, again = job.read(result)
        except ValueError:  # a text that answers something else; each item by itself will say more
            self._split(job)
            return
        with self.session.lock:
            self._unanswered.discard(job)
            if result.outputs:
                self.sizer.stop()
            self.sizer.observe(len(job.tasks), ran_ms=result.ran_ms, chars=len(result.result or ""))
            kept = self.session.again(self, [[task] for task in again])
        if not kept:
            outcomes += [_cancelled_outcome(task) for task in again]
        self.deliver(outcomes)

    def deliver(self, outcomes: Sequence[Outcome]) -> None:
        deliver = self._deliver()
        if deliver is not None:
            deliver(outcomes)

    def fail(self, job: Bundle, error: BaseException) -> None:
        with self.session.lock:
            self._unanswered.discard(job)
        self.deliver([(task.index, None, error) for task in job.tasks])

    def _is_dead(self, job: Bundle, result: JobResult) -> bool:
        """Something happened to the job, and only one of its items can be the reason."""
        alone = len(job.tasks) == 1
        return result.state is JobState.FAILED and not alone and result.reason not in _COMMON_FATE

    def _split(self, job: Bundle, *, stop: bool = False) -> None:
        """Only the guilty item may fail, and which one it is shows when it is alone."""
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
            kept = self.session.again(self, parts)
        if not kept:
            self.deliver([_cancelled_outcome(task) for task in tasks])

    def resend(self, parts: Sequence[list[Task]]) -> None:
        self._again.extend(parts)


class Bundle:
    """One job and the items in it, as the session sees it: something that is sent, and then ends."""

    __slots__ = ("feed", "item", "job_id", "submission", "tasks")

    def __init__(self, feed: Feed, tasks: list[Task]) -> None:
        self.feed = feed
        self.tasks = tasks
        self.job_id: str | None = None
        self.submission = self._submission()
        self.item = self._item()

    def _submission(self) -> Submission:
        given = self.feed.submission
        if len(self.tasks) > 1:
            # One that dies is split at once; tries are for single items. The parts of a budget add up.
            each = given.budget_each
            return replace(given, retries=0, budget_each=None if each is None else each * len(self.tasks))
        if self.tasks[0].tried:
            return replace(given, retries=given.retries - 1)
        return given

    def _item(self) -> str:
        first = self.tasks[0]
        before = (
            "" if first.replaces is None else f',"replaces":"{first.replaces}"'
        )  # all of a part had one job
        key = f'"key":"{self._key()}"'
        if first.artifact is not None:
            return f'{{{key},"payload_artifact":"{first.artifact}"{before}}}'
        if len(self.tasks) == 1:
            return f'{{{key},"payload":"{functions.text(first.data)}"{before}}}'
        data = bundles.pack([task.data for task in self.tasks])
        return f'{{{key},"payload":"{functions.text(data)}","bundled":{len(self.tasks)}{before}}}'

    def _key(self) -> str:
        """The numbers of its items, for who reads the results later (`unbundling.key_of`).

        Items are in their order, and what is sent again goes in smaller jobs, so no two jobs of a map have one key.
        """
        first, last = self.tasks[0].index, self.tasks[-1].index
        numbers = str(first) if len(self.tasks) == 1 else f"{first}-{last}"
        return f"{self.feed.key_prefix}{numbers}"

    # what the session calls
    def assign(self, job_id: str) -> None:
        self.job_id = job_id

    def finish(self, result: JobResult) -> None:
        self.feed.receive(self, result)

    def fail(self, error: ComputePoolError) -> None:
        self.feed.fail(self, error)

    def drop(self) -> None:
        self.feed.fail(self, JobCancelled("It was never sent.", job_id=self.job_id or ""))

    # what came of it
    def read(self, result: JobResult) -> tuple[list[Outcome], list[Task]]:
        """The outcomes, and what shall be tried again. Raises ValueError when it answers something else."""
        error = job_error(result)
        if error is not None:
            return [(task.index, None, error) for task in self.tasks], []
        if len(self.tasks) == 1:
            return [_read_alone(self.submission, self.tasks[0], result)], []
        return self._read_each(result)

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
        again: list[Task] = []
        for task, (kind, value) in zip(self.tasks, answers, strict=True):
            if kind == bundles.VALUE:
                outcomes.append((task.index, value, None))
            elif kind == bundles.RAISED and self.feed.submission.retries > 0:
                task.tried, task.replaces = True, self.job_id
                again.append(task)
            else:
                outcomes.append((task.index, None, _item_error(result.job_id, kind, value)))
        return outcomes, again


def _read_alone(submission: Submission, task: Task, result: JobResult) -> Outcome:
    try:
        return task.index, submission.read(result), None
    except ComputePoolError as unreadable:
        return task.index, None, unreadable


def _item_error(job_id: str, kind: int, value: Any) -> ComputePoolError:
    if kind == bundles.RAISED:
        return raised_error(job_id, str(value))
    error: ComputePoolError = ResultUnreadable(
        f"A result of job {job_id} cannot be read: {value}", job_id=job_id
    )
    error.__cause__ = value
    return error


def _cancelled_outcome(task: Task) -> Outcome:
    error: CancelledError = JobCancelled("Its map was closed.", job_id="", reason="cancelled_by_user")
    return task.index, None, error
