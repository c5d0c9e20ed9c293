"""Sealing: only the right key opens sealed data, complete and unchanged; and keys are stored safely."""

from __future__ import annotations

import hashlib
import json
import os
import tracemalloc
from io import BytesIO
from pathlib import Path
from typing import ClassVar

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given, settings, strategies as st

from computepool.agent.config import AgentLimits
from computepool.agent.execution.attempt_result import AttemptResult, failed_result
from computepool.agent.execution.logs import STDERR, STDOUT, LogBuffer
from computepool.agent.storage import sealing as node_sealing
from computepool.core.errors import BadRequest
from computepool.core.jobs.lifecycle import JobState, Outcome, Reason
from computepool.protocol import sealing
from computepool.protocol.base import TEXT_MAX
from computepool.protocol.jobs.views import JobResult
from computepool.protocol.nodes.nodes import LOG_CHUNK_MAX
from computepool.protocol.sealing import CHUNK, ERROR, HEADER, MAGIC, OUTPUT, RESULT, TAG, About, SealError, log_about
from computepool.sdk import connect
from computepool.sdk.files import sealing as keys
from tests.sdk.http_server import QuietHandler, serving

KEY = X25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = KEY.public_key().public_bytes_raw()
ABOUT = About("job_1", OUTPUT, "model.bin")
#: Where the chunks begin.
BODY = HEADER + len(ABOUT.pack())


def find(wanted: bytes) -> X25519PrivateKey:
    if wanted != sealing.key_id(PUBLIC):
        raise SealError("not here")
    return KEY


def opened(data: bytes) -> bytes:
    return sealing.unseal_bytes(data, find_key=find, about=ABOUT)


_SIZES = st.sampled_from([0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK - 1, 2 * CHUNK, 2 * CHUNK + 1]) | st.integers(
    0, 3 * CHUNK
)


@given(_SIZES, st.integers(1, CHUNK + TAG))
@settings(max_examples=40)
def test_data_of_every_size_is_unsealed_however_it_is_read(size: int, piece: int) -> None:
    data = hashlib.shake_128(b"x").digest(size)
    sealed = sealing.seal_bytes(data, to=PUBLIC, about=ABOUT)
    assert len(sealed) == sealing.sealed_size(size, ABOUT)
    source, sink = BytesIO(sealed), BytesIO()
    sealing.unseal(lambda wanted: source.read(min(wanted, max(piece, 1_000))), sink.write, find_key=find, about=ABOUT)
    assert sink.getvalue() == data


@pytest.mark.parametrize(
    ("size", "digest"),
    [
        (0, "167638ac743e0709887bff9fb5822e4687db431f556bd5b62598a8156d5a8713"),
        (5, "177697a1c2707fe969f21b4db4895961866acc9d1cc8227f87cd7c3c59516c5f"),
        (CHUNK, "556f486388c31ddaf02693e51bbd2530d2b35a673cd464340331b469faa19b19"),
        (CHUNK + 1, "25ade8fc8245ded21945f4af33a76b47b06d8b063d18b539c8d0161940f2ecdd"),
    ],
)
def test_the_format_does_not_change(size: int, digest: str) -> None:
    """Data sealed by one version opens with the next."""
    sink = BytesIO()
    ephemeral = X25519PrivateKey.from_private_bytes(bytes(range(32, 64)))
    sealing.seal(BytesIO(b"\x07" * size).read, sink.write, to=PUBLIC, about=ABOUT, ephemeral=ephemeral)
    sealed = sink.getvalue()
    assert sealed[:16] == MAGIC + bytes.fromhex("eedd883da0a94515")
    assert hashlib.sha256(sealed).hexdigest() == digest
    assert opened(sealed) == b"\x07" * size


def test_sealing_the_same_data_twice_gives_different_bytes() -> None:
    first, second = (sealing.seal_bytes(b"the same", to=PUBLIC, about=ABOUT) for _ in range(2))
    assert first[16:48] != second[16:48]
    assert first[BODY:] != second[BODY:]


