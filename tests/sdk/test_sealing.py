"""Sealing: what was sealed opens for its key alone, whole and as it was; and keys are kept with care."""

from __future__ import annotations

import hashlib
import json
import os
import tracemalloc
from io import BytesIO
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from computepool.agent import sealing as node_sealing
from computepool.agent.config import AgentLimits
from computepool.agent.endings import Ending, failed
from computepool.agent.logs import STDERR, STDOUT, LogBuffer
from computepool.core.jobs import JobKind, Outcome, Reason
from computepool.protocol import sealing
from computepool.protocol.base import TEXT_MAX
from computepool.protocol.jobs import JobSpec
from computepool.protocol.nodes import LOG_CHUNK_MAX
from computepool.protocol.sealing import CHUNK, HEADER, MAGIC, TAG, SealError
from computepool.sdk import sealing as keys
from computepool.sdk.errors import BadRequest

KEY = X25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = KEY.public_key().public_bytes_raw()


def find(wanted: bytes) -> X25519PrivateKey:
    if wanted != sealing.key_id(PUBLIC):
        raise SealError("not here")
    return KEY


def opened(data: bytes) -> bytes:
    return sealing.unseal_bytes(data, find_key=find)


_SIZES = st.sampled_from(
    [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK - 1, 2 * CHUNK, 2 * CHUNK + 1]
) | st.integers(0, 3 * CHUNK)


@given(_SIZES, st.integers(1, CHUNK + TAG))
@settings(max_examples=40, deadline=None)
def test_every_size_comes_back_however_it_is_read(size: int, piece: int) -> None:
    data = hashlib.shake_128(b"x").digest(size)
    sealed = sealing.seal_bytes(data, to=PUBLIC)
    assert len(sealed) == sealing.sealed_size(size)
    source, sink = BytesIO(sealed), BytesIO()
    sealing.unseal(lambda wanted: source.read(min(wanted, max(piece, 1_000))), sink.write, find_key=find)
    assert sink.getvalue() == data


@pytest.mark.parametrize(
    ("size", "digest"),
    [
        (0, "c1350b13a9a298a3345fda52491d0274977e0158687babd34251e1c19d906f1d"),
        (5, "3fb090e18da51b9b124dc1fb2f4049a425511fd05ea8a55f6abbf521bec89170"),
        (CHUNK, "6df4e8797a2f71139b80e31afc447d49751b4a9007bd379c9f50ddfceabfd991"),
        (CHUNK + 1, "10f5a3a43a68198623e21a5b733a40bcf600dba0dfa364618da2fdc540158ca0"),
    ],
)
def test_vectors(size: int, digest: str) -> None:
    """The format is fixed: what was sealed by one version opens with the next."""
    sink = BytesIO()
    ephemeral = X25519PrivateKey.from_private_bytes(bytes(range(32, 64)))
    sealing.seal(BytesIO(b"\x07" * size).read, sink.write, to=PUBLIC, ephemeral=ephemeral)
    sealed = sink.getvalue()
    assert sealed[:16] == MAGIC + bytes.fromhex("eedd883da0a94515")
    assert hashlib.sha256(sealed).hexdigest() == digest
    assert opened(sealed) == b"\x07" * size


def test_two_sealings_have_nothing_in_common() -> None:
    first, second = (sealing.seal_bytes(b"the same", to=PUBLIC) for _ in range(2))
    assert first[16:48] != second[16:48]
    assert first[48:] != second[48:]


_SEALED = sealing.seal_bytes(b"a" * (2 * CHUNK + 100), to=PUBLIC)
_PARTS = [_SEALED[HEADER + at * (CHUNK + TAG) : HEADER + (at + 1) * (CHUNK + TAG)] for at in range(3)]
_OTHER = sealing.seal_bytes(b"b" * (2 * CHUNK + 100), to=PUBLIC)


@pytest.mark.parametrize(
    "sealed",
    [
        b"",
        MAGIC,
        _SEALED[: HEADER - 1],
        _SEALED[:HEADER],
        _SEALED[: HEADER + 3],
        _SEALED[:-1],
        _SEALED[: HEADER + CHUNK + TAG],
        _SEALED[: HEADER + 2 * (CHUNK + TAG)],
        _SEALED + b"x",
        _SEALED + _PARTS[2],
        _SEALED[:HEADER] + _PARTS[1] + _PARTS[0] + _PARTS[2],
        _SEALED[:HEADER] + _PARTS[0] + _PARTS[2],
        _SEALED[:HEADER] + _PARTS[0] + _PARTS[0] + _PARTS[2],
        _SEALED[:HEADER] + _PARTS[2],
        _SEALED[:HEADER] + _OTHER[HEADER:],
        _OTHER[:HEADER] + _SEALED[HEADER:],
        _SEALED[: HEADER + CHUNK + TAG] + _OTHER[HEADER + CHUNK + TAG :],
        _SEALED[: HEADER - 32] + bytes(32) + _SEALED[HEADER:],
        b"CPSEAL2\n" + _SEALED[8:],
        b"plain text" * 10,
    ],
    ids=range(20),
)
def test_what_was_cut_swapped_or_put_together_does_not_open(sealed: bytes) -> None:
    with pytest.raises(SealError):
        opened(sealed)


@given(st.integers(0, len(_SEALED) - 1), st.integers(1, 255))
@settings(max_examples=60, deadline=None)
def test_no_byte_can_be_changed(at: int, flip: int) -> None:
    changed = bytearray(_SEALED)
    changed[at] ^= flip
    with pytest.raises(SealError):
        opened(bytes(changed))


