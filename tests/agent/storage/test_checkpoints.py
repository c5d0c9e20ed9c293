"""Checkpoints on a node: real jobs in real sandboxes save, resume and move; hostile ones cannot mislead the agent."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from computepool.agent.storage import checkpoints
from computepool.core.errors import ComputePoolError, OutOfSpace, QuotaExceeded
from computepool.core.jobs.lifecycle import Outcome, Reason
from computepool.protocol import sealing
from computepool.protocol.jobs import bundles
from computepool.protocol.jobs.checkpoints import CheckpointReport
from computepool.protocol.jobs.jobs import JobSpec, spec_digest
from computepool.protocol.nodes.nodes import Grant, OutputRef
from computepool.sdk.runtime import checkpointing
from tests.agent.conftest import QUICK, StartNode
from tests.agent.execution.test_bundles import bundle
from tests.agent.fake_hub import OWNER, FakeHub, command, function, payload, script, until

SOON = dataclasses.replace(QUICK, checkpoint_gap_s=0.1)
COUNTS = """
import computepool, pathlib, time
place = computepool.restored()
done = int((place / "deep" / "done.txt").read_text()) if place else 0
print("from", done)
pathlib.Path("deep").mkdir()
pathlib.Path("deep/done.txt").write_text("2")
if not place:
    print("half a line", end="", flush=True)
    assert computepool.checkpoint("deep", progress=0.5)
    time.sleep(60)
