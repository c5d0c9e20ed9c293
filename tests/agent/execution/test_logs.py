"""The log buffer: output is bounded, decoded and stripped of signal lines, whatever the chunks it arrives in."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import time
import tracemalloc

from hypothesis import given, strategies as st

from computepool.agent.execution.logs import STDERR, STDOUT, LogBuffer
from computepool.protocol.nodes.nodes import LogText
from tests.agent.conftest import QUICK

LINES = st.lists(
    st.one_of(
        st.text(st.characters(codec="utf-8", exclude_characters="\n\r\x00"), max_size=30).filter(
            lambda line: not line.startswith("::progress")
        ),
        st.sampled_from(["::", ":", "::prog", "plain", "é☃", " ::progress 0.5"]),
        st.floats(0, 1).map(lambda value: f"::progress {value:.3f}"),
    ),
    min_size=1,
    max_size=20,
)


def chunks(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in itertools.pairwise(edges)]


def text_of(buffer: LogBuffer, stream: str = "stdout") -> str:
    return "".join(chunk.text for chunk in buffer.take_rest() if chunk.stream == stream)


def test_a_note_of_the_agent_is_not_part_of_the_output() -> None:
    plain, noted = LogBuffer("att_1", QUICK), LogBuffer("att_1", QUICK)
    noted.note("Installing packages (six)")
    noted.resume(b"before\n")
    noted.resume(b"not again\n")
    plain.resume(b"before\n")
    for buffer in (plain, noted):
        buffer.feed(STDOUT, b"out\n")
        buffer.feed(STDERR, b"err\n")
    assert plain.printed_digest() == noted.printed_digest()
    assert (plain.stderr_tail, plain.seen_bytes) == (noted.stderr_tail, noted.seen_bytes)
    texts = [(chunk.stream, chunk.text, chunk.seq) for chunk in noted.take_rest()]
    assert texts[0] == ("stderr", "[Installing packages (six)]\n", 0)


@given(LINES, st.lists(st.integers(0, 10_000), max_size=20), st.booleans())
def test_any_chunking_gives_the_same_text(lines: list[str], cuts: list[int], ends: bool) -> None:
    data = "\n".join(lines).encode() + (b"\n" if ends else b"")
    buffer = LogBuffer("a", QUICK)
    for chunk in chunks(data, cuts):
        buffer.feed("stdout", chunk)
    buffer.finish()
    complete = lines if ends else lines[:-1]
    kept = [f"{line}\n" for line in complete if not line.startswith("::progress")]
    last = "" if ends or not lines else lines[-1]
    assert text_of(buffer) == "".join(kept) + last
    told = [float(line.split()[1]) for line in complete if line.startswith("::progress")]
    assert buffer.progress == (told[-1] if told else None)


@given(st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), st.binary(max_size=300)), max_size=30))
def test_output_is_limited_and_contains_no_nul(writes: list[tuple[str, bytes]]) -> None:
    limit = 500
    buffer = LogBuffer("a", dataclasses.replace(QUICK, log_bytes_max=limit, log_chunk_max=64))
    for stream, data in writes:
        buffer.feed(stream, data)
    buffer.finish()
    texts = buffer.take_rest()
    assert all(0 < len(chunk.text) <= 64 and "\x00" not in chunk.text for chunk in texts)
    joined = "".join(chunk.text for chunk in texts)
    assert len(joined) <= limit + 60
    assert buffer.pending_chars == 0
    assert buffer.seen_bytes == sum(len(data) for _, data in writes)


def test_invalid_progress_lines_are_hidden_and_ignored() -> None:
    buffer = LogBuffer("a", QUICK)
    buffer.feed("stdout", b"::progress 0.5\n::progress many\n::progress nan\n::progress 7\nend\n")
    assert buffer.progress == 1.0
    assert text_of(buffer) == "end\n"


def test_chunks_that_are_put_back_keep_their_numbers_and_order() -> None:
    buffer = LogBuffer("a", QUICK)
    buffer.feed("stdout", b"one\n")
    buffer.feed("stderr", b"two\n")
    buffer.put_back(buffer.take(10, 1000))
    buffer.feed("stderr", b"three\n")
    assert [(chunk.seq, chunk.stream, chunk.text) for chunk in buffer.take_rest()] == [
        (0, "stdout", "one\n"),
        (1, "stderr", "two\n"),
        (2, "stderr", "three\n"),
    ]


def test_the_chunks_of_one_request_are_limited() -> None:
    buffer = LogBuffer("a", dataclasses.replace(QUICK, log_chunk_max=10))
    buffer.feed("stdout", b"x" * 100)
    assert [len(chunk.text) for chunk in buffer.take(3, 1000)] == [10] * 3
    assert [len(chunk.text) for chunk in buffer.take(9, 25)] == [10] * 2
    assert [len(chunk.text) for chunk in buffer.take(9, 1)] == [10], "at least one"
    assert buffer.take(0, 100) == []
    assert buffer.pending_chars == 40


def test_only_the_newest_of_many_checkpoints_keeps_a_copy_of_the_output() -> None:
    buffer = LogBuffer("a", QUICK, is_checkpoint=lambda name, moves: True)
    said = b"x" * 500_000 + b"\n"
    buffer.feed("stdout", said)
    tracemalloc.start()
    try:
        buffer.feed("stdout", b"::checkpoint a\n" * 200 + b"more\n::checkpoint b 0.5\nlast\n")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8_000_000
    assert [asked.name for asked in buffer.checkpoints] == ["a"] * 200 + ["b"]
    assert [asked.printed for asked in buffer.checkpoints] == [None] * 200 + [said + b"more\n"]
    assert text_of(buffer) == said.decode() + "more\nlast\n"


def test_the_number_of_lookups_per_read_is_limited() -> None:
    looked_up = []

    def is_checkpoint(name: str, moves: bool) -> bool:
        looked_up.append(name)
        return False

    buffer = LogBuffer("a", QUICK, is_checkpoint=is_checkpoint)
    lines = b"::checkpoint a\n" * 20_000
    buffer.feed("stdout", lines)
    assert 0 < len(looked_up) < 2_000
    assert text_of(buffer) == lines.decode()


def test_only_the_end_of_a_long_line_is_searched_for_announcements() -> None:
    buffer = LogBuffer("a", QUICK, is_checkpoint=lambda name, moves: name == "real")
    words = b"::move a " * 400_000
    began = time.process_time()
    buffer.feed("stdout", words)
    buffer.feed("stdout", words + b"\n")
    assert time.process_time() - began < 0.5
    buffer.feed("stdout", words + b"\x00 ::checkpoint real\n")
    assert [asked.name for asked in buffer.checkpoints] == ["real"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["stdout", "stderr"]),
            st.one_of(
                st.binary(max_size=200),
                st.sampled_from([b"::progress 0.5\n", b"::pro", b"\x00", "é☃".encode()[:3], b"\xff\xfe"]),
            ),
        ),
        max_size=30,
    ),
    st.lists(st.booleans(), min_size=30, max_size=30),
)
def test_the_reported_digest_is_that_of_the_text_that_is_sent(
    writes: list[tuple[str, bytes]], lost: list[bool]
) -> None:
    """Whatever is written, and however often a request is lost."""
    limits = dataclasses.replace(QUICK, log_chunk_max=32, log_pending_chunks_max=4)
    buffer = LogBuffer("a", limits)
    arrived: dict[int, LogText] = {}
    for (stream, data), is_lost in zip(writes, lost, strict=False):
        buffer.feed(stream, data)
        chunks = buffer.take(3, 100)
        for chunk in chunks:
            assert chunk.seq is not None
            assert arrived.setdefault(chunk.seq, chunk) == chunk, "sent again, it is the same piece"
        if is_lost:
            buffer.put_back(chunks)
    named = buffer.printed_digest()
    buffer.finish()
    arrived |= {chunk.seq or 0: chunk for chunk in buffer.take_rest()}
    assert sorted(arrived) == list(range(len(arrived)))
    text = "".join(arrived[seq].text for seq in sorted(arrived) if arrived[seq].stream == "stdout")
    assert named == (hashlib.sha256(text.encode()).hexdigest(), len(text))
    assert buffer.pending_chars == 0


def test_the_digest_covers_all_of_an_output_that_is_sent_in_part() -> None:
    buffer = LogBuffer("a", dataclasses.replace(QUICK, log_bytes_max=100))
    data = "é".encode() * 3000
    for start in range(0, len(data), 7):
        buffer.feed("stdout", data[start : start + 7])
    assert buffer.printed_digest() == (hashlib.sha256(data).hexdigest(), 3000)
    buffer.finish()
    chunks = buffer.take_rest()
    assert "".join(chunk.text for chunk in chunks if chunk.stream == "stdout") == "é" * 50
    assert "truncated" in chunks[-1].text


def test_output_that_alternates_between_streams_makes_few_chunks() -> None:
    buffer = LogBuffer("a", dataclasses.replace(QUICK, log_pending_chunks_max=10))
    for _ in range(1000):
        buffer.feed("stdout", b"o")
        buffer.feed("stderr", b"e")
    chunks = buffer.take_rest()
    assert len(chunks) <= 11
    for stream, letter in (("stdout", "o"), ("stderr", "e")):
        assert "".join(chunk.text for chunk in chunks if chunk.stream == stream) == letter * 1000