def test_another_key_does_not_open_it() -> None:
    other = X25519PrivateKey.generate()
    with pytest.raises(SealError):
        sealing.unseal_bytes(_SEALED, find_key=lambda _: other)


def test_memory_is_flat() -> None:
    class Zeros:
        left = 64 * 1024 * 1024

        def read(self, size: int) -> bytes:
            given = min(size, self.left)
            self.left -= given
            return bytes(given)

    with open(os.devnull, "wb") as sink:
        tracemalloc.start()
        sealing.seal(Zeros().read, sink.write, to=PUBLIC)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 2 * 1024 * 1024


# ---------------------------------------------------------------- on the node
SPEC = JobSpec(kind=JobKind.COMMAND, name="x", argv=["true"], seal_to=sealing.public_text(KEY))


def test_nothing_readable_is_left_in_a_report() -> None:
    for words in ("MARKER", "MARKER " + "x" * 20_000, "MARKER " + "𝔘" * 20_000, "MARKER\x00\ud800"):
        ending = node_sealing.close(failed(Reason.EXCEPTION, words), SPEC)
        report = ending.report("job_1-1")
        assert report.error is not None
        assert len(report.error) <= TEXT_MAX
        assert "MARKER" not in report.error
        assert sealing.unseal_text(report.error, find_key=find).startswith("MARKER")
    plain = Ending(outcome=Outcome.SUCCEEDED, reason=Reason.COMPLETED, result='"MARKER"', printed="0" * 64)
    report = node_sealing.close(plain, SPEC).report("job_1-1")
    assert "MARKER" not in report.model_dump_json()
    assert (report.outcome, report.printed, report.result) == (Outcome.FAILED, None, None)


def test_printed_words_are_sealed_and_come_back_when_they_could_not_be_sent() -> None:
    log = LogBuffer("job_1-1", AgentLimits(), seal_to=PUBLIC)
    log.feed(STDOUT, b"MARKER one\n::progress 0.5\n")
    log.feed(STDERR, "MARKER 𝔘\n".encode() + "𝔘".encode() * 50_000)
    assert log.progress == 0.5
    chunks = log.take(1, 10**6)
    log.untake(chunks)
    log.finish()
    chunks = log.take_rest()
    assert all(len(chunk.text) <= LOG_CHUNK_MAX and "MARKER" not in chunk.text for chunk in chunks)
    texts = [sealing.unseal_text(chunk.text, find_key=find) for chunk in chunks]
    assert "".join(texts) == "MARKER one\nMARKER 𝔘\n" + "𝔘" * 50_000


# ---------------------------------------------------------------- keys
def test_a_key_is_the_owners_alone_and_is_not_replaced_by_chance() -> None:
    made = keys.init()
    assert oct(keys.key_path().stat().st_mode & 0o777) == "0o600"
    with pytest.raises(BadRequest, match="--replace"):
        keys.init()
    sealed = sealing.seal_bytes(b"old", to=sealing.public_bytes(made.public))
    fresh = keys.init(replace_current=True)
    assert keys.recipient(True) == fresh.public
    assert keys.open_bytes(sealed) == b"old"


def test_sealing_is_asked_for_or_always_or_not() -> None:
    with pytest.raises(BadRequest, match="pool seal init"):
        keys.recipient(True)
    assert keys.recipient(None) is None
    made = keys.init()
    assert keys.recipient(None) is None
    keys.set_always(True)
    assert keys.recipient(None) == made.public
    assert keys.recipient(False) is None
    assert keys.recipient(sealing.public_text(KEY)) == sealing.public_text(KEY)
    with pytest.raises(BadRequest, match="32 bytes"):
        keys.recipient("AAAA")


def test_a_passphrase_locks_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    made = keys.init(passphrase="open sesame")
    sealed = sealing.seal_bytes(b"treasure", to=sealing.public_bytes(made.public))
    with pytest.raises(keys.CannotOpen, match="passphrase"):
        keys.open_bytes(sealed)
    monkeypatch.setenv(keys.PASSPHRASE_ENV, "wrong")
    with pytest.raises(keys.CannotOpen, match="passphrase"):
        keys.open_bytes(sealed)
    monkeypatch.setenv(keys.PASSPHRASE_ENV, "open sesame")
    assert keys.open_bytes(sealed) == b"treasure"


def test_keys_travel_to_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = keys.init()
    exported = keys.as_json(keys.load())
    sealed = tmp_path / "sealed"
    sealed.write_bytes(sealing.seal_bytes(b"treasure", to=sealing.public_bytes(made.public)))
    monkeypatch.setenv("COMPUTEPOOL_CONFIG", str(tmp_path / "elsewhere" / "config.json"))
    target = tmp_path / "plain"
    with pytest.raises(keys.CannotOpen, match="pool seal import"):
        keys.open_file(sealed, target)
    assert not target.exists()
    keys.add(exported)
    keys.open_file(sealed, target)
    assert target.read_bytes() == b"treasure"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "plain", "seal.json", "sealed"]
    with pytest.raises(BadRequest, match="no exported keys"):
        keys.add("{}")


def test_sealed_words_in_a_reply_are_opened() -> None:
    made = keys.init()
    sealed = sealing.seal_text('a "quoted"\nline', to=sealing.public_bytes(made.public))
    foreign = sealing.seal_text("x", to=PUBLIC)
    reply = json.dumps({"error": sealed, "other": [foreign, "cpsealed:AAAA", "cpsealed: a plain text"]})
    found = json.loads(keys.open_words(reply.encode()))
    assert found["error"] == 'a "quoted"\nline'
    assert "which is not here" in found["other"][0]
    assert "not as it was sealed" in found["other"][1] or "not sealed" in found["other"][1]
    assert found["other"][2] == "cpsealed: a plain text"
