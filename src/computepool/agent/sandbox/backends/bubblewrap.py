"""Level `namespace`: bubblewrap with namespaces, a seccomp filter and an unprivileged uid.

Owns bubblewrap's arguments and what the job's file system looks like. Never runs bubblewrap as uid 0: the uid inside would
be a mere name, and the job could write /proc/sys/kernel/core_pattern, which makes it root on the host.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from computepool.agent.sandbox import launcher
from computepool.agent.sandbox.backends import seccomp
from computepool.agent.sandbox.base import MIB, Command, Exit, ImageRoot, SandboxError
from computepool.agent.sandbox.interior import IMAGE_SCRATCH, WORK, BoxedSandbox, hidden_files, system_links
from computepool.agent.sandbox.launcher import FIRST_OWN_FD, JOB_FD_MAX
from computepool.agent.sandbox.slots import Footprint, SandboxConfig, Slot, python
from computepool.agent.sandbox.supervise import Process, read_wait_status, unwrap_signal
from computepool.core.isolation import Level

#: The highest numbers that the launcher leaves free; bubblewrap closes them before the job starts.
_SECCOMP_FD, _STATUS_FD, _ARGS_FD, _INFO_FD, _BLOCK_FD = range(JOB_FD_MAX + 1, FIRST_OWN_FD)
_NOBODY = 65534
_FAILED = "bubblewrap could not make the sandbox; see the job's stderr"
_TRY_S = 10.0

_ISOLATION = (
    "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session",
    "--cap-drop", "ALL", "--clearenv", "--hostname", "job", "--uid", str(_NOBODY), "--gid", str(_NOBODY),
)  # fmt: skip


class BubblewrapSandbox(BoxedSandbox):
    level = Level.NAMESPACE
    # The launcher, bubblewrap's monitor and its init.
    footprint = Footprint(pids=3, processes=3, few_mounts=True)
    uid_inside = _NOBODY

    def __init__(self, config: SandboxConfig) -> None:
        self.program = shutil.which("bwrap", path="/usr/local/bin:/usr/bin:/bin") or ""
        if not self.program:
            raise SandboxError("bubblewrap is not installed", fix="sudo apt install bubblewrap")
        devices = devices_folder(config.cache_dir)
        self.footprint = replace(self.footprint, devices=devices)
        super().__init__(config)
        self._filter, self._filter_of_gangs = seccomp.program(), seccomp.program(netlink=True)
        own_dev = ("--dev", "/dev")
        shared_dev = own_dev if devices is None else ("--dev-bind", devices, "/dev")
        self._fixed, self._fixed_with_cards = (
            _as_file([*_ISOLATION, *_system_mounts(self._system, dev=dev)]) for dev in (shared_dev, own_dev)
        )
        self._shared_dev, self._own_dev = shared_dev, own_dev

    def _start(self, slot: Slot, command: Command) -> Process:
        status = slot.memory_file("status")
        settings = slot.memory_file("arguments")
        # Not on the command line: every user of the host can read that, and the job can read bubblewrap's.
        if command.policy.image is not None:
            fixed = _as_file(self._image_mounts(command.policy.image, cards=bool(command.policy.gpus)))
        else:
            fixed = self._fixed_with_cards if command.policy.gpus else self._fixed
        os.pwrite(settings, fixed + _as_file(self._arguments(command)), 0)
        hold = command.policy.hold
        # Files that never change are kept by name.
        seccomp_file = ("seccomp", self._filter) if hold is None else ("seccomp-gang", self._filter_of_gangs)
        own = {_SECCOMP_FD: slot.memory_file(*seccomp_file), _STATUS_FD: status, _ARGS_FD: settings}
        if hold is not None:
            own |= {_INFO_FD: hold[0], _BLOCK_FD: hold[1]}

        def read_ending(wait_status: int) -> Exit:
            if b'"exit-code"' not in os.pread(status, 4096, 0):  # It never started.
                return self._start_failure(command, node_error=_FAILED)
            return unwrap_signal(read_wait_status(wait_status))

        process = Process(self._pool, slot, command, read_ending=read_ending)
        policy = command.policy
        fds = {**command.streams, **policy.fds, **own}
        argv = [self.program, "--args", str(_ARGS_FD), "--", *command.argv]
        slot.start(argv, {}, fds=fds, cwd=None, fence=policy.fence)
        return process

    def _image_mounts(self, image: ImageRoot, *, cards: bool) -> Iterator[str]:
        yield from (*_ISOLATION, "--ro-bind", str(image.path), "/")
        yield from _kernel_mounts(self._own_dev if cards else self._shared_dev)

    def _arguments(self, command: Command) -> Iterator[str]:
        """Arguments after the fixed ones, in the order of the mounts; / and /dev become read-only last."""
        policy, tmp_bytes = command.policy, str(command.limits.tmp_mb * MIB)
        yield from ("--size", tmp_bytes, "--tmpfs", "/tmp", "--size", tmp_bytes, "--tmpfs", "/dev/shm")
        for folder in IMAGE_SCRATCH if policy.image is not None else ():
            yield from ("--size", tmp_bytes, "--tmpfs", folder)
        for inside, outside in self._read_only(policy).items():
            yield from ("--ro-bind", str(outside), inside)
        for node in policy.gpus:
            yield from ("--dev-bind", node, node)
        yield from ("--bind", str(command.workdir), WORK, "--chdir", self._cwd(policy))
        for volume, (inside, writable) in policy.volumes.items():
            yield from ("--bind" if writable else "--ro-bind", str(volume), inside)
        yield from ("--remount-ro", "/")
        if policy.gpus or self.footprint.devices is None:
            yield from ("--remount-ro", "/dev")
        for name, value in self._env(policy).items():
            yield from ("--setenv", name, value)
        if policy.hold is not None:
            yield from ("--info-fd", str(_INFO_FD), "--block-fd", str(_BLOCK_FD))
        yield from ("--seccomp", str(_SECCOMP_FD), "--json-status-fd", str(_STATUS_FD))


def devices_folder(cache_dir: Path) -> str | None:
    """The folder where launchers may make /dev once for all their jobs; None if bubblewrap has to make it for each job.

    A launcher tries it, in a mount namespace of its own: only real root may make devices, and not everywhere.
    """
    if os.geteuid() != 0:
        return None
    folder = cache_dir / "dev"
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    command = [python(), "-I", "-S", launcher.__file__, launcher.TRY_DEVICES, str(folder)]
    try:
        subprocess.run(command, check=True, env={}, cwd="/", capture_output=True, timeout=_TRY_S)
    except (OSError, subprocess.SubprocessError):
        return None
    return str(folder)


def _as_file(arguments: Iterable[str]) -> bytes:
    """The arguments as bubblewrap reads them from a file."""
    return os.fsencode("".join([f"{argument}\0" for argument in arguments]))


def _system_mounts(folders: Mapping[str, str], *, dev: Sequence[str]) -> Iterator[str]:
    for path, target in system_links().items():
        yield from ("--symlink", target, path)
    for inside, outside in folders.items():
        yield from ("--ro-bind", outside, inside)
    yield from _kernel_mounts(dev)


def _kernel_mounts(dev: Sequence[str]) -> Iterator[str]:
    yield from ("--proc", "/proc", *dev)
    for path in hidden_files():
        yield from ("--dev-bind", "/dev/null", path)
