"""Explanations for long waits: shown after a few seconds, and again when the reason changes.

The SDK logs them as warnings of the logger `computepool.sdk`, which Python prints to stderr by default.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from computepool.core.errors import ComputePoolError
from computepool.core.jobs.lifecycle import JobState
from computepool.core.plaintext import printable
from computepool.core.words import pluralize
from computepool.protocol.jobs.explanations import WhyView
from computepool.protocol.jobs.views import JobPage
from computepool.sdk.client.transport import Params, Transport

#: Seconds until the first explanation; 0 turns them off.
NOTICE_ENV = "COMPUTEPOOL_NOTICE_S"
NOTICE_S = 5.0
#: Each check doubles the pause before the next one, up to this.
_PAUSE_MAX_S = 60.0
_NEVER_S = 24 * 3600.0
#: A watcher looks for a new oldest job once a second, or this many times before the first notice is due.
_WATCH_S = 1.0
_WATCHES_PER_NOTICE = 5

_log = logging.getLogger("computepool.sdk")
#: Returns why something waits; empty if it does not wait, or the reason is unknown.
FindReason = Callable[[], str]


def notice_s() -> float:
    try:
        chosen = float(os.environ.get(NOTICE_ENV, NOTICE_S))
    except ValueError:
        return NOTICE_S
    return chosen if chosen > 0 else _NEVER_S


def warn(text: str) -> None:
    _log.warning("%s", printable(text))


def warn_of_running_map(jobs: int, group_id: str | None) -> None:
    """`jobs` of a map were left open and not cancelled."""
    if jobs and group_id:
        words = pluralize(jobs, "job of a map keeps", "jobs of a map keep")
        warn(f"{words} running. To cancel: pool group cancel {group_id}")


class WaitNotice:
    """Explains a wait that a loop makes in steps: call `check()` between waits of at most `cap_ms()`."""

    def __init__(self, find_reason: FindReason, *, write: Callable[[str], object] = warn) -> None:
        self._find_reason, self._write = find_reason, write
        self._shown = ""
        self.restart()

    def restart(self) -> None:
        """There was progress, so the wait begins anew."""
        self._pause_s = notice_s()
        self._due = time.monotonic() + self._pause_s

    def cap_ms(self, wait_ms: int) -> int:
        """`wait_ms`, or less if the next check is due earlier."""
        return max(1, min(wait_ms, round((self._due - time.monotonic()) * 1000)))

    def check(self) -> None:
        if time.monotonic() >= self._due:
            self._pause_s = min(2 * self._pause_s, _PAUSE_MAX_S)
            if text := self._find_reason():
                self.notify(text)
            self._due = time.monotonic() + self._pause_s

    def notify(self, text: str) -> None:
        """Write the text, unless it differs from the last one in job IDs and numbers only."""
        words = re.sub(r"\bjob_\w+|\d+", "", text)
        if words != self._shown:
            self._shown = words
            self._write(text)


def job_reason(transport: Transport, job_id: str) -> str:
    """Why a queued job waits; empty if it is not queued. No retries: the caller asks again later."""
    with suppress(ComputePoolError):
        found = transport.request(WhyView, "GET", f"/jobs/{job_id}/why", retry_for=0)
        if found.state is JobState.QUEUED:
            return f"{job_id}: {found.sentence}"
    return ""


def group_reason(transport: Transport, group_id: str) -> str:
    """Why the newest queued job of a group waits."""
    params: Params = {"group_id": group_id, "state": JobState.QUEUED.value, "limit": 1}
    with suppress(ComputePoolError):
        for job in transport.request(JobPage, "GET", "/jobs", params=params, retry_for=0).jobs:
            return job_reason(transport, job.id)
    return ""


class WaitWatcher:
    """Explains why a session's oldest open job waits, however its result is waited for."""

    def __init__(self, transport: Transport, oldest: Callable[[], str]) -> None:
        """`oldest` returns the ID of that job, or an empty string."""
        self._transport, self._oldest = transport, oldest
        self._notice = WaitNotice(self._find_reason)
        self._ended = threading.Event()

    def watch(self) -> None:
        """Runs in a thread of its own until the session ends, because the other threads block on the hub."""
        watched = ""
        while not self._ended.wait(min(_WATCH_S, notice_s() / _WATCHES_PER_NOTICE)):
            job_id = self._oldest()
            if job_id != watched:
                watched = job_id
                self._notice.restart()
            self._notice.check()

    def end(self) -> None:
        self._ended.set()

    def notify(self, job_id: str, reason: str) -> None:
        self._notice.notify(f"{job_id}: {reason}")

    def timeout_reason(self, waited_s: float | None) -> str:
        """The reason in parentheses, for the message of a TimeoutError."""
        reason = self._find_reason() if waited_s is not None and waited_s >= notice_s() else ""
        return f" ({reason})" if reason else ""

    def _find_reason(self) -> str:
        job_id = self._oldest()
        return job_reason(self._transport, job_id) if job_id else ""
