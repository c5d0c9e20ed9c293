"""Runs granted attempts: one task per lane, attempts in order within it, and a tick that enforces time limits.

Owns the attempts from their grant to their result, which goes to the reporter.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass

from computepool.agent.context import Node
from computepool.agent.execution import job_secrets
from computepool.agent.execution.attempt_result import AttemptResult, CannotStart, failed_result, returned_result
from computepool.agent.execution.attempts import Attempt, AttemptTable, Interrupted, Stop
from computepool.agent.execution.job_calls import CallRelay
from computepool.agent.execution.job_secrets import SecretFetcher
from computepool.agent.execution.lanes import AttemptLane, LaneCpus
from computepool.agent.execution.load import FIRST_COMPARABLE, Load
from computepool.agent.execution.logs import LogShipper
from computepool.agent.execution.processes import ProcessRunner
from computepool.agent.hardware.gpus import GpuMeter
from computepool.agent.hub_link.reporter import Reporter
from computepool.agent.owner.owner_console import Watcher
from computepool.agent.sandbox.base import BadCommand, SandboxError, Status
from computepool.agent.storage import sealing
from computepool.agent.storage.checkpoints import CheckpointKeeper
from computepool.agent.workers.functions import FunctionRunner
from computepool.core.errors import ComputePoolError
from computepool.core.jobs.lifecycle import CALLED, Outcome, Reason
from computepool.protocol.nodes.nodes import LogText, RunningAttempt

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class Executor:
    node: Node
    processes: ProcessRunner
    functions: FunctionRunner
    _: KW_ONLY
    secrets: SecretFetcher
    keeper: CheckpointKeeper
    relay: CallRelay
    shipper: LogShipper
    reporter: Reporter
    watcher: Watcher
    meter: GpuMeter
    lane_cpus: LaneCpus
    table: AttemptTable

    def __post_init__(self) -> None:
        self._lanes: dict[str, AttemptLane] = {}
        self._patrolled_at = self.node.clock.steady()
        self.idle_since = self.node.clock.steady()  #: when the last attempt ended; meaningless while there are attempts
        self._idle = asyncio.Event()
        self._idle.set()

    # ------------------------------------------------------------ for the poll loop
    @property
    def attempts(self) -> dict[str, Attempt]:
        """Every attempt that has no result yet."""
        return self.table.active

    @property
    def waiting(self) -> int:
        """Attempts that wait behind the head of their lane."""
        return sum(max(0, len(lane.waiting) - (lane.head is None)) for lane in self._lanes.values())

    def heads(self) -> list[Attempt]:
        return [head for _, head in self.lanes()]

    def lanes(self) -> list[tuple[AttemptLane, Attempt]]:
        """Every busy lane with its running attempt."""
        return [(lane, lane.head) for lane in self._lanes.values() if lane.head is not None]

    def running_attempts(self) -> list[RunningAttempt]:
        """What the hub should show as running. Load samples are sent once."""
        now, detail_s = self.node.clock.steady(), self.node.limits.load_detail_s
        return [
            RunningAttempt(
                attempt_id=head.id,
                progress=head.progress,
                usage=head.usage,
                cpu_ids=list(lane.cpu_ids),
                load=None if head.load is None or head.load.count < FIRST_COMPARABLE else head.load.wire(now),
                # One that runs for hours needs no sample every other second.
                earlier=head.unsent_loads.take(now, young=head.started_at is None or now - head.started_at < detail_s),
            )
            for lane, head in self.lanes()
            if head.announced
        ]

    def start(self, attempts: Iterable[Attempt]) -> None:
        for attempt in attempts:
            self.attempts[attempt.id] = attempt
            lane = self._lanes.get(attempt.grant.lane)
            if lane is None:
                lane = self._lanes[attempt.grant.lane] = AttemptLane(attempt.grant.lane)
                lane.task = asyncio.create_task(self._run_lane(lane))
            lane.waiting.append(attempt)
        if self.attempts:
            self._idle.clear()

    def stop(self, attempt: Attempt, why: Stop) -> None:
        """End one attempt, started or not."""
        if attempt.stop is not None or attempt.id not in self.attempts:
            return
        attempt.stop = why
        lane = self._lanes[attempt.grant.lane]
        if lane.withdraw(lambda waiting: waiting is attempt):
            self._end(attempt, why.result(started=False))
        elif lane.head is attempt:
            lane.recall()  # The worker may be about to start the next call, which must not die with it.
            attempt.end(Status.CANCELLED)

    def give_back(self, reason: Reason) -> None:
        """Return everything that has not started to the hub."""
        for lane in self._lanes.values():
            self._give_back(lane, reason)

    def ask_to_save(self) -> bool:
        """Ask every job that uses checkpoints to make one now. True while any has yet to do so."""
        saving = [self.keeper.ask_to_save(head) for head in self.heads()]
        return any(saving)

    async def wait_until_idle(self) -> None:
        await self._idle.wait()

    async def close(self) -> None:
        for lane in list(self._lanes.values()):
            if lane.task is not None:
                lane.task.cancel()
        await asyncio.gather(*(lane.task for lane in self._lanes.values() if lane.task), return_exceptions=True)
        self.functions.pool.close()

    # ------------------------------------------------------------ lanes
    async def _run_lane(self, lane: AttemptLane) -> None:
        try:
            while lane.waiting:
                attempt = lane.pop(self.node.clock.steady())
                if (cores := attempt.spec.limits.cpus) != lane.reserved_cores:
                    self.lane_cpus.enter(lane, cores, near=self.functions.warm_ids(attempt))
                attempt.cpu_ids = lane.cpu_ids
                result = await self._run(attempt, lane)
                await self.relay.end(attempt)
                job_secrets.mask_result(attempt, result)
                sealing.close(result, attempt.seal)
                logs: Sequence[LogText] = ()
                if attempt.log is not None:
                    logs = await self.shipper.settle(attempt.log)
                self._end(attempt, result, logs)
                lane.head = None
        finally:
            self.functions.release(lane)
            self.lane_cpus.leave(lane, self.node.clock.steady())
            del self._lanes[lane.id]

    async def _run(self, attempt: Attempt, lane: AttemptLane) -> AttemptResult:
        if attempt.stop is not None and attempt.call is None:
            return attempt.stop.result(started=False)
        try:
            if attempt.spec.spec.has_secrets and attempt.secrets is None:
                await attempt.prepare(self.secrets.fetch(attempt))
            if attempt.spec.kind in CALLED:
                result = await self.functions.run(attempt, lane)
            else:
                result = await self.processes.run(attempt)
        except Interrupted:
            return attempt.stop.result(started=False) if attempt.stop else returned_result(Reason.GIVEN_BACK)
        except CannotStart as error:
            return failed_result(error.reason, str(error))
        except BadCommand as error:
            return failed_result(Reason.BAD_JOB, str(error))
        except ComputePoolError as error:
            return failed_result(Reason.STAGING_FAILED, f"the hub did not accept the result: {error.detail}")
        except SandboxError as error:
            return failed_result(Reason.NODE_ERROR, f"the sandbox failed: {error}")
        except Exception as error:  # noqa: BLE001 - whatever broke, the hub must learn that this attempt did not run
            _log.exception("attempt %s failed in the agent", attempt.id)
            return failed_result(Reason.NODE_ERROR, f"the agent failed: {type(error).__name__}: {error}")
        final = self._final_result(attempt, result)
        final.ran_ms, final.usage = result.ran_ms, result.usage
        return final

    def _final_result(self, attempt: Attempt, result: AttemptResult) -> AttemptResult:
        """A stop by the agent explains the end better than the signal that it used. A finished job stays finished, unless
        its budget ran out first: a very short job may be over before the agent checks the clock.
        """
        if attempt.allowed_s < attempt.time_limit_s and (
            result.reason is Reason.TIMEOUT
            or (result.outcome is Outcome.SUCCEEDED and result.ran_ms > attempt.allowed_s * 1000)
        ):
            why = f"stopped after {attempt.allowed_s:g} s, when its budget was spent"
            result = failed_result(Reason.BUDGET_SPENT, why)
        if attempt.stop is not None and result.outcome not in (Outcome.SUCCEEDED, Outcome.MOVED):
            return attempt.stop.result(started=True)
        result.name_limit(memory_mb=attempt.spec.limits.memory_mb, timeout_s=attempt.spec.timeout_s)
        return result

    def _end(self, attempt: Attempt, result: AttemptResult, logs: Sequence[LogText] = ()) -> None:
        del self.attempts[attempt.id]
        result.loads = attempt.unsent_loads.take(self.node.clock.steady())
        self.reporter.add_result(attempt.id, result, logs)
        self.watcher.on_end(attempt, result)
        if not self.attempts:
            self.idle_since = self.node.clock.steady()
            self._idle.set()

    def _give_back(self, lane: AttemptLane, reason: Reason) -> None:
        for attempt in lane.withdraw(lambda _: True):
            self._end(attempt, returned_result(reason))

    # ------------------------------------------------------------ time
    def tick(self) -> bool:
        """Enforce time limits on every lane. True if the hub should learn of a newly running attempt."""
        now = self.node.clock.steady()
        news = False
        for lane, head in self.lanes():
            try:
                news = self._check(lane, head, now) or news
            except Exception:  # noqa: BLE001 - a problem in one lane must not suspend the limits of the others
                _log.exception("checking attempt %s failed", head.id)
        if now - self._patrolled_at >= self.node.limits.patrol_s:
            news = self._patrol(now - self._patrolled_at) or news
            self._patrolled_at = now
        return news

    def _check(self, lane: AttemptLane, head: Attempt, now: float) -> bool:
        self._enforce_time(head, lane, now)
        if lane.waiting and self._delays_others(head, lane, now):
            self._give_back(lane, Reason.GIVEN_BACK)
        if lane.worker is not None:
            lane.worker.poll_output()
        if now - lane.head_since > self.node.limits.announce_after_s and not head.announced:
            head.announced = True
            return True
        return False

    def _delays_others(self, head: Attempt, lane: AttemptLane, now: float) -> bool:
        if head.started_at is None:
            return now - lane.head_since > self.node.limits.give_back_unstarted_s
        return now - head.started_at > self.node.limits.give_back_after_s

    def _enforce_time(self, head: Attempt, lane: AttemptLane, now: float) -> None:
        if head.started_at is not None:
            if now - head.started_at > head.allowed_s and not head.timed_out:
                head.timed_out = True
                lane.recall()
                head.end(Status.TIMEOUT)
            return
        worker = lane.worker
        if worker and not worker.ready and now - worker.started_at > self.node.limits.worker_start_s:
            worker.give_up()

    def _patrol(self, elapsed_s: float) -> bool:
        """Enforce limits and sample loads. True after an attempt's first usable sample; later ones go with the polls."""
        news = False
        self.processes.patrol()
        self.functions.pool.patrol()
        now = self.node.clock.steady()
        self.lane_cpus.patrol(now)
        for lane, head in self.lanes():
            cards = None
            if head.grant.gpus and head.started_at is not None:
                cards = self.meter.load(head.grant.gpus)
                head.gpu_ms += 0 if cards is None else cards.busy * elapsed_s * 1000
            if head.announced and (process := lane.process()) is not None:
                head.load = Load.measure(process, now, head.load, cards=cards)
                head.unsent_loads.add(head.load)
                news = news or head.load.count == FIRST_COMPARABLE
        return news
