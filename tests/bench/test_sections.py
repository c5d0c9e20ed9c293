"""Every part of the benchmark can be run by itself, within a time of its own."""

from __future__ import annotations

from bench.ours import MODULES
from bench.sections import LIMITS_S


def test_every_part_has_its_time() -> None:
    assert set(MODULES) <= set(LIMITS_S)
