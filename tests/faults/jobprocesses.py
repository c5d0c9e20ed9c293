"""The processes of an agent and of its jobs."""

from __future__ import annotations

import contextlib
import signal

import psutil

from computepool.testing.processes import AgentProcess
from computepool.testing.waiting import wait_until


def descendants(agent: AgentProcess) -> list[psutil.Process]:
    try:
        return psutil.Process(agent.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def jobs_of(agent: AgentProcess, *argv: str) -> list[psutil.Process]:
    """The processes of its jobs with this beginning of the command line."""
    found = []
    for process in descendants(agent):
        with contextlib.suppress(psutil.NoSuchProcess):
            if tuple(process.cmdline()[: len(argv)]) == argv:
                found.append(process)
    return found


def workers_of(agent: AgentProcess) -> list[psutil.Process]:
    """The warm workers: Pythons of the jobs' runtime, wherever that is."""
    found = []
    for process in descendants(agent):
        with contextlib.suppress(psutil.NoSuchProcess, IndexError):
            if process.cmdline()[0].endswith("/bin/python3"):
                found.append(process)
    return found


def freeze_machine(agent: AgentProcess) -> None:
    """Freeze the agent and everything that it started, as when a laptop is closed."""
    agent.freeze()  # first, so that it starts nothing new
    _signal_all(agent, signal.SIGSTOP)


def thaw_machine(agent: AgentProcess) -> None:
    _signal_all(agent, signal.SIGCONT)
    agent.thaw()


def _signal_all(agent: AgentProcess, number: int) -> None:
    for process in descendants(agent):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def wait_gone(processes: list[psutil.Process], timeout_s: float) -> None:
    try:
        wait_until(lambda: not any(map(_runs, processes)), timeout_s)
    except TimeoutError:
        left = [(process.pid, process.cmdline()) for process in processes if _runs(process)]
        raise AssertionError(f"still there after {timeout_s} s: {left}") from None


def _runs(process: psutil.Process) -> bool:
    """False for a zombie, too: it has ended."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
