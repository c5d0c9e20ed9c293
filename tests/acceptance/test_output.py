"""The output of programs reaches the hub exactly as their node reports it, also if the hub crashes."""

from __future__ import annotations

import pytest

from computepool.core.jobs.lifecycle import JobState
from computepool.testing.processes import RealPool
from computepool.testing.waiting import wait_until
from tests.faults.conftest import MakePool
from tests.faults.load import command

pytestmark = pytest.mark.process

PATIENCE_S = 60.0
MIXED = """
import os, sys
os.write(1, b"caf\\xc3\\xa9 \\xff\\xfe\\x00 ::progress\\n::progress 0.5\\n\\xe2\\x98")
os.write(2, b"noise\\xf0")
for number in range(9000):
    os.write(1, b"%d \\x1b[31mred\\x1b[0m\\n" % number)
    if number % 100 == 0:
        os.write(2, b"e")
os.write(1, b"::pro")
"""
SAID = (
    "café \ufffd\ufffd\ufffd ::progress\n\ufffd"
    + "".join(f"{number} \x1b[31mred\x1b[0m\n" for number in range(9000))
    + "::pro"
)


def stdout_of(pool: RealPool, job_id: str) -> tuple[str, bool | None]:
    pages = list(pool.client().jobs.log_pages(job_id))
    chunks = [chunk for page in pages for chunk in page.chunks if chunk.stream == "stdout"]
    return "".join(chunk.text for chunk in chunks), pages[-1].complete


def test_all_output_of_a_program_is_reported_as_sent(make_pool: MakePool) -> None:
    pool = make_pool("sqlite")
    pool.start_agent()
    client = pool.client()
    long = "import sys\nfor n in range(70_000): sys.stdout.write('x' * 99 + chr(10))"
    [mixed, too_long, silent] = [
        client.jobs.submit(command("python3", "-c", source)).job_ids[0] for source in (MIXED, long, "")
    ]
    for job_id in (mixed, too_long, silent):
        job = client.jobs.wait(job_id, timeout=PATIENCE_S)
        assert (job.state, job.attempts, job.error) == (JobState.SUCCEEDED, 1, None)
    assert stdout_of(pool, mixed) == (SAID, True)
    assert stdout_of(pool, silent) == ("", True)
    text, complete = stdout_of(pool, too_long)
    assert (complete, set(text.splitlines()[:-1])) == (False, {"x" * 99})
    with pytest.warns(UserWarning, match="incomplete"):
        client.jobs.log_text(too_long)


@pytest.mark.soak
def test_a_hub_crash_during_output_blames_neither_job_nor_node(make_pool: MakePool) -> None:
    pool = make_pool("sqlite", boot_grace_s=60)
    hub = pool.hubs[0]
    pool.start_agent()
    gate = pool.folder / "gate"
    source = (
        "import os, sys, time\n"
        f"for n in range(20_000):\n    print('line', n, flush=n % 50 == 0)\n"
        f"    while n == 10_000 and not os.path.exists({str(gate)!r}): time.sleep(0.02)"
    )
    [job_id] = pool.client().jobs.submit(command("python3", "-c", source)).job_ids
    wait_until(lambda: "line 5000" in pool.client().jobs.log_text(job_id), PATIENCE_S, "half of it came")
    hub.kill()
    gate.touch()
    hub.start()
    job = pool.client().jobs.wait(job_id, timeout=PATIENCE_S)
    assert (job.state, job.attempts) == (JobState.SUCCEEDED, 1)
    assert stdout_of(pool, job_id) == ("".join(f"line {number}\n" for number in range(20_000)), True)
