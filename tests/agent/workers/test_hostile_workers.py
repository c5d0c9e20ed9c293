"""Functions that attack their worker or its folder: the node goes on, and is not to blame."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import dataclasses
import os
import socket
import threading
import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from computepool.agent.clock import AgentClock
from computepool.agent.execution import staging
from computepool.agent.execution.attempts import Attempt
from computepool.agent.hub_link.hub_client import HubClient
from computepool.agent.sandbox.collect import Output
from computepool.agent.storage.artifacts import ArtifactCache
from computepool.agent.workers import workers
from computepool.agent.workers.functions import FunctionRunner
from computepool.agent.workers.workers import Call, WorkerHandle
from computepool.protocol.jobs.jobs import InputFile, JobSpec, Needs
from computepool.protocol.sealing import OUTPUT, Seal
from tests.agent.conftest import QUICK, StartNode, node_with
from tests.agent.fake_hub import FakeHub, Outcome, Reason, function, payload, until

_CLOSE = "import socket, time; socket.socket(fileno=3).shutdown(socket.SHUT_RDWR)"


@pytest.mark.soak
async def test_calls_whose_files_were_replaced_by_folders_are_taken_back(
    hub: FakeHub, start_node: StartNode, shared: Path
) -> None:
    """Long calls are sent ahead as files; the call before them is stopped."""

    def act(place: str, number: int, padding: str) -> int:
        names: list[str] = []
        deadline = time.monotonic() + 5
        while number and not names and not os.listdir(place) and time.monotonic() < deadline:
            names = [name for name in os.listdir() if name.startswith(".call-")]
        if names and not os.listdir(place):
            for name in names:
                os.unlink(name)
                os.mkdir(name)
            os.mkdir(f"{place}/{number}")
            time.sleep(600)
        return number

    node = await start_node(limits=dataclasses.replace(QUICK, worker_ahead_below_s=60))
    args = [payload(str(shared), number, "x" * 100_000) for number in range(40)]
    attempts = hub.submit(function(act), args, lane="one")
    await until(lambda: any(shared.iterdir()))
    acted = int(next(shared.iterdir()).name)
    hub.stop_attempt(attempts[acted])
    reports = await hub.reports_of(attempts)
    assert not node.task.done()
    assert reports[acted].outcome is Outcome.CANCELLED
    assert [report.result for report in reports[acted + 1 :]] == [str(number) for number in range(acted + 1, 40)]


@pytest.mark.soak
async def test_a_lane_that_cannot_be_checked_does_not_suspend_the_limits_of_others(
    hub: FakeHub, start_node: StartNode
) -> None:
    node = await start_node()
    (bad,) = hub.submit(function(time.sleep), [payload(600)], lane="one")
    lanes = node.agent._executor.lanes
    await until(lambda: any(lane.worker is not None and lane.worker.ready for lane, _ in lanes()))
    worker = lanes()[0][0].worker
    assert worker is not None
    files, worker.files = worker.files, (-1, -1)
    late = await hub.run(function(time.sleep, timeout_s=0.5), payload(600), lane="two")
    assert late.reason is Reason.TIMEOUT
    worker.files = files
    hub.stop_attempt(bad)
    await hub.report(bad)


async def test_a_reply_that_cannot_be_applied_does_not_end_the_node(
    hub: FakeHub, start_node: StartNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await start_node()
    hub.interval_ms = 100
    (long,) = hub.submit(function(time.sleep), [payload(600)], lane="one")
    await until(lambda: any(run.attempt_id == long for beat in hub.beats for run in beat.running))

    def broken(*args: object) -> None:
        raise RuntimeError("as the test wished")

    with monkeypatch.context() as patch:
        patch.setattr(node.agent._executor, "start", broken)
        (other,) = hub.submit(function(len), [payload("four")], lane="two")
        await until(lambda: other in hub.granted)
        patch.setattr(node.agent._executor, "stop", broken)
        hub.stop_attempt(long)
        polls = len(hub.polls)
        await until(lambda: len(hub.polls) > polls + 2 or node.task.done())
    reports = await hub.reports_of([other, long])
    assert not node.task.done()
    assert reports[0].result == "4", "it was granted again"


class TestTheChannel:
    @pytest.mark.soak
    @pytest.mark.parametrize("level", ["namespace", "gvisor"])
    async def test_a_worker_that_takes_no_more_calls_is_replaced(
        self, hub: FakeHub, start_node: StartNode, monkeypatch: pytest.MonkeyPatch, level: str
    ) -> None:
        """It cannot end, because a thread is left in it."""
        monkeypatch.setattr(workers, "_SILENT_S", 1.0)

        def deafen() -> str:
            threading.Thread(target=time.sleep, args=(600,)).start()
            socket.socket(fileno=os.dup(3)).shutdown(socket.SHUT_RD)
            return "deaf"

        node = await start_node(level=level)
        assert (await hub.run(function(deafen), payload(), lane="one")).result == '"deaf"'
        assert (await hub.run(function(len), payload("four"), lane="one")).result == "4"
        await until(lambda: len(node.agent._pool) == 1)

    @pytest.mark.parametrize("level", ["namespace", "gvisor"])
    async def test_a_worker_that_can_no_longer_reply_is_replaced(
        self, hub: FakeHub, start_node: StartNode, monkeypatch: pytest.MonkeyPatch, level: str
    ) -> None:
        monkeypatch.setattr(workers, "_SILENT_S", 1.0)

        def silence() -> None:
            socket.socket(fileno=os.dup(3)).shutdown(socket.SHUT_WR)
            time.sleep(600)

        await start_node(level=level)
        bad = await hub.run(function(silence), payload(), lane="one")
        assert bad.reason is Reason.EXCEPTION
        assert "interfered" in (bad.error or "")
        assert (await hub.run(function(len), payload("four"), lane="one")).result == "4"

    @pytest.mark.soak
    @pytest.mark.parametrize(
        ("code", "reason"),
        [
            (f"{_CLOSE}; time.sleep(600)", Reason.EXCEPTION),
            (_CLOSE, Reason.BAD_JOB),
            ("import os; os._exit(3)", Reason.BAD_JOB),
        ],
        ids=["closed", "closed and ended", "ended"],
    )
    async def test_a_worker_that_ends_before_its_first_call_fails_the_job(
        self, hub: FakeHub, start_node: StartNode, monkeypatch: pytest.MonkeyPatch, code: str, reason: Reason
    ) -> None:
        """For example while arguments are fetched. A new worker would end in the same way."""
        place = FunctionRunner._call_with_files

        async def place_slowly(self: FunctionRunner, attempt: Attempt, worker: WorkerHandle) -> Call:
            await until(lambda: not worker.takes_calls)
            return await place(self, attempt, worker)

        monkeypatch.setattr(FunctionRunner, "_call_with_files", place_slowly)
        if reason is Reason.EXCEPTION:  # The others end by themselves, perhaps late on a busy machine.
            monkeypatch.setattr(workers, "_SILENT_S", 1.0)
        await start_node(level="namespace")
        report = await hub.run(brings(hub, code), payload("four"))
        assert report.reason is reason, report


@pytest.mark.parametrize("level", ["process", "namespace", "gvisor"])
async def test_a_worker_that_exits_is_not_blamed_for_closing_its_channel(
    hub: FakeHub, start_node: StartNode, level: str
) -> None:
    await start_node(level=level)
    report = await hub.run(function(os._exit), payload(5))
    assert (report.reason, report.exit_code) == (Reason.EXIT_NONZERO, 5)


async def test_a_worker_that_takes_long_to_end_is_not_blamed(hub: FakeHub, start_node: StartNode, shared: Path) -> None:
    go = shared / "go"

    def end_late(path: str) -> None:
        socket.socket(fileno=os.dup(3)).shutdown(socket.SHUT_WR)
        while not os.path.exists(path):
            time.sleep(0.01)
        os._exit(5)

    node = await start_node(level="process")
    (attempt,) = hub.submit(function(end_late), [payload(str(go))])
    lanes = node.agent._executor.lanes
    await until(lambda: any(lane.worker is not None and lane.worker._silent_since for lane, _ in lanes()))
    ((lane, _),) = lanes()
    lane.worker._silent_since -= 5  # as if the machine had been so busy for so long
    lane.worker.patrol(workers.OUTPUT_FILE_MAX)
    go.touch()
    report = await hub.report(attempt)
    assert (report.reason, report.exit_code) == (Reason.EXIT_NONZERO, 5)


def brings(hub: FakeHub, code: str, name: str = "sitecustomize.py") -> JobSpec:
    """A call whose worker first runs this code of the job."""
    inputs = [InputFile(name=name, digest=hub.add_artifact(code.encode()), size=len(code))]
    return function(len).model_copy(update={"env": {"PYTHONPATH": "/job"}, "inputs": inputs})


@pytest.mark.soak
async def test_a_job_whose_code_keeps_its_worker_from_starting_is_to_blame(hub: FakeHub, start_node: StartNode) -> None:
    await start_node(level="namespace", limits=dataclasses.replace(QUICK, worker_start_s=1))
    report = await hub.run(brings(hub, "import time; time.sleep(600)"), payload("four"))
    assert report.reason is Reason.BAD_JOB
    assert "could not start" in (report.error or "")


class TestTheFolder:
    @pytest.mark.soak
    async def test_a_long_call_whose_file_name_is_taken_gets_another_worker(
        self, hub: FakeHub, start_node: StartNode
    ) -> None:

        def take_names(padding: str) -> None:
            for number in range(100):
                os.makedirs(f".call-{number}", exist_ok=True)

        await start_node()
        await hub.run(function(take_names), payload(""), lane="one")
        second = await hub.run(function(len), payload("x" * 100_000), lane="one")
        assert second.result == "100000", second.error

    @pytest.mark.soak
    async def test_calls_after_one_that_filled_the_folder_get_another_worker(
        self, hub: FakeHub, start_node: StartNode
    ) -> None:

        def fill() -> None:
            with open("all", "wb", buffering=0) as file, contextlib.suppress(OSError):
                while file.write(bytes(1 << 20)):
                    pass

        node = await start_node(level="namespace")
        if node.agent._folders._volumes.missing:
            pytest.skip(node.agent._folders._volumes.missing)
        needs = Needs(disk_mb=32)
        await hub.run(function(fill, needs=needs), payload(), lane="one")
        inline = await hub.run(function(len, needs=needs), payload("x" * 100_000), lane="one")
        assert inline.result == "100000", inline.error
        await hub.run(function(fill, needs=needs), payload(), lane="one")
        arguments = hub.add_artifact(payload("x" * 1_000_000).encode())
        placed = await hub.run(function(len, needs=needs), None, lane="one", payload_artifact=arguments)
        assert placed.result == "1000000", placed.error

    @pytest.mark.soak
    async def test_arguments_that_do_not_fit_into_the_folder_fail_the_job(
        self, hub: FakeHub, start_node: StartNode
    ) -> None:
        node = await start_node(level="namespace")
        if node.agent._folders._volumes.missing:
            pytest.skip(node.agent._folders._volumes.missing)
        digest = hub.add_artifact(payload("x" * 60_000_000).encode())
        spec = function(len, needs=Needs(disk_mb=32))
        report = await hub.run(spec, None, payload_artifact=digest)
        assert report.reason is Reason.OUTPUT_LIMIT, report.error


@pytest.mark.soak
@pytest.mark.parametrize("level", ["process", "namespace"])
async def test_blocks_allocated_in_the_output_files_count_as_output(
    hub: FakeHub, start_node: StartNode, level: str
) -> None:
    """No limit of the kernel stops the allocation of blocks in an agent's file that does not grow."""

    def take() -> int:
        keep_size, size = 1, 100 << 20
        for fd in (1, 2):
            failed = ctypes.CDLL(None).fallocate(fd, keep_size, ctypes.c_long(0), ctypes.c_long(size))
            if failed:
                return os.fstat(fd).st_blocks
        time.sleep(600)
        return 0

    await start_node(level=level, limits=dataclasses.replace(QUICK, output_bytes_max=1 << 20))
    report = await hub.run(function(take), payload())
    assert report.reason is Reason.OUTPUT_LIMIT, report


