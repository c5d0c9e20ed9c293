"""Work folders of a fixed size: the limit is exact at every level, and nothing is left mounted."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from computepool.agent.sandbox import scratch
from computepool.agent.sandbox.base import MIB, SandboxError, Status
from computepool.agent.sandbox.sandbox import Sandbox
from computepool.agent.sandbox.scratch import make_workdir, remove_tree
from computepool.agent.sandbox.volumes import Volumes, image_of, sweep, unmount
from computepool.agent.storage.folders import WorkFolders
from computepool.agent.storage.sweeper import Sweeper
from tests.sandbox.running import LIMITS, eventually, run_python

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts file systems")
DISK_MB = 8


@pytest.fixture(scope="module")
def volumes(ground: Path) -> Volumes:
    found = Volumes(ground / "cache")
    assert found.missing == ""
    return found


@pytest.fixture
def workdir(ground: Path, volumes: Volumes, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(scratch, "_FILES_MIN", 1000)
    folder = make_workdir(ground / "work", f"volume-{os.urandom(4).hex()}")
    volumes.mount(folder, DISK_MB)
    yield folder
    unmount(folder)
    remove_tree(folder)


def _mounted(below: Path) -> list[str]:
    with open("/proc/self/mountinfo") as mounts:
        return [point for line in mounts if (point := line.split()[4]).startswith(f"{below}/")]


_FILL = """
import errno, os, sys
os.makedirs("outputs", exist_ok=True)
def until_full(attempt):
    done = 0
    try:
        while True:
            done += attempt(done)
    except OSError as error:
        return done, errno.errorcode[error.errno]
def files(done):
    os.close(os.open(f"f{done}", os.O_CREAT | os.O_WRONLY))
    return 1
