"""Hostile jobs against bubblewrap, runc and gVisor, judged by what the host sees; and the same jobs without a sandbox, as
a control.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from computepool.agent.sandbox.backends import seccomp
from computepool.agent.sandbox.backends.bubblewrap import BubblewrapSandbox
from computepool.agent.sandbox.base import SandboxPolicy, Status
from computepool.agent.sandbox.interior import hidden_files
from computepool.agent.sandbox.runtime.runtime import Runtime
from computepool.agent.sandbox.sandbox import Sandbox
from computepool.agent.sandbox.scratch import make_workdir, remove_tree
from computepool.core.isolation import Level
from tests.sandbox.canaries import Canaries
from tests.sandbox.running import Outcome, attack, run, run_python, stage_hostile, started

x86_only = pytest.mark.skipif(platform.machine() != "x86_64", reason="the job is written in x86_64 numbers")

#: Calls that runc cannot refuse if its library is older than they are. They show no more than /proc/self/mountinfo
#: does, or need a capability.
YOUNG = {"listmount", "statmount", "open_tree_attr"}

#: Who the control runs as, when the tests run as root: an ordinary user without rights of its own.
CONTROL_UID = 299_999


@pytest.fixture
def canaries(ground: Path) -> Iterator[Canaries]:
    with Canaries(ground) as made:
        yield made


class Unprotected:
    """The control: the same job as a plain process of an ordinary user, as careless agents start them."""

    def __init__(self, ground: Path, runtime: Runtime) -> None:
        self._ground = ground
        self._runtime = runtime

    def attack(
        self, name: str, *arguments: object, secret: str = "", stdin: str = "", leak: int = -1
    ) -> Outcome:
        workdir = make_workdir(self._ground / "work", f"control-{name}")
        stage_hostile(workdir)
        uid = CONTROL_UID if os.geteuid() == 0 else None
        if uid is not None:
            os.chown(workdir, uid, uid)
        try:
            ran = subprocess.run(
                [self._runtime.python, "-I", "hostile.py", name, json.dumps(arguments)],
                cwd=workdir,
                user=uid,
                group=uid,
                extra_groups=[] if uid is not None else None,
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
        ended = None
        return Outcome(ended, ran.stdout, ran.stderr, workdir)  # type: ignore[arg-type]


@pytest.fixture
def unprotected(ground: Path, runtime: Runtime) -> Unprotected:
    return Unprotected(ground, runtime)


def emulated(boxed: Sandbox, *names: str) -> set[str]:
    """What a job may believe to have got because gVisor's own kernel plays it; test_gvisor.py looks at the host."""
    return set(names) if boxed.level is Level.GVISOR else set()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("read_shadow", marks=pytest.mark.every_case),
        pytest.param("network_outside", marks=pytest.mark.every_case),
        pytest.param("ptrace_init", marks=x86_only),
        *("kernel_logs", "mounts"),
    ],
)
def test_a_hostile_job_gets_nothing(boxed: Sandbox, name: str) -> None:
    assert attack(boxed, name).got == {}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("user_namespaces", marks=x86_only),
        pytest.param("terminal_injection", marks=x86_only),
        "socket_families",
    ],
)
def test_only_without_a_sandbox_it_gets_something(
    boxed: Sandbox, unprotected: Unprotected, name: str
) -> None:
    assert attack(boxed, name).got == {}
    assert unprotected.attack(name).got != {}


# ------------------------------------------------------------------ files and secrets
def test_secrets_in_files_stay_secret(boxed: Sandbox, canaries: Canaries, unprotected: Unprotected) -> None:
    paths = [str(path) for path in canaries.files]
    outcome = attack(boxed, "read_secrets", paths)
    assert outcome.got == {}
    assert canaries.token not in outcome.out + outcome.err
    assert canaries.token in unprotected.attack("read_secrets", paths).out


def test_agents_environment_is_not_inherited(
    boxed: Sandbox,
    canaries: Canaries,
    unprotected: Unprotected,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("POOL_TOKEN", canaries.token)
    outcome = attack(boxed, "env_secret", policy=SandboxPolicy(env={"GIVEN": "yes"}))
    assert canaries.token not in outcome.out
    names = set(outcome.got["env"])  # type: ignore[call-overload]
    assert names - {"LD_LIBRARY_PATH"} == {"PATH", "HOME", "LANG", "TMPDIR", "GIVEN", "PWD"}
    assert canaries.token in unprotected.attack("env_secret", secret=canaries.token).out


def test_command_lines_tell_nothing_about_the_host(boxed: Sandbox, ground: Path) -> None:
    policy = SandboxPolicy(env={"TOKEN": "env-secret"})
    outcome = attack(boxed, "command_lines", policy=policy)
    assert "hostile.py" in outcome.out
    assert str(ground) not in outcome.out
    assert "env-secret" not in outcome.out


def test_environment_is_not_on_a_command_line_of_the_host(boxed: Sandbox) -> None:
    with started(boxed, ["sleep", "20"], policy=SandboxPolicy(env={"TOKEN": "env-secret-7"})) as job:
        assert job.process.wait(0.3) is None
        listing = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True)
    assert "env-secret-7" not in listing.stdout


