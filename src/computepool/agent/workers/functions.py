"""Runs `function` jobs: finds a worker, sends it calls, and turns its replies into results."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import KW_ONLY, dataclass
from functools import partial
from io import BytesIO
from pathlib import Path

from computepool.agent.context import Node
from computepool.agent.execution.attempt_result import AttemptResult, BadJob, FolderFull, failed_result, result_of_exit
from computepool.agent.execution.attempts import Attempt, Interrupted
from computepool.agent.execution.job_logs import OutputSink
from computepool.agent.execution.lanes import AttemptLane
from computepool.agent.execution.staging import OutputRejected, open_for_upload, place_artifact, send_file, take_outputs
from computepool.agent.network.gang_link import GangLinks
from computepool.agent.sandbox.base import ProcessUsage, Status
from computepool.agent.sandbox.collect import Caps, OutputCollector
from computepool.agent.storage import sealing
from computepool.agent.storage.artifacts import ArtifactCache, Uploader
from computepool.agent.storage.checkpoints import CheckpointKeeper
from computepool.agent.storage.job_volumes import VolumeKeeper
from computepool.agent.storage.sweeper import Sweeper
from computepool.agent.workers.arguments import place_results
from computepool.agent.workers.worker import LONG_RESULT, MOVES, NO_MEMORY, OUTPUTS_FOLDER, RAISED, RESULT_FOLDER, SAVES
from computepool.agent.workers.worker_pool import WorkerPool
from computepool.agent.workers.workers import Call, CallReply, Lost, WorkerHandle
from computepool.core.jobs.lifecycle import CALLED, Outcome, Reason
from computepool.protocol.jobs.jobs import BUNDLED_MAX, RESULT_INLINE_MAX, too_large_result
from computepool.protocol.sealing import RESULT, Seal


@dataclass(eq=False)
class FunctionRunner:
    node: Node
    pool: WorkerPool
    cache: ArtifactCache
    _: KW_ONLY
    uploader: Uploader
    keeper: CheckpointKeeper
    sink: OutputSink
    sweeper: Sweeper
    gangs: GangLinks
    volumes: VolumeKeeper

    async def run(self, attempt: Attempt, lane: AttemptLane) -> AttemptResult:
        result = await self.keeper.finish(attempt, await self._run(attempt, lane))
        if attempt.volumes:
            await _end_worker(lane)
            await self.volumes.save(attempt, result)
        return result

    async def _run(self, attempt: Attempt, lane: AttemptLane) -> AttemptResult:
        while True:
            call = attempt.call or await self._start_call(attempt, lane)
            worker = lane.worker
            assert worker is not None
            attempt.workdir, attempt.proxy = worker.workdir, worker.proxy
            if not call.future.done():
                self._watch(attempt, call, worker)
                self._feed_ahead(lane, worker)
            reply = await call.future
            attempt.kill = None
            attempt.call = None
            if isinstance(reply, CallReply):
                return await self._result_of(attempt, call, reply, worker=worker)
            self._drop_worker(lane)
            if worker.tampered and reply.started:
                return failed_result(Reason.EXCEPTION, "the function interfered with its worker")
            stopped = reply.exit.status in (Status.CANCELLED, Status.TIMEOUT)
            stopped_for_another = stopped and attempt.stop is None and not attempt.timed_out
            if attempt.timed_out or (reply.started and not stopped_for_another):
                return _result_of_lost(attempt, reply, worker)
            if attempt.stop is not None:
                raise Interrupted
            # The worker was stopped because of another call, or ended before it read this one: call it again.

    def warm_ids(self, attempt: Attempt) -> tuple[int, ...]:
        """The CPUs of the warm worker that a call would get; empty if there is none."""
        if attempt.spec.kind not in CALLED:
            return ()
        try:
            return self.pool.warm_ids(attempt.worker_key)
        except BadJob:  # refused when its turn comes
            return ()

    def release(self, lane: AttemptLane) -> None:
        if lane.worker is not None:
            worker, lane.worker = lane.worker, None
            self.pool.give_back(worker)

    # ------------------------------------------------------------ calls
    async def _start_call(self, attempt: Attempt, lane: AttemptLane) -> Call:
        key = attempt.worker_key
        while True:
            worker = lane.worker
            if worker is None or not worker.takes_calls or worker.key != key or self.pool.is_expired(worker):
                self.release(lane)
                note = partial(self.sink.logs.note, attempt)
                if attempt.grant.gang is not None:
                    if attempt.gang is not None:  # its worker ended before it took the call
                        attempt.gang.close()
                    attempt.gang = self.gangs.make(attempt.grant, note)
                worker = lane.worker = await attempt.prepare(
                    self.pool.take(
                        key,
                        lane.cpu_ids,
                        note=note,
                        gang=attempt.gang,
                        stage=partial(self.volumes.stage, attempt) if attempt.spec.spec.volumes else None,
                    )
                )
                worker.pin(lane.cpu_ids, lane.cores)
            call = await self._offer(attempt, worker)
            if call is not None:
                attempt.call = call
                return call
            worker.kill(Status.CANCELLED)  # It is idle and takes no calls.
            self.release(lane)

    async def _offer(self, attempt: Attempt, worker: WorkerHandle) -> Call | None:
        """None if earlier calls left the worker or its folder unable to take another."""
        try:
            call = await self._call_with_files(attempt, worker)
        except FolderFull:
            if not worker.served:
                raise
            return None
        if not worker.send(call):
            if worker.served or worker.sent:
                return None
            worker.lose(call)  # This job's own files did that, and would do it to every other worker.
        return call

    def _watch(self, attempt: Attempt, call: Call, worker: WorkerHandle) -> None:
        attempt.kill = partial(worker.stop_call, call)
        if worker.ready:
            self._start_clock(attempt)
        if attempt.stop is not None:
            attempt.kill(Status.CANCELLED)

    def _start_clock(self, attempt: Attempt) -> None:
        attempt.started_at = self.node.clock.steady()

    def _feed_ahead(self, lane: AttemptLane, worker: WorkerHandle) -> None:
        """While calls are short, send the next ones ahead to save round trips."""
        limits = self.node.limits
        if worker.sent > limits.worker_ahead_max // 2 or lane.fed >= len(lane.waiting) or self.pool.is_expired(worker):
            return
        if worker.last_call_s is None or worker.last_call_s > limits.worker_ahead_below_s:
            return
        while worker.sent <= limits.worker_ahead_max and lane.fed < len(lane.waiting):
            attempt = lane.waiting[lane.fed]
            spec, grant = attempt.spec, attempt.grant
            if grant.payload_artifact or grant.checkpoint is not None or spec.digest not in worker.functions:
                return
            if spec.spec.takes_results:
                return
            if attempt.stop or attempt.worker_key != worker.key:
                return
            if spec.spec.has_secrets:
                return  # fetched when its turn comes
            call = self._call(attempt, worker, payload=grant.payload, function=None)
            if not worker.send(call):
                return
            attempt.call = call
            lane.fed += 1

    async def _call_with_files(self, attempt: Attempt, worker: WorkerHandle) -> Call:
        """The message for the worker, with the function if it does not have it, and long parts as files."""
        spec, grant = attempt.spec.spec, attempt.grant
        payload: object = grant.payload
        function: object = None
        if grant.checkpoint is not None:
            await attempt.prepare(self.keeper.restore(attempt, worker.workdir))
        if grant.payload_artifact is not None:
            payload = await self._place(attempt, grant.payload_artifact, worker, label="payload")
        if attempt.spec.digest not in worker.functions:
            function = spec.function
            if spec.function_artifact is not None:
                function = await self._place(attempt, spec.function_artifact, worker, label="function")
        results = None
        if spec.takes_results:
            results = await attempt.prepare(place_results(self.node, self.cache, worker, attempt_id=attempt.id))
        return self._call(attempt, worker, payload=payload, function=function, results=results)

    async def _place(self, attempt: Attempt, digest: str, worker: WorkerHandle, *, label: str) -> list[str]:
        name = f".{label}-{worker.next_seq()}"
        await attempt.prepare(place_artifact(self.cache, digest, worker.workdir, name=name))
        return [name]

    def _call(
        self, attempt: Attempt, worker: WorkerHandle, *, payload: object, function: object, results: object = None
    ) -> Call:
        grant, spec = attempt.grant, attempt.spec
        seq = worker.next_seq()
        ids = [grant.job_id, str(grant.attempt_no), str(grant.item), str(grant.items)]
        saves = MOVES if spec.spec.moves else SAVES if spec.spec.saves else 0
        message = json.dumps([seq, spec.digest, ids, payload, function, spec.spec.allow_pickle, saves, results])
        return Call(
            seq=seq,
            message=message.encode(),
            future=asyncio.get_running_loop().create_future(),
            brings=None if function is None else spec.digest,
            on_output=partial(self.sink, attempt),
            on_ready=partial(self._start_clock, attempt),
        )

    def _drop_worker(self, lane: AttemptLane) -> None:
        """Release a worker that has ended. Calls that were sent ahead did not start, and are sent again."""
        self.release(lane)
        for attempt in lane.waiting:
            attempt.call = None
        lane.fed = 0

    # ------------------------------------------------------------ replies
    async def _result_of(
        self, attempt: Attempt, call: Call, reply: CallReply, *, worker: WorkerHandle
    ) -> AttemptResult:
        now = self.node.clock.steady()
        # The worker's own measurement counts only up to the time that really passed.
        measured_ms = 0 if attempt.started_at is None else int((now - attempt.started_at) * 1000)
        claimed_ms = min(reply.wall_us // 1000, int((now - call.sent_at) * 1000))
        ran_ms = max(measured_ms, claimed_ms)
        used = ProcessUsage(wall_ms=ran_ms, cpu_ms=reply.cpu_us // 1000, peak_rss_mb=reply.peak_rss_kb // 1024)
        usage = attempt.total_usage(used)
        if worker.proxy is not None:
            worker.proxy.restart_count()
        seal = attempt.seal
        if reply.kind == RAISED:
            result = failed_result(Reason.EXCEPTION, reply.text)
        elif reply.kind == NO_MEMORY:
            result = failed_result(Reason.OUT_OF_MEMORY, reply.text)
        else:
            result = AttemptResult(outcome=Outcome.SUCCEEDED, reason=Reason.COMPLETED)
            result.items_failed = min(reply.failed, BUNDLED_MAX)
            try:
                await self._take_value(result, call, reply, worker=worker, seal=seal)
            except OutputRejected as error:
                result.exceed_output_limit(str(error))
        if reply.has_outputs:
            folder, write = worker.workdir / OUTPUTS_FOLDER.format(call.seq), partial(call.on_output, skipped=0)
            try:
                await take_outputs(folder, result, write, uploader=self.uploader, seal=seal)
            finally:
                self.sweeper.remove(folder)
        result.ran_ms, result.usage = ran_ms, usage
        return result

    async def _take_value(
        self, result: AttemptResult, call: Call, reply: CallReply, *, worker: WorkerHandle, seal: Seal | None
    ) -> None:
        """A value that is sealed or too long for the report is uploaded."""
        if reply.kind == LONG_RESULT:
            await self._take_long_value(result, worker.workdir / RESULT_FOLDER.format(call.seq), seal=seal)
        elif seal is None:
            result.result = reply.text
        else:
            source = BytesIO(reply.text.encode("utf-8", "replace"))
            folder = worker.workdir.parent
            async with sealing.sealed_copy(source.read, seal=seal, about=(RESULT,), folder=folder) as file:
                result.result_artifact = await self._send_value(*file)

    async def _take_long_value(self, result: AttemptResult, folder: Path, *, seal: Seal | None) -> None:
        limit = self.node.limits.result_bytes_max
        try:
            for output in OutputCollector(folder, Caps(files=1, total_bytes=limit, file_bytes=limit)):
                if seal is None and output.size <= RESULT_INLINE_MAX:
                    result.result = os.pread(output.fd, output.size, 0).decode(errors="replace")
                    return
                async with open_for_upload(output, folder, seal=seal, about=(RESULT,)) as file:
                    result.result_artifact = await self._send_value(*file)
                return
            raise OutputRejected(too_large_result(None, limit))
        finally:
            self.sweeper.remove(folder)

    async def _send_value(self, fd: int, size: int) -> str:
        if size > self.node.limits.result_bytes_max:
            raise OutputRejected(too_large_result(size, self.node.limits.result_bytes_max))
        return await send_file(fd, size, "result.json", uploader=self.uploader)


async def _end_worker(lane: AttemptLane) -> None:
    """End the worker before its volumes are read: threads that a function left may still write. Its folder stays."""
    worker = lane.worker
    if worker is None or not worker.alive:
        return
    worker.kill(Status.CANCELLED)
    for _ in range(_END_POLLS):
        if worker.ended is not None:
            return
        await asyncio.sleep(_END_POLL_S)


#: How often, and for how long, to look whether a worker has ended.
_END_POLLS, _END_POLL_S = 1_000, 0.01
#: Variables that the interpreter, the dynamic linker and the C library read before any code of ours runs.
_READ_AT_START = ("PYTHON", "LD_", "GLIBC_", "MALLOC_", "GCONV_", "LOCPATH", "LC_", "LANG")
#: A job that asks for less of a core cannot expect its worker to start within the usual time.
_SLOW_CORES = 0.1


def _changes_startup(attempt: Attempt) -> bool:
    """True if the job changes how Python starts: failures and delays are then not the node's fault."""
    spec = attempt.spec.spec
    if spec.dependencies or spec.image or attempt.spec.limits.cpus < _SLOW_CORES:
        return True
    return any(name.startswith(_READ_AT_START) for name in (*spec.env, *spec.secrets))


def _result_of_lost(attempt: Attempt, lost: Lost, worker: WorkerHandle) -> AttemptResult:
    """The result of the call that was running when the worker ended."""
    ended = lost.exit
    tail = "" if attempt.log is None else attempt.log.stderr_tail
    result = result_of_exit(ended, stderr_tail=tail)
    if not worker.ready and (worker.late or ended.status in (Status.EXIT, Status.SIGNAL)):
        reason = Reason.BAD_JOB if _changes_startup(attempt) else Reason.NODE_ERROR
        why = "it took too long" if worker.late else f"{result.error or ''} {tail[-500:]}"
        result = failed_result(reason, f"the worker could not start: {why}")
    elif ended.ok:
        result = failed_result(Reason.EXCEPTION, "the function ended its process without returning")
    result.usage = attempt.total_usage(ended.usage)
    return result