single = os.open("single", os.O_CREAT | os.O_WRONLY)
print(*until_full(lambda done: os.write(single, b"x" * 65536)))
os.unlink("single")
os.close(single)
parts = [os.open(f"part{number}", os.O_CREAT | os.O_WRONLY) for number in range(4)]
hidden = parts[3]
os.unlink("part3")  # What was unlinked while open counts too.
print(*until_full(lambda done: os.write(parts[done // 65536 % 4], b"x" * 65536)))
for number in range(3):
    os.unlink(f"part{number}")
for part in parts:
    os.close(part)
print(*until_full(files))
sys.exit(7)
"""


def test_the_kernel_limits_bytes_and_files_exactly(sandbox: Sandbox, workdir: Path) -> None:
    outcome = run_python(sandbox, _FILL, workdir=workdir, limits=dataclasses.replace(LIMITS, disk_mb=DISK_MB))
    found = [line.split() for line in outcome.out.splitlines()]
    assert [why for _, why in found] == ["ENOSPC"] * 3
    single, written, files = (int(number) for number, _ in found)
    assert 0.9 * DISK_MB * MIB < single <= DISK_MB * MIB
    assert 0.9 * DISK_MB * MIB < written <= DISK_MB * MIB
    assert 0.9 * 2048 < files <= 2048
    assert (outcome.exit.status, outcome.exit.code) == (Status.DISK_LIMIT, 7)
    assert "8 MB" in outcome.exit.detail


def test_an_image_is_small_while_it_is_empty_and_never_grows_beyond_its_limit(workdir: Path) -> None:
    image = image_of(workdir)
    assert image.stat().st_blocks * 512 < MIB
    (workdir / "x").write_bytes(b"x" * 4 * MIB)
    with pytest.raises(OSError, match="No space left"):
        (workdir / "y").write_bytes(b"y" * 8 * MIB)
    assert image.stat().st_size < 2 * DISK_MB * MIB
    unmount(workdir)
    assert not image.exists()
    assert not (workdir / "x").exists()


def test_a_folder_is_emptied_and_used_again_for_the_same_account_only(ground: Path, volumes: Volumes) -> None:
    parent = ground / "folders"
    sweeper = Sweeper()
    folders = WorkFolders(parent, sweeper, volumes)
    first = folders.take("ada", 64)
    assert os.path.ismount(first)
    assert os.listdir(first) == ["outputs"]
    folders.give_back("ada", first, 64)
    assert folders.take("ada", 64) == first, "it was not changed"
    other, larger = folders.take("bob", 64), folders.take("ada", 128)
    assert len({first, other, larger}) == 3
    (first / "left" / "deep").mkdir(parents=True)
    (first / "outputs" / "file").write_text("x")
    os.setxattr(first, "user.note", b"for the next one")
    first.chmod(0o777)
    folders.give_back("ada", first, 64)
    assert eventually(lambda: bool(folders._kept.get(("ada", 64))))
    assert folders.take("ada", 64) == first
    assert [path.relative_to(first) for path in first.rglob("*")] == [Path("outputs")]
    assert (os.listxattr(first), first.stat().st_mode & 0o777) == ([], 0o700)
    (larger / "large").write_bytes(b"x" * 40 * MIB)
    os.sync()
    for account, folder, size in (("bob", other, 64), ("ada", larger, 128)):
        folders.give_back(account, folder, size)
    folders.close()
    sweeper.close()
    names = sorted(path.name for path in parent.iterdir())
    assert names == [first.name, f"{first.name}.disk"], "it is still in use"
    assert _mounted(parent) == [str(first)]
    sweep(parent)
    assert not _mounted(parent)


_AGENT = """
import os, sys, time
from pathlib import Path
from computepool.agent.sandbox.scratch import make_workdir
from computepool.agent.sandbox.volumes import Volumes, enter_namespace
parent = Path(sys.argv[1])
if sys.argv[2] == "apart":
    enter_namespace()
Volumes(parent / "cache").mount(make_workdir(parent / "work", "job-1"), 16)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("where", ["apart", "here"])
def test_nothing_of_a_killed_agent_stays_mounted(ground: Path, where: str) -> None:
    """At once if it has a mount namespace of its own, else as soon as the next agent sweeps."""
    parent = ground / f"killed-{where}"
    command = [sys.executable, "-c", _AGENT, str(parent), where]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout is not None
        assert agent.stdout.readline() == "ready\n"
        assert str(parent) in _loop_files()
        agent.send_signal(signal.SIGKILL)
    if where == "here":
        assert _mounted(parent / "work") == [str(parent / "work" / "job-1")]
        sweep(parent / "work")
        assert [path.name for path in (parent / "work").iterdir()] == ["job-1"]
    assert not _mounted(parent)
    assert eventually(lambda: str(parent) not in _loop_files())


_BOXED_AGENT = """
import os, sys
from pathlib import Path
from computepool.agent.sandbox.backends.bubblewrap import BubblewrapSandbox
from computepool.agent.sandbox.base import Limits, SandboxPolicy
from computepool.agent.sandbox.runtime.runtime import Runtime
from computepool.agent.sandbox.scratch import make_workdir
from computepool.agent.sandbox.slots import SandboxConfig
from computepool.agent.sandbox.volumes import Volumes, enter_namespace

parent, cache = Path(sys.argv[1]), Path(sys.argv[2])
if sys.argv[3] == "apart":
    enter_namespace()
sandbox = BubblewrapSandbox(SandboxConfig(cache_dir=cache, runtime=Runtime.prepare(cache, {})))
volumes = Volumes(parent / "cache")
pids = set()
for number in range(2):  # The second folder is mounted after the launcher has started.
    workdir = make_workdir(parent / "work", f"job-{number}")
    volumes.mount(workdir, 16)
    process = sandbox.spawn(
        ["df", "--output=size", "-B1M", "/job"], workdir=workdir, limits=Limits(), policy=SandboxPolicy(), stdout=1
    )
    pids.add(process.pid)
    assert process.wait(60).ok
    process.close()
(launcher,) = pids
own = str(cache / "dev")
kinds = {
    line.partition(" - ")[2].split()[0]
    for line in open(f"/proc/{launcher}/mountinfo")
    if not line.split()[4].startswith(own)
}
print(sorted(kinds & {"cgroup", "cgroup2", "devpts"}))
print(os.listdir(own))  # Only the launchers see it.
sandbox.close()
"""


@pytest.mark.usefixtures("runtime")
@pytest.mark.parametrize("where", ["apart", "here"])
def test_a_launcher_sees_every_work_folder_and_little_else(ground: Path, where: str) -> None:
    parent = ground / f"launcher-{where}"
    command = [sys.executable, "-c", _BOXED_AGENT, str(parent), str(ground / "cache"), where]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    sweep(parent / "work")
    assert done.returncode == 0, done.stderr
    _, first, _, second, kinds, devices = done.stdout.splitlines()
    assert {int(first), int(second)} <= {16, 17, 18}, "each job sees its own file system, not the folder below it"
    if where == "apart":
        assert kinds == "[]"
    assert devices == "[]"


def _loop_files() -> str:
    """The backing files of all loop devices; those of other tests may go while this reads."""
    found = []
    for path in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):
            found.append(path.read_text())
    return "\n".join(found)


def test_a_missing_mkfs_is_named(ground: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    assert Volumes(ground / "cache").missing == "mkfs.ext4 is not installed"


def test_a_failed_mount_leaves_nothing(ground: Path, volumes: Volumes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("computepool.agent.sandbox.volumes._OPTIONS", "no-such-option")
    folder = make_workdir(ground / "work", "fails")
    with pytest.raises(SandboxError, match="disk of 16 MB"):
        volumes.mount(folder, 16)
    assert not image_of(folder).exists()
    assert not os.path.ismount(folder)
    remove_tree(folder)


# ------------------------------------------------------------------ links in place of folders
def test_a_link_is_not_unmounted(ground: Path, workdir: Path) -> None:
    """A worker may replace its folder with a link to the folder of another account's job."""
    link = ground / f"link-{os.urandom(4).hex()}"
    link.symlink_to(workdir)
    unmount(link)
    link.unlink()
    assert os.path.ismount(workdir)


def test_the_target_of_a_link_is_not_swept(ground: Path, workdir: Path) -> None:
    link = ground / f"link-{os.urandom(4).hex()}"
    link.symlink_to(workdir)
    sweeper = Sweeper()
    sweeper.remove(link)
    sweeper.close()
    link.unlink()
    assert os.path.ismount(workdir)
    assert (workdir / "outputs").is_dir()


def test_an_agent_without_root_changes_no_mode_through_a_link(ground: Path) -> None:
    folder = ground / f"owners-{os.urandom(4).hex()}"
    (folder / "private").mkdir(parents=True)
    (folder / "link").symlink_to(folder / "private")
    for path in (folder, folder / "private"):
        os.chown(path, 65534, 65534)
        path.chmod(0o755)
    os.setegid(65534)
    os.seteuid(65534)
    try:
        with pytest.raises(NotADirectoryError):
            scratch.empty_tree(folder / "link")
    finally:
        os.seteuid(0)
        os.setegid(0)
    assert (folder / "private").stat().st_mode & 0o777 == 0o755