def test_no_descriptor_of_the_agent_is_open(
    boxed: Sandbox, canaries: Canaries, unprotected: Unprotected
) -> None:
    with open(canaries.files[0]) as secret:
        os.set_inheritable(secret.fileno(), True)
        outcome = attack(boxed, "fd_leak")
        # The folder that was listed to find them is the only one.
        assert not [name for name, (link, _) in outcome.got.items() if "/proc/" not in link]  # type: ignore[misc]
        assert canaries.token not in outcome.out
        assert canaries.token in unprotected.attack("fd_leak", leak=secret.fileno()).out


@x86_only
def test_keyring_of_the_agent_is_out_of_reach(
    boxed: Sandbox, canaries: Canaries, unprotected: Unprotected
) -> None:
    outcome = attack(boxed, "keyring", canaries.key_name)
    assert outcome.got == {}
    assert canaries.token in unprotected.attack("keyring", canaries.key_name).out


def test_shared_memory_of_the_host_is_out_of_reach(
    boxed: Sandbox, canaries: Canaries, unprotected: Unprotected
) -> None:
    arguments = (canaries.shmid, str(canaries.files[-1]))
    outcome = attack(boxed, "shm_ipc", *arguments)
    assert outcome.got == {}
    assert unprotected.attack("shm_ipc", *arguments).out.count(canaries.token) >= 2


# ------------------------------------------------------------------ processes
def test_processes_of_the_host_are_invisible(
    boxed: Sandbox, canaries: Canaries, unprotected: Unprotected
) -> None:
    canaries.sleeper(None)
    outcome = attack(boxed, "host_procs")
    assert len(outcome.got) == (1 if boxed.level is Level.GVISOR else 2)  # Elsewhere there is an init
    assert canaries.marker not in outcome.out
    assert canaries.marker in unprotected.attack("host_procs").out


def test_processes_of_the_host_cannot_be_killed(
    boxed: Sandbox, canaries: Canaries, unprotected: Unprotected
) -> None:
    uid = CONTROL_UID if os.geteuid() == 0 else None
    victim = canaries.sleeper(uid)
    unprotected.attack("kill_host", stdin=f"{victim.pid}\n")
    assert victim.wait(10) == -9  # The control: without a sandbox it dies.

    reader, writer = os.pipe()
    code = "import os, sys; sys.stdin = os.fdopen(5); sys.argv = ['', 'kill_host', '[]']; exec(open('hostile.py').read())"
    argv = ["python3", "-I", "-c", code]
    policy = SandboxPolicy(env={"HOSTILE_KILL_ALL": "1"}, fds={5: reader})
    with started(boxed, argv, prepare=stage_hostile, policy=policy) as job:
        # The work folder now belongs to the job's uid: the victim gets the same.
        survivor = canaries.sleeper(job.workdir.stat().st_uid if os.geteuid() == 0 else None)
        os.write(writer, f"{survivor.pid}\n".encode())
        os.close(writer)
        os.close(reader)
        assert job.end(20).got == {}
    assert survivor.poll() is None


def test_init_is_as_confined_as_the_job(bwrap: BubblewrapSandbox) -> None:
    assert attack(bwrap, "init_confinement").got == {}


def test_priority_and_limits_cannot_be_raised(boxed: Sandbox) -> None:
    got = attack(boxed, "raise_priority").got
    assert set(got) <= emulated(boxed, "nice", "oom_score_adj")


# ------------------------------------------------------------------ the kernel
def test_arguments_of_the_kernel_are_hidden(boxed: Sandbox) -> None:
    """They name disks and services of the machine."""
    own = Path("/proc/cmdline").read_text().strip()
    outcome = run(boxed, ["cat", "/proc/cmdline"])
    assert own
    assert own not in outcome.out
    assert outcome.exit.ok


