"""File transfers are complete or absent, however often the connection breaks."""

from __future__ import annotations

import hashlib
import os
import tracemalloc
from pathlib import Path
from random import Random

import pytest

from computepool import HubUnreachable, Pool, connect
from computepool.protocol.jobs.jobs import InputFile
from computepool.protocol.jobs.views import JobResult
from computepool.sdk import BadRequest, ChecksumMismatch, NotFound, ResultUnreadable, TooLarge
from computepool.sdk.files import artifacts
from computepool.sdk.jobs.outcome import JobOutcome
from tests.sdk.fake_hub import FakeHub

MIB = 1024 * 1024


@pytest.fixture
def data() -> bytes:
    return Random(7).randbytes(3 * MIB + 17)


@pytest.fixture
def file(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "data.bin"
    path.write_bytes(data)
    return path


def test_a_file_is_uploaded_and_downloaded(pool: Pool, file: Path, tmp_path: Path, data: bytes) -> None:
    steps: list[tuple[int, int]] = []
    artifact = pool.artifacts.put(file, progress=lambda done, total: steps.append((done, total)))
    assert artifact == InputFile(name="data.bin", digest=hashlib.sha256(data).hexdigest(), size=len(data))
    assert steps[-1] == (len(data), len(data))
    assert pool.artifacts.get(artifact.digest, tmp_path / "back.bin").read_bytes() == data
    assert pool.artifacts.get_bytes(artifact.digest) == data
    assert not list(tmp_path.glob("*.part"))


def test_an_empty_file_is_transferred(pool: Pool, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    artifact = pool.artifacts.put(tmp_path / "empty")
    assert pool.artifacts.get(artifact.digest, tmp_path / "back").read_bytes() == b""


def test_a_file_that_the_hub_has_is_not_uploaded_again(hub: FakeHub, pool: Pool, file: Path) -> None:
    pool.artifacts.put(file)
    pool.artifacts.put(file)
    assert hub.count("PUT", "/artifacts/") == 1


def test_an_upload_resumes_after_a_break(hub: FakeHub, pool: Pool, file: Path, data: bytes) -> None:
    hub.break_after = MIB // 2
    artifact = pool.artifacts.put(file)
    assert hub.blobs[artifact.digest] == data
    assert hub.count("GET", "/artifacts/") == 7  # the offset: at first, and after each of six breaks


def test_a_large_file_is_uploaded_in_parts(
    hub: FakeHub, pool: Pool, file: Path, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "PART_BYTES", MIB)
    artifact = pool.artifacts.put(file)
    assert hub.blobs[artifact.digest] == data
    assert hub.count("PUT", "/artifacts/") == 4


def test_a_download_resumes_after_a_break(hub: FakeHub, pool: Pool, file: Path, data: bytes) -> None:
    artifact = pool.artifacts.put(file)
    hub.break_after = MIB // 2
    assert pool.artifacts.get_bytes(artifact.digest) == data


def test_a_partial_download_is_resumed_by_the_next_call(
    hub: FakeHub, pool: Pool, file: Path, tmp_path: Path, data: bytes
) -> None:
    artifact = pool.artifacts.put(file)
    target = tmp_path / "back.bin"
    part = tmp_path / f".back.bin.{artifact.digest[:12]}.part"
    for beginning in (data[: 2 * MIB], data):
        part.write_bytes(beginning)
        assert pool.artifacts.get(artifact.digest, target).read_bytes() == data
        assert not part.exists()


def test_a_damaged_download_never_appears_under_its_name(
    hub: FakeHub, pool: Pool, file: Path, tmp_path: Path, data: bytes
) -> None:
    artifact = pool.artifacts.put(file)
    hub.blobs[artifact.digest] = bytes([data[0] ^ 1]) + data[1:]
    with pytest.raises(ChecksumMismatch):
        pool.artifacts.get(artifact.digest, tmp_path / "back.bin")
    assert not (tmp_path / "back.bin").exists()
    hub.blobs[artifact.digest] = data
    assert pool.artifacts.get(artifact.digest, tmp_path / "back.bin").read_bytes() == data


def test_a_download_replaces_only_files(hub: FakeHub, pool: Pool, file: Path, tmp_path: Path) -> None:
    """Root could replace /dev/null, too."""
    artifact = pool.artifacts.put(file)
    os.mkfifo(tmp_path / "special")
    with pytest.raises(BadRequest, match="is not a file"):
        pool.artifacts.get(artifact.digest, tmp_path / "special")
    assert (tmp_path / "special").is_fifo()


def test_a_transfer_without_progress_is_given_up(
    hub: FakeHub, pool: Pool, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "BREAKS_MAX", 3)
    hub.break_after = 0
    with pytest.raises(HubUnreachable):
        pool.artifacts.put(file)


def test_a_wrong_path_or_digest_is_refused(pool: Pool, tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match=r"cannot read .*missing: No such file"):
        pool.artifacts.put(tmp_path / "missing")
    with pytest.raises(BadRequest, match="is a folder"):
        pool.artifacts.put(tmp_path)
    with pytest.raises(NotFound):
        pool.artifacts.get("0" * 64, tmp_path / "x")


def test_inputs_may_be_files_folders_and_artifacts(pool: Pool, file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "set"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.txt").write_text("a")
    (folder / "deep" / "b.txt").write_text("b")
    known = pool.artifacts.put(file)
    found = pool.artifacts.inputs([folder, known])
    assert [artifact.name for artifact in found] == ["set/a.txt", "set/deep/b.txt", "data.bin"]
    renamed = pool.artifacts.inputs({"x.bin": known, "y.txt": folder / "a.txt", "z": folder})
    assert [artifact.name for artifact in renamed] == ["x.bin", "y.txt", "z/a.txt", "z/deep/b.txt"]
    with pytest.raises(BadRequest, match=r"two files are named 'data\.bin'"):
        pool.artifacts.inputs([known, file])


def test_the_inputs_of_a_submitter_are_uploaded_once(hub: FakeHub, pool: Pool, file: Path) -> None:
    work = pool.options(inputs=[file])
    for future in [work.submit(abs, -n) for n in range(20)]:
        future.result(60)
    assert hub.count("GET", "/artifacts/") == 1
    assert hub.jobs["job_000002"]["request"].spec.inputs[0].name == "data.bin"


def outcome(pool: Pool, *names: str, digest: str) -> JobOutcome:
    outputs = [{"name": name, "digest": digest, "size": 7} for name in names]
    ended = {"seq": 1, "job_id": "job_1", "state": "succeeded", "reason": "completed", "outputs": outputs}
    return JobOutcome.of(pool, JobResult.model_validate(ended))


@pytest.mark.parametrize(
    "name", ["../x", "/etc/passwd", "a/../../x", "..", "a\\..\\x", "..\\x", "a\nb", "", "ok/x", "é" * 200]
)
def test_an_output_with_an_unsafe_name_is_skipped(pool: Pool, tmp_path: Path, name: str) -> None:
    digest = pool.artifacts.put_bytes(b"picture", name="p.png").digest
    long = "n" * 255
    with pytest.warns(UserWarning, match="not fetched"):
        paths = outcome(pool, "ok", name, long, digest=digest).download(tmp_path / "out")
    assert paths == [tmp_path / "out/ok", tmp_path / "out" / long]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"ok", long}
    assert not (tmp_path / "x").exists()


def test_outputs_keep_their_subfolders(pool: Pool, tmp_path: Path) -> None:
    digest = pool.artifacts.put_bytes(b"picture", name="p.png").digest
    assert outcome(pool, "frames/p.png", digest=digest).download(tmp_path / "out") == [tmp_path / "out/frames/p.png"]
    assert (tmp_path / "out/frames/p.png").read_bytes() == b"picture"


def test_a_result_above_the_limit_is_not_loaded(hub: FakeHub) -> None:
    with connect(hub.url, "cp_test", retry_for=10, max_result_bytes=MIB) as pool:
        small, large = pool.submit("x".__mul__, MIB // 2), pool.submit("x".__mul__, 2 * MIB)
        assert len(small.result()) == MIB // 2
        # Both jobs run in this process, so wait for them before measuring what the client allocates.
        with hub.lock:
            assert hub.lock.wait_for(lambda: len(hub.blobs) == 2, 30)
        tracemalloc.start()
        try:
            with pytest.raises(ResultUnreadable, match="pool artifacts get"):
                large.result()
            assert tracemalloc.get_traced_memory()[1] < MIB
        finally:
            tracemalloc.stop()
        with pytest.raises(ResultUnreadable, match="max_result_bytes"):
            list(pool.map("x".__mul__, [2 * MIB], progress=False))


def test_the_limit_holds_even_if_the_announced_length_is_wrong(
    pool: Pool, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = pool.artifacts.put_bytes(data, name="data").digest
    assert pool.artifacts.get_bytes(digest, max_bytes=len(data)) == data
    with pytest.raises(TooLarge, match=f"and the limit is {len(data) - 1}"):
        pool.artifacts.get_bytes(digest, max_bytes=len(data) - 1)
    monkeypatch.setattr(pool.artifacts, "_chunks", lambda digest, offset, progress: [progress(11, 0)])
    with pytest.raises(TooLarge):
        pool.artifacts.get_bytes(digest, max_bytes=10)
