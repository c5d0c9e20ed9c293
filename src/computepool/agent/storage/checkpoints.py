"""Checkpoints on the node: taken from a running job, stored at the hub, and restored by the attempt that resumes.

A job's files are untrusted: its folder is renamed out of its reach first, opened without following a link, and read by
the same rules as outputs. A checkpoint that cannot be kept costs the job nothing but a line in its output.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from pathlib import Path

from computepool.agent.clock import AgentClock
from computepool.agent.config import AgentLimits
from computepool.agent.execution.attempt_result import AttemptResult, BadJob, StagingFailed, failed_result
from computepool.agent.execution.attempts import Attempt, Stop
from computepool.agent.execution.job_logs import JobLogs
from computepool.agent.execution.logs import STDERR, CheckpointLine
from computepool.agent.execution.staging import place_artifact
from computepool.agent.hub_link import compat
from computepool.agent.hub_link.hub_client import TRANSIENT_OR_FULL, HubClient, retry
from computepool.agent.hub_link.identity import Identity
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
_NO_SIGNATURE = "A" * 86


@dataclass(slots=True, eq=False, kw_only=True)
class Saving:
    """What the agent knows of one attempt's checkpoints."""

    known: set[str]  #: digests that the hub has for this job: not sent again
    seq: int = 0
    pending: CheckpointLine | None = None
    move: CheckpointLine | None = None
    task: asyncio.Task[None] | None = None
    hurry: asyncio.Event = field(default_factory=asyncio.Event)
    saved: bool = False  #: one was kept since the job was asked to save
    over: bool = False  #: the hub wants no more of this attempt