_SEALED = sealing.seal_bytes(b"a" * (2 * CHUNK + 100), to=PUBLIC, about=ABOUT)
_PARTS = [_SEALED[BODY + at * (CHUNK + TAG) : BODY + (at + 1) * (CHUNK + TAG)] for at in range(3)]
_OTHER = sealing.seal_bytes(b"b" * (2 * CHUNK + 100), to=PUBLIC, about=ABOUT)


@pytest.mark.parametrize(
    "sealed",
    [
        b"",
        MAGIC,
        _SEALED[: HEADER - 1],
        _SEALED[:HEADER],
        _SEALED[: HEADER + 1],
        _SEALED[: BODY - 1],
        _SEALED[:HEADER] + b"\xff\xff" + _SEALED[HEADER + 2 :],
        _SEALED[:BODY],
        _SEALED[: BODY + 3],
        _SEALED[:-1],
        _SEALED[: BODY + CHUNK + TAG],
        _SEALED[: BODY + 2 * (CHUNK + TAG)],
        _SEALED + b"x",
        _SEALED + _PARTS[2],
        _SEALED[:BODY] + _PARTS[1] + _PARTS[0] + _PARTS[2],
        _SEALED[:BODY] + _PARTS[0] + _PARTS[2],
        _SEALED[:BODY] + _PARTS[0] + _PARTS[0] + _PARTS[2],
        _SEALED[:BODY] + _PARTS[2],
        _SEALED[:BODY] + _OTHER[BODY:],
        _OTHER[:BODY] + _SEALED[BODY:],
        _SEALED[: BODY + CHUNK + TAG] + _OTHER[BODY + CHUNK + TAG :],
        _SEALED[: HEADER - 32] + bytes(32) + _SEALED[HEADER:],
        b"CPSEAL1\n" + _SEALED[8:],
        b"plain text" * 10,
    ],
    ids=range(24),
)
def test_truncated_swapped_or_combined_data_does_not_open(sealed: bytes) -> None:
    with pytest.raises(SealError):
        opened(sealed)


@given(st.integers(0, len(_SEALED) - 1), st.integers(1, 255))
@settings(max_examples=60)
def test_data_with_a_changed_byte_does_not_open(at: int, flip: int) -> None:
    changed = bytearray(_SEALED)
    changed[at] ^= flip
    with pytest.raises(SealError):
        opened(bytes(changed))


def test_another_key_does_not_open_the_data() -> None:
    other = X25519PrivateKey.generate()
    with pytest.raises(SealError):
        sealing.unseal_bytes(_SEALED, find_key=lambda _: other, about=ABOUT)


def test_sealing_needs_constant_memory() -> None:
    class Zeros:
        left = 64 * 1024 * 1024

        def read(self, size: int) -> bytes:
            given = min(size, self.left)
            self.left -= given
            return bytes(given)

    with open(os.devnull, "wb") as sink:
        tracemalloc.start()
        sealing.seal(Zeros().read, sink.write, to=PUBLIC, about=ABOUT)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 2 * 1024 * 1024


# ---------------------------------------------------------------- on the node
SEAL = sealing.Seal(PUBLIC, "job_1")


def test_a_report_of_a_sealed_job_contains_no_plain_text() -> None:
    for words in ("MARKER", "MARKER " + "x" * 20_000, "MARKER " + "𝔘" * 20_000, "MARKER\x00\ud800"):
        failed = failed_result(Reason.EXCEPTION, words)
        node_sealing.close(failed, SEAL)
        report = failed.report("job_1-1")
        assert report.error is not None
        assert len(report.error) <= TEXT_MAX
        assert "MARKER" not in report.error
        assert sealing.unseal_text(report.error, find_key=find, about=About("job_1", ERROR)).startswith("MARKER")
    plain = AttemptResult(outcome=Outcome.SUCCEEDED, reason=Reason.COMPLETED, result='"MARKER"', printed="0" * 64)
    node_sealing.close(plain, SEAL)
    report = plain.report("job_1-1")
    assert "MARKER" not in report.model_dump_json()
    assert (report.outcome, report.printed, report.result) == (Outcome.FAILED, None, None)


