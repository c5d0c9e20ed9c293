"""Runs `command` and `script` jobs: one process tree per attempt, in a work folder of its own."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from pathlib import Path

from computepool.agent.context import Node
from computepool.agent.execution.attempt_result import AttemptResult, BadJob, result_of_exit
from computepool.agent.execution.attempts import Attempt
from computepool.agent.execution.job_environment import JobEnvironment
from computepool.agent.execution.job_logs import OutputSink
from computepool.agent.execution.logs import NOTHING_PRINTED, STDERR, STDOUT
from computepool.agent.execution.specs import read_script
from computepool.agent.execution.staging import place_bytes, place_inputs, take_outputs
from computepool.agent.images.image import Image
from computepool.agent.network.gang_link import GangLinks
from computepool.agent.packages.provisions import NOTHING, Provision, Provisions
from computepool.agent.sandbox.base import OUTPUTS, Exit, Status
from computepool.agent.sandbox.collect import is_empty
from computepool.agent.sandbox.supervise import Process
from computepool.agent.storage.artifacts import ArtifactCache, Uploader
from computepool.agent.storage.checkpoints import CheckpointKeeper
from computepool.agent.storage.folders import WorkFolders
from computepool.agent.storage.job_volumes import VolumeKeeper
from computepool.core.jobs.lifecycle import JobKind, Outcome
from computepool.protocol.jobs.scripts import PYTHON

#: The output of a shorter process is read when it ends.
READ_AFTER_S = 0.05
_READ_SIZE = 64 * 1024
#: Chunks of output to read before yielding to the event loop.
_BURST = 64
_SCRIPT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(eq=False)
class ProcessRunner:
    node: Node
    job_environment: JobEnvironment
    provisions: Provisions
    _: KW_ONLY
    cache: ArtifactCache
    uploader: Uploader
    keeper: CheckpointKeeper
    sink: OutputSink
    folders: WorkFolders
    gangs: GangLinks
    volumes: VolumeKeeper

    _running: set[ProcessRun] = field(default_factory=set, init=False)

    async def run(self, attempt: Attempt) -> AttemptResult:
        account = attempt.grant.account_id
        disk_mb = attempt.spec.limits.disk_mb
        workdir = attempt.workdir = self.folders.take(account, disk_mb)
        try:
            ended = await self._run_in(attempt, workdir)
            result = result_of_exit(ended, stderr_tail="" if attempt.log is None else attempt.log.stderr_tail)
            result.ran_ms = ended.usage.wall_ms
            result.usage = attempt.total_usage(ended.usage)
            if ended.ok:
                printed = NOTHING_PRINTED if attempt.log is None else attempt.log.printed_digest()
                result.printed, result.printed_chars = printed
            result = await self.keeper.finish(attempt, result)
            # A success needs its outputs, even if the lease was lost or the agent stopped after it ended.
            wants_outputs = result.outcome is Outcome.SUCCEEDED or (
                attempt.stop is None and result.outcome is not Outcome.MOVED
            )
            if wants_outputs and not is_empty(workdir / OUTPUTS):
                write = partial(self.sink, attempt)
                await take_outputs(workdir / OUTPUTS, result, write, uploader=self.uploader, seal=attempt.seal)
            if attempt.volumes:
                await self.volumes.save(attempt, result)
            return result
        finally:
            attempt.workdir = None  # What still goes on for this attempt must not touch the next job's files.
            self.folders.give_back(account, workdir, disk_mb)

    def patrol(self) -> None:
        for run in list(self._running):
            run.patrol()

    async def _run_in(self, attempt: Attempt, workdir: Path) -> Exit:
        spec = attempt.spec.spec
        argv, requirements = self._command(attempt, workdir)
        provision, software = NOTHING, attempt.software(requirements)
        if software:
            note = partial(self.sink.logs.note, attempt)
            provision = await attempt.prepare(self.provisions.acquire(software, note=note))
        try:
            if spec.inputs:
                await attempt.prepare(place_inputs(self.cache, attempt.spec.inputs, workdir))
            if spec.volumes:
                await attempt.prepare(self.volumes.stage(attempt, workdir))
            if attempt.grant.checkpoint is not None:
                await attempt.prepare(self.keeper.restore(attempt, workdir))
            attempt.proxy = await self.job_environment.open_network(attempt.spec.net, label=attempt.grant.job_id)
            if attempt.grant.gang is not None:
                attempt.gang = self.gangs.make(attempt.grant, partial(self.sink.logs.note, attempt))
                await attempt.prepare(attempt.gang.ready())
            run = self._start(attempt, argv, workdir, provision=provision)
            self._running.add(run)
            try:
                if attempt.gang is not None:
                    await attempt.gang.attach()
                return await run.ended
            finally:
                self._running.discard(run)
                run.close()
        finally:
            if attempt.proxy is not None:
                attempt.proxy.close()
            self.provisions.release(provision)

    def _command(self, attempt: Attempt, workdir: Path) -> tuple[list[str], tuple[str, ...]]:
        spec = attempt.spec.spec
        if spec.kind is JobKind.COMMAND:
            return list(spec.argv), tuple(spec.dependencies)
        source = spec.source or ""
        interpreter, dependencies = read_script(source)
        name = _script_name(spec.name, python=interpreter[0] == PYTHON)
        if any(name == taken for taken, _ in attempt.spec.inputs):
            name = f"script-{name}"
        place_bytes(source.encode(), workdir, name=name, executable=True)
        return [*interpreter, name, *spec.argv], (*spec.dependencies, *dependencies)

    def _argv_in(self, image: Image, attempt: Attempt, argv: Sequence[str | Path]) -> tuple[Sequence[str | Path], str]:
        """The command, and the folder in which it starts; empty: the work folder."""
        if attempt.spec.kind is JobKind.SCRIPT:
            return self.job_environment.script_argv(argv, image), ""
        if not (argv or image.command):
            raise BadJob("the image has no command of its own; submit one after --")
        return (argv, "") if argv else (image.command, image.workdir)

    def _start(
        self, attempt: Attempt, argv: Sequence[str | Path], workdir: Path, *, provision: Provision
    ) -> ProcessRun:
        grant, spec, image = attempt.grant, attempt.spec, provision.image
        root = None
        if image is not None:
            argv, start = self._argv_in(image, attempt, argv)
            root = image.root(workdir=start)
        env = {
            **spec.spec.env,
            **({} if attempt.secrets is None else attempt.secrets.env),
            "COMPUTEPOOL_JOB_ID": grant.job_id,
            "COMPUTEPOOL_ATTEMPT": str(grant.attempt_no),
            "COMPUTEPOOL_SLICE": str(grant.item),
            "COMPUTEPOOL_SLICES": str(grant.items),
            "COMPUTEPOOL_MOVES": "1" if spec.spec.moves else "",
        }
        policy = self.job_environment.policy(
            workdir,
            limits=spec.limits,
            env=env,
            packages=provision.packages,
            interpreter=provision.interpreter,
            offer=provision.offer,
            cards=grant.gpus,
            proxy=attempt.proxy,
            cpu_ids=attempt.cpu_ids,
            gang=attempt.gang,
            saves=spec.spec.saves,
            leased=True,
            image=root,
            volumes=attempt.volumes,
        )
        command = self.job_environment.command(argv, workdir=workdir, policy=policy, proxy=attempt.proxy)
        readers, writers = zip(os.pipe2(os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC), strict=True)
        for fd in writers:
            os.fchmod(fd, 0o622)  # As another user, a job could otherwise not open /dev/stdout.
        try:
            process = self.job_environment.sandbox.spawn(
                command, workdir=workdir, limits=spec.limits, policy=policy, stdout=writers[0], stderr=writers[1]
            )
        except BaseException:
            for fd in readers:
                os.close(fd)
            raise
        finally:
            for fd in writers:
                os.close(fd)
        attempt.started_at = self.node.clock.steady()
        return ProcessRun(process, readers, attempt=attempt, sink=self.sink)


class ProcessRun:
    def __init__(self, process: Process, readers: tuple[int, ...], *, attempt: Attempt, sink: OutputSink) -> None:
        self._process = process
        self._pipes = dict(zip((STDOUT, STDERR), readers, strict=True))
        self._attempt = attempt
        self._sink = sink
        self._loop = asyncio.get_running_loop()
        self._reading = False
        self.ended: asyncio.Future[Exit] = self._loop.create_future()
        for fd in readers:
            os.set_blocking(fd, False)
        attempt.kill = process.kill
        attempt.process = process
        self._loop.add_reader(process.fileno(), self._on_end)
        self._timer = self._loop.call_later(READ_AFTER_S, self._read_live)
        if attempt.stop is not None:
            process.kill(Status.CANCELLED)
        self._on_end()

    def patrol(self) -> None:
        if not self.ended.done():
            used = self._process.patrol()
            self._attempt.usage = self._attempt.total_usage(used)
            self._on_end()

    def close(self) -> None:
        """End the process and read the rest of its output."""
        self._attempt.kill = self._attempt.process = None
        self._timer.cancel()
        self._loop.remove_reader(self._process.fileno())
        self._process.close()
        for stream, fd in self._pipes.items():
            if self._reading:
                self._loop.remove_reader(fd)
            self._drain(stream, bursts=_BURST)
            os.close(fd)

    def _read_live(self) -> None:
        self._reading = True
        for stream, fd in self._pipes.items():
            self._loop.add_reader(fd, self._drain, stream)

    def _drain(self, stream: str, bursts: int = 4) -> None:
        fd = self._pipes[stream]
        for _ in range(bursts):
            try:
                data = os.read(fd, _READ_SIZE)
            except BlockingIOError:
                return
            if not data:
                self._loop.remove_reader(fd)
                return
            self._sink(self._attempt, stream, data)

    def _on_end(self) -> None:
        ended = self._process.wait(0)
        if ended is not None and not self.ended.done():
            self.ended.set_result(ended)


def _script_name(name: str, *, python: bool) -> str:
    """The submitter's name if it is a plain file name, because tracebacks show it."""
    name = name.rpartition("/")[2]
    if not _SCRIPT_NAME.fullmatch(name) or name == OUTPUTS:
        name = "script"
    return f"{name}.py" if python and not name.endswith(".py") else name
