"""Daemon threads that run calls in the order in which they were handed over.

A finalizer may run in any thread, with any lock held, and while the interpreter ends: it may neither take a lock nor
start a thread. So it hands its work over to threads that run already, through a queue whose `put` is made for this.
Nothing here keeps the interpreter from ending, as the threads of concurrent.futures would.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue

#: How long closing waits for what is on its way.
CLOSE_TIMEOUT_S = 30.0
_log = logging.getLogger("computepool.sdk")


class BackgroundThreads:
    def __init__(self, name: str, *, threads: int = 1) -> None:
        self._name = name
        self._threads = threads
        self._calls: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._pid: int | None = None  #: of the process whose threads run; a forked child has none of them

    def start(self) -> None:
        """Before the first call that comes from a finalizer. Costs nothing when they run."""
        if self._pid == os.getpid():
            return
        with self._lock:
            if self._pid == os.getpid():
                return
            self._pid = os.getpid()
            for _ in range(self._threads):
                threading.Thread(target=self._run, name=self._name, daemon=True).start()

    def put(self, call: Callable[[], object]) -> None:
        """Allowed everywhere, also in `__del__`."""
        self._calls.put(call)

    def flush(self, timeout: float) -> bool:
        """Wait until what was handed over so far is done; with one thread only."""
        if self._pid != os.getpid():
            return True
        done = threading.Event()
        self._calls.put(done.set)
        return done.wait(timeout)

    def stop(self) -> None:
        """Each thread ends after what was handed over before."""
        for _ in range(self._threads):
            self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call()
            except BaseException as error:  # noqa: BLE001 - the thread serves others, too
                _log.error("unexpected", exc_info=error)
            del call  # or what it belongs to would live until the next one


#: Closes what nobody uses any more, and tells the hub.
closer = BackgroundThreads("computepool-closer")
