"""The inside of a sandbox with a file system of its own: paths, variables, a small /etc.

Owns the layout that bubblewrap and gVisor share, so that a job cannot tell by its paths which one it runs in, and decides
whose fault it is that a command could not start.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from computepool.agent.sandbox.backends import seccomp
from computepool.agent.sandbox.base import Exit, SandboxError, SandboxPolicy, Status
from computepool.agent.sandbox.runtime.runtime import INSIDE as PYTHON
from computepool.agent.sandbox.runtime.runtime import Runtime
from computepool.agent.sandbox.runtime.tree import LINKS
from computepool.agent.sandbox.safe_paths import View, search
from computepool.agent.sandbox.sandbox import Command, Sandbox
from computepool.agent.sandbox.slots import SandboxConfig

#: The work folder inside.
WORK = "/job"
#: Trees whose every file the node itself put there.
_OWN = ("/usr", PYTHON)
_ELF = b"\x7fELF"
#: Files that name disks and services of the machine, or tell it from every other one, and that programs can do without: a
#: job must not find it easy to behave differently on a chosen node.
_TELLING = (
    "/proc/cmdline", "/proc/config.gz", "/proc/diskstats", "/proc/interrupts", "/proc/kallsyms", "/proc/key-users",
    "/proc/keys", "/proc/mdstat", "/proc/modules", "/proc/partitions", "/proc/swaps", "/proc/sys/kernel/random/boot_id",
)  # fmt: skip


class BoxedSandbox(Sandbox):
    """A sandbox with a file system of its own."""

    uid_inside: int  #: of the user `job`

    def __init__(self, config: SandboxConfig) -> None:
        if not seccomp.is_supported():
            raise SandboxError(f"there is no seccomp filter for {os.uname().machine}")
        if config.runtime is None:
            raise SandboxError("there is no runtime for jobs, and this level hides the host's files")
        super().__init__(config)
        self._runtime = config.runtime
        etc = etc_folder(config.cache_dir, self._runtime, uid=self.uid_inside)
        #: What every job sees, read-only, in the order of the mounts: path inside -> host path.
        self._system = {"/usr": str(self._runtime.root / "usr"), "/etc": str(etc)}

    def inside(self, host: Path, *, workdir: Path, policy: SandboxPolicy) -> str:
        if host == workdir:  # what every job asks for
            return WORK
        for outside, inside in self._places(workdir, policy).items():
            if host.is_relative_to(outside):
                return os.path.join(inside, host.relative_to(outside)).rstrip("/.") or "/"
        raise SandboxError(f"the job does not see {host}")

    def _env(self, policy: SandboxPolicy) -> dict[str, str]:
        own = {"HOME": WORK, "LANG": "C.UTF-8", "TMPDIR": "/tmp"}
        return self._runtime.env(PYTHON) | own | dict(policy.env)

    def _read_only(self, policy: SandboxPolicy) -> dict[str, Path]:
        """The jobs' Python and what the policy mounts: path inside -> host path."""
        return {PYTHON: self._runtime.path} | {inside: outside for outside, inside in policy.mounts.items()}

    def _start_failure(self, started: Command, *, otherwise: str) -> Exit:
        """Why the job never started: a command that cannot be run, or a failure of the sandbox.

        It is the node's fault only for a program of the node's own runtime, never for what a job brings.
        """
        command, view = started.argv[0], self._view(started.workdir, started.policy)
        paths = search(command, self._env(started.policy).get("PATH", "").split(":"))
        found = [program for path in paths if (program := view.program(path, cwd=WORK)) is not None]
        if not found:
            return Exit(Status.EXIT, 127, self._missing(command))
        runnable = [program for program in found if program.executable]
        if not runnable:
            return Exit(Status.EXIT, 126, f"{command}: not executable")
        if runnable[0].first != _ELF:
            problem = f"{command}: its interpreter cannot be run, or is not in this node's runtime"
            return Exit(Status.EXIT, 126, f"{problem} ({self._runtime.short})")
        if runnable[0].place not in _OWN:
            return Exit(Status.EXIT, 126, f"{command}: this program cannot be run here")
        return Exit(Status.SANDBOX_ERROR, -1, otherwise)

    def _missing(self, command: str) -> str:
        if "/" in command and not command.startswith(("/usr/", "/bin/", "/sbin/")):
            return f"{command}: not found"
        return (
            f"{command}: not found. It is not in this node's runtime ({self._runtime.short}); bring it along as an input, "
            f"or ask the node's owner to add it: pool node start --runtime-add {command}"
        )

    def _view(self, workdir: Path, policy: SandboxPolicy) -> View:
        trees = {"/usr": self._runtime.root / "usr", **self._read_only(policy), WORK: workdir}
        return View(trees, system_links())

    def _places(self, workdir: Path, policy: SandboxPolicy) -> dict[Path, str]:
        root = self._runtime.root
        system = {root / name: f"/{name}" for name in ("usr", *LINKS)}
        return {**policy.mounts, workdir: WORK, self._runtime.path: PYTHON, **system}


def hidden_files() -> list[str]:
    """Files of /proc that are hidden from jobs, if this kernel has them."""
    return [path for path in _TELLING if os.path.exists(path)]


def system_links() -> dict[str, str]:
    """/bin and its like: path -> target."""
    return {f"/{name}": target for name, target in LINKS.items()}


def etc_folder(cache_dir: Path, runtime: Runtime, *, uid: int) -> Path:
    """The runtime's /etc with a user `job` of this uid. It does not name users of the host."""
    others = "root:x:0:0:root:/:/bin/false\n" if uid else ""
    files = {
        "passwd": f"{others}job:x:{uid}:{uid}:job:{WORK}:/bin/sh\n",
        "group": f"{'root:x:0:' + chr(10) if uid else ''}job:x:{uid}:\n",
        "hosts": "127.0.0.1 localhost job\n::1 localhost job\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    }
    key = hashlib.sha256(repr((runtime.digest, sorted(files.items()))).encode()).hexdigest()[:16]
    with building(cache_dir / f"etc-{key}") as folder:
        if folder is not None:
            if (runtime.root / "etc").is_dir():
                shutil.copytree(runtime.root / "etc", folder, symlinks=True, dirs_exist_ok=True)
            for name, content in files.items():
                (folder / name).write_text(content)
                (folder / name).chmod(0o644)
    return cache_dir / f"etc-{key}"


@contextlib.contextmanager
def building(final: Path) -> Iterator[Path | None]:
    """A folder to fill that becomes `final` when the block ends; None if `final` exists."""
    if final.is_dir():
        yield None
        return
    final.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=".building-", dir=final.parent))
    try:
        yield folder
        folder.chmod(0o755)
        folder.rename(final)
    except OSError:
        if not final.is_dir():
            raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # Still there only if another agent was quicker.
