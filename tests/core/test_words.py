"""Sizes are shown as people type them: a GB of memory is 1000 MB, a GB of files is a thousand million bytes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from computepool.core.words import byte_size, duration, memory_size
from computepool.sdk.client.sizes import byte_count, megabytes

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("mb", "text"), [(-1, "0 MB"), (512, "512 MB"), (1_000, "1 GB"), (16_384, "16.3 GB"), (24_000, "24 GB")]
)
def test_memory(mb: int, text: str) -> None:
    assert memory_size(mb) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0 s"), (119, "119 s"), (120, "2 minutes"), (7_199, "120 minutes"), (7_200, "2 hours"), (604_794, "7 days")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize("typed", ["512MB", "1GB", "16GB", "1.5GB", "24.5GB"])
def test_what_was_typed_is_shown_again(typed: str) -> None:
    assert memory_size(megabytes(typed)).replace(" ", "") == typed
    assert memory_size(megabytes(typed), up=True).replace(" ", "") == typed
    assert byte_size(byte_count(typed)).replace(" ", "") == typed


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1_000, "1 kB"), (9_140, "9.1 kB"), (999_999, "1 MB"), (5 * 10**15, "5000 TB")],
)
def test_files(count: int, text: str) -> None:
    assert byte_size(count) == text


def test_a_need_is_rounded_up_and_what_is_there_down() -> None:
    assert (memory_size(24_001, up=True), memory_size(24_099)) == ("24.1 GB", "24 GB")


def test_nobody_else_writes_sizes_in_powers_of_two() -> None:
    """Limits that the documents name exactly, such as 256 KiB, are no sizes of anything."""
    wrong = re.compile(r"\{[^{}]*\} ?(GiB|MiB|KiB|TiB)")
    source = ROOT / "src" / "computepool"
    assert [path.name for path in source.rglob("*.py") if wrong.search(path.read_text())] == []
