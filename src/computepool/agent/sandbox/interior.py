"""The inside of a sandbox with a file system of its own: paths, variables, a small /etc.

All such levels share this layout, so a job cannot tell by its paths at which one it runs. Also decides whether the job or
the node is at fault if a command could not start.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from computepool.agent.sandbox.backends import seccomp
from computepool.agent.sandbox.base import Command, Exit, SandboxError, SandboxPolicy, Status
from computepool.agent.sandbox.runtime import elf
from computepool.agent.sandbox.runtime.runtime import INSIDE as PYTHON, Runtime
from computepool.agent.sandbox.runtime.tree import LINKS
from computepool.agent.sandbox.safe_paths import View
from computepool.agent.sandbox.sandbox import Sandbox
from computepool.agent.sandbox.slots import SandboxConfig

#: The work folder inside.
WORK = "/job"
#: Where a job with an image finds the /usr of the node's runtime, for the node's own programs.
RUNTIME = "/opt/runtime"
#: Folders that every image has: places for the job's own folders, and for what the node mounts.
IMAGE_FOLDERS = (
    WORK, "/dev", "/etc", "/opt/packages", PYTHON, RUNTIME, "/proc", "/run/computepool", "/sys", "/tmp", "/var/tmp",
)  # fmt: skip
#: Folders that are empty and writable, and held in memory.
IMAGE_SCRATCH = ("/run", "/var/tmp")
#: Trees in which the node itself put every file.
_OWN = ("/usr", PYTHON)
#: And beside an image, which has a /usr of its own.
_OWN_BESIDE_IMAGE = (RUNTIME, PYTHON)
_ELF = b"\x7fELF"
#: Files that programs can do without and that identify the machine, or name its disks and services. A job must not find it
#: easy to behave differently on a chosen node.
_IDENTIFYING = (
    "/proc/cmdline", "/proc/config.gz", "/proc/diskstats", "/proc/interrupts", "/proc/kallsyms", "/proc/key-users",
    "/proc/keys", "/proc/mdstat", "/proc/modules", "/proc/partitions", "/proc/swaps", "/proc/sys/kernel/random/boot_id",
)  # fmt: skip


class BoxedSandbox(Sandbox):
    """A sandbox with a file system of its own."""

    uid_inside: int  #: of the user `job`

    def __init__(self, config: SandboxConfig) -> None:
        if os.uname().machine not in seccomp.ARCHES:
            raise SandboxError(f"there is no seccomp filter for {os.uname().machine}")
        super().__init__(config)
        self._runtime = config.runtime
        etc = etc_folder(config.cache_dir, self._runtime, uid=self.uid_inside)
        #: What every job sees, read-only, in the order of the mounts: path inside -> host path.
        self._system = {"/usr": str(self._runtime.root / "usr"), "/etc": str(etc)}

    def inside(self, host: Path, *, workdir: Path, policy: SandboxPolicy) -> str:
        if host == workdir:  # the frequent case
            return WORK
        for outside, inside in self._places(workdir, policy).items():
            if host.is_relative_to(outside):
                return os.path.join(inside, host.relative_to(outside)).rstrip("/.") or "/"
        raise SandboxError(f"the job does not see {host}")

    def _env(self, policy: SandboxPolicy) -> dict[str, str]:
        own = {"HOME": WORK, "TMPDIR": "/tmp"}
        if (image := policy.image) is not None:
            base = {"LANG": "C.UTF-8", **image.env, "PATH": ":".join(image.search_path)}
        else:
            base = {**self._runtime.env(PYTHON), "LANG": "C.UTF-8"}
        return base | own | dict(policy.env)

    def _cwd(self, policy: SandboxPolicy) -> str:
        return WORK if policy.image is None else policy.image.workdir or WORK

    def _node_program(self, name: str) -> list[str]:
        """The command that runs a program of the runtime's /usr in an image, which may have no loader or other libraries."""
        return [*node_loader(self._runtime), f"{RUNTIME}/{name}"]

    def _read_only(self, policy: SandboxPolicy) -> dict[str, Path]:
        """The jobs' Python and what the policy mounts: path inside -> host path."""
        own = {PYTHON: self._runtime.path}
        if policy.image is not None:
            own[RUNTIME] = self._runtime.root / "usr"
        return own | {inside: outside for outside, inside in policy.mounts.items()}

    def _start_failure(self, command: Command, *, node_error: str) -> Exit:
        """Why the job never started: a command that cannot be run, or else `node_error`, a failure of the sandbox.

        The node is at fault only for programs of its own runtime, never for what a job brings.
        """
        program = command.argv[0]
        image = command.policy.image
        base = {"/usr": self._runtime.root / "usr"} if image is None else {"/": image.path}
        trees = {**base, **self._read_only(command.policy), WORK: command.workdir}
        trees |= {inside: outside for outside, (inside, _) in command.policy.volumes.items()}
        view = View(trees, system_links() if image is None else {})
        folders = self._env(command.policy).get("PATH", "").split(":")
        paths = [program] if "/" in program else [f"{folder or '.'}/{program}" for folder in folders]
        found = [file for path in paths if (file := view.program(path, cwd=self._cwd(command.policy))) is not None]
        if not found:
            missing = self._not_found(program) if image is None else f"{program}: not found in the image"
            return Exit(Status.EXIT, 127, missing)
        runnable = [file for file in found if file.executable]
        if not runnable:
            return Exit(Status.EXIT, 126, f"{program}: not executable")
        if runnable[0].magic != _ELF:
            where = "the image" if image is not None else f"this node's runtime ({self._runtime.short})"
            return Exit(Status.EXIT, 126, f"{program}: its interpreter cannot be run, or is not in {where}")
        if runnable[0].mount not in (_OWN if image is None else _OWN_BESIDE_IMAGE):
            return Exit(Status.EXIT, 126, f"{program}: this program cannot be run here")
        return Exit(Status.SANDBOX_ERROR, -1, node_error)

    def _not_found(self, program: str) -> str:
        if "/" in program and not program.startswith(("/usr/", "/bin/", "/sbin/")):
            return f"{program}: not found"
        return (
            f"{program}: not found. It is not in this node's runtime ({self._runtime.short}); bring it along as an input, "
            f"or ask the node's owner to add it: pool node start --runtime-add {program}"
        )

    def _places(self, workdir: Path, policy: SandboxPolicy) -> dict[Path, str]:
        root = self._runtime.root
        names = {name: f"/{name}" for name in ("usr", *LINKS)} if policy.image is None else {"usr": RUNTIME}
        system = {root / name: inside for name, inside in names.items()}
        volumes = {outside: inside for outside, (inside, _) in policy.volumes.items()}
        return {**policy.mounts, **volumes, workdir: WORK, self._runtime.path: PYTHON, **system}


