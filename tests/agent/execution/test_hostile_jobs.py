"""Whatever a job names, brings or leaves behind is never the node's fault, and reveals nothing of the host.

A hub refuses most of the specs here. An older or hostile one may not, so the agent alone decides who is to blame.
"""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

from computepool.core.jobs.lifecycle import NODE_FAULTS, JobKind
from computepool.protocol.jobs.jobs import InputFile, JobSpec, Needs
from tests.agent.conftest import StartNode
from tests.agent.fake_hub import FakeHub, Outcome, Reason, command, function, payload, script

LEVELS = ["process", "namespace", "gvisor"]
_UP = "../../../../../.."


@pytest.mark.parametrize("level", LEVELS[1:])
async def test_a_program_outside_the_sandbox_looks_like_a_missing_one(
    hub: FakeHub, start_node: StartNode, level: str
) -> None:
    await start_node(level=level)
    errors = set()
    for name in ("etc/shadow", "etc/no-such-file", "usr/bin/bwrap", "bin/no-such-file"):
        report = await hub.run(command(f"{_UP}/{name}"))
        assert report.reason is Reason.BAD_JOB
        errors.add((report.error or "").replace(name, "NAME"))
    assert len(errors) == 1, errors


@pytest.mark.parametrize("level", LEVELS)
async def test_an_outputs_folder_that_was_replaced_gives_no_outputs(
    hub: FakeHub, start_node: StartNode, level: str
) -> None:
    await start_node(level=level)
    for left in (
        "true",
        "ln -s /etc outputs",
        "ln -s /etc/shadow outputs",
        "ln -s /no/such outputs",
        "echo x > outputs",
    ):
        report = await hub.run(command("sh", "-c", f"rmdir outputs; {left}"))
        assert (report.outcome, report.outputs) == (Outcome.SUCCEEDED, [])
        noted = hub.log_texts.get(report.attempt_id, {}).get("stderr", "")
        assert noted == ("" if left == "true" else "[output not taken: outputs: Not a directory]\n")


async def test_an_output_with_an_odd_name_is_left_out_alone(hub: FakeHub, start_node: StartNode) -> None:
    await start_node()
    line = r"echo a > outputs/ok; echo b > 'outputs/..\x'; echo c > outputs/last"
    for attempt in (*hub.submit(command("sh", "-c", line)), *hub.submit(function(os.system), [payload(line)])):
        report = await hub.report(attempt)
        assert [output.name for output in report.outputs] == ["last", "ok"]
        noted = hub.log_texts[attempt]["stderr"]
        assert noted.startswith("[output not taken: ..\\x: ")
        assert noted.count("\n") == 1


async def test_inputs_that_cannot_be_placed_are_not_the_nodes_fault(hub: FakeHub, start_node: StartNode) -> None:
    await start_node()
    digest = hub.add_artifact(b"words")
    for names in (("a", "a/b"), ("a/b", "a"), ("a", "a"), ("..", "x"), ("a\\b", "a")):
        inputs = [InputFile(name=name, digest=digest, size=5) for name in names]
        report = await hub.run(command("true").model_copy(update={"inputs": inputs}))
        assert report.reason not in NODE_FAULTS, names


def called(**fields: Any) -> JobSpec:
    return function(abs).model_copy(update=fields)


def ran(*argv: str, **fields: Any) -> JobSpec:
    return command(*(argv or ("true",))).model_copy(update=fields)


BROKEN = {
    "requirement": ran(dependencies=["numpy<=>1"]),
    "function's requirement": called(dependencies=["numpy<=>1"]),
    "long requirement": ran(dependencies=["a" + " " * 2_700 + "\x00"]),
    "nested TOML": script(f"# /// script\n# x = {'[' * 5_000}\n# ///\n"),
    "long first line": script(f"#!/bin/{'x' * 200_000}"),
    "no program in the first line": script("#!/bin/"),
    "2 MB of environment": ran(env={f"V{number}": "x" * 10_000 for number in range(200)}),
    "the same for a function": called(env={f"V{number}": "x" * 10_000 for number in range(200)}),
    "environment of half a slot": ran(env={f"V{number}": "x" * 10_000 for number in range(15)}),
    "long arguments": ran("true", *["\u20ac" * 16_384] * 3),
    "many arguments": ran("true", *["x" * 200] * 999),
    "a long name of a program": ran("x" * 16_000),
    "NUL": ran("true", "a\x00b"),
    "NUL in the environment": called(env={"A": "\x00"}),
    "PYTHONHOME": called(env={"PYTHONHOME": "/nowhere"}),
    "PYTHONHOME and PATH": called(env={"PATH": "/nowhere", "PYTHONHOME": "/job"}),
    "no function": called(function="!!! no base64 !!!"),
    "a function that is no pickle": called(function="AAAA"),
    "an empty program": ran(""),
}
FINE = {
    "the linker": called(env={"LD_PRELOAD": "/nowhere.so", "LD_LIBRARY_PATH": "/nowhere"}),
    "PATH": called(env={"PATH": "/nowhere"}),
    "little of a core": called(needs=Needs(cores=0.05)),
    "hardly any memory": called(needs=Needs(ram_mb=0, disk_mb=0)),
    "variables of ours": called(env={"COMPUTEPOOL_OUTPUTS": "/x", "COMPUTEPOOL_CHECKPOINT": ""}),
    "LANG": called(env={"LANG": "xx_XX.nothing", "LC_ALL": "\u20ac", "HOME": "", "TMPDIR": "/nowhere"}),
}