@dataclass(eq=False)
class CheckpointKeeper:
    client: HubClient
    identity: Identity
    cache: ArtifactCache
    _: KW_ONLY
    uploader: Uploader
    logs: JobLogs
    sweeper: Sweeper
    clock: AgentClock
    limits: AgentLimits

    # ------------------------------------------------------------ going on from one
    async def restore(self, attempt: Attempt, workdir: Path) -> None:
        """Place the checkpoint's files for the job. If this fails, the hub gives the job to another node."""
        files = attempt.grant.checkpoint
        if files is None:
            return
        attempt.saving = Saving(known={file.digest for file in files})
        try:
            async with asyncio.timeout(self.limits.checkpoint_transfer_s):
                printed = await self._place(files, workdir, folder=attempt.folder_name(RESTORED))
        except TimeoutError as error:
            raise StagingFailed("cannot fetch the checkpoint: it took too long") from error
        except (
            BadJob,
            OSError,
        ) as error:  # An artifact is gone, or a name is taken: the job is not to blame.
            raise StagingFailed(f"cannot resume from the checkpoint: {error}") from error
        self.logs.log_of(attempt).follow_on(printed)

    async def _place(self, files: Sequence[OutputRef], workdir: Path, *, folder: str) -> bytes | None:
        """Returns what earlier attempts printed; None if that was too much to keep."""
        printed: bytes | None = None
        if os.path.lexists(workdir / folder):  # A call that has to be made again.
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
                printed = source.read(self.limits.checkpoint_printed_max)
        return printed

    # ------------------------------------------------------------ a job has made one
    def receive(self, attempt: Attempt, lines: Sequence[CheckpointLine]) -> None:
        """Take over the newest of these checkpoints and discard the others."""
        saving = attempt.saving
        if saving is None:
            saving = attempt.saving = Saving(known=set())
        for before in (saving.pending, *lines[:-1]):
            if before is not None:
                self._discard(attempt, before)
        started = attempt.started_at
        ran_ms = 0 if started is None else max(0, int((self.clock.steady() - started) * 1000))
        newest = saving.pending = replace(lines[-1], ran_ms=ran_ms)
        if newest.host is not None:
            saving.move = newest
        elif saving.over or saving.saved:
            self._discard(attempt, newest)
            saving.pending = None
        elif saving.task is None or saving.task.done():
            saving.task = asyncio.get_running_loop().create_task(self._keep_all(attempt, saving))

    async def _keep_all(self, attempt: Attempt, saving: Saving) -> None:
        """Keep checkpoints one at a time, at intervals; a mark tells the job when it is too soon."""
        while saving.pending is not None and saving.pending.host is None and not saving.over:
            line, saving.pending = saving.pending, None
            checkpoint_folder.add_mark(attempt, WAIT)
            begun = self.clock.steady()
            in_a_hurry = saving.hurry.is_set()
            await self._try_to_keep(attempt, saving, line, last=in_a_hurry)
            if in_a_hurry:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.limits.checkpoint_gap_s - (self.clock.steady() - begun)):
                    await saving.hurry.wait()
            checkpoint_folder.remove_mark(attempt, WAIT)

    async def _try_to_keep(
        self, attempt: Attempt, saving: Saving, line: CheckpointLine, *, last: bool
    ) -> None:
        try:
            await self._keep(attempt, saving, line, last=last)
            saving.saved = saving.saved or last
        except CheckpointRejected as error:
            self.logs.write(attempt, STDERR, f"[checkpoint not kept: {error}]\n".encode())

    async def _keep(self, attempt: Attempt, saving: Saving, line: CheckpointLine, *, last: bool) -> None:
        """Raises CheckpointRejected."""
        if attempt.spec.spec.seal_to is not None:  # Only the submitter could open it again, and no node.
            raise CheckpointRejected("the hub could read it, and the job is sealed")
        saving.seq += 1
        workdir = checkpoint_folder.workdir(attempt)
        taken = workdir / _TAKEN.format(f"{attempt.id}-{saving.seq}")
        try:
            async with asyncio.timeout(self.limits.checkpoint_transfer_s):
                checkpoint_folder.take_over(attempt, line.name, taken.name)
                files = await self._send_files(taken, saving)
                if line.printed is not None and not attempt.is_function:
                    files.append(await self._send_printed(line.printed, saving))
                reply = await self._report(attempt, saving, files, line=line, last=last)
        except TimeoutError:
            raise CheckpointRejected("sending it took too long", Reason.STAGING_FAILED) from None
        except QuotaExceeded as error:  # the submitter's own limit, on any node
            raise CheckpointRejected(error.detail) from error
        except ComputePoolError as error:
            raise CheckpointRejected(error.detail, Reason.STAGING_FAILED) from error
        except OSError as error:
            raise CheckpointRejected(f"{line.name} cannot be read: {error.strerror}") from error
        finally:
            if os.path.lexists(taken):
                self.sweeper.remove(taken)
        saving.over = saving.over or reply.over
        if not reply.kept:
            raise CheckpointRejected(reply.reason)
        saving.known = {file.digest for file in files}

    async def _send_files(self, folder: Path, saving: Saving) -> list[OutputRef]:
        limits = self.limits
        most = min(limits.checkpoint_files_max, OUTPUTS_MAX - 1)
        caps = Caps(
            files=most, total_bytes=limits.checkpoint_bytes_max, file_bytes=limits.checkpoint_bytes_max
        )
        collector = OutputCollector(folder, caps)
        files: list[OutputRef] = []
        for output in collector:
            if output.name == PRINTED_FILE:
                raise CheckpointRejected(f"a file cannot be called {PRINTED_FILE}")
            digest = await digest_of(output.fd, output.size)
            if digest not in saving.known:
                await self.uploader.send(output.fd, digest, size=output.size, name=output.name)
            files.append(OutputRef(name=output.name, digest=digest, size=output.size))
        if collector.refused:  # Half a checkpoint would be worse than none.
            refused = collector.refused[0]
            raise CheckpointRejected(f"{refused.name}: {refused.reason}")
        if not files:
            raise CheckpointRejected("it contains no file")
        return files

    async def _send_printed(self, printed: bytes, saving: Saving) -> OutputRef:
        fd = os.memfd_create("printed", os.MFD_CLOEXEC)
        try:
            os.write(fd, printed)
            digest = sha256_of(fd, len(printed))
            if digest not in saving.known:
                await self.uploader.send(fd, digest, size=len(printed), name=PRINTED_FILE)
        finally:
            os.close(fd)
        return OutputRef(name=PRINTED_FILE, digest=digest, size=len(printed))

    async def _report(
        self, attempt: Attempt, saving: Saving, files: list[OutputRef], *, line: CheckpointLine, last: bool
    ) -> CheckpointReply:
        report = CheckpointReport(
            attempt_id=attempt.id,
            seq=saving.seq,
            files=files,
            progress=line.progress,
            ran_ms=line.ran_ms,
            last=last,
            move_to=line.host,
            signature=_NO_SIGNATURE,
        )
        send = partial(self._send_report, report)
        return await retry(send, self.client.backoff(), on=TRANSIENT_OR_FULL)

    async def _send_report(self, report: CheckpointReport) -> CheckpointReply:
        try:
            return await self.client.checkpoint(self._sign(report))
        except BadRequest as error:
            if not compat.is_unknown_host(error, report):
                raise
        return await self.client.checkpoint(self._sign(compat.checkpoint(report)))

    def _sign(self, report: CheckpointReport) -> CheckpointReport:
        return report.model_copy(update={"signature": self.identity.sign(report.signed_text())})

    # ------------------------------------------------------------ this node stops
    def ask_to_save(self, attempt: Attempt) -> bool:
        """Ask a job that uses checkpoints to make one now. False if it has none to make."""
        saving = attempt.saving
        if saving is None or saving.over or attempt.stop is not None:
            return False
        if not saving.hurry.is_set():
            if saving.pending is not None:  # It waited for its time; what the job makes now is newer.
                self._discard(attempt, saving.pending)
                saving.pending = None
            saving.hurry.set()
            checkpoint_folder.add_mark(attempt, STOP)
            checkpoint_folder.remove_mark(attempt, WAIT)
        return not saving.saved

    # ------------------------------------------------------------ the job has ended
    async def finish(self, attempt: Attempt, ending: AttemptResult) -> AttemptResult:
        """Send the last checkpoint, and move a job that asked for it. Call it before the work folder is removed."""
        saving = attempt.saving
        if saving is None:
            return ending
        try:
            if ending.outcome is Outcome.SUCCEEDED:
                return ending if saving.move is None else await self._move(attempt, saving, ending)
            if attempt.stop in (None, Stop.DRAINING) and saving.task is not None:
                saving.hurry.set()
                await asyncio.wait([saving.task], timeout=self.limits.checkpoint_grace_s)
            return ending
        finally:
            await self._clean_up(attempt, saving)

    async def _move(self, attempt: Attempt, saving: Saving, ending: AttemptResult) -> AttemptResult:
        """The hub has the checkpoint before this attempt ends; until then nothing is removed here."""
        line = saving.move
        assert line is not None
        if saving.task is not None:
            saving.hurry.set()
            await asyncio.wait([saving.task])
        try:
            await self._keep(attempt, saving, line, last=True)
        except CheckpointRejected as error:
            moved = failed_result(error.reason, f"it did not move to {line.host}: {error}")
        else:
            moved = AttemptResult(outcome=Outcome.MOVED, reason=Reason.MOVED, move_to=line.host)
        moved.ran_ms, moved.usage = ending.ran_ms, ending.usage
        return moved

    async def _clean_up(self, attempt: Attempt, saving: Saving) -> None:
        if saving.task is not None and not saving.task.done():
            saving.task.cancel()
            await asyncio.wait([saving.task])
        if attempt.workdir is None or not attempt.is_function:
            return  # the whole work folder goes
        for base in (CHECKPOINT, RESTORED):
            folder = attempt.workdir / attempt.folder_name(base)
            if os.path.lexists(folder):
                self.sweeper.remove(folder)

    def _discard(self, attempt: Attempt, line: CheckpointLine) -> None:
        taken = _TAKEN.format(line.name)
        with contextlib.suppress(OSError, CheckpointRejected):
            checkpoint_folder.take_over(attempt, line.name, taken)
            self.sweeper.remove(checkpoint_folder.workdir(attempt) / taken)
