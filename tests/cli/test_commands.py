"""Rules for all commands: examples in the help, JSON, sentences instead of tracebacks, and exit codes."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from computepool import connect
from computepool.cli import output
from computepool.cli.job import submit
from computepool.cli.main import app
from computepool.cli.node.options import start_arguments
from computepool.core.jobs.lifecycle import JobState
from computepool.sdk.client.config import load_config
from computepool.testing.processes import free_port
from tests.cli.conftest import Run, reply
from tests.sdk.fake_hub import BAD_KEY, SIGNIN_CODE, FakeHub, Refusal

#: Below the time limit of a test (pytest-timeout), even on a busy machine.
SOON_S = 90


def commands(command: Any = None, path: str = "pool") -> Iterator[tuple[str, Any]]:
    command = command or typer.main.get_command(app)
    if not hasattr(command, "commands"):
        yield path, command
        return
    if command.invoke_without_command:
        yield path, command
    elsewhere = getattr(command, "elsewhere", {})
    for name, inner in command.commands.items():
        yield from commands(command.load(name) if name in elsewhere else inner, f"{path} {name}")


@pytest.mark.parametrize(("path", "command"), list(commands()), ids=str)
def test_every_command_has_examples_and_json(path: str, command: Any) -> None:
    assert "Examples:" in command.help
    assert f"      {path}" in command.help or f"  {path}" in command.help
    options = {option for parameter in command.params for option in parameter.opts}
    assert "--json" in options
    assert all(getattr(parameter, "help", "") or parameter.name == "help" for parameter in command.params
               if "--" in "".join(parameter.opts) and not getattr(parameter, "hidden", False))  # fmt: skip


@pytest.mark.parametrize("group", ["", "jobs", "group", "node", "nodes", "market"])
def test_no_line_in_a_list_of_commands_is_cut(run: Run, group: str) -> None:
    listed = run(*group.split(), "--help").out.partition("Commands:")[2]
    assert "..." not in listed


def test_the_version_and_the_usage_are_printed(run: Run) -> None:
    assert run("--version").out.strip() == "0.1.0"
    bare = run()
    assert "Usage: pool" in bare.out + bare.err


# ------------------------------------------------------------ submit
def test_the_options_of_submit_become_the_spec(hub: FakeHub, run: Run, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print('x')")
    (tmp_path / "data.csv").write_text("1,2")
    done = run(
        "submit", script, "--vram", "16GB", "--ram", 4, "--tag", "a", "--tag", "b", "--property", "site=lab",
        "--env", "X=1", "--env", "HOME", "--input", f"in.csv={tmp_path / 'data.csv'}", "--timeout", "10m",
        "--priority", -5, "--retries", 2, "--name", "training", "--dep", "numpy>=2", "--", "--epochs", "3",
    )  # fmt: skip
    assert done.code == 0, done.err
    job_id = done.out.strip()
    assert f"pool jobs why {job_id}" in done.err
    request = hub.jobs[job_id]["request"]
    spec = request.spec
    assert (spec.source, spec.argv, spec.name) == ("print('x')", ["--epochs", "3"], "training")
    assert (spec.needs.vram_mb, spec.needs.ram_mb, spec.needs.tags) == (16_000, 4_000, ["a", "b"])
    assert (spec.needs.properties, spec.timeout_s) == ({"site": "lab"}, 600)
    assert (spec.env["X"], spec.env["HOME"], spec.dependencies) == ("1", os.environ["HOME"], ["numpy>=2"])
    assert [item.name for item in spec.inputs] == ["in.csv"]
    assert (request.priority, request.retries, request.group_id) == (-5, 2, None)


def test_everything_after_two_dashes_is_the_command(hub: FakeHub, run: Run) -> None:
    done = run("submit", "--cores", "0.5", "--json", "--", "echo", "--wait", "a b")
    reply = json.loads(done.out)
    assert hub.jobs[reply["job_ids"][0]]["request"].spec.argv == ["echo", "--wait", "a b"]


def test_waiting_prints_the_output_and_exits_like_the_job(hub: FakeHub, run: Run) -> None:
    done = run("submit", "--wait", "--", "echo", "hello")
    assert (done.code, done.out) == (0, "echo echo hello\n")
    assert "succeeded" in done.err
    failed = run("submit", "--wait", "--", "false")
    assert (failed.code, failed.out) == (1, "false false\n")
    assert "failed: exit code 1" in failed.err
    as_json = run("submit", "--wait", "--json", "--", "false")
    assert (as_json.code, json.loads(as_json.out)["state"]) == (1, "failed")


def test_slices_have_a_group(hub: FakeHub, run: Run, tmp_path: Path) -> None:
    script = tmp_path / "s.py"
    script.write_text("1")
    assert len(run("submit", script, "--slices", 3).out.split()) == 3
    done = run("submit", script, "--slices", 3, "--wait")
    assert [group.kind for group in hub.groups.values()] == ["slices", "slices"]
    assert "s.py:" in done.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["submit", "nowhere.py"], "cannot read nowhere.py: No such file or directory"),
        (["submit", "/"], "is a folder"),
        (["submit"], "a command after --"),
        (["submit", "--ram", "lots", "--", "true"], "use 16, 16GB or 512MB"),
        (["submit", "--isolation", "prayer", "--", "true"], "unknown isolation level"),
        (["submit", "--property", "x", "--", "true"], "NAME=VALUE"),
        (["submit", "--env", "NOT_SET_HERE", "--", "true"], "use NOT_SET_HERE=VALUE"),
        (["submit", "--input", "nowhere.csv", "--", "true"], "cannot read nowhere.csv"),
        (["submit", "--vrm", "3", "--", "true"], "--vrm"),
        (["jobs", "list", "--state", "lost"], "queued, leased"),
        (["jobs", "show", "job_none"], "There is no job 'job_none'"),
        (["artifacts", "get", "xyz"], "is not a SHA-256 digest"),
        (["artifacts", "put", "nowhere.bin"], "cannot read nowhere.bin"),
    ],
)  # fmt: skip
def test_bad_input_is_explained_and_exits_with_2(hub: FakeHub, run: Run, arguments: list[str], sentence: str) -> None:
    done = run(*arguments)
    assert done.code == 2
    assert sentence in " ".join(done.err.split())
    assert "Traceback" not in done.err
    assert not hub.jobs


def test_a_binary_or_empty_script_is_refused(hub: FakeHub, run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "empty.py").touch()
    assert "is not a text file" in run("submit", tmp_path / "a.bin").err
    assert "is empty" in run("submit", tmp_path / "empty.py").err


# ------------------------------------------------------------ exit codes
@pytest.mark.soak
def test_an_absent_hub_exits_with_3_and_a_remedy(run: Run) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    start = time.monotonic()
    done = run("--hub", url, "nodes")
    assert done.code == 3
    assert f"Cannot reach the hub at {url}" in done.err
    assert "pool up" in done.err
    assert done.err.count("\n") == 1
    assert time.monotonic() - start < 30


def test_a_missing_permission_exits_with_4(hub: FakeHub, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbid(method: str, path: str) -> None:
        raise Refusal(403, "forbidden", "Only administrators may list accounts.")

    hub.fault = forbid
    done = run("accounts", "list")
    assert (done.code, done.err) == (4, "Only administrators may list accounts.\n")
    hub.fault = lambda method, path: None
    monkeypatch.setenv("COMPUTEPOOL_KEY", BAD_KEY)
    done = run("whoami")
    assert (done.code, done.err) == (4, "This key is not valid. Sign in with `pool login`.\n")


def test_an_unexpected_error_is_one_sentence_unless_debugging(
    hub: FakeHub, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("computepool.cli.account.sign_in.open_pool", lambda: 1 / 0)
    done = run("whoami")
    assert (done.code, "COMPUTEPOOL_DEBUG=1" in done.err, "Traceback" in done.err) == (1, True, False)
    monkeypatch.setenv("COMPUTEPOOL_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        run("whoami")


def pool_process(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "computepool.cli", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.parametrize(
    "arguments", [["submit", "--wait", "--", "sleep", "1000"], ["jobs", "logs", "-f", "job_000001"]]
)
def test_ctrl_c_does_not_cancel_the_job(hub: FakeHub, arguments: list[str]) -> None:
    hub.hold = True
    if arguments[0] == "jobs":
        with connect() as pool:
            assert pool.jobs.submit(pool.options().program(["sleep", "1000"])).job_ids == ["job_000001"]
    watcher = pool_process(*arguments)
    with hub.lock:
        hub.lock.wait_for(lambda: hub.count("GET", "/jobs/job_000001/logs") or watcher.poll() is not None, SOON_S)
    assert watcher.poll() is None, watcher.communicate()
    watcher.send_signal(signal.SIGINT)
    _, err = watcher.communicate(timeout=SOON_S)
    assert watcher.returncode == 130
    assert "The job keeps running" in err
    assert "pool jobs cancel job_000001" in err
    assert "Traceback" not in err
    assert hub.jobs["job_000001"]["state"] is JobState.QUEUED


@pytest.mark.parametrize("flags", [(), ("--json",), ("--slices", "3")])
def test_an_unreachable_hub_ends_the_wait_with_a_note_that_the_job_continues(
    hub: FakeHub, run: Run, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...]
) -> None:
    monkeypatch.setattr(submit, "WATCH_RETRY_FOR_S", 0.2)
    hub.hold = True
    hub.fault = lambda method, path: "reset" if hub.jobs and method == "GET" else None
    done = run("submit", "--wait", *flags, "--", "sleep", "1000")
    assert (done.code, "Cannot reach the hub" in done.err) == (3, True)
    assert (
        "keep running. List them" in done.err if "--slices" in flags else "The job keeps running. Follow it" in done.err
    )


@pytest.mark.soak
def test_a_closed_pipe_causes_no_traceback(hub: FakeHub) -> None:
    with pool_process("jobs", "list", "--json") as listing:
        assert listing.stdout is not None
        assert listing.stderr is not None
        listing.stdout.close()
        assert "Traceback" not in listing.stderr.read()


# ------------------------------------------------------------ jobs and artifacts
def test_the_results_of_a_bundle_are_listed_by_item(hub: FakeHub, run: Run) -> None:
    with connect(hub.url, "cp_test") as pool:
        list(pool.map(hex, range(5), chunksize=3, progress=False))
    results = [run("jobs", "result", job_id).out for job_id in hub.jobs]
    assert results == ['0: "0x0"\n1: "0x1"\n2: "0x2"\n', '3: "0x3"\n4: "0x4"\n']


def test_jobs_are_listed_shown_waited_for_and_cancelled(hub: FakeHub, run: Run) -> None:
    job_id = run("submit", "--", "echo", "one").out.strip()
    assert run("jobs", "list").out.split("\t")[:3] == [job_id, "echo", "succeeded"]
    assert reply(run("jobs", "list", "--json"))[0]["id"] == job_id
    assert "command\techo one" in run("jobs", "show", job_id).out
    assert run("jobs", "logs", job_id).out == "echo echo one\n"
    assert run("jobs", "wait", job_id).out == f"{job_id} succeeded\n"
    assert run("jobs", "result", job_id).code == 0
    hub.hold = True
    waiting = run("submit", "--", "true").out.strip()
    assert run("jobs", "wait", waiting, "--timeout", "0.05").code == 1
    assert "is not finished yet" in run("jobs", "result", waiting).err
    assert run("jobs", "cancel", waiting).out == f"{waiting} cancelled\n"
    assert run("jobs", "wait", waiting).code == 1


# ------------------------------------------------------------ signing in
def test_login_accepts_a_link_a_code_and_a_key(hub: FakeHub, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("logout").code == 0
    assert load_config().key is None
    done = run("login", f"{hub.url}/signin?code={SIGNIN_CODE}")
    assert (done.code, done.out) == (0, f"Signed in to {hub.url} as ann.\n")
    assert load_config().key == "cp_fresh"
    assert stat.S_IMODE(Path(os.environ["COMPUTEPOOL_CONFIG"]).stat().st_mode) == 0o600
    assert run("login", hub.url, "--code", SIGNIN_CODE).code == 0
    assert run("login", hub.url, "--key", "cp_given").code == 0
    assert load_config().key == "cp_given"
    refused = run("login", hub.url, "--key", BAD_KEY)
    assert refused.code == 4
    assert load_config().key == "cp_given"
    assert run("login", hub.url, "--code", "used-before").code == 4


def test_login_without_a_terminal_requires_a_key(hub: FakeHub, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    monkeypatch.setattr(sys, "stdin", io.StringIO("cp_piped\n"))
    assert run("login", hub.url).code == 2
    assert run("login", hub.url, "--key", "-").code == 0
    assert load_config().key == "cp_piped"


# ------------------------------------------------------------ output
@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (85, "85 ms"),
        (1400, "1.4 s"),
        (45_000, "45 s"),
        (720_000, "12 min"),
        (12_600_000, "3.5 h"),
        (777_600_000, "9 d"),
    ],
)
def test_durations_have_about_two_digits(ms: int, text: str) -> None:
    assert output.span(ms) == text


def test_up_and_host_pass_on_the_options_of_a_node(run: Run) -> None:
    given = start_arguments(
        tags=["a", "b"],
        properties=["site=lab"],
        cores=1.5,
        ram_mb="4GB",
        network=False,
        fetch_python=True,
        reset=["disk"],
    )
    assert " ".join(given) == (
        "--tag a --tag b --property site=lab --cores 1.5 --ram 4000MB --no-net --fetch-python --reset disk"
    )
    for command in ("up", "host"):
        refused = run(command, "--fetch-python", "--python-mirror", "nowhere")
        assert (refused.code, "The Python mirror must be a URL" in refused.err) == (2, True)