@pytest.mark.parametrize("level", LEVELS)
async def test_a_broken_spec_is_never_the_nodes_fault(hub: FakeHub, start_node: StartNode, level: str) -> None:
    await start_node(level=level)
    sent = {}
    for name, spec in (BROKEN | FINE).items():
        [sent[name]] = hub.submit(spec, [payload(-1)] if spec.kind is JobKind.FUNCTION else None)
    ends = dict(zip(sent, await hub.reports_of(sent.values()), strict=True))
    assert {name: end.error for name, end in ends.items() if end.reason in NODE_FAULTS} == {}
    assert {name: ends[name].error for name in BROKEN if ends[name].outcome is Outcome.SUCCEEDED} == {}
    assert ends["PATH"].outcome is Outcome.SUCCEEDED, ends["PATH"].error
    assert ends["requirement"].reason is Reason.BAD_JOB
    if level == "namespace":
        assert {ends[name].reason for name in ("PYTHONHOME", "PYTHONHOME and PATH")} == {Reason.BAD_JOB}


TEXTS = [
    "", "\x00", "\x1b[2J", "\u202e", "\n", "=", "-", "--", "/", "/dev/null", "/nowhere", "../..", "$HOME", "%s", "\u20ac" * 9_000,
    "x" * 16_384, "\ufffd", "\U0001f600", "0", "-1", "true", "python3", "/usr/bin/env", "outputs", ".tmp", "*", "a b",
]  # fmt: skip
VARIABLES = [
    "PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONINSPECT",
    "PYTHONWARNINGS", "PYTHONIOENCODING", "PYTHONHASHSEED", "PYTHONMALLOC", "PYTHON_CPU_COUNT", "LD_PRELOAD", "LD_LIBRARY_PATH",
    "LD_BIND_NOW", "LD_SHOW_AUXV", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES", "GCONV_PATH", "LOCPATH", "TZ", "OMP_NUM_THREADS",
    "COMPUTEPOOL_OUTPUTS", "COMPUTEPOOL_CHECKPOINT", "COMPUTEPOOL_RESTORED", "A",
]  # fmt: skip
SOURCES = [
    "#!",
    "#!/",
    "#!-",
    "#!/usr/bin/env",
    "#!/usr/bin/env -S",
    "#!python3 -",
    "#!\x00",
    "import sys",
    "# /// script\n# x\n# ///",
]
REQUIREMENTS = ["", "-", "-r x", "a b", "a@b", "a\n", "\u202e", "a;", "a[", "a===1", "a>=", "a" * 300, "a;" + "(" * 190]


def hostile(dice: random.Random) -> JobSpec:
    """Any spec that the wire lets through, except requirements that only the package index could refuse."""
    text = dice.choice
    fields: dict[str, Any] = {
        "name": text([word for word in TEXTS if 0 < len(word) <= 200 and word.isprintable()]),
        "argv": [text(TEXTS) for _ in range(dice.randrange(4))],
        "env": {text(VARIABLES): text(TEXTS) for _ in range(dice.randrange(3))},
        "timeout_s": 10,
        "needs": Needs(cores=text([0.5, 2]), ram_mb=text([0, 1, 64, 512]), disk_mb=text([0, 1, 64])),
    }
    if dice.random() < 0.2:
        fields["dependencies"] = [text(REQUIREMENTS)]
    kind = text([JobKind.COMMAND, JobKind.SCRIPT, JobKind.FUNCTION, JobKind.CLASS])
    if kind is JobKind.COMMAND:
        fields["argv"] = [text(TEXTS), *fields["argv"]]
    elif kind is JobKind.SCRIPT:
        fields["source"] = text(SOURCES) + text(TEXTS)
    else:
        fields["function"] = text([function(abs).function, "!", "AAAA", "gASVAAAAAAAAAAA="])
    return JobSpec(kind=kind, **fields)


@pytest.mark.soak
@pytest.mark.parametrize("level", LEVELS[:2])
async def test_no_hostile_spec_is_the_nodes_fault(hub: FakeHub, start_node: StartNode, level: str) -> None:
    await start_node(level=level)
    dice = random.Random(f"{level} 1")
    sent = {}
    for spec in [hostile(dice) for _ in range(50)]:
        [attempt] = hub.submit(spec, [dice.choice([payload(-1), "!", "AAAA"])])
        sent[attempt] = spec
    ends = list(zip(await hub.reports_of(sent, timeout_s=120), sent.values(), strict=True))
    assert [(end.error, spec) for end, spec in ends if end.reason in NODE_FAULTS] == []
    assert len({end.reason for end, _ in ends}) > 3, "they end in many ways"
