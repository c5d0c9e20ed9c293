"""Programs that exit with open work: they end at once and restore the terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from tests.sdk.fake_hub import FakeHub

pytestmark = [pytest.mark.process, pytest.mark.soak]

#: Programs that leave work open in different ways; the hub keeps all jobs queued.
PROGRAMS = {
    "an unused map": "run = pool.map(abs, range(50), progress=False); pool.flush()",
    "a map in a shared session": "run = pool.options().map(abs, range(50), progress=False, session=pool.session())",
    "an executor's map": """
executor = pool.executor()
results = executor.map(abs, range(50))
import threading
threading.Thread(target=next, args=(results,), daemon=True).start()
pool.flush()
""",
    "a map in a reference cycle": "run = pool.map(abs, range(50), progress=False); run.itself = run; pool.flush()",
    "a cancelled task": """
import asyncio
async def main():
    task = asyncio.ensure_future(wait(pool.submit(abs, 1)))
    await asyncio.sleep(0)
    task.cancel()
async def wait(future):
    await future
asyncio.run(main())
""",
}


def start(hub: FakeHub, code: str, **streams: int) -> subprocess.Popen[bytes]:
    program = f"import computepool\npool = computepool.connect({hub.url!r}, 'cp_test')\n{code}\n"
    return subprocess.Popen([sys.executable, "-c", program], **streams)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_exits_with_open_work(hub: FakeHub, name: str) -> None:
    hub.hold = True
    program = start(hub, PROGRAMS[name])
    try:
        assert program.wait(60) == 0
    finally:
        program.kill()


def test_a_program_that_exits_restores_the_cursor(hub: FakeHub) -> None:
    hub.hold = True
    terminal, inside = pty.openpty()
    program = start(hub, "run = pool.map(abs, range(50)); pool.flush()", stdin=inside, stderr=inside)
    os.close(inside)
    seen = b""
    try:
        while chunk := _read(terminal):
            seen += chunk
        assert program.wait(60) == 0
    finally:
        program.kill()
        os.close(terminal)
    assert b"\x1b[?25l" in seen
    assert seen.rindex(b"\x1b[?25h") > seen.rindex(b"\x1b[?25l")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # the other end is closed
        return b""