async def test_an_output_that_is_changed_while_it_is_sent_fails_the_job(
    hub: FakeHub, start_node: StartNode, shared: Path
) -> None:

    def leave(place: str) -> None:
        file = open("outputs/file", "wb")  # noqa: SIM115 - the thread goes on with it
        file.write(bytes(100_000))
        file.flush()

        def change() -> None:
            while not os.path.exists(f"{place}/go"):
                time.sleep(0.01)
            file.truncate(10)
            os.mkdir(f"{place}/gone")

        threading.Thread(target=change, daemon=True).start()

    await start_node()
    hub.fault = lambda path: 503 if path.startswith("/artifacts/") else None
    (attempt,) = hub.submit(function(leave), [payload(str(shared))])
    await until(lambda: any(path.startswith("/artifacts/") for path in list(hub.requests)))
    (shared / "go").touch()
    await until((shared / "gone").exists)
    hub.fault = None
    report = await hub.report(attempt)
    assert report.reason is Reason.OUTPUT_LIMIT, report
    assert "was changed" in (report.error or "")


async def test_an_output_that_becomes_shorter_while_it_is_sealed_is_rejected(tmp_path: Path) -> None:
    seal = Seal(X25519PrivateKey.generate().public_key().public_bytes_raw(), "job_1")
    with (tmp_path / "file").open("w+b") as file:
        file.write(b"ten bytes!")
        file.flush()
        output = Output("file", 11, file.fileno())
        with pytest.raises(staging.OutputRejected):
            async with staging.open_for_upload(output, tmp_path / "a" / "b", seal=seal, about=(OUTPUT, "file")):
                pass


