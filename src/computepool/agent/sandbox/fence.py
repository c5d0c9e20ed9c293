"""The fence: the deadline until which this node may run jobs, written by the agent and read by the launchers.

The agent ends its jobs itself if it cannot renew its lease. If it hangs or is stopped, the launchers do: each checks the
fence while a job runs. One number serves all, because the hub renews everything that a node holds at once; so a renewal
costs one write, however many jobs there are.
"""

from __future__ import annotations

import os

from computepool.agent.sandbox import launcher


class Fence:
    """A memory file that holds one number. Launchers get the read-only descriptor `fd`."""

    def __init__(self) -> None:
        self._file = os.memfd_create("fence", os.MFD_CLOEXEC)
        os.fchmod(self._file, 0o600)  # Whoever has the other descriptor could open it once more, as a file.
        self.set_deadline(0)
        self.fd = os.open(f"/proc/self/fd/{self._file}", os.O_RDONLY | os.O_CLOEXEC)

    def set_deadline(self, until: float) -> None:
        """Set the deadline in boot time (clock.py); 0: none."""
        os.pwrite(self._file, launcher.DEADLINE.pack(int(until * 1000)), 0)

    def close(self) -> None:
        os.close(self._file)
        os.close(self.fd)
