"""IDs on the command line: prefixes and names in their place, and tables that never truncate them."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from computepool.cli import output
from computepool.sdk import Pool
from computepool.testing.processes import RealPool
from tests.cli.conftest import Run, reply
from tests.cli.test_commands import commands

JOB = "job_01kabcdefghjkmnpqrstvwxyz0"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("columns", [60, 80, 100, 200])
def test_no_table_truncates_an_id(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("COLUMNS", str(columns))
    names = ("ID", "NAME", "KIND", "STATE", "NODE", "SUBMITTED", "TOOK", "NOTE")
    row = (JOB, "train_a_large_model.py", "script", "queued", "studio-number-3", "12 min ago", "3.4 h", "node lost")
    output.print_table(names, [row], empty="")
    shown = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())
    assert JOB in shown
    assert max(map(len, shown.splitlines())) <= columns
    assert ("NOTE" in shown) is (columns > 100)


@pytest.mark.parametrize(("path", "command"), list(commands()), ids=str)
def test_every_job_argument_accepts_prefixes_and_names(path: str, command: Any) -> None:
    for parameter in command.params:
        is_number = path in ("pool events", "pool group messages") and parameter.name == "after"
        if parameter.name in ("job_id", "job_ids", "job", "after") and not is_number:
            assert parameter.type_descriptor.parameter_info.parser, f"{path}: {parameter.name}"


@pytest.fixture(scope="module")
def real() -> Iterator[RealPool]:
    with RealPool() as pool:
        pool.start_hub()
        yield pool


@pytest.mark.soak
@pytest.mark.process
def test_prefixes_names_and_last_resolve_to_ids(pool: Pool, run: Run) -> None:
    first = pool.command(["true"], wait=False, name="sleepy").job_id
    second = pool.command(["true"], wait=False, name="other", group="sweep").job_id
    for word, meant in (("sleepy", first), (first[:-1], first), (first[4:], first), ("last", second)):
        ran = run("jobs", "show", word, "--json")
        assert json.loads(ran.out)["id"] == meant, ran.err
    group_id = pool.groups.find("sweep").id
    for word in ("sweep", "last", group_id[:-1]):
        listed = reply(run("jobs", "list", "--group", word, "--json"))
        assert [job["id"] for job in listed] == [second]
        assert reply(run("group", "summary", word, "--json"))["id"] == group_id
    assert reply(run("accounts", "quota", "admin", "--json"))["name"] == "admin"
    ran = run("jobs", "cancel", "job_0")
    assert (ran.code, first in ran.err, second in ran.err) == (2, True, True)
    assert run("jobs", "why", "nobody").err.startswith("There is no job 'nobody'")
    assert run("jobs", "cancel", "sleepy", "last").out.split() == [first, "cancelled", second, "cancelled"]