print("ended")
"""


def saving(*argv: str) -> JobSpec:
    return command(*argv).model_copy(update={"checkpoints": True})


def grant_again(
    hub: FakeHub, spec: JobSpec, files: list[OutputRef], *, job: str, args: str | None = None, **fields: Any
) -> str:
    """Grant a second attempt, which resumes from these files."""
    digest = spec_digest(spec.body())
    granted: dict[str, Any] = {"lane": "lane0", "spec": digest, "account_id": OWNER, "payload": args, **fields}
    hub.grant_again(Grant(attempt_id=f"{job}-2", attempt_no=2, job_id=job, checkpoint=files, **granted))
    return f"{job}-2"


def content(hub: FakeHub, report: CheckpointReport) -> dict[str, bytes]:
    return {file.name: hub.artifacts[file.digest] for file in report.files}


def test_agent_and_job_use_the_same_marks() -> None:
    assert (checkpoints.WAIT, checkpoints.STOP) == (checkpointing.WAIT, checkpointing.STOP)


async def test_a_script_resumes_from_its_checkpoint(hub: FakeHub, start_node: StartNode) -> None:
    await start_node(level="namespace", limits=SOON)
    spec = script(COUNTS, checkpoints=True)
    first = hub.submit(spec)[0]
    await until(lambda: hub.checkpoints)
    kept = hub.checkpoints[0]
    assert content(hub, kept) == {"deep/done.txt": b"2", checkpoints.PRINTED_FILE: b"from 0\nhalf a line"}
    assert (kept.attempt_id, kept.seq, kept.progress, kept.last) == (first, 1, 0.5, False)
    hub.stop_attempt(first)
    await hub.report(first)
    second = grant_again(hub, spec, kept.files, job=first[:-2], left_ms=30_000)
    report = await hub.report(second)
    assert (report.outcome, report.error) == (Outcome.SUCCEEDED, None)
    assert hub.log_texts[second]["stdout"] == "from 2\nended\n"
    whole = b"from 0\nhalf a line" + b"from 2\nended\n"
    assert report.printed == hashlib.sha256(whole).hexdigest()


def test_function(start: int) -> Any:
    import computepool

    place = computepool.restored()
    if place is not None:
        return start, (place / "state.txt").read_text(), (place / "state.txt").stat().st_size
    if start < 0:
        return "nothing to resume from"
    with open("state.txt", "w") as file:
        file.write("x" * start)
    computepool.dispatch_to("the other host", "state.txt")
    return None


test_function.__module__ = "__main__"  # pickled by value
test_function.__test__ = False  # type: ignore[attr-defined]


@pytest.mark.parametrize("level", ["process", "namespace"])
async def test_a_function_moves_with_its_files(hub: FakeHub, start_node: StartNode, level: str) -> None:
    await start_node(level=level, limits=SOON)
    spec = function(test_function, moves=True)
    report = await hub.run(spec, payload(3), lane="lane0")
    assert (report.outcome, report.reason, report.move_to) == (Outcome.MOVED, Reason.MOVED, "the other host")
    kept = hub.checkpoints[0]
    assert (kept.last, content(hub, kept)["state.txt"]) == (True, b"xxx")
    assert kept.move_to == "the other host"
    second = grant_again(hub, spec, kept.files, job=report.attempt_id[:-2], args=payload(3))
    assert (await hub.report(second)).result == '{"$tuple":[3,"xxx",3]}'
    third = await hub.run(spec, payload(-1), lane="lane0")  # the same warm worker
    assert third.result == '"nothing to resume from"'


@pytest.mark.parametrize(
    "fault", ["A checkpoint may have 10 bytes at most.", QuotaExceeded("There is no room for 2 MB.")]
)
async def test_a_move_whose_checkpoint_the_hub_does_not_keep_fails_the_job(
    hub: FakeHub, start_node: StartNode, fault: str | ComputePoolError
) -> None:
    await start_node(limits=SOON)
    hub.checkpoint_faults = [fault]
    report = await hub.run(function(test_function, moves=True), payload(3))
    assert (report.outcome, report.reason, report.move_to) == (Outcome.FAILED, Reason.OUTPUT_LIMIT, None)
    assert f"did not move to the other host: {fault}" in (report.error or "")


async def test_a_checkpoint_is_sent_again_until_the_hub_has_room(hub: FakeHub, start_node: StartNode) -> None:
    await start_node(limits=SOON)
    hub.checkpoint_faults = [OutOfSpace(), OutOfSpace()]
    first = await hub.run(function(test_function, moves=True), payload(3))
    assert (first.outcome, first.error) == (Outcome.MOVED, None)
    assert [content(hub, kept)["state.txt"] for kept in hub.checkpoints] == [b"xxx"]


HOSTILE = {
    "a link in the place of its folder": 'ln -s VICTIM "$COMPUTEPOOL_CHECKPOINT"; echo ::checkpoint one',
    "a link in the place of one": 'ln -s VICTIM "$COMPUTEPOOL_CHECKPOINT/one"; echo ::checkpoint one',
    "a link in it": 'mkdir "$COMPUTEPOOL_CHECKPOINT/one"; ln -s /etc/passwd "$COMPUTEPOOL_CHECKPOINT/one/p"; '
    "echo ::checkpoint one",
    "a pipe in it": 'mkdir "$COMPUTEPOOL_CHECKPOINT/one"; mkfifo "$COMPUTEPOOL_CHECKPOINT/one/p"; '
    "echo ::checkpoint one",
    "too much": 'mkdir "$COMPUTEPOOL_CHECKPOINT/one"; head -c 2000 /dev/zero > "$COMPUTEPOOL_CHECKPOINT/one/p"; '
    "echo ::checkpoint one",
    "the agent's own name": 'mkdir "$COMPUTEPOOL_CHECKPOINT/one"; '
    f'echo x > "$COMPUTEPOOL_CHECKPOINT/one/{checkpoints.PRINTED_FILE}"; echo ::checkpoint one',
    "nothing there": "echo ::checkpoint one",
}


@pytest.mark.soak
async def test_hostile_checkpoints_are_not_kept_and_lead_the_agent_nowhere(
    hub: FakeHub, start_node: StartNode, ground: Path
) -> None:
    victim = ground / "victim"  # a folder of the host's, which the agent may write
    (victim / "one").mkdir(parents=True)
    (victim / "one" / "secret").write_text("s")
    os.utime(victim, ns=(1, 1))
    await start_node(level="namespace", limits=dataclasses.replace(SOON, checkpoint_bytes_max=1_000))
    make = {name: "" if "its folder" in name else 'mkdir "$COMPUTEPOOL_CHECKPOINT"; ' for name in HOSTILE}
    # The jobs run until they are stopped: the agent handles checkpoints while a job runs.
    ids = {
        name: hub.submit(saving("sh", "-c", f"{make[name]}{line.replace('VICTIM', str(victim))}; sleep 60"))[0]
        for name, line in HOSTILE.items()
    }
    for name, id_ in ids.items():
        plain = name in ("nothing there", "a link in the place of its folder")
        stream, line = ("stdout", "::checkpoint one") if plain else ("stderr", "checkpoint not kept")
        await until(lambda a=id_, s=stream, w=line: w in hub.log_texts[a][s])
        assert plain == ("::" in hub.log_texts[id_]["stdout"]), name
        hub.stop_attempt(id_)
    assert hub.checkpoints == []
    await hub.reports_of(ids.values())
    assert (victim / "one" / "secret").read_text() == "s"
    assert victim.stat().st_mtime_ns == 1, "nothing was created or removed there, not even for a moment"


async def test_jobs_save_before_the_node_stops(hub: FakeHub, start_node: StartNode) -> None:
    """A shell loop that follows the marks."""
    node = await start_node(level="namespace", limits=dataclasses.replace(QUICK, checkpoint_gap_s=600))
    loop = """
    n=0; dir=$COMPUTEPOOL_CHECKPOINT; mkdir "$dir"
    while sleep 0.02; do
      n=$((n+1))
      if [ ! -e "$dir/wait" ] || [ -e "$dir/stop" ]; then
        mkdir "$dir/.$n"; echo $n > "$dir/.$n/n"; mv "$dir/.$n" "$dir/c$n"; echo "::checkpoint c$n 0.$n"
      fi
    done"""
    id_ = hub.submit(saving("sh", "-c", loop))[0]
    await until(lambda: len(hub.checkpoints) == 1)
    await node.finish()
    report = await hub.report(id_)
    assert [checkpoint.last for checkpoint in hub.checkpoints] == [False, True]
    before, after = (int(content(hub, checkpoint)["n"]) for checkpoint in hub.checkpoints)
    assert before < after
    assert (report.outcome, report.reason) == (Outcome.RETURNED, Reason.NODE_DRAINING)


async def test_a_job_whose_checkpoint_is_gone_runs_elsewhere(hub: FakeHub, start_node: StartNode) -> None:
    await start_node(limits=SOON)
    spec = script("print('never')")
    hub.specs[spec_digest(spec.body())] = spec.body()
    missing = OutputRef(name="state", digest="0" * 64, size=3)
    report = await hub.report(grant_again(hub, spec, [missing], job="job000099"))
    assert (report.outcome, report.reason) == (Outcome.FAILED, Reason.STAGING_FAILED)
    assert "cannot resume from the checkpoint" in (report.error or "")


async def test_a_sealed_job_sends_no_checkpoint(hub: FakeHub, start_node: StartNode) -> None:
    await start_node(limits=SOON)
    key = X25519PrivateKey.generate()
    first = await hub.run(function(test_function, moves=True, seal_to=sealing.public_text(key)), payload(3))
    assert (first.outcome, hub.checkpoints) == (Outcome.FAILED, [])
    assert not any(b"xxx" in data for data in hub.artifacts.values())
    about = sealing.About(first.attempt_id.removesuffix("-1"), sealing.ERROR)
    assert "sealed" in sealing.unseal_text(first.error or "", find_key=lambda _: key, about=about)


async def test_items_of_a_bundle_cannot_save(hub: FakeHub, start_node: StartNode) -> None:
    await start_node(limits=SOON)
    report = await hub.run(function(test_function, moves=True), bundle(-1, 3))
    assert (report.outcome, report.move_to, hub.checkpoints) == (Outcome.SUCCEEDED, None, [])
    values = bundles.read(report.result or "", 2, allow_pickle=False)
    assert "nothing to resume from" in str(values[0])
    assert "pass moves=True" in str(values[1])


NO_MARKS = """
import computepool, os
print("::move abc nowhere")
print("::checkpoint abc 0.5", flush=True)
assert computepool.restored() is None
for call, args in ((computepool.checkpoint, ()), (computepool.dispatch_to, ("there",))):
    try:
        call(*args)
    except RuntimeError as error:
        print(error)
