"""Work folders of a fixed size: a file system in a sparse file, which a root agent mounts on the folder.

The kernel then refuses what exceeds the job's disk limit, bytes and files alike, with ENOSPC. Where this is not possible (no
root, no loop devices, no mkfs), DiskMeter measures the plain folder instead.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

from computepool.agent.sandbox import launcher
from computepool.agent.sandbox.base import MIB, OUTPUTS, SandboxError
from computepool.agent.sandbox.scratch import empty_tree, files_max, open_descriptor

_LOOP_CONTROL = "/dev/loop-control"
_LOOP_CTL_GET_FREE, _LOOP_CONFIGURE = 0x4C82, 0x4C0A
#: struct loop_config: the file, then a struct loop_info64 in which only the flags are set.
_CONFIG = struct.Struct("<II 52x I 176x 64x")
_AUTOCLEAR = 4
_MS_NODEV, _MS_NOATIME, _MS_SHARED, _UMOUNT_NOFOLLOW = 4, 1024, 1 << 20, 8
#: These files are worthless after a crash. noinit_itable: do not write the whole inode table in the background.
_OPTIONS = "noinit_itable,nobarrier,nodiscard"
#: Images next to the folders that they are mounted on.
SUFFIX = ".disk"
_INODE_BYTES = 256
_SPARE_BYTES = 2 * MIB
_TRIES = 8
#: Larger images return their blocks to the host's disk only when they are removed.
_WORTH_KEEPING = 32 * MIB


class Volumes:
    """Gives folders a fixed size. `missing` says what prevents that; empty if nothing does."""

    def __init__(self, cache_dir: Path) -> None:
        self._templates = cache_dir / "disks"
        self._mkfs = shutil.which("mkfs.ext4", path="/usr/sbin:/sbin:/usr/bin:/bin") or ""
        self.missing = self._try()

    def mount(self, folder: Path, disk_mb: int) -> None:
        """Mount a file system of `disk_mb` on the empty work folder `folder`. Raises SandboxError."""
        image = image_of(folder)
        try:
            _copy_sparse(self._template(disk_mb), image)
            _mount(image, folder)
            folder.chmod(0o700)
            (folder / OUTPUTS).mkdir(mode=0o755)
        except (OSError, subprocess.SubprocessError) as error:
            unmount(folder)
            raise SandboxError(f"cannot give {folder.name} a disk of {disk_mb} MB: {error}") from error

    def _template(self, disk_mb: int) -> Path:
        path = self._templates / f"{disk_mb}.ext4"
        if not path.exists():
            self._templates.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".making-", dir=self._templates) as folder:
                made = self._make_template(Path(folder), disk_mb)
                made.rename(path)
        return path

    def _make_template(self, folder: Path, disk_mb: int) -> Path:
        """An empty file system with `disk_mb` free. It is made twice: the first shows how large its own overhead is."""
        image, point = folder / "image", folder / "point"
        point.mkdir()
        inodes = files_max(disk_mb)
        needed = disk_mb * MIB
        size = needed + inodes * _INODE_BYTES + _SPARE_BYTES
        for _ in range(2):
            image.unlink(missing_ok=True)
            with image.open("wb") as file:
                file.truncate(-(-size // 4096) * 4096)
            command = [self._mkfs, *f"-q -F -b 4096 -m 0 -N {inodes} -I {_INODE_BYTES}".split()]
            command += ["-O", "^has_journal,^resize_inode", "-E", "lazy_itable_init=1,nodiscard", str(image)]
            subprocess.run(command, check=True, capture_output=True, timeout=60)
            _mount(image, point)
            try:
                (point / "lost+found").rmdir()
                free = os.statvfs(point)
            finally:
                unmount(point)
            size += needed - free.f_bavail * free.f_frsize
        return image

    def _try(self) -> str:
        if os.geteuid() != 0:
            return "the agent is not root"
        if not self._mkfs:
            return "mkfs.ext4 is not installed"
        try:
            self._templates.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder = Path(tempfile.mkdtemp(prefix=".trying-", dir=self._templates))
            try:
                self.mount(folder, 1)
            finally:
                unmount(folder)
                with contextlib.suppress(OSError):
                    folder.rmdir()
        except (OSError, SandboxError) as error:
            return str(error)
        return ""


def enter_namespace() -> None:
    """Enter a private mount namespace: mounts are visible to nobody else and vanish with this process.

    Call it before other threads start. Later mounts of the owner still arrive here, and this process's own reach the
    namespaces of its launchers. Does nothing without the necessary rights; then the next agent unmounts what a killed one
    left (`sweep`).
    """
    if os.geteuid() == 0 and launcher.libc.unshare(launcher.CLONE_NEWNS) == 0:
        with contextlib.suppress(OSError):
            launcher.mount("none", "/", flags=launcher.MS_REC | launcher.MS_SLAVE)
            launcher.mount("none", "/", flags=launcher.MS_REC | _MS_SHARED)


def image_of(folder: Path) -> Path:
    return folder.with_name(folder.name + SUFFIX)


def clean(folder: Path) -> bool:
    """Empty a mounted folder for the next job of the same account; False if it should be discarded.

    A new file system for each job would halve the rate of small jobs that write something.
    """
    try:
        if image_of(folder).stat().st_blocks * 512 > _WORTH_KEEPING:
            return False
        empty_tree(folder)
        for name in os.listxattr(folder):
            os.removexattr(folder, name)
        folder.chmod(0o700)
        (folder / OUTPUTS).mkdir(mode=0o755)
    except OSError:
        return False
    return True


def unmount(folder: Path) -> None:
    """Unmount the file system on `folder`, if any, and remove its image."""
    # By now the folder may be a link to anything that is mounted on this machine.
    while launcher.libc.umount2(os.fsencode(folder), launcher.MNT_DETACH | _UMOUNT_NOFOLLOW) == 0:
        continue
    image_of(folder).unlink(missing_ok=True)


def sweep(parent: Path) -> None:
    """Unmount what a killed agent left below `parent`, and remove its images."""
    top = str(parent.resolve())
    with open("/proc/self/mountinfo") as mounts:
        points = [line.split()[4].encode().decode("unicode_escape") for line in mounts]
    for point in points:
        if point.startswith(f"{top}/"):
            unmount(Path(point))
    for image in parent.glob(f"*{SUFFIX}"):
        image.unlink(missing_ok=True)


def _mount(image: Path, folder: Path) -> None:
    with open_descriptor(image, os.O_RDWR | os.O_CLOEXEC) as fd:
        name, device = _attach(fd)
    try:
        flags = launcher.MS_NOSUID | _MS_NODEV | _MS_NOATIME
        launcher.mount(name, str(folder), kind="ext4", flags=flags, options=_OPTIONS)
    finally:
        os.close(device)  # From here on the mount holds the device; if there is none, the kernel frees it.


def _attach(image: int) -> tuple[str, int]:
    """Attach a loop device to the file; returns its name and an open descriptor."""
    with open_descriptor(_LOOP_CONTROL, os.O_RDWR | os.O_CLOEXEC) as control:
        for _ in range(_TRIES):
            name = f"/dev/loop{fcntl.ioctl(control, _LOOP_CTL_GET_FREE)}"
            device = os.open(name, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.ioctl(device, _LOOP_CONFIGURE, _CONFIG.pack(image, 0, _AUTOCLEAR))
            except OSError as error:
                os.close(device)
                if error.errno != errno.EBUSY:  # EBUSY: another process was quicker.
                    raise
                continue
            return name, device
        raise OSError(errno.EBUSY, "no free loop device")


def _copy_sparse(source: Path, target: Path) -> None:
    """Copy only written blocks. An empty file system of any size has about a hundred kilobytes of them."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with (
        open_descriptor(source, os.O_RDONLY | os.O_CLOEXEC) as reading,
        open_descriptor(target, flags, 0o600) as writing,
    ):
        size = os.fstat(reading).st_size
        os.ftruncate(writing, size)
        at = 0
        while at < size:
            try:
                at = os.lseek(reading, at, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:  # There is no more data.
                    return
                raise
            end = os.lseek(reading, at, os.SEEK_HOLE)
            while at < end:
                at += os.pwrite(writing, os.pread(reading, min(end - at, MIB), at), at)
