"""Untrusted output of jobs on the submitter's side: file names and control sequences."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from computepool.cli.job import follow
from computepool.cli.options import open_pool
from computepool.protocol.jobs.views import LogChunk, OutputFile
from tests.cli.conftest import Run
from tests.sdk.fake_hub import FakeHub

HOSTILE = (
    "plain\ttab \x1b[31mred\x1b[0m\n\x1b]0;title\x07\x1b]52;c;cm0gLXJm\x07\x1b[2J\x1b[1;1Hfake\n"
    "\x1bPq\x1b\\\x9b2J\x1bc\x1b[6n\x08\x08\n\x1b"
)
REST = "]0;split over two\x07\n"


def test_an_output_with_an_unsafe_name_is_reported_and_the_others_fetched(
    hub: FakeHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pool = open_pool()
    digest = pool.artifacts.put_bytes(b"words", name="w").digest
    outputs = [OutputFile(name=name, digest=digest, size=5) for name in ("ok", "..\\x", "../y", "last")]
    follow.save_outputs(pool, outputs, tmp_path / "out", job_id="job_1")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"ok", "last"}
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4
    assert "'..\\\\x'" in lines[1]
    assert "'../y'" in lines[2]
    assert all("not fetched" in line and digest[:12] in line for line in lines[1:3])


def printed(hub: FakeHub, run: Run) -> str:
    job_id = run("submit", "--", "echo", "one").out.strip()
    hub.jobs[job_id]["logs"] = [
        LogChunk(seq=number, attempt_id="att_1", stream="stdout", text=text)
        for number, text in enumerate((HOSTILE, REST), start=1)
    ]
    return job_id


@pytest.mark.soak
@pytest.mark.parametrize("follow", [(), ("-f",)])
def test_a_terminal_receives_colours_but_no_other_control_sequences(
    hub: FakeHub, run: Run, follow: tuple[str, ...]
) -> None:
    job_id = printed(hub, run)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "computepool.cli", "jobs", "logs", *follow, job_id]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL) as process:
        os.close(theirs)
        shown = b""
        try:
            while data := os.read(ours, 4096):
                shown += data
        except OSError:
            pass  # on Linux, when the other end is closed
        assert process.wait(60) == 0
    os.close(ours)
    text = shown.decode().replace("\r\n", "\n")
    assert "plain\ttab \x1b[31mred\x1b[0m\n" in text
    left = text.replace("\x1b[31m", "").replace("\x1b[0m", "")
    assert all(char.isprintable() or char in "\n\t" for char in left), left
    assert "title" not in left


def test_a_pipe_receives_the_output_unchanged(hub: FakeHub, run: Run) -> None:
    assert run("jobs", "logs", printed(hub, run)).out == HOSTILE + REST
