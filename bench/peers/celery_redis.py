"""Celery with Redis as broker and result store, and one worker with two processes.

With the argument `fsync`, Redis writes every change to disk before it replies, and tasks are acknowledged late.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.peers.measure import SLOTS, Measured, emit, measure, requested_sizes

#: Environment variables between the benchmark, this process, and Celery's worker.
REDIS_SERVER = "BENCH_REDIS_SERVER"
ADDRESS = "BENCH_REDIS_URL"
KEEP = "BENCH_CELERY_KEEP"
READY_S = 30.0
RESULT_S = 60.0


class Celery:
    def __init__(self, tasks: Any) -> None:
        self._tasks = tasks

    def calls(self, count: int) -> None:
        self._gather(self._tasks.noop, count)

    def processes(self, count: int) -> None:
        self._gather(self._tasks.start_process, count)

    def call(self) -> None:
        self._tasks.noop.delay(1).get(timeout=RESULT_S)

    @staticmethod
    def _gather(task: Any, count: int) -> None:
        for result in [task.delay(number) for number in range(count)]:
            result.get(timeout=RESULT_S)


@contextmanager
def started(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=stream)
        try:
            yield process
        finally:
            stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def redis(folder: Path, *, fsync: bool) -> Iterator[str]:
    port = free_port()
    keep = ["--appendonly", "yes", "--appendfsync", "always"] if fsync else ["--appendonly", "no"]
    place = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
    command = [os.environ[REDIS_SERVER], *place, "--save", "", *keep]
    with started(command, folder / "redis.log") as process:
        deadline = time.monotonic() + READY_S
        while not _is_listening(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"redis-server did not start: {(folder / 'redis.log').read_text()[-500:]}")
            time.sleep(0.05)
        yield f"redis://127.0.0.1:{port}"


def _is_listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 0.5).close()
    except OSError:
        return False
    return True


def main(*, fsync: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="computepool-bench-") as name:
        folder = Path(name)
        with redis(folder, fsync=fsync) as url:
            os.environ[ADDRESS] = url
            if fsync:
                os.environ[KEEP] = "yes"
            tasks = importlib.import_module("bench.peers.celery_tasks")
            options = ["--concurrency", str(SLOTS), "--pool", "prefork", "--loglevel", "WARNING"]
            worker = [sys.executable, "-m", "celery", "-A", "bench.peers.celery_tasks", "worker", *options]
            with started(worker, folder / "worker.log"):
                system = Celery(tasks)
                system.call()
                title = f"Celery {importlib.metadata.version('celery')} + Redis" + (", fsync" if fsync else "")
                emit(measure(system, Measured(name=title, on_disk=fsync), requested_sizes()))


if __name__ == "__main__":
    main(fsync="fsync" in sys.argv[2:])
