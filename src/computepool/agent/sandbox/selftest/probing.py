"""The smallest test of a sandbox: runs `true` in it, and explains failures to the owner."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from computepool.agent.sandbox.base import Limits, Probe, Sandbox, SandboxError, SandboxPolicy
from computepool.agent.sandbox.scratch import make_workdir, remove_tree

_LIMITS = Limits(memory_mb=64, pids=8, wall_s=10, disk_mb=64)


#: What bubblewrap and runsc say where the system gives ordinary users no user namespaces.
_NO_NAMESPACES = ("uid map", "Creating new namespace", "No permissions to create", "fork/exec /proc/self/exe")


def run_true(sandbox: Sandbox, scratch: Path, *, found: str) -> Probe:
    """Run `true` in `sandbox`. `found`: the reason to report on success."""
    workdir = make_workdir(scratch, f"probe-{os.getpid()}-{id(sandbox):x}")
    try:
        with tempfile.TemporaryFile() as errors:
            process = sandbox.spawn(
                ["/bin/true"], workdir=workdir, limits=_LIMITS, policy=SandboxPolicy(), stderr=errors.fileno()
            )
            with contextlib.closing(process):
                ended = process.wait(_LIMITS.wall_s + 5)
            if ended is not None and ended.ok:
                return Probe(ok=True, reason=found)
            errors.seek(0)
            said = errors.read(2000).decode(errors="replace").strip()
            reason = said or (ended.detail or f"{ended.status} {ended.code}" if ended else "did not end")
            return Probe(ok=False, reason=reason, fix=explain(reason))
    except SandboxError as error:
        return Probe(ok=False, reason=str(error), fix=explain(str(error)))
    finally:
        remove_tree(workdir)


def explain(reason: str) -> str:
    """What the owner can do about an error of bubblewrap, runsc or the agent."""
    restricted = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
    if any(words in reason for words in _NO_NAMESPACES):
        if restricted.exists() and restricted.read_text().strip() == "1":
            return (
                "Ubuntu's AppArmor forbids user namespaces: `sudo apt install apparmor-profiles` and load "
                "the profile bwrap-userns-restrict (one of its kind for runsc), or "
                "`sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`"
            )
        return (
            "allow user namespaces: `sudo sysctl -w user.max_user_namespaces=15000`, on older Debian also "
            "`sudo sysctl -w kernel.unprivileged_userns_clone=1`; a container must be allowed to make them"
        )
    if "unknown option" in reason.lower():
        return "install bubblewrap 0.8 or newer"
    if "closed to other users" in reason:
        return "set the node's data folder to one that other users can pass, for example /var/lib/computepool"
    return "run `pool node doctor` for the details"