"""


@pytest.mark.parametrize("declared", [{}, {"checkpoints": True}, {"moves": True}])
async def test_lines_that_name_no_checkpoint_are_output(
    hub: FakeHub, start_node: StartNode, declared: dict[str, bool]
) -> None:
    await start_node(limits=SOON)
    lines = "::move abc nowhere\n::checkpoint abc 0.5\n"
    report = await hub.run(command("printf", lines).model_copy(update=declared))
    assert (report.outcome, report.error) == (Outcome.SUCCEEDED, None)
    assert (hub.log_texts[report.attempt_id]["stdout"], hub.checkpoints) == (lines, [])


async def test_a_job_that_did_not_declare_checkpoints_is_told_which_option_to_pass(
    hub: FakeHub, start_node: StartNode
) -> None:
    await start_node(limits=SOON)
    id_ = hub.submit(script(NO_MARKS))[0]
    declared: list[dict[str, Any]] = [{}, {"checkpoints": True}]
    calls = [hub.submit(function(test_function, **fields), [payload(3)])[0] for fields in declared]
    reports = await hub.reports_of([id_, *calls])
    printed = hub.log_texts[id_]["stdout"].splitlines()
    assert printed[:2] == ["::move abc nowhere", "::checkpoint abc 0.5"]
    assert ["pass checkpoints=True" in printed[2], "pass moves=True" in printed[3]] == [True, True]
    for report in reports[1:]:
        assert "pass moves=True" in (report.error or "")
    assert hub.checkpoints == []