def test_output_is_sealed_and_survives_a_failed_upload() -> None:
    log = LogBuffer("job_1-1", AgentLimits(), seal=SEAL)
    log.feed(STDOUT, b"MARKER one\n::progress 0.5\n")
    log.feed(STDERR, "MARKER 𝔘\n".encode() + "𝔘".encode() * 50_000)
    assert log.progress == 0.5
    chunks = log.take(1, 10**6)
    log.put_back(chunks)
    log.finish()
    chunks = log.take_rest()
    assert all(len(chunk.text) <= LOG_CHUNK_MAX and "MARKER" not in chunk.text for chunk in chunks)
    texts = [
        sealing.unseal_text(chunk.text, find_key=find, about=log_about("job_1", "job_1-1", chunk.stream))
        for chunk in chunks
    ]
    assert "".join(texts) == "MARKER one\nMARKER 𝔘\n" + "𝔘" * 50_000


# ---------------------------------------------------------------- keys
def test_a_key_file_is_private_and_only_replaced_on_request() -> None:
    made = keys.init()
    assert oct(keys.key_path().stat().st_mode & 0o777) == "0o600"
    with pytest.raises(BadRequest, match="--replace"):
        keys.init()
    sealed = sealing.seal_bytes(b"old", to=sealing.public_bytes(made.public), about=ABOUT)
    fresh = keys.init(replace_current=True)
    assert keys.recipient(True) == fresh.public
    assert keys.open_bytes(sealed) == b"old"


def test_the_recipient_follows_the_option_and_the_default() -> None:
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


@pytest.mark.soak
def test_a_passphrase_protects_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    made = keys.init(passphrase="open sesame")
    sealed = sealing.seal_bytes(b"treasure", to=sealing.public_bytes(made.public), about=ABOUT)
    with pytest.raises(keys.CannotOpen, match="passphrase"):
        keys.open_bytes(sealed)
    monkeypatch.setenv(keys.PASSPHRASE_ENV, "wrong")
    with pytest.raises(keys.CannotOpen, match="passphrase"):
        keys.open_bytes(sealed)
    monkeypatch.setenv(keys.PASSPHRASE_ENV, "open sesame")
    assert keys.open_bytes(sealed) == b"treasure"


def test_keys_are_exported_and_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = keys.init()
    exported = keys.as_json(keys.load())
    sealed = tmp_path / "sealed"
    sealed.write_bytes(sealing.seal_bytes(b"treasure", to=sealing.public_bytes(made.public), about=ABOUT))
    monkeypatch.setenv("COMPUTEPOOL_CONFIG", str(tmp_path / "elsewhere" / "config.json"))
    target = tmp_path / "plain"
    with pytest.raises(keys.CannotOpen, match="pool seal import"):
        keys.open_file(sealed, target)
    assert not target.exists()
    keys.add(exported)
    keys.open_file(sealed, target)
    assert target.read_bytes() == b"treasure"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "plain", "seal.json", "sealed"]
    with pytest.raises(BadRequest, match="does not contain exported sealing keys"):
        keys.add("{}")


def test_a_text_is_opened_or_replaced_by_the_reason() -> None:
    made, about = keys.init(), About("job_1", ERROR)
    sealed = sealing.seal_text('a "quoted"\nline', to=sealing.public_bytes(made.public), about=about)
    assert keys.open_text(sealed, about) == 'a "quoted"\nline'
    foreign = sealing.seal_text("x", to=PUBLIC, about=about)
    assert "which is not on this machine" in keys.open_text(foreign, about)
    assert "not sealed" in keys.open_text("cpsealed:AAAA", about)
    assert "sealed data is damaged" in keys.open_text("cpsealed: a plain text", about)
    assert keys.open_text("plain", about) == "plain"


# ---------------------------------------------------------------- purposes
KINDS = [
    About("job_1", RESULT),
    About("job_2", RESULT),
    About("job_1", ERROR),
    About("job_2", ERROR),
    About("job_1", OUTPUT, "a"),
    About("job_1", OUTPUT, "b"),
    About("job_2", OUTPUT, "a"),
    log_about("job_1", "job_1-1", "stdout"),
    log_about("job_1", "job_1-1", "stderr"),
    log_about("job_1", "job_1-2", "stdout"),
]


