"""Why a program did not start: the answer depends only on what the job itself can see."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, strategies as st

from computepool.agent.execution.attempt_result import result_of_exit
from computepool.agent.sandbox.base import BadCommand, SandboxPolicy, Status
from computepool.agent.sandbox.safe_paths import View
from computepool.agent.sandbox.sandbox import Sandbox
from computepool.core.jobs.lifecycle import Reason
from tests.sandbox.running import Outcome, run

_UP = "../../../../../.."


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder of the host that no job sees, with a file of each kind that messages could distinguish."""
    with tempfile.TemporaryDirectory(prefix="computepool-host-", dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "plain").write_text("a secret")
        (folder / "script").write_text("#!/bin/sh\n")
        shutil.copy("/bin/true", folder / "program")
        for name in ("script", "program"):
            (folder / name).chmod(0o755)
        (folder / "folder").mkdir()
        yield folder


def message(outcome: Outcome, path: str) -> tuple[Reason, str]:
    ending = result_of_exit(outcome.exit, stderr_tail=outcome.err)
    return ending.reason, (ending.error or "").replace(path, "PATH")


@pytest.mark.parametrize("way", ["up", "absolute", "link"])
def test_messages_do_not_depend_on_the_hosts_files(boxed: Sandbox, outside: Path, way: str) -> None:
    messages = set()
    for name in ("plain", "script", "program", "folder", "missing"):
        target = f"{outside}/{name}"

        def prepare(workdir: Path, target: str = target) -> None:
            (workdir / "link").symlink_to(target)

        command = {"up": _UP + target, "absolute": target, "link": "./link"}[way]
        messages.add(message(run(boxed, [command], prepare=prepare), command))
    assert len(messages) == 1, messages
    assert messages.pop()[0] is Reason.BAD_JOB


def test_a_program_that_only_the_host_has_is_not_the_nodes_fault(boxed: Sandbox) -> None:
    assert shutil.which("bwrap") == "/usr/bin/bwrap"
    for program in (f"{_UP}/usr/bin/bwrap", "/usr/bin/bwrap", "bwrap"):
        assert message(run(boxed, [program]), program)[0] is Reason.BAD_JOB


@pytest.mark.parametrize(
    "command", ["", ".", "/", "..", "outputs", "/job", "/proc/self/mem", "/dev/null", "x" * 5000, "a/" * 600]
)
def test_no_command_is_the_nodes_fault(boxed: Sandbox, command: str) -> None:
    try:
        ended = run(boxed, [command]).exit
    except BadCommand:
        return
    assert ended.status is Status.EXIT


def test_a_jobs_path_variable_leads_nowhere_else(boxed: Sandbox, outside: Path) -> None:
    for folder in (f"{_UP}{outside}", str(outside), f":{outside}:"):
        outcome = run(boxed, ["program"], policy=SandboxPolicy(env={"PATH": folder}))
        assert message(outcome, "program")[0] is Reason.BAD_JOB


def test_a_broken_program_that_the_job_brought_is_its_own_fault(boxed: Sandbox) -> None:
    def prepare(workdir: Path) -> None:
        (workdir / "broken").write_bytes(b"\x7fELF" + Random(7).randbytes(200))
        (workdir / "broken").chmod(0o755)

    outcome = run(boxed, ["./broken"], prepare=prepare)
    # At `namespace` the C library runs a shell for what the kernel does not know.
    assert message(outcome, "./broken")[0] in (Reason.BAD_JOB, Reason.EXIT_NONZERO)


def test_a_jobs_links_lead_to_what_the_job_sees(boxed: Sandbox, ground: Path) -> None:
    def prepare(workdir: Path) -> None:
        (workdir / "true").symlink_to("/bin/true")
        (workdir / "up").symlink_to("../job/../bin/../bin/true")
        (workdir / "round").symlink_to("round")

    for command, ok in (("./true", True), ("./up", True), ("./round", False)):
        assert run(boxed, [command], prepare=prepare).exit.ok is ok
    broken = SandboxPolicy(mounts={ground / "missing": "/data"})
    for command in ("./true", "./up"):
        outcome = run(boxed, [command], policy=broken, prepare=prepare)
        assert outcome.exit.status is Status.SANDBOX_ERROR, outcome


# ------------------------------------------------------------------ the view alone
class Host:
    """A view of some trees of a host. Nothing else of the host may be found."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("usr/bin", "own/sub", "data", "secret"):
            (root / name).mkdir(parents=True)
        for name in ("usr/bin/tool", "own/mine", "data/read", "secret/tool"):
            (root / name).write_text(f"#!{name}")
            (root / name).chmod(0o755)
        (root / "single").write_text("#!single")
        os.mkfifo(root / "own/pipe")
        links = {
            "out": str(root / "secret/tool"), "dir": str(root / "secret"), "up": "../secret/tool", "far": "../" * 9,
            "tool": "/bin/tool", "near": "sub/../mine", "a": "b", "b": "a", "data": "/opt/data/../data/read",
        }  # fmt: skip
        for name, target in links.items():
            (root / "own" / name).symlink_to(target)
        trees = {"/usr": root / "usr", "/job": root / "own", "/opt/data": root / "data"}
        self.view = View(trees | {"/opt/one": root / "single"}, {"/bin": "usr/bin"})

    def mount_of(self, path: str) -> str | None:
        found = self.view.program(path, cwd="/job")
        return None if found is None else found.mount


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Host:
    return Host(tmp_path_factory.mktemp("host"))


@pytest.mark.parametrize(
    ("path", "mount"),
    [
        ("mine", "/job"), ("./sub/../mine", "/job"), ("/job/mine", "/job"), ("near", "/job"), ("tool", "/usr"),
        ("/bin/tool", "/usr"), ("../bin/tool", "/usr"), ("../../../bin/tool", "/usr"), ("data", "/opt/data"),
        ("/opt/one", "/opt/one"), ("/opt/../job/mine", "/job"), ("far/usr/bin/tool", "/usr"),
        ("out", None), ("dir/tool", None), ("up", None), ("a", None), ("pipe", None), ("sub", None), ("/", None), ("", None),
        ("../secret/tool", None), ("../mine", None), ("/opt", None), ("/opt/one/x", None), ("mine/x", None),
        ("/nothing/../job/mine", None), ("a\0b", None), ("x" * 300, None), ("\udc80", None), ("x/\ud800", None),
    ],
)  # fmt: skip
def test_paths_are_resolved_as_inside_the_sandbox(host: Host, path: str, mount: str | None) -> None:
    assert host.mount_of(path) == mount


@given(
    st.lists(
        st.sampled_from(
            ["..", ".", "", "job", "usr", "bin", "secret", "tool", "dir", "far", "up", "out", "own", "opt", "data"]
        ),
        max_size=12,
    ),
    st.booleans(),
)
def test_no_path_leads_out_of_the_view(host: Host, names: list[str], absolute: bool) -> None:
    path = "/" * absolute + "/".join(names)
    assert host.mount_of(path) in (None, "/usr", "/job", "/opt/data")
    assert host.mount_of(f"{path}/{_UP}{host.root}/secret/tool") is None


def test_resolving_leaves_no_descriptor_open(host: Host) -> None:
    before = set(os.listdir("/proc/self/fd"))
    for path in ("mine", "out", "mine/x", "sub/x/y", "pipe", "tool", "a", "/opt/one/x"):
        host.mount_of(path)
    assert set(os.listdir("/proc/self/fd")) <= before, "the garbage collector may close others meanwhile"
