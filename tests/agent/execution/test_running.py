"""Commands, scripts and functions, from grant to report."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import sys
import time

import pytest

from computepool.core.jobs.lifecycle import JobKind
from computepool.protocol.jobs.jobs import RESULT_INLINE_MAX, InputFile, JobSpec, Needs
from tests.agent.conftest import QUICK, StartNode
from tests.agent.fake_hub import FakeHub, Outcome, Reason, command, function, payload, script, until

LEVELS = ["process", "namespace", "gvisor"]


@pytest.mark.parametrize("level", LEVELS)
class TestEveryLevel:
    @pytest.mark.every_case
    async def test_a_command_reports_its_exit_code_and_its_output(
        self, hub: FakeHub, start_node: StartNode, level: str
    ) -> None:
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
        line = "echo lost > /dev/null && echo out > /dev/stdout; echo err > /dev/stderr"
        attempts = [*hub.submit(command("sh", "-c", line)), *hub.submit(function(os.system), [payload(line)])]
        for report in await hub.reports_of(attempts):
            assert hub.log_texts[report.attempt_id] == {"stdout": "out\n", "stderr": "err\n"}

    @pytest.mark.every_case
    async def test_functions_return_values(self, hub: FakeHub, start_node: StartNode, level: str) -> None:
        await start_node(level=level)
        attempts = hub.submit(function(lambda x: x * 2), [payload(n) for n in range(200)])
        reports = await hub.reports_of(attempts)
        assert [report.result for report in reports] == [str(2 * n) for n in range(200)]
        assert {report.reason for report in reports} == {Reason.COMPLETED}

    async def test_a_script_gets_its_arguments(self, hub: FakeHub, start_node: StartNode, level: str) -> None:
        await start_node(level=level)
        source = "import sys, os\nprint(sys.argv, os.environ['COMPUTEPOOL_SLICE'], os.getcwd() == os.environ['HOME'])"
        report = await hub.run(script(source, "a", "b", name="train.py"))
        assert hub.log_texts[report.attempt_id]["stdout"] == "['train.py', 'a', 'b'] 0 True\n"

    async def test_a_script_reads_inputs_and_leaves_outputs(
        self, hub: FakeHub, start_node: StartNode, level: str
    ) -> None:
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

    async def test_a_job_ends_at_its_time_limit(self, hub: FakeHub, start_node: StartNode, level: str) -> None:
        await start_node(level=level)
        slow = command("sleep", "60", timeout_s=0.5)
        stuck = function(lambda: time.sleep(60), timeout_s=0.5)
        for report in await hub.reports_of([*hub.submit(slow), *hub.submit(stuck)]):
            assert (report.outcome, report.reason) == (Outcome.FAILED, Reason.TIMEOUT), report
            assert report.error == (
                'It ran longer than its time limit of 0.5 s. Allow more: --timeout 1s, or timeout="1s" in Python.'
            )
            assert 400 < report.ran_ms < 30_000 or report.ran_ms == 0

    @pytest.mark.soak
    @pytest.mark.parametrize(("sleep_s", "paid_ms", "tick_s"), [(60, 500, 0.1), (0.2, 50, 3600)], ids=["tick", "end"])
    async def test_a_job_ends_when_its_budget_is_spent(
        self, hub: FakeHub, start_node: StartNode, level: str, sleep_s: float, paid_ms: int, tick_s: float
    ) -> None:
        """Also a job that ends by itself before the next tick."""
        await start_node(level=level, limits=dataclasses.replace(QUICK, tick_s=tick_s))
        sleepers = [command("sleep", str(sleep_s)), function(lambda: time.sleep(sleep_s))]
        (quick,) = hub.submit(command("true"), paid_ms=20_000)
        attempts = [attempt for spec in sleepers for attempt in hub.submit(spec, paid_ms=paid_ms)]
        for report in await hub.reports_of(attempts):
            assert (report.outcome, report.reason) == (Outcome.FAILED, Reason.BUDGET_SPENT), report
            assert (report.result, report.exit_code) == (None, None)
            assert f"{paid_ms / 1000:g} s" in (report.error or "")
        assert (await hub.report(quick)).outcome is Outcome.SUCCEEDED

    async def test_a_job_that_exceeds_its_memory_fails_and_says_so(
        self, hub: FakeHub, start_node: StartNode, level: str
    ) -> None:
        await start_node(level=level)
        hog = "x = [b'x' * (10_000_000 + n) for n in range(60)]\nimport time\ntime.sleep(30)"
        spec = script(hog, needs=Needs(ram_mb=64))
        eat = function(lambda: len(b"x" * 400_000_000), needs=Needs(ram_mb=64))
        reports = await hub.reports_of([*hub.submit(spec), *hub.submit(eat)])
        for report in reports:
            assert report.outcome is Outcome.FAILED
            assert report.reason in (Reason.OUT_OF_MEMORY, Reason.EXIT_NONZERO), report
            assert (report.error or "").endswith(
                'limit of 64 MB of memory. Ask for more: --ram 128MB, or ram="128MB" in Python.'
            ) or "Its limit is 64 MB of memory" in (report.error or "")
        assert reports[1].reason is Reason.OUT_OF_MEMORY

    async def test_a_missing_program_is_the_jobs_fault(self, hub: FakeHub, start_node: StartNode, level: str) -> None:
        await start_node(level=level)
        attempts = [
            *hub.submit(command("no-such-program-here")),
            *hub.submit(script("#!/usr/bin/env no-such-interpreter\nhello")),
        ]
        reports = await hub.reports_of(attempts)
        assert [report.reason for report in reports] == [Reason.BAD_JOB] * 2, reports

    @pytest.mark.soak
    async def test_a_result_too_long_for_the_report_is_uploaded(
        self, hub: FakeHub, start_node: StartNode, level: str
    ) -> None:
        await start_node(level=level)
        sizes = [10, 20_000, RESULT_INLINE_MAX - 10, RESULT_INLINE_MAX + 10, 5_000_000]
        attempts = hub.submit(function(lambda size: "x" * size), [payload(size) for size in sizes])
        for report, size in zip(await hub.reports_of(attempts), sizes, strict=True):
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
    async def test_a_call_that_fails_does_not_affect_the_calls_around_it(
        self, hub: FakeHub, start_node: StartNode, body: object, reason: Reason
    ) -> None:
        await start_node()
        good = hub.submit(function(lambda: 1), [payload()] * 10, lane="one")
        (bad,) = hub.submit(function(body), [payload()], lane="one")  # type: ignore[arg-type]
        more = hub.submit(function(lambda: 2), [payload()] * 10, lane="one")
        assert (await hub.report(bad)).reason is reason, hub.reports[bad]
        assert [report.result for report in await hub.reports_of([*good, *more])] == ["1"] * 10 + ["2"] * 10
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
        await hub.reports_of(attempts)
        for number, attempt in enumerate(attempts):
            shell = f"shell {number}\n" if number % 10 == 0 else ""
            error = f"error {number}\n" if number % 7 == 0 else ""
            assert hub.log_texts[attempt] == {"stdout": f"print {number}\n{shell}", "stderr": error}

    async def test_outputs_belong_to_their_call(self, hub: FakeHub, start_node: StartNode) -> None:
        def write(number: int) -> None:
            if number % 2:
                with open(os.path.join(os.environ["COMPUTEPOOL_OUTPUTS"], "n.txt"), "w") as file:
                    file.write(str(number))

        await start_node()
        attempts = hub.submit(function(write), [payload(n) for n in range(20)])
        for number, report in enumerate(await hub.reports_of(attempts)):
            contents = [hub.artifacts[output.digest] for output in report.outputs]
            assert contents == ([str(number).encode()] if number % 2 else [])

    @pytest.mark.soak
    async def test_a_worker_is_never_shared_between_accounts(self, hub: FakeHub, start_node: StartNode) -> None:
        await start_node(trusted=("*",))
        pid = function(os.getpid)
        calls = [(pid, "acc_a"), (pid, "acc_b"), (pid, "acc_a"), (function(os.getpid, env={"X": "1"}), "acc_a")]
        attempts = [hub.submit(spec, [payload()], account=account, lane="one")[0] for spec, account in calls]
        first, second, third, other_env = (report.result for report in await hub.reports_of(attempts))
        assert first == third != second
        assert other_env not in (first, second)

    @pytest.mark.soak
    async def test_functions_and_arguments_as_artifacts(self, hub: FakeHub, start_node: StartNode) -> None:
        await start_node()
        text = function(len).function or ""
        arguments = hub.add_artifact(payload("y" * 500_000).encode())
        for content in (text.encode(), base64.b64decode(text)):  # base64, and the bytes themselves
            spec = JobSpec(kind=JobKind.FUNCTION, name="f", function_artifact=hub.add_artifact(content))
            assert (await hub.run(spec, payload_artifact=arguments)).result == "500000"

    async def test_calls_with_long_arguments_are_served(self, hub: FakeHub, start_node: StartNode) -> None:
        await start_node()
        attempts = hub.submit(function(len), [payload("z" * 150_000)] * 20, lane="one")
        assert {report.result for report in await hub.reports_of(attempts)} == {"150000"}

    async def test_values_are_pickled_only_where_allowed(self, hub: FakeHub, start_node: StartNode) -> None:
        await start_node()
        report = await hub.run(function(lambda: slice(3), allow_pickle=True), payload())
        assert "$pickle" in (report.result or ""), report.error

    async def test_a_mess_left_behind_does_not_reach_the_next_call(self, hub: FakeHub, start_node: StartNode) -> None:
        def messy() -> str:
            os.chdir("/")
            sys.stdout.close()
            sys.stderr = None  # type: ignore[assignment]
            return "done"

        await start_node()
        hub.submit(function(messy), [payload()], lane="one")
        assert (await hub.run(function(os.getcwd), payload(), lane="one")).result not in (None, '"/"')


class TestOutput:
    async def test_output_and_progress_are_shown_while_a_job_runs(self, hub: FakeHub, start_node: StartNode) -> None:
        await start_node()
        source = "import computepool, time\nprint('begin', flush=True)\ncomputepool.progress(0.5)\ntime.sleep(600)"
        (attempt,) = hub.submit(script(source))
        await until(lambda: hub.log_texts[attempt]["stdout"] == "begin\n")
        await until(lambda: any(run.progress == 0.5 for beat in hub.beats for run in beat.running))
        assert attempt not in hub.reports
        hub.stop_attempt(attempt)
        await hub.report(attempt)

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
        reports = await hub.reports_of([*hub.submit(command("yes")), *hub.submit(flood, [payload()])])
        assert [report.reason for report in reports] == [Reason.OUTPUT_LIMIT] * 2, reports

    @pytest.mark.soak
    async def test_long_output_arrives_whole_and_in_order(self, hub: FakeHub, start_node: StartNode) -> None:
        await start_node()
        report = await hub.run(command("sh", "-c", "seq 1 200000; sleep 0.3; seq 200001 200100"))
        arrived = hub.log_texts[report.attempt_id]["stdout"] == "".join(f"{n}\n" for n in range(1, 200101))
        assert arrived  # without a comparison of both texts in the message

    async def test_output_that_alternates_between_the_streams_arrives_whole(
        self, hub: FakeHub, start_node: StartNode
    ) -> None:
        """Each switch makes a chunk, and a report carries only a few."""
        source = "import sys\nfor n in range(1000):\n"
        source += " print(n, flush=True)\n print(-n, file=sys.stderr, flush=True)"
        await start_node()
        for report in await hub.reports_of(hub.submit(script(source), [None] * 4)):
            assert hub.log_texts[report.attempt_id]["stdout"] == "".join(f"{n}\n" for n in range(1000))
            assert hub.log_texts[report.attempt_id]["stderr"] == "".join(f"{-n}\n" for n in range(1000))

    async def test_too_many_or_too_large_outputs_fail_the_job(self, hub: FakeHub, start_node: StartNode) -> None:
        limits = dataclasses.replace(QUICK, outputs_max=3, outputs_bytes_max=1000)
        await start_node(limits=limits)
        lines = ("cd outputs; touch 1 2 3 4", "head -c 2000 /dev/zero > outputs/z")
        reports = await hub.reports_of(hub.submit(command("sh", "-c", line))[0] for line in lines)
        assert [report.reason for report in reports] == [Reason.OUTPUT_LIMIT] * 2
        link = await hub.run(command("sh", "-c", "ln -s /etc/passwd outputs/p; echo x > outputs/x"))
        assert [output.name for output in link.outputs] == ["x"]
        assert "[output not taken: p: not a regular file]" in hub.log_texts[link.attempt_id]["stderr"]


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
        for report in await hub.reports_of([*hub.submit(function(work), [payload()]), *hub.submit(script(burn))]):
            assert report.usage is not None
            assert min(report.usage.wall_ms, report.usage.cpu_ms) >= 250
            assert report.usage.peak_rss_mb >= 45


class TestFolders:
    async def test_a_clean_folder_is_used_again_by_the_same_account_only(
        self, hub: FakeHub, start_node: StartNode
    ) -> None:
        await start_node(trusted=("*",))
        accounts = ("acc_a", "acc_a", "acc_b", "acc_a")
        attempts = [hub.submit(command("pwd"), account=account, lane="one")[0] for account in accounts]
        await hub.reports_of(attempts)
        first, second, third, fourth = (hub.log_texts[attempt]["stdout"] for attempt in attempts)
        assert first == second == fourth != third

    async def test_nothing_that_a_job_left_in_its_folder_is_there_for_the_next_one(
        self, hub: FakeHub, start_node: StartNode
    ) -> None:
        await start_node()
        for mess in (
            *("touch left", "mkdir left", "ln -s /etc left", "rmdir outputs; ln -s /tmp outputs", "rmdir outputs"),
            *("touch .tmp/left", "mkdir outputs/left", "chmod 000 . outputs"),
        ):
            await hub.run(command("sh", "-c", mess), lane="one")
            after = await hub.run(command("sh", "-c", "ls -A; ls -A outputs; touch outputs/mine"), lane="one")
            assert sorted(hub.log_texts[after.attempt_id]["stdout"].split()) == [".tmp", "outputs"], (mess, after)
            assert [output.name for output in after.outputs] == ["mine"], mess
