"""Daemon threads that run queued calls in order.

A finalizer may run in any thread, with any lock held, and during interpreter shutdown, so it may neither take a lock nor
start a thread. It passes its work to a running thread through a SimpleQueue, whose `put` is reentrant. Unlike the
threads of concurrent.futures, these do not keep the interpreter alive.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue

#: How long closing waits for pending submissions.
CLOSE_TIMEOUT_S = 30.0
_log = logging.getLogger("computepool.sdk")


class BackgroundThreads:
    def __init__(self, name: str, *, threads: int = 1) -> None:
        self._name = name
        self._threads = threads
        self._calls: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._pid: int | None = None  #: the process that the threads run in; a forked child does not inherit them

    def start(self) -> None:
        """Must come before the first call from a finalizer. Cheap if the threads are already running."""
        with self._lock:
            if self._pid == os.getpid():
                return
            self._pid = os.getpid()
            for _ in range(self._threads):
                threading.Thread(target=self._run, name=self._name, daemon=True).start()

    def put(self, call: Callable[[], object]) -> None:
        """Safe everywhere, including `__del__`."""
        self._calls.put(call)

    def flush(self, timeout: float) -> bool:
        """Wait until all calls queued so far are done. Requires a single thread."""
        if self._pid != os.getpid():
            return True
        done = threading.Event()
        self._calls.put(done.set)
        return done.wait(timeout)

    def stop(self) -> None:
        """End the threads after the calls queued so far."""
        for _ in range(self._threads):
            self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call()
            except BaseException as error:  # noqa: BLE001 - the thread must survive for the other calls
                _log.error("unexpected", exc_info=error)
            del call  # otherwise it would keep its objects alive until the next call


#: Closes abandoned objects and cancels their jobs at the hub.
closer = BackgroundThreads("computepool-closer")
