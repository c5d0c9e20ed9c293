"""Commands, scripts and functions, from grant to report, at both levels."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import sys
import time

import pytest

from computepool.core.jobs.lifecycle import JobKind
from computepool.protocol.jobs.jobs import RESULT_INLINE_MAX, InputFile, JobSpec, Needs
from tests.agent.conftest import QUICK, StartNode
from tests.agent.fake_hub import FakeHub, Outcome, Reason, command, function, payload, script, until

pytestmark = pytest.mark.anyio

LEVELS = ["process", "namespace", "gvisor"]


@pytest.mark.parametrize("level", LEVELS)
class TestEveryLevel:
    @pytest.mark.every_case
    async def test_a_command_and_its_output(self, hub: FakeHub, start_node: StartNode, level: str) -> None:
        await start_node(level=level, limits=dataclasses.replace(QUICK, log_flush_s=10))
        report = await hub.run(command("sh", "-c", "echo hello; echo oops >&2; exit 3"))
        assert (report.outcome, report.reason) == (Outcome.FAILED, Reason.EXIT_NONZERO)
        assert (report.exit_code, report.error) == (3, "exit code 3: oops")
        assert hub.log_texts[report.attempt_id] == {"stdout": "hello\n", "stderr": "oops\n"}
        assert hub.log_requests == 0, "the output of a short attempt travels with its report"

    async def test_standard_streams_and_dev_null_can_be_opened_by_name(
        self, hub: FakeHub, start_node: StartNode, level: str
    ) -> None:
        await start_node(level=level)
        words = "echo lost > /dev/null && echo out > /dev/stdout; echo err > /dev/stderr"
        attempts = [
            *hub.submit(command("sh", "-c", words)),
            *hub.submit(function(os.system), [payload(words)]),
        ]
        await until(lambda: len(hub.reports) == 2)
        for attempt in attempts:
            assert hub.log_texts[attempt] == {"stdout": "out\n", "stderr": "err\n"}

    @pytest.mark.every_case
    async def test_functions_return_values(self, hub: FakeHub, start_node: StartNode, level: str) -> None:
        await start_node(level=level)
        attempts = hub.submit(function(lambda x: x * 2), [payload(n) for n in range(200)])
        await until(lambda: len(hub.reports) == 200)
        assert [hub.reports[attempt].result for attempt in attempts] == [str(2 * n) for n in range(200)]
        assert {report.reason for report in hub.reports.values()} == {Reason.COMPLETED}

    async def test_a_python_script_with_arguments(
        self, hub: FakeHub, start_node: StartNode, level: str
    ) -> None:
        await start_node(level=level)
        source = "import sys, os\nprint(sys.argv, os.environ['COMPUTEPOOL_SLICE'], os.getcwd() == os.environ['HOME'])"
        report = await hub.run(script(source, "a", "b", name="train.py"))
        assert hub.log_texts[report.attempt_id]["stdout"] == "['train.py', 'a', 'b'] 0 True\n"

    async def test_inputs_and_outputs(self, hub: FakeHub, start_node: StartNode, level: str) -> None:
        await start_node(level=level)
        big = os.urandom(3_000_000)
        inputs = [
            InputFile(name="data/in.bin", digest=hub.add_artifact(big), size=len(big)),
            InputFile(name="words.txt", digest=hub.add_artifact(b"words"), size=5),
        ]
        source = (
            "import os, pathlib\nout = pathlib.Path(os.environ['COMPUTEPOOL_OUTPUTS'])\n"
            "(out / 'sub').mkdir()\n"
            "(out / 'sub' / 'copy.bin').write_bytes(open('data/in.bin', 'rb').read())\n"
            "(out / 'note.txt').write_text(open('words.txt').read().upper())\n"
        )
        report = await hub.run(script(source, inputs=inputs))
        assert report.outcome is Outcome.SUCCEEDED, report.error
        found = {output.name: hub.artifacts[output.digest] for output in report.outputs}
        assert found == {"sub/copy.bin": big, "note.txt": b"WORDS"}

    async def test_a_time_out(self, hub: FakeHub, start_node: StartNode, level: str) -> None:
        await start_node(level=level)
        slow = command("sleep", "60", timeout_s=0.5)
        stuck = function(lambda: time.sleep(60), timeout_s=0.5)
        attempts = [*hub.submit(slow), *hub.submit(stuck)]
        for attempt in attempts:
            report = await hub.report(attempt)
            assert (report.outcome, report.reason) == (Outcome.FAILED, Reason.TIMEOUT), report
            assert report.error == (
                'It ran longer than its time limit of 0.5 s. Allow more: --timeout 1s, or timeout="1s" in Python.'
            )
            assert 400 < report.ran_ms < 5_000 or report.ran_ms == 0

    @pytest.mark.soak
    async def test_the_money_ends(self, hub: FakeHub, start_node: StartNode, level: str) -> None:
        await start_node(level=level)
        slow, stuck = command("sleep", "60"), function(lambda: time.sleep(60))
        attempts = [*hub.submit(slow, paid_ms=500), *hub.submit(stuck, paid_ms=500)]
        (quick,) = hub.submit(command("true"), paid_ms=20_000)
        for attempt in attempts:
            report = await hub.report(attempt)
            assert (report.outcome, report.reason) == (Outcome.FAILED, Reason.BUDGET_SPENT), report
            assert "0.5 s" in (report.error or "")
        assert hub.reports[quick].outcome is Outcome.SUCCEEDED

    @pytest.mark.soak
    async def test_the_money_ends_between_two_looks_at_the_clock(
        self, hub: FakeHub, start_node: StartNode, level: str
    ) -> None:
        await start_node(level=level, limits=dataclasses.replace(QUICK, tick_s=3600))
        attempts = [
            *hub.submit(command("sleep", "0.2"), paid_ms=50),
            *hub.submit(function(lambda: time.sleep(0.2)), paid_ms=50),
        ]
        for attempt in attempts:
            report = await hub.report(attempt)
            assert (report.outcome, report.reason) == (Outcome.FAILED, Reason.BUDGET_SPENT), report
            assert (report.result, report.exit_code) == (None, None)

    async def test_out_of_memory(self, hub: FakeHub, start_node: StartNode, level: str) -> None:
        await start_node(level=level)
        hog = "x = [b'x' * (10_000_000 + n) for n in range(60)]\nimport time\ntime.sleep(30)"
        spec = script(hog, needs=Needs(ram_mb=64))
        eat = function(lambda: len(b"x" * 400_000_000), needs=Needs(ram_mb=64))
        attempts = [*hub.submit(spec), *hub.submit(eat)]
        for attempt in attempts:
            report = await hub.report(attempt, timeout_s=30)
            assert report.outcome is Outcome.FAILED
            assert report.reason in (Reason.OUT_OF_MEMORY, Reason.EXIT_NONZERO), report
            assert (report.error or "").endswith(
                'limit of 64 MB of memory. Ask for more: --ram 128MB, or ram="128MB" in Python.'
            ) or "Its limit is 64 MB of memory" in (report.error or "")
        assert hub.reports[attempts[1]].reason is Reason.OUT_OF_MEMORY

    async def test_a_program_that_is_not_there(self, hub: FakeHub, start_node: StartNode, level: str) -> None:
        await start_node(level=level)
        attempts = [
            *hub.submit(command("no-such-program-here")),
            *hub.submit(script("#!/usr/bin/env no-such-interpreter\nhello")),
        ]
        await until(lambda: len(hub.reports) == 2)
        for attempt in attempts:
            assert hub.reports[attempt].reason is Reason.BAD_JOB, hub.reports[attempt]

    @pytest.mark.soak
    async def test_a_result_too_long_for_the_report(
        self, hub: FakeHub, start_node: StartNode, level: str
    ) -> None:
        await start_node(level=level)
        sizes = [10, 20_000, RESULT_INLINE_MAX - 10, RESULT_INLINE_MAX + 10, 5_000_000]
        attempts = hub.submit(function(lambda size: "x" * size), [payload(size) for size in sizes])
        for attempt, size in zip(attempts, sizes, strict=True):
            report = await hub.report(attempt)
            text = report.result
            if size > RESULT_INLINE_MAX:
                assert text is None
                assert report.result_artifact is not None
                text = hub.artifacts[report.result_artifact].decode()
            assert json.loads(text or "") == "x" * size


class TestFunctions:
    async def test_an_exception_brings_its_traceback(self, hub: FakeHub, start_node: StartNode) -> None:
        def fails(word: str) -> None:
            raise KeyError(word)

        await start_node()
        report = await hub.run(function(fails), payload("lost"))
        assert (report.outcome, report.reason) == (Outcome.FAILED, Reason.EXCEPTION)
        assert report.error is not None
        assert report.error.startswith("Traceback (most recent call last):")
        assert report.error.endswith("KeyError: 'lost'")
        assert "in fails" in report.error
        assert "worker.py" not in report.error

    @pytest.mark.parametrize(
        ("body", "reason"),
        [
            (lambda: sys.exit(4), Reason.EXCEPTION),
            (lambda: os._exit(5), Reason.EXIT_NONZERO),
            (lambda: os._exit(0), Reason.EXCEPTION),
            (lambda: os.kill(os.getpid(), 11), Reason.SIGNAL),
            (object, Reason.EXCEPTION),
        ],
        ids=["sys.exit", "os._exit(5)", "os._exit(0)", "segfault", "unsendable"],
    )
    async def test_other_ways_to_fail(
        self, hub: FakeHub, start_node: StartNode, body: object, reason: Reason
    ) -> None:
        """And the calls behind it in the lane are served as if nothing had happened."""
        await start_node()
        good = hub.submit(function(lambda: 1), [payload()] * 10, lane="one")
        (bad,) = hub.submit(function(body), [payload()], lane="one")  # type: ignore[arg-type]
        more = hub.submit(function(lambda: 2), [payload()] * 10, lane="one")
        await until(lambda: len(hub.reports) == 21)
        assert hub.reports[bad].reason is reason, hub.reports[bad]
        assert [hub.reports[attempt].result for attempt in (*good, *more)] == ["1"] * 10 + ["2"] * 10
        assert hub.order == [*good, bad, *more]

    async def test_each_call_gets_its_own_output(self, hub: FakeHub, start_node: StartNode) -> None:
        def speak(number: int) -> None:
            print("print", number)
            if number % 10 == 0:
                os.system(f"echo shell {number}")
            if number % 7 == 0:
                sys.stderr.write(f"error {number}\n")

        await start_node()
        attempts = hub.submit(function(speak), [payload(n) for n in range(200)], lane="one")
        await until(lambda: len(hub.reports) == 200, timeout_s=30)
        for number, attempt in enumerate(attempts):
            shell = f"shell {number}\n" if number % 10 == 0 else ""
            assert hub.log_texts[attempt]["stdout"] == f"print {number}\n{shell}"
            assert hub.log_texts[attempt]["stderr"] == (f"error {number}\n" if number % 7 == 0 else "")

    async def test_outputs_belong_to_their_call(self, hub: FakeHub, start_node: StartNode) -> None:
        def write(number: int) -> None:
            if number % 2:
                with open(os.path.join(os.environ["COMPUTEPOOL_OUTPUTS"], "n.txt"), "w") as file:
                    file.write(str(number))

        await start_node()
        attempts = hub.submit(function(write), [payload(n) for n in range(20)])
        await until(lambda: len(hub.reports) == 20)
        for number, attempt in enumerate(attempts):
            contents = [hub.artifacts[output.digest] for output in hub.reports[attempt].outputs]
            assert contents == ([str(number).encode()] if number % 2 else [])

    @pytest.mark.soak
    async def test_a_worker_is_never_shared_between_accounts(
        self, hub: FakeHub, start_node: StartNode
    ) -> None:
        await start_node(trusted=("*",))
        pid = function(os.getpid)
        for account in ("acc_a", "acc_b", "acc_a"):
            hub.submit(pid, [payload()], account=account, lane="one")
        other_env = hub.submit(function(os.getpid, env={"X": "1"}), [payload()], account="acc_a", lane="one")
        await until(lambda: len(hub.reports) == 4)
        first, second, third = (hub.reports[attempt].result for attempt in hub.order[:3])
        assert first == third != second
        assert hub.reports[other_env[0]].result not in (first, second)

    @pytest.mark.soak
    async def test_functions_and_arguments_as_artifacts(self, hub: FakeHub, start_node: StartNode) -> None:
        import base64

        await start_node()
        whole = function(len)
        text = whole.function or ""
        for content in (text.encode(), base64.b64decode(text)):  # base64, and the bytes themselves
            spec = JobSpec(kind=JobKind.FUNCTION, name="f", function_artifact=hub.add_artifact(content))
            arguments = hub.add_artifact(payload("y" * 500_000).encode())
            hub.submit(spec, [None], payload_artifact=arguments)
        await until(lambda: len(hub.reports) == 2)
        assert {report.result for report in hub.reports.values()} == {"500000"}

    async def test_long_arguments_inline(self, hub: FakeHub, start_node: StartNode) -> None:
        await start_node()
        attempts = hub.submit(function(len), [payload("z" * 150_000)] * 20, lane="one")
        await until(lambda: len(hub.reports) == 20)
        assert {hub.reports[attempt].result for attempt in attempts} == {"150000"}

    async def test_pickles_only_where_allowed(self, hub: FakeHub, start_node: StartNode) -> None:
        await start_node()
        report = await hub.run(function(lambda: slice(3), allow_pickle=True), payload())
        assert "$pickle" in (report.result or ""), report.error

    async def test_a_mess_left_behind_does_not_reach_the_next_call(
        self, hub: FakeHub, start_node: StartNode
    ) -> None:
        def messy() -> str:
            os.chdir("/")
            sys.stdout.close()
            sys.stderr = None  # type: ignore[assignment]
            return "done"

        await start_node()
        hub.submit(function(messy), [payload()], lane="one")
        (attempt,) = hub.submit(function(os.getcwd), [payload()], lane="one")
        await until(lambda: len(hub.reports) == 2)
        assert hub.reports[attempt].result not in (None, '"/"')


class TestOutput:
    async def test_live_output_and_progress(self, hub: FakeHub, start_node: StartNode) -> None:
        await start_node()
        source = (
            "import computepool, time\nprint('begin', flush=True)\ncomputepool.progress(0.5)\n"
            "import os\nwhile not os.path.exists('/nonexistent'): time.sleep(0.05)"
        )
        (attempt,) = hub.submit(script(source))
        await until(lambda: hub.log_texts[attempt]["stdout"] == "begin\n")
        await until(lambda: any(run.progress == 0.5 for beat in hub.beats for run in beat.running))
        assert attempt not in hub.reports
        hub.stop_attempt(attempt)
        await until(lambda: attempt in hub.reports)
        assert hub.reports[attempt].outcome is Outcome.CANCELLED

    async def test_output_is_bounded(self, hub: FakeHub, start_node: StartNode) -> None:
        await start_node(limits=dataclasses.replace(QUICK, log_bytes_max=100_000))
        report = await hub.run(command("sh", "-c", "yes | head -c 3000000; echo end >&2"))
        assert report.outcome is Outcome.SUCCEEDED
        assert hub.log_texts[report.attempt_id] == {
            "stdout": "y\n" * 50_000,
            "stderr": "\n[output truncated: limit 100000 bytes]\n",
        }
        assert report.printed_chars == 3_000_000

    @pytest.mark.soak
    async def test_a_flood_ends_the_attempt(self, hub: FakeHub, start_node: StartNode) -> None:
        limits = dataclasses.replace(QUICK, log_bytes_max=10_000, output_bytes_max=1_000_000)
        await start_node(limits=limits)
        flood = function(lambda: [print("x" * 1000) for _ in range(10_000_000)] and None)
        attempts = [*hub.submit(command("yes")), *hub.submit(flood, [payload()])]
        await until(lambda: len(hub.reports) == 2)
        for attempt in attempts:
            assert hub.reports[attempt].reason is Reason.OUTPUT_LIMIT, hub.reports[attempt]

    @pytest.mark.soak
    async def test_all_output_of_a_long_one_arrives_in_order(
        self, hub: FakeHub, start_node: StartNode
    ) -> None:
        await start_node()
        report = await hub.run(command("sh", "-c", "seq 1 200000; sleep 0.3; seq 200001 200100"))
        text = hub.log_texts[report.attempt_id]["stdout"]
        assert (
            hashlib.sha256(text.encode()).hexdigest()
            == hashlib.sha256("".join(f"{n}\n" for n in range(1, 200101)).encode()).hexdigest()
        )

    async def test_a_thousand_switches_between_the_streams(self, hub: FakeHub, start_node: StartNode) -> None:
        """Each is a chunk of its own, and a report carries only some."""
        source = "import sys\nfor n in range(1000):\n"
        source += " print(n, flush=True)\n print(-n, file=sys.stderr, flush=True)"
        await start_node()
        attempts = hub.submit(script(source), [None] * 4)
        await until(lambda: len(hub.reports) == 4)
        for attempt in attempts:
            assert hub.log_texts[attempt]["stdout"] == "".join(f"{n}\n" for n in range(1000))
            assert hub.log_texts[attempt]["stderr"] == "".join(f"{-n}\n" for n in range(1000))

    async def test_too_many_outputs_fail_the_job(self, hub: FakeHub, start_node: StartNode) -> None:
        limits = dataclasses.replace(QUICK, outputs_max=3, outputs_bytes_max=1000)
        await start_node(limits=limits)
        many = hub.submit(command("sh", "-c", "cd outputs; touch 1 2 3 4"))[0]
        large = hub.submit(command("sh", "-c", "head -c 2000 /dev/zero > outputs/z"))[0]
        link = hub.submit(command("sh", "-c", "ln -s /etc/passwd outputs/p; echo x > outputs/x"))[0]
        await until(lambda: len(hub.reports) == 3)
        assert hub.reports[many].reason is Reason.OUTPUT_LIMIT
        assert hub.reports[large].reason is Reason.OUTPUT_LIMIT
        assert [output.name for output in hub.reports[link].outputs] == ["x"]
        assert "[output not taken: p: not a regular file]" in hub.log_texts[link]["stderr"]


class TestUsage:
    async def test_usage_is_measured(self, hub: FakeHub, start_node: StartNode) -> None:
        def work() -> int:
            block = bytearray(50_000_000)
            end = time.process_time() + 0.3
            while time.process_time() < end:
                pass
            return len(block)

        burn = "import time\nb = bytearray(50_000_000)\nend = time.process_time() + 0.3\n"
        burn += "while time.process_time() < end: pass"
        await start_node()
        attempts = [*hub.submit(function(work), [payload()]), *hub.submit(script(burn))]
        await until(lambda: len(hub.reports) == 2)
        for attempt in attempts:
            usage = hub.reports[attempt].usage
            assert usage is not None
            assert usage.wall_ms >= 250
            assert usage.cpu_ms >= 250
            assert usage.peak_rss_mb >= 45


class TestFolders:
    async def test_a_clean_folder_is_used_again_by_the_same_account_only(
        self, hub: FakeHub, start_node: StartNode
    ) -> None:
        await start_node(trusted=("*",))
        place = command("pwd")
        for account in ("acc_a", "acc_a", "acc_b", "acc_a"):
            hub.submit(place, account=account, lane="one")
        await until(lambda: len(hub.reports) == 4)
        first, second, third, fourth = (hub.log_texts[attempt]["stdout"] for attempt in hub.order)
        assert first == second == fourth != third

    @pytest.mark.parametrize(
        "mess",
        [
            "touch left", "mkdir left", "ln -s /etc left", "rmdir outputs; ln -s /tmp outputs", "rmdir outputs",
            "touch .tmp/left", "mkdir outputs/left", "chmod 000 . outputs",
        ],
    )  # fmt: skip
    async def test_a_touched_folder_is_not(self, hub: FakeHub, start_node: StartNode, mess: str) -> None:
        """Or it is mended, if only its permissions were changed."""
        await start_node()
        hub.submit(command("sh", "-c", mess), lane="one")
        (after,) = hub.submit(command("sh", "-c", "ls -A; ls -A outputs; touch outputs/mine"), lane="one")
        await until(lambda: len(hub.reports) == 2)
        assert sorted(hub.log_texts[after]["stdout"].split()) == [".tmp", "outputs"], hub.reports[after]
        assert [output.name for output in hub.reports[after].outputs] == ["mine"]
