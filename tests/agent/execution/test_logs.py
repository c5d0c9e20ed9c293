"""Output: bounded, decoded, with progress lines taken out, whatever the chunks it arrives in."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import time
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from computepool.agent.execution.logs import STDERR, STDOUT, LogBuffer, PrintedDigest
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


def test_a_note_is_no_output_of_the_job() -> None:
    plain, noted = LogBuffer("att_1", QUICK), LogBuffer("att_1", QUICK)
    noted.note("Installing packages (six)")
    noted.follow_on(b"before\n")
    noted.follow_on(b"not again\n")
    plain.follow_on(b"before\n")
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
def test_never_more_than_the_limit_and_never_nul(writes: list[tuple[str, bytes]]) -> None:
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


def test_nonsense_after_the_word_is_hidden_but_changes_nothing() -> None:
    buffer = LogBuffer("a", QUICK)
    buffer.feed("stdout", b"::progress 0.5\n::progress many\n::progress nan\n::progress 7\nend\n")
    assert buffer.progress == 1.0
    assert text_of(buffer) == "end\n"


def test_what_was_taken_can_be_put_back() -> None:
    buffer = LogBuffer("a", QUICK)
    buffer.feed("stdout", b"one\n")
    buffer.feed("stderr", b"two\n")
    buffer.untake(buffer.take(10, 1000))
    buffer.feed("stderr", b"three\n")
    assert [(chunk.seq, chunk.stream, chunk.text) for chunk in buffer.take_rest()] == [
        (0, "stdout", "one\n"),
        (1, "stderr", "two\n"),
        (2, "stderr", "three\n"),
    ]


def test_what_is_taken_at_once_is_bounded() -> None:
    buffer = LogBuffer("a", dataclasses.replace(QUICK, log_chunk_max=10))
    buffer.feed("stdout", b"x" * 100)
    assert [len(chunk.text) for chunk in buffer.take(3, 1000)] == [10] * 3
    assert [len(chunk.text) for chunk in buffer.take(9, 25)] == [10] * 2
    assert [len(chunk.text) for chunk in buffer.take(9, 1)] == [10], "at least one"
    assert buffer.take(0, 100) == []
    assert buffer.pending_chars == 40


def test_many_marks_at_once_cost_no_memory() -> None:
    """Of several the newest counts: the others are kept by their names alone, so that they can be discarded."""
    buffer = LogBuffer("a", QUICK, is_mark=lambda name, moves: True)
    said = b"x" * 500_000 + b"\n"
    buffer.feed("stdout", said)
    tracemalloc.start()
    try:
        buffer.feed("stdout", b"::checkpoint a\n" * 200 + b"more\n::checkpoint b 0.5\nlast\n")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8_000_000
    assert [asked.name for asked in buffer.announced] == ["a"] * 200 + ["b"]
    assert [asked.printed for asked in buffer.announced] == [None] * 200 + [said + b"more\n"]
    assert text_of(buffer) == said.decode() + "more\nlast\n"


def test_only_so_many_lines_are_looked_up_at_once() -> None:
    looked_up = []

    def is_mark(name: str, moves: bool) -> bool:
        looked_up.append(name)
        return False

    buffer = LogBuffer("a", QUICK, is_mark=is_mark)
    lines = b"::checkpoint a\n" * 20_000
    buffer.feed("stdout", lines)
    assert 0 < len(looked_up) < 2_000
    assert text_of(buffer) == lines.decode()


def test_a_long_line_of_words_that_might_be_marks() -> None:
    """Searched only where a mark can be, at the end of a line: else it holds up everything else on the node."""
    buffer = LogBuffer("a", QUICK, is_mark=lambda name, moves: name == "real")
    words = b"::move a " * 400_000
    began = time.process_time()
    buffer.feed("stdout", words)
    buffer.feed("stdout", words + b"\n")
    assert time.process_time() - began < 0.5
    buffer.feed("stdout", words + b"\x00 ::checkpoint real\n")
    assert [asked.name for asked in buffer.announced] == ["real"]


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
def test_the_text_that_is_sent_is_the_one_that_is_reported(
    writes: list[tuple[str, bytes]], lost: list[bool]
) -> None:
    """Whatever is written, and however often a request is lost: the hub holds one against the other."""
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
            buffer.untake(chunks)
    named = buffer.printed_digest()
    buffer.finish()
    arrived |= {chunk.seq or 0: chunk for chunk in buffer.take_rest()}
    assert sorted(arrived) == list(range(len(arrived)))
    text = "".join(arrived[seq].text for seq in sorted(arrived) if arrived[seq].stream == "stdout")
    assert named == PrintedDigest(hashlib.sha256(text.encode()).hexdigest(), len(text))
    assert buffer.pending_chars == 0


def test_of_a_long_output_all_is_reported_and_a_part_sent() -> None:
    buffer = LogBuffer("a", dataclasses.replace(QUICK, log_bytes_max=100))
    data = "é".encode() * 3000
    for start in range(0, len(data), 7):
        buffer.feed("stdout", data[start : start + 7])
    assert buffer.printed_digest() == PrintedDigest(hashlib.sha256(data).hexdigest(), 3000)
    buffer.finish()
    chunks = buffer.take_rest()
    assert "".join(chunk.text for chunk in chunks if chunk.stream == "stdout") == "é" * 50
    assert "truncated" in chunks[-1].text


def test_who_changes_streams_all_the_time_makes_no_countless_pieces() -> None:
    buffer = LogBuffer("a", dataclasses.replace(QUICK, log_pending_chunks_max=10))
    for _ in range(1000):
        buffer.feed("stdout", b"o")
        buffer.feed("stderr", b"e")
    chunks = buffer.take_rest()
    assert len(chunks) <= 11
    for stream, letter in (("stdout", "o"), ("stderr", "e")):
        assert "".join(chunk.text for chunk in chunks if chunk.stream == stream) == letter * 1000