def test_what_tells_one_machine_from_another_is_hidden(boxed: Sandbox) -> None:
    """So that a program cannot simply ask whether it is on the machine that it is to behave differently on."""
    own = {path: Path(path).read_text(errors="replace").strip() for path in hidden_files() if readable(path)}
    assert "/proc/sys/kernel/random/boot_id" in own
    for path, text in own.items():
        outcome = run(boxed, ["sh", "-c", f"cat {path} 2>/dev/null; true"])
        assert outcome.exit.ok
        assert not text or text not in outcome.out, path
    told = run(boxed, ["sh", "-c", "hostname; cat /etc/machine-id /etc/hostname 2>/dev/null; true"])
    assert platform.node() not in told.out.split()
    links = run(boxed, ["sh", "-c", "cat /sys/class/net/*/address 2>/dev/null; true"])
    assert set(links.out.split()) <= {"00:00:00:00:00:00"}, "no address of a network card"


def readable(path: str) -> bool:
    return os.access(path, os.R_OK) and bool(Path(path).read_bytes()[:1])


def test_each_denied_call_is_refused(boxed: Sandbox, unprotected: Unprotected) -> None:
    column = seccomp.ARCHES[platform.machine()].column
    numbers = {name: row[column] for name, row in seccomp.DENIED.items() if row[column] is not None}
    assert len(numbers) >= 69 or column == 1
    # gVisor does not have some of them at all.
    refusals = ["EPERM"] if boxed.level is Level.NAMESPACE else ["EPERM", "ENOSYS"]
    got = set(attack(boxed, "denied_calls", numbers, refusals).got)
    assert got <= (YOUNG if boxed.level is Level.CONTAINER else set())
    # With such arguments the kernel itself would say something else of most of them.
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
def test_foreign_architecture_is_fatal(boxed: Sandbox, unprotected: Unprotected) -> None:
    outcome = attack(boxed, "foreign_arch")
    if boxed.level is Level.GVISOR:
        assert outcome.got == {"int80": -errno.ENOSYS}  # Its kernel answers, and has no such gate.
    else:
        assert (outcome.exit.status, outcome.exit.code) == (Status.SIGNAL, 31)  # SIGSYS


def test_threads_and_children_still_work(boxed: Sandbox) -> None:
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


# ------------------------------------------------------------------ devices, mounts, privileges
def test_devices_are_absent(boxed: Sandbox, unprotected: Unprotected) -> None:
    got = attack(boxed, "devices").got
    assert set(got) <= emulated(boxed, "fuse", "net", "/dev/fuse", "/dev/net/tun")
    assert unprotected.attack("devices").got != {}


def test_there_are_no_privileges(boxed: Sandbox, unprotected: Unprotected) -> None:
    got = attack(boxed, "privileges").got
    # Being called root is worth nothing there: it is the slot's uid outside, and not one capability comes with it.
    names = {"status", "setuid", "setresuid", "setgid", "setgroups", "chown", "su -c id -u", "sudo -n id -u"}
    assert set(got) <= (names if boxed.level >= Level.CONTAINER else set())
    assert got.get("status", ["1", "2", 0])[1] == "2"  # type: ignore[index]
    assert unprotected.attack("privileges").got != {}  # No filter, and a full bounding set.


def test_nothing_is_written_to_the_host(boxed: Sandbox, canaries: Canaries, unprotected: Unprotected) -> None:
    paths = [str(path) for path in canaries.targets]
    got = attack(boxed, "write_host", paths).got
    # /tmp and /dev/shm are the job's own there; the host sees nothing of them.
    assert {path.removeprefix("/proc/1/root").split("/")[1] for path in got} <= {"tmp", "dev"}
    assert canaries.written() == []
    unprotected.attack("write_host", paths)
    assert canaries.written() != []


def test_what_jobs_share_cannot_be_changed(boxed: Sandbox, runtime: Runtime) -> None:
    assert attack(boxed, "write_runtime").got == {}
    assert not list(runtime.root.rglob("left-behind"))
    runtime.verify()


def test_settings_of_the_kernel_cannot_be_written(boxed: Sandbox) -> None:
    got = attack(boxed, "write_proc").got
    assert set(got) <= emulated(boxed, "/proc/sysrq-trigger", "/sys/fs/cgroup", "/sys/kernel")


# ------------------------------------------------------------------ the network
def test_listeners_of_the_host_are_out_of_reach(
    boxed: Sandbox, canaries: Canaries, unprotected: Unprotected
) -> None:
    attack(boxed, "connect_inet", canaries.addresses)
    assert canaries.hits() == 0
    unprotected.attack("connect_inet", canaries.addresses)
    assert canaries.hits() > 0


def test_unix_sockets_of_the_host_are_out_of_reach(
    boxed: Sandbox, canaries: Canaries, unprotected: Unprotected
) -> None:
    arguments = (canaries.abstract, canaries.unix_path)
    assert attack(boxed, "connect_unix", *arguments).got == {}
    assert canaries.hits() == 0
    unprotected.attack("connect_unix", *arguments)
    assert canaries.hits() == 2
