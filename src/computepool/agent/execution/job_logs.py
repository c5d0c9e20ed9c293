"""The log of each attempt, and where its output goes: to the hub, to the checkpoint keeper, and to the call relay."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from computepool.agent.config import AgentLimits
from computepool.agent.execution import job_calls
from computepool.agent.execution.attempts import Attempt
from computepool.agent.execution.logs import LogBuffer, LogShipper
from computepool.agent.sandbox.base import Status
from computepool.agent.storage.checkpoint_folder import is_checkpoint
from computepool.agent.storage.sealing import seal_of

if TYPE_CHECKING:
    from computepool.agent.storage.checkpoints import CheckpointKeeper


class JobLogs:
    def __init__(self, shipper: LogShipper, limits: AgentLimits) -> None:
        self._shipper = shipper
        self._limits = limits

    def log_of(self, attempt: Attempt) -> LogBuffer:
        if attempt.log is None:
            spec = attempt.spec.spec
            attempt.log = LogBuffer(
                attempt.id,
                self._limits,
                seal=seal_of(spec, attempt.grant.job_id),
                is_mark=partial(is_checkpoint, attempt) if spec.saves else None,
                is_call=partial(job_calls.is_call, attempt),
            )
        return attempt.log

    def note(self, attempt: Attempt, text: str) -> None:
        """Tell the submitter what the node does, in the job's log."""
        log = self.log_of(attempt)
        log.note(text)
        self._shipper.touch(log)

    def write(self, attempt: Attempt, stream: str, data: bytes, *, skipped: int = 0) -> LogBuffer:
        log = self.log_of(attempt)
        log.feed(stream, data, skipped=skipped)
        self._shipper.touch(log)
        if log.over_limit:
            attempt.end(Status.OUTPUT_LIMIT)
        return log


@dataclass(eq=False)
class OutputSink:
    """Takes everything that attempts write."""

    logs: JobLogs
    keeper: CheckpointKeeper
    relay: job_calls.CallRelay

    def __call__(self, attempt: Attempt, stream: str, data: bytes, *, skipped: int = 0) -> None:
        log = self.logs.write(attempt, stream, data, skipped=skipped)
        if log.announced:
            announced, log.announced = log.announced, []
            self.keeper.receive(attempt, announced)
        if log.called:
            called, log.called = log.called, []
            self.relay.receive(attempt, called)
