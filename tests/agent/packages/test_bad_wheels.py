"""Whose fault it is that packages cannot be installed, judged by the real uv's errors for an index with bad wheels."""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from computepool.agent.execution.attempt_result import BadJob, StagingFailed
from computepool.agent.packages.environments import _classify_failure, find_uv
from tests.agent.packages.local_index import Index, wheel

BAD = {
    "nozip": b"no archive at all" * 50,
    "empty": b"",
    "cut": wheel("cut")[:150] + wheel("cut")[200:],
    "other": wheel("other", called="another"),
    "nothing": wheel("nothing", metadata="text"),
    "badrequires": wheel("badrequires", requires="Requires-Dist: numpy<=>1\n"),
    "needsmissing": wheel("needsmissing", requires="Requires-Dist: nosuchpackage\n"),
    "newwheel": wheel("newwheel", wheel="Wheel-Version: 9.0\n"),
    "badtag": wheel("badtag", wheel="text"),
    "badrecord": wheel("badrecord", record='"open,\n,,'),
    "longname": wheel("longname", {"a" * 300: "x"}),
    "twice": wheel("twice", {"a": "x", "a/b": "y"}),
    "forged": b"",  # The index states another hash.
}
#: A hub refuses the last one at submission.
REQUIRED = [*BAD, "nosuchpackage", "fine>2", "gone", f"fine=={'9' * 30}"]
UNAVAILABLE = ["busy", "away", "forbidden", "file500"]
STATUS = {"busy": 429, "away": 500, "forbidden": 403}


class BadIndex(Index):
    def answer(self, path: str) -> tuple[int, bytes]:
        kind, name, *_ = path.strip("/").split("/")
        return self._page(name) if kind == "simple" else self._file(name)

    def _page(self, name: str) -> tuple[int, bytes]:
        if name in STATUS:
            return STATUS[name], b""
        if name not in (*BAD, "fine", "gone", "file500"):
            return 404, b""
        digest = "0" * 64 if name == "forged" else hashlib.sha256(self._file(name)[1]).hexdigest()
        file = f"{name}-1.0-py3-none-any.whl"
        return 200, f'<a href="/files/{name}/{file}#sha256={digest}">{file}</a>'.encode()

    def _file(self, name: str) -> tuple[int, bytes]:
        if name in ("gone", "file500"):
            return (404 if name == "gone" else 500), b""
        return 200, BAD.get(name) or (b"" if name == "empty" else wheel(name))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with contextlib.closing(BadIndex()) as found:
        yield found.url


def failure_of(required: str, tmp_path: Path, *, index: str, cache: str = "cache") -> Exception:
    uv = find_uv()
    assert uv is not None
    command = [uv, "pip", "install", "--quiet", "--target", "target", "--python", sys.executable]
    ran = subprocess.run(
        [*command, "--only-binary", ":all:", "-r", "-"],
        input=required,
        env={"UV_INDEX_URL": index, "UV_CACHE_DIR": cache, "UV_HTTP_RETRIES": "0", "HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode != 0
    return _classify_failure(ran.returncode, ran.stderr)


@pytest.mark.parametrize("required", REQUIRED)
def test_a_bad_requirement_or_wheel_is_the_jobs_fault(url: str, tmp_path: Path, required: str) -> None:
    error = failure_of(required, tmp_path, index=url)
    assert isinstance(error, BadJob), error


@pytest.mark.parametrize("required", UNAVAILABLE)
def test_an_index_that_does_not_serve_is_not_the_jobs_fault(url: str, tmp_path: Path, required: str) -> None:
    error = failure_of(required, tmp_path, index=url)
    assert isinstance(error, StagingFailed), error


def test_a_network_or_a_disk_is_not_the_jobs_fault(url: str, tmp_path: Path) -> None:
    nowhere = failure_of("six", tmp_path, index="http://127.0.0.1:1/simple")
    unwritable = failure_of("fine", tmp_path, index=url, cache="/proc/nowhere")
    full = _classify_failure(
        1, "error: Failed to download `a==1`\n  cause: failed to write: No space left (os error 28)"
    )
    killed = _classify_failure(-9, "")
    for error in (nowhere, unwritable, full, killed):
        assert isinstance(error, StagingFailed), error