@pytest.mark.parametrize("about", KINDS, ids=str)
def test_data_sealed_for_one_purpose_does_not_open_for_another(about: About) -> None:
    sealed = sealing.seal_bytes(b"treasure", to=PUBLIC, about=about)
    assert sealing.unseal_bytes(sealed, find_key=find, about=about) == b"treasure"
    for other in KINDS:
        if other == about:
            continue
        with pytest.raises(SealError, match="was sealed as"):
            sealing.unseal_bytes(sealed, find_key=find, about=other)
        claimed = sealed[:HEADER] + other.pack() + sealed[HEADER + len(about.pack()) :]
        with pytest.raises(SealError, match="sealed data is damaged"):
            sealing.unseal_bytes(claimed, find_key=find, about=other)


def test_a_sealed_text_does_not_open_as_a_file() -> None:
    for about in KINDS:
        sealed = sealing.seal_bytes(b"treasure", to=PUBLIC, about=about)
        if about.purpose in (OUTPUT, RESULT):
            assert sealing.unseal_bytes(sealed, find_key=find, about=None) == b"treasure"
            continue
        with pytest.raises(SealError, match="not as a file"):
            sealing.unseal_bytes(sealed, find_key=find, about=None)


def test_a_long_or_multi_line_name_is_refused() -> None:
    for name in ("two\nlines", "x" * 5_000):
        with pytest.raises(ValueError, match="too long or has several lines"):
            About("job_1", OUTPUT, name).pack()


class LyingHub(QuietHandler):
    """Puts a ciphertext wherever the SDK might decrypt it and send it back, or use it as a name."""

    word = ""
    error = ""
    seen: ClassVar[list[str]] = []

    def answer(self, body: bytes) -> None:
        self.seen.append(self.path)
        word, path = self.word, self.path.partition("?")[0]
        known = {"id": word, "name": word, "state": "failed", "status": word, "error": self.error, "job_id": "job_1"}
        known |= {"kind": "command", "reason": "exception", "account_id": word, "priority": 0, "retries": 0}
        known |= {"created_at_ms": 0, "queued_at_ms": 0, "key": word, "seq": 1, "sentence": word, "node_name": word}
        known |= {"outputs": [{"name": word, "digest": "0" * 64, "size": 1}]}
        chunk = {"seq": 1, "attempt_id": word, "stream": word, "text": word}
        reply: dict[str, object] = {"next": None if "after" in self.path else word, "cursor": 1, "ended": True}
        reply |= {"items": [known], "jobs": [known], "chunks": [chunk], "results": [], "artifacts": []}
        self.reply(json.dumps(known if path.endswith("/result") else reply).encode())


def test_a_lying_hub_never_receives_decrypted_text() -> None:
    public = sealing.public_bytes(keys.init().public)
    LyingHub.word = sealing.seal_text("TOP-SECRET", to=public, about=About("job_1", ERROR))
    LyingHub.error = sealing.seal_text("TOP-SECRET", to=public, about=About("job_2", ERROR))
    LyingHub.seen.clear()
    with serving(LyingHub) as url, connect(url, "cp_" + "a" * 40) as pool:
        found = [
            *pool.groups.items("grp_1"),
            *pool.jobs.list(limit=600),
            *pool.jobs.logs("job_1"),
            pool.jobs.result_now("job_1"),
        ]
    assert len(found) >= 5
    assert not [item for item in found if "TOP-SECRET" in repr(item)]
    assert not [path for path in LyingHub.seen if "TOP-SECRET" in path]
    assert any("after=cpsealed%3A" in path for path in LyingHub.seen), "a cursor is returned unchanged"
    assert "of job job_2" in (pool_error := str(getattr(found[-1], "error", ""))), pool_error


def test_only_the_error_of_a_result_is_opened() -> None:
    public = sealing.public_bytes(keys.init().public)
    result = JobResult(
        seq=1,
        job_id="job_1",
        state=JobState.FAILED,
        reason=Reason.EXCEPTION,
        error=sealing.seal_text("why", to=public, about=About("job_1", ERROR)),
        key=sealing.seal_text("why", to=public, about=About("job_1", ERROR)),
    )
    opened_result = keys.with_error(result, "job_1")
    assert opened_result.error == "why"
    assert opened_result.key == result.key
