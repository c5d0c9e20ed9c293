"""The smallest test of a sandbox: runs `true` in it, and explains failures to the owner."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from computepool.agent.sandbox.base import Limits, Probe, SandboxError, SandboxPolicy
from computepool.agent.sandbox.sandbox import Sandbox
from computepool.agent.sandbox.scratch import make_workdir, remove_tree

_LIMITS = Limits(memory_mb=64, pids=8, wall_s=10, disk_mb=64)
#: What bubblewrap and runsc say where the system gives ordinary users no user namespaces.
_NO_NAMESPACES = ("uid map", "Creating new namespace", "No permissions to create", "fork/exec /proc/self/exe")


def failure(
    sandbox: Sandbox, argv: Sequence[str], *, workdir: Path, limits: Limits, policy: SandboxPolicy
) -> str:
    """Run a program of the agent's own in the sandbox. Returns why it failed; empty if it succeeded."""
    try:
        with tempfile.TemporaryFile() as errors:
            process = sandbox.spawn(
                argv, workdir=workdir, limits=limits, policy=policy, stderr=errors.fileno()
            )
            with contextlib.closing(process):
                ended = process.wait(limits.wall_s + 5)
            if ended is None:
                return "it did not end"
            errors.seek(0)
            stderr = errors.read(2000).decode(errors="replace").strip()
            return "" if ended.ok else stderr or ended.detail or f"{ended.status} {ended.code}"
    except SandboxError as error:
        return str(error)


def run_true(sandbox: Sandbox, *, found: str) -> Probe:
    """Run `true` in `sandbox`. `found`: the reason to report on success."""
    workdir = make_workdir(sandbox.config.cache_dir, f"probe-{os.getpid()}-{id(sandbox):x}")
    try:
        reason = failure(sandbox, ["/bin/true"], workdir=workdir, limits=_LIMITS, policy=SandboxPolicy())
    finally:
        remove_tree(workdir)
    return Probe(ok=False, reason=reason, fix=explain(reason)) if reason else Probe(ok=True, reason=found)


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
