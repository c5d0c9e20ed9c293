"""Hostile jobs in bubblewrap, runc and gVisor, judged by what the host sees; as a control, the same jobs without a sandbox."""

from __future__ import annotations

import errno
import json
import os
import platform
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from computepool.agent.sandbox.backends import seccomp
from computepool.agent.sandbox.base import SandboxPolicy, Status
from computepool.agent.sandbox.interior import hidden_files
from computepool.agent.sandbox.runtime.runtime import Runtime
from computepool.agent.sandbox.sandbox import Sandbox
from computepool.agent.sandbox.scratch import make_workdir, remove_tree
from computepool.core.isolation import Level
from tests.sandbox.canaries import Canaries
from tests.sandbox.running import Outcome, attack, eventually, run, run_python, stage_hostile, started_attack

x86_only = pytest.mark.skipif(platform.machine() != "x86_64", reason="the job is written in x86_64 numbers")
#: Calls that runc cannot refuse if its library is older than they are. They reveal no more than /proc/self/mountinfo
#: does, or need a capability.
YOUNG = {"listmount", "statmount", "open_tree_attr"}
#: The user of the control if the tests run as root: an ordinary one without rights.
CONTROL_UID = 299_999 if os.geteuid() == 0 else None


@pytest.fixture
def canaries(ground: Path) -> Iterator[Canaries]:
    with Canaries(ground) as made:
        yield made


