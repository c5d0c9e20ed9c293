"""The result of an attempt: the value that becomes its report, and its error messages."""

from __future__ import annotations

import errno
import math
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from computepool.agent.sandbox.base import Exit, Status
from computepool.core.jobs.lifecycle import Outcome, Reason
from computepool.protocol.base import TEXT_MAX
from computepool.protocol.jobs.views import Usage
from computepool.protocol.nodes.nodes import LoadModel, OutputRef, Report
from computepool.protocol.volumes.volumes import VolumeChange

#: First words of what a level prints when it cannot start the program; the job's own exit codes mean nothing here.
_CANNOT_RUN = ("computepool: cannot run", "bwrap: execvp")


class CannotStart(Exception):
    """The attempt ends before its program starts, or without its inputs; the message says why."""

    reason: ClassVar[Reason]


class BadJob(CannotStart):
    """No node can start the job."""

    reason = Reason.BAD_JOB


class StagingFailed(CannotStart):
    """This node could not fetch what the job needs; another node may."""

    reason = Reason.STAGING_FAILED


class FolderFull(CannotStart):
    """The job's inputs do not fit into its work folder."""

    reason = Reason.OUTPUT_LIMIT


def is_folder_full(error: OSError, folder: Path) -> bool:
    """True if the job's own folder is full, as opposed to the machine's disk."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT) and os.path.ismount(folder)


@dataclass(slots=True, kw_only=True)
class AttemptResult:
    """Fields have the names and meanings of those of Report."""

    outcome: Outcome
    reason: Reason
    exit_code: int | None = None
    error: str | None = None
    result: str | None = None
    result_artifact: str | None = None
    outputs: list[OutputRef] | None = None
    printed: str | None = None
    printed_chars: int | None = None
    ran_ms: int = 0
    usage: Usage | None = None
    move_to: str | None = None
    items_failed: int = 0
    loads: list[LoadModel] | None = None
    volumes: list[VolumeChange] | None = None

    def report(self, attempt_id: str) -> Report:
        fields = {name: value for name in self.__slots__ if (value := getattr(self, name)) is not None}
        if self.error is not None:
            fields["error"] = clean_text(self.error, TEXT_MAX)
        return Report(attempt_id=attempt_id, **fields)

    def exceed_output_limit(self, error: str) -> None:
        self.outcome, self.reason, self.error = Outcome.FAILED, Reason.OUTPUT_LIMIT, error
        self.result = self.result_artifact = self.volumes = None

    def name_limit(self, *, memory_mb: int, timeout_s: float) -> None:
        """If a limit ended the job, say which one and how to raise it."""
        more = f"{2 * memory_mb}MB"
        raised = f'Ask for more: --ram {more}, or ram="{more}" in Python.'
        if self.reason is Reason.OUT_OF_MEMORY:
            self.error = f"It used more than its limit of {memory_mb} MB of memory. {raised}"
        elif self.reason is Reason.EXIT_NONZERO and (self.error or "").endswith("MemoryError"):
            self.error = f"{self.error}. Its limit is {memory_mb} MB of memory. {raised}"
        elif self.reason is Reason.TIMEOUT:
            longer = f"{math.ceil(2 * timeout_s)}s"
            self.error = (
                f"It ran longer than its time limit of {timeout_s:g} s. Allow more: --timeout {longer}, or "
                f'timeout="{longer}" in Python.'
            )


def failed_result(reason: Reason, error: str) -> AttemptResult:
    return AttemptResult(outcome=Outcome.FAILED, reason=reason, error=error)


def vram_result(*, used_mb: int, asked_mb: int) -> AttemptResult:
    """For a job that used more memory of a card than it asked for."""
    more = f"{math.ceil(1.1 * used_mb / 1000)}GB"
    return failed_result(
        Reason.OUT_OF_MEMORY,
        f"It used {used_mb} MB of GPU memory, more than the {asked_mb} MB that it asked for. Ask for more: --vram {more}, or "
        f'vram="{more}" in Python.',
    )


def returned_result(reason: Reason) -> AttemptResult:
    """For an attempt that never started here, or that the node stopped for its own reasons. Free of charge."""
    return AttemptResult(outcome=Outcome.RETURNED, reason=reason)


LEASE_LOST = "the node lost contact with the hub and stopped the job"
#: What each unusual end of a process means: the reason, and the sentence where the sandbox gives none.
_ENDINGS = {
    Status.TIMEOUT: (Reason.TIMEOUT, "ran longer than its time limit"),
    Status.OOM: (Reason.OUT_OF_MEMORY, "used more memory than it requested"),
    Status.VRAM_LIMIT: (Reason.OUT_OF_MEMORY, "used more GPU memory than it asked for"),
    Status.OUTPUT_LIMIT: (Reason.OUTPUT_LIMIT, "wrote more output than is allowed"),
    Status.DISK_LIMIT: (Reason.OUTPUT_LIMIT, "wrote more to its folder than it requested"),
    Status.SANDBOX_ERROR: (Reason.NODE_ERROR, "the sandbox failed"),
    Status.CANCELLED: (Reason.CANCELLED_BY_USER, "was cancelled"),
    Status.LEASE_LOST: (Reason.LEASE_LOST, LEASE_LOST),
}


def result_of_exit(ended: Exit, *, stderr_tail: str) -> AttemptResult:
    """The result that follows from how a process ended."""
    if ended.ok:
        return AttemptResult(outcome=Outcome.SUCCEEDED, reason=Reason.COMPLETED, exit_code=0)
    if ended.status is Status.EXIT:
        last = stderr_tail.rstrip().rpartition("\n")[2]
        if ended.code in (1, 126, 127) and last.startswith(_CANNOT_RUN):
            return failed_result(Reason.BAD_JOB, last)
        if ended.detail:  # The sandbox itself says that the program never began.
            return failed_result(Reason.BAD_JOB, ended.detail)
        error = f"exit code {ended.code}" + (f": {last}" if last else "")
        return AttemptResult(outcome=Outcome.FAILED, reason=Reason.EXIT_NONZERO, exit_code=ended.code, error=error)
    error = describe_exit(ended, stderr_tail)
    if ended.status is Status.SIGNAL:
        return AttemptResult(outcome=Outcome.FAILED, reason=Reason.SIGNAL, exit_code=-ended.code, error=error)
    return failed_result(_ENDINGS[ended.status][0], error)


def describe_exit(ended: Exit, stderr_tail: str = "") -> str:
    """One sentence about a process that a signal, a limit or the sandbox ended."""
    if ended.status is Status.SIGNAL:
        return f"killed by signal {ended.code} ({_signal_name(ended.code)})"
    if ended.status is Status.SANDBOX_ERROR:
        return f"the sandbox failed: {ended.detail or 'no details'} {stderr_tail[-500:]}".strip()
    return ended.detail or _ENDINGS[ended.status][1]


def clean_text(text: str, chars_max: int) -> str:
    """Text that a database can store. Cut in the middle: the start says what happened, the end says why."""
    text = text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()
    if len(text) <= chars_max:
        return text
    half = chars_max // 2 - 10
    return f"{text[:half]}\n[…]\n{text[-half:]}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
