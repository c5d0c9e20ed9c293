"""Waiting for a quiet machine, for a bounded time."""

from __future__ import annotations

import os
import time
from itertools import chain, repeat

from bench.quiet import Patience, Watch, descendants, machine_cpu_s


def test_it_goes_on_as_soon_as_others_are_quiet() -> None:
    seen = iter([2.0, 1.0, 0.1, 2.0])
    _, others = Patience(left_s=60, sample_s=0).wait(lambda: next(seen))
    assert others == 0.1
    assert next(seen) == 2.0


def test_all_waits_together_are_bounded() -> None:
    patience = Patience(left_s=0.05, sample_s=0.01)
    began = time.monotonic()
    for _ in range(5):
        _, others = patience.wait(chain(repeat(2.0)).__next__)
        assert others == 2.0
    assert patience.left_s == 0
    assert time.monotonic() - began < 30


def test_our_own_work_does_not_count_as_others() -> None:
    """Whatever else runs here, a busy loop of ours adds to the machine's time and not to the others'."""
    machine, cpu, began = machine_cpu_s(), time.process_time(), time.monotonic()
    watch = Watch()
    while time.process_time() - cpu < 0.6:
        pass
    others_s = watch.others_cores() * (time.monotonic() - began)
    assert others_s <= machine_cpu_s() - machine - 0.3
    assert os.getpid() in descendants(os.getpid())
