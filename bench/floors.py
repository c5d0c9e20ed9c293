"""The limits of the machine and of Python, without queue, network or storage. No system can be faster."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ProcessPoolExecutor

from bench.peers.measure import SLOTS, TRUE, Measured, Sizes, emit, noop, rates, requested_sizes, singles

BWRAP = ("--ro-bind", "/", "/", "--unshare-all", "--die-with-parent", TRUE)


def process_pool(sizes: Sizes) -> Measured:
    """Python's own pool of warm processes."""
    with ProcessPoolExecutor(SLOTS) as pool:

        def many(count: int) -> None:
            for future in [pool.submit(noop, number) for number in range(count)]:
                future.result()

        many(min(100, sizes.calls))
        found = rates(many, sizes.calls, rounds=sizes.rounds)
        measured = Measured(name="Python process pool", floor=True, calls_per_s=found)
        singles(lambda: pool.submit(noop, 1).result(), measured, sizes)
        return measured


def spawn(argv: list[str], count: int) -> None:
    """Start `count` processes, `SLOTS` at a time. Waits for any child, because this process has no others."""
    running = 0
    for _ in range(count):
        if running == SLOTS:
            _reap()
            running -= 1
        os.posix_spawn(argv[0], argv, os.environ)
        running += 1
    for _ in range(running):
        _reap()


def _reap() -> None:
    _, status = os.wait()
    if status:
        raise RuntimeError(f"a process ended with {os.waitstatus_to_exitcode(status)}")


def plain_processes(sizes: Sizes) -> Measured:
    spawn([TRUE], 20)
    found = rates(lambda count: spawn([TRUE], count), sizes.processes, rounds=sizes.rounds)
    return Measured(name=f"posix_spawn of {TRUE}", floor=True, processes_per_s=found)


def boxed_processes(sizes: Sizes) -> Measured:
    measured = Measured(name=f"bubblewrap around {TRUE}", floor=True)
    found = shutil.which("bwrap")
    if found is None:
        measured.note = "bubblewrap is not installed"
        return measured
    argv = [found, *BWRAP]
    spawn(argv, 5)
    count = max(1, sizes.processes // 2)
    measured.boxed_per_s = rates(lambda number: spawn(argv, number), count, rounds=sizes.rounds)
    return measured


def run(sizes: Sizes) -> list[Measured]:
    return [process_pool(sizes), plain_processes(sizes), boxed_processes(sizes)]


if __name__ == "__main__":
    emit(*run(requested_sizes()))
