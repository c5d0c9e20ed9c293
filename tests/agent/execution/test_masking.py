"""Masking: no secret leaves in the output, whatever the pieces it arrives in, and everything else stays."""

from __future__ import annotations

import re
import time

from hypothesis import given, strategies as st

from computepool.agent.execution.logs import STDERR, STDOUT, LogBuffer
from computepool.agent.execution.masking import Masker, mask_text
from tests.agent.conftest import QUICK
from tests.agent.execution.test_logs import chunks, text_of

#: Few letters, so that values overlap, contain one another, and begin again within themselves.
WORDS = st.text("ab", min_size=4, max_size=7)
VALUES = st.lists(WORDS, min_size=1, max_size=4)
TEXTS = st.lists(st.one_of(WORDS, st.text("abc\n", max_size=9)), max_size=8).map("".join)
CUTS = st.lists(st.integers(0, 10_000), max_size=20)


def masked(values: list[str], pieces: list[bytes]) -> str:
    masker = Masker(values)
    return (b"".join(map(masker.feed, pieces)) + masker.end()).decode()


@given(VALUES, TEXTS, CUTS)
def test_any_chunking_masks_the_same(values: list[str], text: str, cuts: list[int]) -> None:
    longest_first = "|".join(sorted(values, key=lambda value: (-len(value), value)))
    expected = re.sub(f"(?:{longest_first})+", "***", text)
    assert masked(values, chunks(text.encode(), cuts)) == expected
    assert not any(value in expected for value in values)


@given(st.binary(min_size=4, max_size=2_000).map(bytes.hex), st.text("xyz\n", max_size=50), CUTS)
def test_a_long_value_becomes_one_mask(value: str, text: str, cuts: list[int]) -> None:
    assert masked([value], chunks(f"{text}{value}{text}".encode(), cuts)) == f"{text}***{text}"


@given(VALUES, TEXTS, CUTS)
def test_the_log_of_an_attempt_is_masked(values: list[str], text: str, cuts: list[int]) -> None:
    buffer, plain = LogBuffer("a", QUICK), LogBuffer("a", QUICK)
    buffer.mask(values)
    for stream in (STDOUT, STDERR):
        for chunk in chunks(text.encode(), cuts):
            buffer.feed(stream, chunk)
        plain.feed(stream, mask_text(text, values).encode())
    assert buffer.printed_digest() == plain.printed_digest()
    buffer.finish()
    plain.finish()
    sent = buffer.take_rest()
    for stream in (STDOUT, STDERR):
        assert "".join(chunk.text for chunk in sent if chunk.stream == stream) == mask_text(text, values)


def test_short_values_and_spaces_around_values() -> None:
    assert mask_text("abc of abcd", ["abc"]) == "abc of abcd"
    assert mask_text("key=s3cret.", [" s3cret\n"]) == "key=***."
    assert mask_text("grün", ["grün"]) == "***"


def test_a_value_is_not_shown_in_part_where_output_is_missing() -> None:
    buffer = LogBuffer("a", QUICK)
    buffer.mask(["correct-horse"])
    buffer.feed("stdout", b"it is correct-ho", skipped=100)
    buffer.feed("stdout", b"and more")
    buffer.finish()
    assert text_of(buffer) == "it is ***and more"


def test_masking_is_quick_for_the_worst_values() -> None:
    values = ["a" * 4_000 + f"b{number}" for number in range(16)]
    masker = Masker(values)
    started = time.process_time()
    for _ in range(20):
        masker.feed(b"a" * 64 * 1024)
        for _ in range(20):
            masker.feed(b"a")
    assert time.process_time() - started < 5
