"""A part of the benchmark that hangs, fails or leaves something behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench.children import ROOT, NotMeasured, result_of
from computepool.testing.waiting import wait_until

pytestmark = [pytest.mark.process, pytest.mark.soak]

#: Starts a process that would live for ten minutes, writes its id down, and does what is asked.
PARENT = """
import subprocess, sys, time
child = subprocess.Popen(["/bin/sleep", "600"], start_new_session={apart})
open(sys.argv[1], "w").write(str(child.pid))
{then}
"""

#: Runs the parent as `make bench` would, which adopts orphans; a test process must not.
ADOPTING = """
import sys
from bench.children import adopt_orphans, result_of
adopt_orphans()
print(result_of([sys.executable, "-c", sys.argv[1], sys.argv[2]], limit_s=30))
"""


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def ends(pid: int) -> bool:
    """Killed, it may take the kernel a moment."""
    return wait_until(lambda: not alive(pid), 60, f"{pid} ends")


def test_the_last_line_is_the_result() -> None:
    code = "print('{\"number\": 1}'); print('noise'); print('{\"number\": 2}')"
    assert result_of([sys.executable, "-c", code], limit_s=30) == {"number": 2}


def test_a_failure_is_told_in_one_sentence() -> None:
    with pytest.raises(NotMeasured, match=r"^ended with 1: ValueError: no such thing$"):
        result_of([sys.executable, "-c", "raise ValueError('no such thing')"], limit_s=30)


def test_what_hangs_is_stopped_with_everything_it_started(tmp_path: Path) -> None:
    code = PARENT.format(apart=False, then="import signal\nsignal.signal(2, signal.SIG_IGN)\ntime.sleep(600)")
    with pytest.raises(NotMeasured, match="not finished within 10 s"):
        result_of([sys.executable, "-c", code, str(tmp_path / "pid")], limit_s=10, grace_s=0.2)
    assert ends(int((tmp_path / "pid").read_text()))


def test_what_is_left_behind_is_stopped_even_in_a_session_of_its_own(tmp_path: Path) -> None:
    code = PARENT.format(apart=True, then="print('{}')")
    done = subprocess.run(
        [sys.executable, "-c", ADOPTING, code, str(tmp_path / "pid")],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "{}\n"
    assert ends(int((tmp_path / "pid").read_text()))
