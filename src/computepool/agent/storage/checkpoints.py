"""Checkpoints on the node: taken from a running job, stored at the hub, and restored by the attempt that resumes.

A job's files are untrusted: they are moved out of its reach first, opened without following a link, and read by the same
rules as outputs. A checkpoint that cannot be kept costs the job nothing but a line in its output.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from pathlib import Path

from computepool.agent.context import Node
from computepool.agent.execution.attempt_result import AttemptResult, BadJob, StagingFailed, failed_result
from computepool.agent.execution.attempts import Attempt, CheckpointState, Stop
from computepool.agent.execution.job_logs import JobLogs
from computepool.agent.execution.logs import STDERR, CheckpointLine
from computepool.agent.execution.staging import place_artifact
from computepool.agent.hub_link.hub_client import TRANSIENT_OR_FULL, retry
from computepool.agent.hub_link.identity import UNSIGNED
from computepool.agent.sandbox.collect import Caps, OutputCollector
from computepool.agent.sandbox.scratch import remove_tree
from computepool.agent.storage import checkpoint_folder
from computepool.agent.storage.artifacts import ArtifactCache, Uploader, digest_of, sha256_of
from computepool.agent.storage.checkpoint_folder import CHECKPOINT, RESTORED, STOP, WAIT, CheckpointRejected
from computepool.agent.storage.sweeper import Sweeper
from computepool.core.errors import BadRequest, ComputePoolError, QuotaExceeded
from computepool.core.jobs.lifecycle import Outcome, Reason
from computepool.protocol.jobs.checkpoints import CheckpointReply, CheckpointReport
from computepool.protocol.nodes.nodes import OUTPUTS_MAX, OutputRef

#: In the work folder: where the agent reads a checkpoint undisturbed.
_TAKEN = ".taken-{}"
#: Among the files of a checkpoint: the output so far, because the attempt that resumes reports all of it.
PRINTED_FILE = ".computepool-printed"


@dataclass(eq=False)
class CheckpointKeeper:
    node: Node
    _: KW_ONLY
    cache: ArtifactCache
    uploader: Uploader
    logs: JobLogs
    sweeper: Sweeper

    # ------------------------------------------------------------ restoring
    async def restore(self, attempt: Attempt, workdir: Path) -> None:
        """Place the checkpoint's files for the job. If this fails, the hub gives the job to another node."""
        files = attempt.grant.checkpoint
        if files is None:
            return
        attempt.checkpoints = CheckpointState(known={file.digest for file in files})
        try:
            async with asyncio.timeout(self.node.limits.checkpoint_transfer_s):
                printed = await self._place(files, workdir, folder=attempt.folder_name(RESTORED))
        except TimeoutError as error:
            raise StagingFailed("cannot fetch the checkpoint: it took too long") from error
        except (BadJob, OSError) as error:  # An artifact is gone, or a name is taken; the job is not at fault.
            raise StagingFailed(f"cannot resume from the checkpoint: {error}") from error
        self.logs.log_of(attempt).resume(printed)

    async def _place(self, files: Sequence[OutputRef], workdir: Path, *, folder: str) -> bytes | None:
        """Returns what earlier attempts printed; None if that was too much to keep."""
        printed: bytes | None = None
        if os.path.lexists(workdir / folder):  # from an earlier try of the same call
            await asyncio.to_thread(remove_tree, workdir / folder)
        (workdir / folder).mkdir(mode=0o755)
        for file in files:
            if file.name != PRINTED_FILE:
                name = f"{folder}/{file.name}"
                await place_artifact(self.cache, file.digest, workdir, name=name)
                continue
            try:
                fd = await self.cache.open(file.digest)
            except ComputePoolError as error:
                raise StagingFailed(f"cannot fetch the checkpoint: {error.detail}") from error
            with os.fdopen(fd, "rb") as source:
                printed = source.read(self.node.limits.checkpoint_printed_max)
        return printed

    # ------------------------------------------------------------ saving
    def receive(self, attempt: Attempt, lines: Sequence[CheckpointLine]) -> None:
        """Take over the newest of these checkpoints and discard the others."""
        state = attempt.checkpoints = attempt.checkpoints or CheckpointState()
        for before in (state.pending, *lines[:-1]):
            if before is not None:
                self._discard(attempt, before)
        started = attempt.started_at
        ran_ms = 0 if started is None else max(0, int((self.node.clock.steady() - started) * 1000))
        newest = state.pending = replace(lines[-1], ran_ms=ran_ms)
        if newest.host is not None:
            state.move = newest
        elif state.closed or state.saved_last:
            self._discard(attempt, newest)
            state.pending = None
        elif state.task is None or state.task.done():
            state.task = asyncio.get_running_loop().create_task(self._keep_all(attempt, state))

    async def _keep_all(self, attempt: Attempt, state: CheckpointState) -> None:
        """Keep checkpoints one at a time, at intervals; a mark tells the job when it is too early for the next."""
        while state.pending is not None and state.pending.host is None and not state.closed:
            line, state.pending = state.pending, None
            checkpoint_folder.add_mark(attempt, WAIT)
            begun = self.node.clock.steady()
            last = state.urgent.is_set()
            try:
                await self._keep(attempt, state, line, last=last)
                state.saved_last = state.saved_last or last
            except CheckpointRejected as error:
                self.logs.write(attempt, STDERR, f"[checkpoint not kept: {error}]\n".encode())
            if last:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.node.limits.checkpoint_gap_s - (self.node.clock.steady() - begun)):
                    await state.urgent.wait()
            checkpoint_folder.remove_mark(attempt, WAIT)

    async def _keep(self, attempt: Attempt, state: CheckpointState, line: CheckpointLine, *, last: bool) -> None:
        if attempt.spec.spec.seal_to is not None:  # If it were sealed, no node could restore it.
            raise CheckpointRejected("the hub could read it, and the job is sealed")
        state.seq += 1
        assert attempt.workdir is not None  # The job has announced a file in it.
        taken = attempt.workdir / _TAKEN.format(f"{attempt.id}-{state.seq}")
        try:
            async with asyncio.timeout(self.node.limits.checkpoint_transfer_s):
                checkpoint_folder.take_over(attempt, line.name, taken.name)
                files = await self._send_files(taken, state)
                if line.printed is not None and not attempt.is_function:
                    files.append(await self._send_printed(line.printed, state))
                reply = await self._report(attempt, state, files, line=line, last=last)
        except TimeoutError:
            raise CheckpointRejected("sending it took too long", Reason.STAGING_FAILED) from None
        except QuotaExceeded as error:  # the submitter's, so the node is not at fault
            raise CheckpointRejected(error.detail) from error
        except ComputePoolError as error:
            raise CheckpointRejected(error.detail, Reason.STAGING_FAILED) from error
        except OSError as error:
            raise CheckpointRejected(f"{line.name} cannot be read: {error.strerror}") from error
        finally:
            if os.path.lexists(taken):
                self.sweeper.remove(taken)
        state.closed = state.closed or reply.over
        if not reply.kept:
            raise CheckpointRejected(reply.reason)
        state.known = {file.digest for file in files}

    async def _send_files(self, folder: Path, state: CheckpointState) -> list[OutputRef]:
        limits = self.node.limits
        most = min(limits.checkpoint_files_max, OUTPUTS_MAX - 1)
        caps = Caps(files=most, total_bytes=limits.checkpoint_bytes_max, file_bytes=limits.checkpoint_bytes_max)
        collector = OutputCollector(folder, caps)
        files: list[OutputRef] = []
        for output in collector:
            if output.name == PRINTED_FILE:
                raise CheckpointRejected(f"a file cannot be called {PRINTED_FILE}")
            digest = await digest_of(output.fd, output.size)
            if digest not in state.known:
                await self.uploader.send(output.fd, digest, size=output.size, name=output.name)
            files.append(OutputRef(name=output.name, digest=digest, size=output.size))
        if collector.refused:  # An incomplete checkpoint would be worse than none.
            refused = collector.refused[0]
            raise CheckpointRejected(f"{refused.name}: {refused.reason}")
        if not files:
            raise CheckpointRejected("it contains no file")
        return files

    async def _send_printed(self, printed: bytes, state: CheckpointState) -> OutputRef:
        fd = os.memfd_create("printed", os.MFD_CLOEXEC)
        try:
            os.write(fd, printed)
            digest = sha256_of(fd, len(printed))
            if digest not in state.known:
                await self.uploader.send(fd, digest, size=len(printed), name=PRINTED_FILE)
        finally:
            os.close(fd)
        return OutputRef(name=PRINTED_FILE, digest=digest, size=len(printed))

    async def _report(
        self, attempt: Attempt, state: CheckpointState, files: list[OutputRef], *, line: CheckpointLine, last: bool
    ) -> CheckpointReply:
        report = CheckpointReport(
            attempt_id=attempt.id,
            seq=state.seq,
            files=files,
            progress=line.progress,
            ran_ms=line.ran_ms,
            last=last,
            move_to=line.host,
            signature=UNSIGNED,
        )
        send = partial(self._send_report, report)
        return await retry(send, self.node.client.backoff(), on=TRANSIENT_OR_FULL)

    async def _send_report(self, report: CheckpointReport) -> CheckpointReply:
        try:
            return await self.node.client.checkpoint(self.node.identity.sign_message(report))
        except BadRequest as error:
            if report.move_to is None or error.field != "move_to":
                raise
        # An older hub does not accept the host here; the report that follows names it. The signature covers it: sign again.
        without_host = report.model_copy(update={"move_to": None})
        return await self.node.client.checkpoint(self.node.identity.sign_message(without_host))

    # ------------------------------------------------------------ result
    def ask_to_save(self, attempt: Attempt) -> bool:
        """Ask a job that uses checkpoints to make one now. False if there is nothing to wait for."""
        state = attempt.checkpoints
        if state is None or state.closed or attempt.stop is not None:
            return False
        if not state.urgent.is_set():
            if state.pending is not None:  # The job will make a newer one.
                self._discard(attempt, state.pending)
                state.pending = None
            state.urgent.set()
            checkpoint_folder.add_mark(attempt, STOP)
            checkpoint_folder.remove_mark(attempt, WAIT)
        return not state.saved_last

    async def finish(self, attempt: Attempt, result: AttemptResult) -> AttemptResult:
        """Send the last checkpoint of an ended job, and move a job that asked for it. The work folder must exist."""
        state = attempt.checkpoints
        if state is None:
            return result
        try:
            if result.outcome is Outcome.SUCCEEDED:
                return result if state.move is None else await self._move(attempt, state, result)
            if attempt.stop in (None, Stop.DRAINING) and state.task is not None:
                state.urgent.set()
                await asyncio.wait([state.task], timeout=self.node.limits.checkpoint_grace_s)
            return result
        finally:
            await self._clean_up(attempt, state)

    async def _move(self, attempt: Attempt, state: CheckpointState, result: AttemptResult) -> AttemptResult:
        """Send the checkpoint from which the job continues elsewhere. Without it, the job fails."""
        line = state.move
        assert line is not None
        if state.task is not None:
            state.urgent.set()
            await asyncio.wait([state.task])
        try:
            await self._keep(attempt, state, line, last=True)
        except CheckpointRejected as error:
            moved = failed_result(error.reason, f"it did not move to {line.host}: {error}")
        else:
            moved = AttemptResult(outcome=Outcome.MOVED, reason=Reason.MOVED, move_to=line.host)
        moved.ran_ms, moved.usage = result.ran_ms, result.usage
        return moved

    async def _clean_up(self, attempt: Attempt, state: CheckpointState) -> None:
        if state.task is not None and not state.task.done():
            state.task.cancel()
            await asyncio.wait([state.task])
        if attempt.workdir is None or not attempt.is_function:
            return  # The whole work folder will be removed.
        for base in (CHECKPOINT, RESTORED):
            folder = attempt.workdir / attempt.folder_name(base)
            if os.path.lexists(folder):
                self.sweeper.remove(folder)

    def _discard(self, attempt: Attempt, line: CheckpointLine) -> None:
        taken = _TAKEN.format(line.name)
        with contextlib.suppress(OSError):
            checkpoint_folder.take_over(attempt, line.name, taken)
            assert attempt.workdir is not None  # Otherwise take_over would have failed.
            self.sweeper.remove(attempt.workdir / taken)
