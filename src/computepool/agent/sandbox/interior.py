"""What a job finds inside a sandbox with a file system of its own: paths, variables, a small /etc.

Owns the layout that bubblewrap and gVisor share, so that a job cannot tell by its paths which one it runs in,
and the answer to whose fault it is that a command could not be started.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from computepool.agent.sandbox.base import Policy, SandboxError, Status
from computepool.agent.sandbox.runtime import INSIDE as PYTHON
from computepool.agent.sandbox.runtime import Runtime
from computepool.agent.sandbox.supervise import Ending

#: The work folder inside.
WORK = "/job"

#: Folders of the host's system beside /usr: links into it on most systems.
_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")


class Interior:
    def __init__(self, runtime: Runtime | None) -> None:
        self._runtime = runtime

    def inside(self, host: Path, *, workdir: Path, policy: Policy) -> str:
        """The path under which the job sees `host`."""
        for outside, inside in self._places(workdir, policy).items():
            if host.is_relative_to(outside):
                return os.path.join(inside, host.relative_to(outside)).rstrip("/.") or "/"
        if host.is_relative_to("/usr"):
            return str(host)
        raise SandboxError(f"the job does not see {host}")

    def env(self, policy: Policy) -> dict[str, str]:
        env = self._runtime.env(PYTHON) if self._runtime else {"PATH": "/usr/local/bin:/usr/bin:/bin"}
        return env | {"HOME": WORK, "LANG": "C.UTF-8", "TMPDIR": "/tmp"} | dict(policy.env)

    def read_only(self, policy: Policy) -> Iterator[tuple[Path, str]]:
        """The jobs' Python and what the policy mounts: host path and path inside."""
        if self._runtime is not None:
            yield self._runtime.path, PYTHON
        yield from policy.mounts.items()

    def not_started(self, command: str, *, workdir: Path, policy: Policy, otherwise: str) -> Ending:
        """Whose fault it is that the job never began: a command that cannot be run, or the sandbox."""
        path = self.env(policy).get("PATH", "").split(":")
        names = [command] if "/" in command else [f"{folder}/{command}" for folder in path]
        files = [self._outside(name, workdir=workdir, policy=policy) for name in names]
        found = [file for file in files if file is not None and file.is_file()]
        if not found:
            return Ending(Status.EXIT, 127, f"{command}: not found")
        if not any(file.stat().st_mode & 0o111 for file in found):
            return Ending(Status.EXIT, 126, f"{command}: not executable")
        with found[0].open("rb") as opened:
            first = opened.readline(200)
        if not first.startswith(b"\x7fELF"):
            return Ending(Status.EXIT, 126, f"{command}: its interpreter cannot be run")
        return Ending(Status.SANDBOX_ERROR, -1, otherwise)

    def _outside(self, inside: str, *, workdir: Path, policy: Policy) -> Path | None:
        """The host's path of what the job would call `inside`; the reverse of `inside()`."""
        absolute = Path(WORK, inside)
        places = {Path(place): host for host, place in self._places(workdir, policy).items()}
        for place, host in places.items():
            if absolute.is_relative_to(place):
                return host / absolute.relative_to(place)
        return absolute if absolute.parts[1:2] in (("usr",), ("bin",), ("sbin",)) else None

    def _places(self, workdir: Path, policy: Policy) -> dict[Path, str]:
        places = {**policy.mounts, workdir: WORK}
        if self._runtime is not None:
            places[self._runtime.path] = PYTHON
        return places


def system_links() -> dict[str, str]:
    """/bin and its like, where they are links: path -> target."""
    paths = [Path("/", name) for name in _SYSTEM]
    return {str(path): os.readlink(path) for path in paths if path.is_symlink()}


def system_folders(etc: Path) -> dict[str, str]:
    """What of the host every job sees, read-only, in the order of the mounts: path inside -> host path."""
    folders = {"/usr": "/usr"}
    for name in _SYSTEM:
        path = Path("/", name)
        if path.is_dir() and not path.is_symlink():
            folders[str(path)] = str(path)
    folders["/etc"] = str(etc)
    # Debian's commands are links through here; they tell a job nothing that /usr does not.
    if Path("/etc/alternatives").is_dir():
        folders["/etc/alternatives"] = "/etc/alternatives"
    return folders


def etc_folder(cache_dir: Path, *, uid: int) -> Path:
    """A small /etc that names no one on the host but a user `job` with this uid inside."""
    others = "root:x:0:0:root:/:/bin/false\n" if uid else ""
    files = {
        "passwd": f"{others}job:x:{uid}:{uid}:job:{WORK}:/bin/sh\n".encode(),
        "group": f"{'root:x:0:' + chr(10) if uid else ''}job:x:{uid}:\n".encode(),
        "hosts": b"127.0.0.1 localhost job\n::1 localhost job\n",
        "nsswitch.conf": b"passwd: files\ngroup: files\nhosts: files\n",
    }
    for name in ("ld.so.cache", "localtime"):
        with contextlib.suppress(OSError):
            files[name] = Path("/etc", name).read_bytes()
    digest = hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()[:16]
    with building(cache_dir / f"etc-{digest}") as folder:
        if folder is not None:
            (folder / "alternatives").mkdir(mode=0o755)
            for name, content in files.items():
                (folder / name).write_bytes(content)
                (folder / name).chmod(0o644)
    return cache_dir / f"etc-{digest}"


@contextlib.contextmanager
def building(final: Path) -> Iterator[Path | None]:
    """A folder to fill that becomes `final` at the end of the block, for all to read; None if it is there."""
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