async def test_a_cancelled_copy_goes_on_reading_its_own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the descriptor were closed, the thread would read whatever file gets its number next."""
    began, goes_on, ended = threading.Event(), threading.Event(), threading.Event()
    copy = staging._copy

    def copy_slowly(source: int, workdir: Path, name: str) -> None:
        began.set()
        goes_on.wait(60)
        try:
            copy(source, workdir, name)
        finally:
            ended.set()

    monkeypatch.setattr(staging, "_copy", copy_slowly)
    content, digest = b"mine" * 500_000, "d" * 64
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / digest).write_bytes(content)
    (tmp_path / "other").write_bytes(b"another's" * 500_000)
    client = HubClient(("http://127.0.0.1:1",), clock=AgentClock(), limits=QUICK)
    cache = ArtifactCache(tmp_path / "cache", node_with(client))
    placing = asyncio.create_task(staging.place_artifact(cache, digest, tmp_path, name="placed"))
    assert await asyncio.to_thread(began.wait, 60)
    placing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await placing
    others = [os.open(tmp_path / "other", os.O_RDONLY) for _ in range(8)]
    goes_on.set()
    assert await asyncio.to_thread(ended.wait, 60)
    for fd in others:
        os.close(fd)
    assert (tmp_path / "placed").read_bytes() == content
    await client.close()
