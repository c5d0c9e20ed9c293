"""Things on the host that hostile jobs look for. What happens to them is the evidence."""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import socket
import subprocess
from pathlib import Path

import psutil

_libc = ctypes.CDLL(None, use_errno=True)
_ADD_KEY, _KEYCTL, _KEYCTL_REVOKE = 248, 250, 3
_SESSION_KEYRING = -3
_IPC_CREAT, _IPC_RMID = 0o1000, 0
#: What the jobs of hostile.py send.
_HOSTILE = b"hostile"


class Canaries(contextlib.ExitStack):
    """A token in files, memory and a keyring; listeners; places to write to. All removed at the end."""

    def __init__(self, ground: Path) -> None:
        super().__init__()
        self.token = f"token-{secrets.token_hex(12)}"
        self.marker = f"marker-{secrets.token_hex(8)}"
        folders = [ground, Path("/tmp"), Path("/var/tmp"), Path.home(), Path("/usr/local/share"), Path("/dev/shm")]
        self.files = [self._file(folder) for folder in folders if os.access(folder, os.W_OK)]
        self.targets = [Path(folder, self.marker) for folder in ("/tmp", "/var/tmp", "/dev/shm", "/usr", "/etc", "/")]
        self.abstract = f"computepool-{secrets.token_hex(8)}"
        self.unix_path = str(ground / f"socket-{secrets.token_hex(4)}")
        self._listeners = [
            self._listen(socket.AF_INET, ("0.0.0.0", 0)),
            self._listen(socket.AF_UNIX, f"\0{self.abstract}"),
            self._listen(socket.AF_UNIX, self.unix_path),
        ]
        self.port: int = self._listeners[0].getsockname()[1]
        os.chmod(self.unix_path, 0o777)
        self.callback(os.unlink, self.unix_path)
        self._udp = self.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self._udp.bind(("0.0.0.0", self.port))
        self._udp.setblocking(False)
        self.shmid = self._shared_memory()
        # A name of its own: test runs side by side share the keyring, and one name holds one token.
        self.key_name = f"computepool-canary-{secrets.token_hex(4)}"
        self._keyring()

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """The host's listener under every IPv4 address of the host."""
        found = {"127.0.0.1"}
        for infos in psutil.net_if_addrs().values():
            found |= {info.address for info in infos if info.family == socket.AF_INET}
        return [(address, self.port) for address in sorted(found)]

    def hits(self) -> int:
        """The number of connections and datagrams of hostile jobs since the last call.

        Other programs may use the port, too: what they send does not count.
        """
        received = []
        for listener in self._listeners:
            with contextlib.suppress(BlockingIOError):
                while True:
                    with listener.accept()[0] as caller:
                        received.append(_first_bytes(caller))
        with contextlib.suppress(BlockingIOError):
            while True:
                received.append(self._udp.recv(100))
        return received.count(_HOSTILE)

    def written(self) -> list[Path]:
        """Files that a job left on the host; they are removed."""
        found = [path for path in self.targets if path.exists()]
        for path in found:
            path.unlink()
        return found

    def sleeper(self, uid: int | None) -> subprocess.Popen[bytes]:
        """A process of the host, for jobs to kill; with the job's own uid if that is possible."""
        process = subprocess.Popen([self.marker, "300"], executable="/bin/sleep", user=uid, group=uid)
        self.callback(process.wait)
        self.callback(process.kill)
        return process

    def _file(self, folder: Path) -> Path:
        path = folder / f"canary-{secrets.token_hex(8)}"
        path.write_text(self.token)
        path.chmod(0o644)
        self.callback(path.unlink)
        return path

    def _listen(self, family: int, address: object) -> socket.socket:
        listener = self.enter_context(socket.socket(family))
        listener.bind(address)
        listener.listen()
        listener.setblocking(False)
        return listener

    def _shared_memory(self) -> int:
        shmid = _libc.shmget(0, 4096, _IPC_CREAT | 0o666)
        assert shmid >= 0
        self.callback(_libc.shmctl, shmid, _IPC_RMID, None)
        _libc.shmat.restype = ctypes.c_void_p
        address = _libc.shmat(shmid, None, 0)
        ctypes.memmove(address, self.token.encode() + b"\0", len(self.token) + 1)
        _libc.shmdt(ctypes.c_void_p(address))
        return int(shmid)

    def _keyring(self) -> None:
        """Put the token into the session keyring, which every child of this process inherits."""
        payload = self.token.encode()
        name = self.key_name.encode()
        key = _libc.syscall(_ADD_KEY, b"user", name, payload, len(payload), _SESSION_KEYRING)
        if key > 0:
            self.callback(_libc.syscall, _KEYCTL, _KEYCTL_REVOKE, key)


def _first_bytes(caller: socket.socket) -> bytes:
    caller.setblocking(False)
    with contextlib.suppress(OSError):
        return caller.recv(100)
    return b""