@functools.lru_cache(maxsize=4)
def node_loader(runtime: Runtime) -> tuple[str, ...]:
    """The start of a command that runs a program of the runtime where its loader and libraries are not in their places."""
    found = elf.needs(runtime.python.resolve())
    if found is None or not found.interpreter:
        raise SandboxError("the jobs' Python has no loader")
    usr = runtime.root / "usr"
    loader = (runtime.root / found.interpreter.lstrip("/")).resolve().relative_to(usr.resolve())
    folders = {library.parent.relative_to(usr) for library in (usr / "lib").glob("*/libc.so.6")} | {
        Path("lib"),
        Path("lib64"),
    }
    libraries = [f"{RUNTIME}/{folder}" for folder in sorted(folders, key=str, reverse=True)]
    if runtime.own_libraries:
        libraries.insert(0, f"{PYTHON}/lib")
    return (f"{RUNTIME}/{loader}", "--library-path", ":".join(libraries))


def hidden_files() -> list[str]:
    """The files of /proc that are hidden from jobs, of those that this kernel has."""
    return [path for path in _IDENTIFYING if os.path.exists(path)]


def system_links() -> dict[str, str]:
    """/bin and the like: path -> target."""
    return {f"/{name}": target for name, target in LINKS.items()}


def etc_folder(cache_dir: Path, runtime: Runtime, *, uid: int) -> Path:
    """The runtime's /etc with a user `job` of this uid. It does not name users of the host."""
    root_user, root_group = ("root:x:0:0:root:/:/bin/false\n", "root:x:0:\n") if uid else ("", "")
    files = {
        "passwd": f"{root_user}job:x:{uid}:{uid}:job:{WORK}:/bin/sh\n",
        "group": f"{root_group}job:x:{uid}:\n",
        "hosts": "127.0.0.1 localhost job\n::1 localhost job\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    }
    key = hashlib.sha256(repr((runtime.digest, sorted(files.items()))).encode()).hexdigest()[:16]
    with atomic_folder(cache_dir / f"etc-{key}") as folder:
        if folder is not None:
            if (runtime.root / "etc").is_dir():
                shutil.copytree(runtime.root / "etc", folder, symlinks=True, dirs_exist_ok=True)
            for name, content in files.items():
                (folder / name).write_text(content)
                (folder / name).chmod(0o644)
    return cache_dir / f"etc-{key}"


@contextlib.contextmanager
def atomic_folder(final: Path) -> Iterator[Path | None]:
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
