"""Explanations of waits: after a few seconds, and again when the reason changes.

The SDK logs them as warnings of the logger `computepool.sdk`, which Python prints on stderr by default.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from computepool.core.jobs.lifecycle import JobState
from computepool.core.plaintext import printable
from computepool.core.words import counted
from computepool.protocol.jobs.jobs import JobPage, WhyView
from computepool.sdk.client.transport import Params, Transport
from computepool.sdk.errors import ComputePoolError

#: After so many seconds; 0: never.
NOTICE_ENV = "COMPUTEPOOL_NOTICE_S"
NOTICE_S = 5.0
#: Each look doubles the time until the next one, up to this.
_REST_MAX_S = 60.0
_NEVER_S = 24 * 3600.0
#: How often it is looked whether something waits for long; and at least so often until it has.
_LOOK_S = 1.0
_LOOKS = 5

_log = logging.getLogger("computepool.sdk")
#: The words why something waits; empty when it does not, or nobody knows.
Reason = Callable[[], str]


def notice_s() -> float:
    try:
        chosen = float(os.environ.get(NOTICE_ENV, NOTICE_S))
    except ValueError:
        return NOTICE_S
    return chosen if chosen > 0 else _NEVER_S


def warn(text: str) -> None:
    _log.warning("%s", printable(text))


def report_left(jobs: int, group_id: str | None) -> None:
    """Nobody takes the results of these jobs of a map any more, and nobody has cancelled them."""
    if jobs and group_id:
        words = counted(jobs, "job of a map keeps", "jobs of a map keep")
        warn(f"{words} running. To cancel: pool group cancel {group_id}")


class WaitNotice:
    """`look()` between two waits, each of them of `left_ms()` at most."""

    def __init__(self, reason: Reason, *, write: Callable[[str], object] = warn) -> None:
        self._reason, self._write = reason, write
        self._shown = ""
        self.restart()

    def restart(self) -> None:
        """Something came: what still waits has not waited for long."""
        self._rest_s = notice_s()
        self._due = time.monotonic() + self._rest_s

    def left_ms(self, most_ms: int) -> int:
        """How long to wait until the next look; `most_ms` at most."""
        return max(1, min(most_ms, round((self._due - time.monotonic()) * 1000)))

    def look(self) -> None:
        if time.monotonic() >= self._due:
            self._rest_s = min(2 * self._rest_s, _REST_MAX_S)
            if text := self._reason():
                self.notify(text)
            self._due = time.monotonic() + self._rest_s

    def notify(self, text: str) -> None:
        """Unless it was the last thing that was told; what counts down is the same."""
        words = re.sub(r"\bjob_\w+|\d+", "", text)
        if words != self._shown:
            self._shown = words
            self._write(text)


def job_reason(transport: Transport, job_id: str) -> str:
    """Why a job that waits does; empty when it runs or is over. The hub is asked once: who waits insists anyway."""
    with suppress(ComputePoolError):
        found = transport.ask(WhyView, "GET", f"/jobs/{job_id}/why", retry_for=0)
        if found.state is JobState.QUEUED:
            return f"{job_id}: {found.sentence}"
    return ""


def group_reason(transport: Transport, group_id: str) -> str:
    """The same of the newest job of a group that waits."""
    params: Params = {"group_id": group_id, "state": JobState.QUEUED.value, "limit": 1}
    with suppress(ComputePoolError):
        for job in transport.ask(JobPage, "GET", "/jobs", params=params, retry_for=0).jobs:
            return job_reason(transport, job.id)
    return ""


class WaitWatch:
    """Of a session: whoever waits for its results, and however, is told why the job waits that is open longest."""

    def __init__(self, transport: Transport, oldest: Callable[[], str]) -> None:
        """`oldest`: that job's id, or empty."""
        self._transport, self._oldest = transport, oldest
        self._notice = WaitNotice(self._reason)
        self._ended = threading.Event()

    def explain(self) -> None:
        """Until the session ends: for a thread of its own, because the others wait for the hub."""
        watched = ""
        while not self._ended.wait(min(_LOOK_S, notice_s() / _LOOKS)):
            job_id = self._oldest()
            if job_id != watched:
                watched = job_id
                self._notice.restart()
            self._notice.look()

    def end(self) -> None:
        self._ended.set()

    def notify(self, job_id: str, reason: str) -> None:
        self._notice.notify(f"{job_id}: {reason}")

    def words(self, waited_s: float | None) -> str:
        """For who gave up."""
        reason = self._reason() if waited_s is not None and waited_s >= notice_s() else ""
        return f" ({reason})" if reason else ""

    def _reason(self) -> str:
        job_id = self._oldest()
        return job_reason(self._transport, job_id) if job_id else ""
