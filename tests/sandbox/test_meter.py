"""The measurement of a work folder that the kernel does not limit, and its cost."""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from computepool.agent.sandbox import collect, scratch
from computepool.agent.sandbox.base import MIB, OUTPUTS
from computepool.agent.sandbox.scratch import DiskMeter, make_workdir
from computepool.agent.storage import folders

#: Holds a number of descriptors, and a file of some MB without a name, until its input ends.
HOLDER = """
import os, resource, sys
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
held = [os.dup(0) for _ in range(int(sys.argv[1]))]
if size := int(sys.argv[2]):
    file = open("hidden", "wb")
    os.unlink("hidden")
    file.write(os.urandom(size << 20))
    file.flush()
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    return make_workdir(tmp_path / "work", "job")


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "_SCAN_PAUSE_S", 0)


@contextlib.contextmanager
def holder(workdir: Path, *, descriptors: int = 0, hidden_mb: int = 0) -> Iterator[int]:
    argv = [sys.executable, "-I", "-c", HOLDER, str(descriptors), str(hidden_mb)]
    with subprocess.Popen(argv, cwd=workdir, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"ready\n"
            yield process.pid
        finally:
            process.stdin.close()


@contextlib.contextmanager
def no_descriptors_left() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def measured(meter: DiskMeter, pids: tuple[int, ...] = ()) -> str:
    """The result of a complete measurement, in however many steps."""
    excess = meter.step(pids)
    while not excess and meter._scan is not None:
        excess = meter.step(pids)
    return excess


@pytest.mark.parametrize("below", [0, 1, 3])
def test_an_agent_without_descriptors_blames_no_job(workdir: Path, below: int) -> None:
    (workdir / "a" / "b" / "c").mkdir(parents=True)
    meter = DiskMeter(workdir, limit_mb=1)
    spare = [os.dup(0) for _ in range(below)]
    with no_descriptors_left():
        for fd in spare:
            os.close(fd)
        before = len(os.listdir("/proc/self/fd")) if below else 0
        assert measured(meter) == ""
        assert not below or len(os.listdir("/proc/self/fd")) == before
    (workdir / "a" / "b" / "c" / "file").write_bytes(os.urandom(2 * MIB))
    assert measured(meter) == "the work folder holds more than 1 MB", "it measures again"


def test_no_process_hides_the_files_of_another(workdir: Path) -> None:
    with holder(workdir, descriptors=4_200) as many, holder(workdir, hidden_mb=2) as hiding:
        assert measured(DiskMeter(workdir, limit_mb=1), (many,)) == ""
        assert "more than 1 MB" in measured(DiskMeter(workdir, limit_mb=1), (many, hiding))


def test_files_without_a_name_count_even_in_an_empty_folder(workdir: Path) -> None:
    (workdir / OUTPUTS).rmdir()
    with holder(workdir, hidden_mb=2) as hiding:
        assert "more than 1 MB" in measured(DiskMeter(workdir, limit_mb=1), (hiding,))


def test_too_many_descriptors_are_an_excess(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "_OPEN_MAX", 100)
    with holder(workdir, descriptors=60) as one, holder(workdir, descriptors=60) as other:
        assert measured(DiskMeter(workdir, limit_mb=1), (one,)) == ""
        assert "more than 100 files are open" in measured(DiskMeter(workdir, limit_mb=1), (one, other))


def test_a_check_for_emptiness_stops_at_the_first_entry(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs in the event loop, among the answers to other jobs, and a job may leave a million files."""
    assert folders._is_untouched(workdir)
    assert collect.is_empty(workdir / OUTPUTS)
    for folder in (workdir, workdir / OUTPUTS):
        for number in range(10):
            (folder / str(number)).touch()
    scandir = os.scandir

    def too_many() -> Iterator[os.DirEntry[str]]:
        raise AssertionError("too many entries were read")
        yield

    @contextlib.contextmanager
    def few_entries(path: str | int) -> Iterator[Iterator[os.DirEntry[str]]]:
        with scandir(path) as entries:
            yield itertools.chain(itertools.islice(entries, 2), too_many())

    monkeypatch.setattr(os, "scandir", few_entries)
    assert not collect.is_empty(workdir / OUTPUTS)
    assert not folders._is_untouched(workdir)
    monkeypatch.undo()
    for number in range(10):
        (workdir / str(number)).unlink()
    assert not folders._is_untouched(workdir)