class Unprotected:
    """The control: the same job as a plain process of an ordinary user, as careless agents start them."""

    def __init__(self, ground: Path, runtime: Runtime) -> None:
        self._ground = ground
        self._runtime = runtime

    def attack(self, name: str, *arguments: object, secret: str = "", stdin: str = "", leak: int = -1) -> Outcome:
        workdir = make_workdir(self._ground / "work", f"control-{name}")
        stage_hostile(workdir)
        if CONTROL_UID is not None:
            os.chown(workdir, CONTROL_UID, CONTROL_UID)
        try:
            ran = subprocess.run(
                [self._runtime.python, "-I", "hostile.py", name, json.dumps(arguments)],
                cwd=workdir,
                user=CONTROL_UID,
                group=CONTROL_UID,
                extra_groups=None if CONTROL_UID is None else [],
                env={**self._runtime.env(str(self._runtime.path)), "SECRET": secret},
                pass_fds=[leak] if leak >= 0 else [],
                input=stdin,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
        finally:
            remove_tree(workdir)
        return Outcome(None, ran.stdout, ran.stderr)


@pytest.fixture
def unprotected(ground: Path, runtime: Runtime) -> Unprotected:
    return Unprotected(ground, runtime)


@dataclass(frozen=True)
class Attack:
    name: str
    arguments: Callable[[Canaries], list[object]] = lambda _: []
    emulated: str = ""  #: what gVisor's own kernel lets the job believe; test_gvisor.py looks at the host
    control: bool = False  #: without a sandbox it succeeds, for the canaries' token if it looks for that

    def allowed(self, level: Level) -> set[str]:
        return set(self.emulated.split()) if level is Level.GVISOR else set()


ATTACKS = [
    pytest.param(Attack("read_shadow"), marks=pytest.mark.every_case),
    pytest.param(Attack("network_outside"), marks=pytest.mark.every_case),
    pytest.param(Attack("ptrace_init"), marks=x86_only),
    Attack("kernel_logs"),
    Attack("mounts"),
    Attack("raise_priority", emulated="nice oom_score_adj"),
    Attack("write_proc", emulated="/proc/sysrq-trigger /sys/fs/cgroup /sys/kernel"),
    Attack("devices", emulated="fuse net /dev/fuse /dev/net/tun", control=True),
    Attack("socket_families", control=True),
    pytest.param(Attack("user_namespaces", control=True), marks=x86_only),
    pytest.param(Attack("terminal_injection", control=True), marks=x86_only),
    pytest.param(Attack("keyring", lambda canaries: [canaries.key_name], control=True), marks=x86_only),
    Attack("read_secrets", lambda canaries: [list(map(str, canaries.files))], control=True),
    Attack("shm_ipc", lambda canaries: [canaries.shmid, str(canaries.files[-1])], control=True),
]


@pytest.mark.parametrize("one", ATTACKS, ids=lambda one: one.name)
def test_a_hostile_job_gets_nothing(boxed: Sandbox, canaries: Canaries, unprotected: Unprotected, one: Attack) -> None:
    arguments = one.arguments(canaries)
    outcome = attack(boxed, one.name, *arguments)
    assert set(outcome.got) <= one.allowed(boxed.level)
    assert canaries.token not in outcome.out + outcome.err
    if one.control:
        control = unprotected.attack(one.name, *arguments)
        assert control.got != {}
        assert not arguments or canaries.token in control.out


# ------------------------------------------------------------------ files and secrets
def test_a_job_does_not_inherit_the_agents_environment(
    boxed: Sandbox, canaries: Canaries, unprotected: Unprotected, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POOL_TOKEN", canaries.token)
    outcome = attack(boxed, "env_secret", policy=SandboxPolicy(env={"GIVEN": "yes"}))
    assert canaries.token not in outcome.out
    assert set(outcome.got["env"]) - {"LD_LIBRARY_PATH"} == {"PATH", "HOME", "LANG", "TMPDIR", "GIVEN", "PWD"}
    assert canaries.token in unprotected.attack("env_secret", secret=canaries.token).out


def test_command_lines_reveal_neither_the_host_nor_the_environment(boxed: Sandbox, ground: Path) -> None:
    with started_attack(boxed, "command_lines_and_stay", policy=SandboxPolicy(env={"TOKEN": "env-secret-7"})) as job:
        assert eventually(lambda: "hostile.py" in job.read()[0])
        on_the_host = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True).stdout
        seen = job.read()[0]
    assert str(ground) not in seen
    assert "env-secret-7" not in seen + on_the_host


def test_no_descriptor_of_the_agent_is_open(boxed: Sandbox, canaries: Canaries, unprotected: Unprotected) -> None:
    with open(canaries.files[0]) as secret:
        os.set_inheritable(secret.fileno(), True)
        outcome = attack(boxed, "fd_leak")
        # The only one is of the folder that was listed to find them.
        assert not [name for name, (link, _) in outcome.got.items() if "/proc/" not in link]
        assert canaries.token not in outcome.out
        assert canaries.token in unprotected.attack("fd_leak", leak=secret.fileno()).out


# ------------------------------------------------------------------ processes
def test_processes_of_the_host_are_invisible(boxed: Sandbox, canaries: Canaries, unprotected: Unprotected) -> None:
    canaries.sleeper(None)
    outcome = attack(boxed, "host_procs")
    assert len(outcome.got) == (1 if boxed.level is Level.GVISOR else 2)  # the others have an init
    assert canaries.marker not in outcome.out
    assert canaries.marker in unprotected.attack("host_procs").out


def test_processes_of_the_host_cannot_be_killed(boxed: Sandbox, canaries: Canaries, unprotected: Unprotected) -> None:
    victim = canaries.sleeper(CONTROL_UID)
    unprotected.attack("kill_host", stdin=f"{victim.pid}\n")
    assert victim.wait(60) == -9, "without a sandbox it dies"
    reader, writer = os.pipe()
    with started_attack(boxed, "kill_host", policy=SandboxPolicy(env={"HOSTILE_KILL_ALL": "1"}), stdin=reader) as job:
        # The work folder now belongs to the job's uid: the victim gets the same.
        survivor = canaries.sleeper(None if CONTROL_UID is None else job.workdir.stat().st_uid)
        os.write(writer, f"{survivor.pid}\n".encode())
        os.close(writer)
        os.close(reader)
        assert job.end().got == {}
    assert survivor.poll() is None


def test_bubblewraps_init_is_as_confined_as_the_job(bwrap: Sandbox) -> None:
    assert attack(bwrap, "init_confinement").got == {}


# ------------------------------------------------------------------ the kernel
def test_files_that_identify_the_machine_are_hidden(boxed: Sandbox) -> None:
    """A program must not simply ask whether it is on the machine on which it should behave differently."""
    own = {path: Path(path).read_text(errors="replace").strip() for path in hidden_files() if is_readable(path)}
    assert {"/proc/sys/kernel/random/boot_id", "/proc/cmdline"} <= set(own)
    for path, text in own.items():
        outcome = run(boxed, ["sh", "-c", f"cat {path} 2>/dev/null; true"])
        assert outcome.exit.ok
        assert not text or text not in outcome.out, path
    names = run(boxed, ["sh", "-c", "hostname; cat /etc/machine-id /etc/hostname 2>/dev/null; true"])
    assert platform.node() not in names.out.split()
    network_cards = run(boxed, ["sh", "-c", "cat /sys/class/net/*/address 2>/dev/null; true"])
    assert set(network_cards.out.split()) <= {"00:00:00:00:00:00"}


def is_readable(path: str) -> bool:
    return os.access(path, os.R_OK) and bool(Path(path).read_bytes()[:1])


def test_each_denied_call_is_refused(boxed: Sandbox, unprotected: Unprotected) -> None:
    column = seccomp.ARCHES[platform.machine()].column
    numbers = {name: row[column] for name, row in seccomp.DENIED.items() if row[column] is not None}
    assert len(numbers) >= 69 or column == 1
    # gVisor lacks some of them.
    refusals = ["EPERM"] if boxed.level is Level.NAMESPACE else ["EPERM", "ENOSYS"]
    got = set(attack(boxed, "denied_calls", numbers, refusals).got)
    assert got <= (YOUNG if boxed.level is Level.CONTAINER else set())
    # With such arguments the kernel itself refuses most of them with another error.
    assert len(unprotected.attack("denied_calls", numbers).got) > len(numbers) // 2


@x86_only
def test_clone3_and_x32_do_not_exist(boxed: Sandbox) -> None:
    assert attack(boxed, "clone3").got == {}
    outcome = attack(boxed, "x32")
    if boxed.level is Level.CONTAINER:
        assert (outcome.exit.status, outcome.exit.code) == (Status.SIGNAL, 31)  # SIGSYS
    else:
        assert outcome.got == {}


@x86_only
def test_calls_of_a_foreign_architecture_are_fatal(boxed: Sandbox) -> None:
    outcome = attack(boxed, "foreign_arch")
    if boxed.level is Level.GVISOR:
        assert outcome.got == {"int80": -errno.ENOSYS}  # Its kernel answers, and has no such gate.
    else:
        assert (outcome.exit.status, outcome.exit.code) == (Status.SIGNAL, 31)  # SIGSYS


def test_threads_children_and_sockets_still_work(boxed: Sandbox) -> None:
    """The filter must not break what it does not mean: clone3 falls back, AF_UNIX and AF_INET work."""
    code = """
import asyncio, concurrent.futures, multiprocessing, socket, subprocess, tempfile
def double(x): return 2 * x
assert list(concurrent.futures.ThreadPoolExecutor(4).map(double, range(4))) == [0, 2, 4, 6]
assert subprocess.run(['echo', 'hi'], capture_output=True, text=True).stdout == 'hi\\n'
a, b = socket.socketpair(); a.send(b'x'); assert b.recv(1) == b'x'
server = socket.create_server(('127.0.0.1', 0)); socket.create_connection(server.getsockname()).close()
context = multiprocessing.get_context('fork')
with context.Pool(2) as pool: assert pool.map(double, [1, 2]) == [2, 4]
async def main():
    p = await asyncio.create_subprocess_exec('true'); assert await p.wait() == 0
asyncio.run(main())
with tempfile.TemporaryFile() as f: f.write(b'x')
print('fine')
"""
    outcome = run_python(boxed, code)
    assert (outcome.out, outcome.exit.ok) == ("fine\n", True), outcome.err


# ------------------------------------------------------------------ privileges and the host's files
def test_there_are_no_privileges(boxed: Sandbox, unprotected: Unprotected) -> None:
    got = attack(boxed, "privileges").got
    # From `container` on, root inside is a mere name: outside it is the slot's uid, without any capability.
    names = {"status", "setuid", "setresuid", "setgid", "setgroups", "chown", "su -c id -u", "sudo -n id -u"}
    assert set(got) <= (names if boxed.level >= Level.CONTAINER else set())
    assert got.get("status", ["1", "2", 0])[1] == "2"
    assert unprotected.attack("privileges").got != {}, "no filter, and a full bounding set"


def test_nothing_is_written_to_the_host(boxed: Sandbox, canaries: Canaries, unprotected: Unprotected) -> None:
    paths = [str(path) for path in canaries.targets]
    got = attack(boxed, "write_host", paths).got
    # /tmp and /dev/shm are the job's own.
    assert {path.removeprefix("/proc/1/root").split("/")[1] for path in got} <= {"tmp", "dev"}
    assert canaries.written() == []
    unprotected.attack("write_host", paths)
    assert canaries.written() != []


def test_a_job_cannot_change_the_runtime_that_all_jobs_share(boxed: Sandbox, runtime: Runtime) -> None:
    assert attack(boxed, "write_runtime").got == {}
    assert not list(runtime.root.rglob("left-behind"))
    runtime.verify()


# ------------------------------------------------------------------ the network
@pytest.mark.parametrize("name", ["connect_inet", "connect_unix"])
def test_listeners_of_the_host_are_out_of_reach(
    boxed: Sandbox, canaries: Canaries, unprotected: Unprotected, name: str
) -> None:
    arguments = [canaries.addresses] if name == "connect_inet" else [canaries.abstract, canaries.unix_path]
    attack(boxed, name, *arguments)
    assert canaries.hits() == 0
    unprotected.attack(name, *arguments)
    assert canaries.hits() >= 2
