"""The log of each attempt, and the sink of its output: the hub, the checkpoint keeper and the call relay."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from computepool.agent.execution import job_calls
from computepool.agent.execution.attempts import Attempt
from computepool.agent.execution.logs import LogBuffer, LogShipper
from computepool.agent.sandbox.base import Status
from computepool.agent.storage.checkpoint_folder import is_checkpoint

if TYPE_CHECKING:
    from computepool.agent.storage.checkpoints import CheckpointKeeper


@dataclass(eq=False)
class JobLogs:
    shipper: LogShipper

    def log_of(self, attempt: Attempt) -> LogBuffer:
        if attempt.log is None:
            attempt.log = LogBuffer(
                attempt.id,
                self.shipper.node.limits,
                seal=attempt.seal,
                is_checkpoint=partial(is_checkpoint, attempt) if attempt.spec.spec.saves else None,
                is_call=partial(job_calls.is_call, attempt),
            )
            if attempt.secrets is not None:
                attempt.log.mask(attempt.secrets.values())
        return attempt.log

    def note(self, attempt: Attempt, text: str) -> None:
        """Tell the submitter in the job's log what the node does."""
        log = self.log_of(attempt)
        log.note(text)
        self.shipper.touch(log)

    def write(self, attempt: Attempt, stream: str, data: bytes, *, skipped: int = 0) -> LogBuffer:
        log = self.log_of(attempt)
        log.feed(stream, data, skipped=skipped)
        self.shipper.touch(log)
        if log.seen_bytes > self.shipper.node.limits.output_bytes_max:
            attempt.end(Status.OUTPUT_LIMIT)
        return log


@dataclass(eq=False)
class OutputSink:
    """Receives everything that attempts write."""

    logs: JobLogs
    keeper: CheckpointKeeper
    relay: job_calls.CallRelay

    def __call__(self, attempt: Attempt, stream: str, data: bytes, *, skipped: int = 0) -> None:
        log = self.logs.write(attempt, stream, data, skipped=skipped)
        if log.checkpoints:
            checkpoints, log.checkpoints = log.checkpoints, []
            self.keeper.receive(attempt, checkpoints)
        if log.calls:
            calls, log.calls = log.calls, []
            self.relay.receive(attempt, calls)
