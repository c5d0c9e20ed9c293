"""What a job names, brings or leaves behind is never the node's fault, and shows nothing of the host."""

from __future__ import annotations

import os

import pytest

from computepool.core.jobs.lifecycle import NODE_FAULTS
from computepool.protocol.jobs.jobs import InputFile
from tests.agent.conftest import StartNode
from tests.agent.fake_hub import FakeHub, Outcome, Reason, command, function, payload, until

pytestmark = pytest.mark.anyio

LEVELS = ["process", "namespace", "gvisor"]
_UP = "../../../../../.."


@pytest.mark.parametrize("level", LEVELS[1:])
async def test_a_program_of_the_hosts(hub: FakeHub, start_node: StartNode, level: str) -> None:
    await start_node(level=level)
    names = ("etc/shadow", "etc/no-such-file", "usr/bin/bwrap", "bin/no-such-file")
    words = set()
    for name in names:
        (attempt,) = hub.submit(command(f"{_UP}/{name}"))
        await until(lambda attempt=attempt: attempt in hub.reports)  # type: ignore[misc]
        report = hub.reports[attempt]
        assert report.reason is Reason.BAD_JOB
        words.add((report.error or "").replace(name, "NAME"))
    assert len(words) == 1, words


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "left",
    ["true", "ln -s /etc outputs", "ln -s /etc/shadow outputs", "ln -s /no/such outputs", "echo x > outputs"],
)
async def test_an_outputs_folder_that_was_replaced(
    hub: FakeHub, start_node: StartNode, level: str, left: str
) -> None:
    await start_node(level=level)
    report = await hub.run(command("sh", "-c", f"rmdir outputs; {left}"))
    assert (report.outcome, report.outputs) == (Outcome.SUCCEEDED, [])
    noted = hub.log_texts.get(report.attempt_id, {}).get("stderr", "")
    assert noted == ("" if left == "true" else "[output not taken: outputs: Not a directory]\n")


async def test_an_odd_name_costs_only_itself(hub: FakeHub, start_node: StartNode) -> None:
    await start_node()
    report = await hub.run(
        command("sh", "-c", r"""echo a > outputs/ok; echo b > 'outputs/..\x'; echo c > outputs/last""")
    )
    assert [output.name for output in report.outputs] == ["last", "ok"]
    noted = hub.log_texts[report.attempt_id]["stderr"]
    assert noted.startswith("[output not taken: ..\\x: ")
    assert noted.count("\n") == 1


async def test_a_function_whose_outputs_have_an_odd_name(hub: FakeHub, start_node: StartNode) -> None:
    await start_node()
    report = await hub.run(function(os.system), payload(r"echo a > outputs/ok; echo b > 'outputs/..\x'"))
    assert [output.name for output in report.outputs] == ["ok"]
    assert "[output not taken: ..\\x: " in hub.log_texts[report.attempt_id]["stderr"]


@pytest.mark.parametrize("names", [("a", "a/b"), ("a/b", "a"), ("a", "a"), ("..", "x"), ("a\\b", "a")])
async def test_inputs_that_cannot_be_placed(
    hub: FakeHub, start_node: StartNode, names: tuple[str, str]
) -> None:
    await start_node()
    digest = hub.add_artifact(b"words")
    inputs = [InputFile(name=name, digest=digest, size=5) for name in names]
    report = await hub.run(command("true").model_copy(update={"inputs": inputs}))
    assert report.reason not in NODE_FAULTS


@pytest.mark.parametrize("env", [{"PYTHONHOME": "/no/such"}, {"PATH": "/no/such", "PYTHONHOME": "/job"}])
async def test_a_worker_that_the_jobs_own_variables_break(
    hub: FakeHub, start_node: StartNode, env: dict[str, str]
) -> None:
    await start_node(level="namespace")
    report = await hub.run(function(os.getpid).model_copy(update={"env": env}))
    assert report.reason is Reason.BAD_JOB
