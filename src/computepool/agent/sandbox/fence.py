"""The fence: the deadline until which this node may run jobs. The agent writes it, and the launchers read it.

The agent itself ends its jobs if it cannot renew its lease. If it hangs or is stopped, the launchers do: each checks the
fence while a job runs. The hub renews everything that a node holds at once, so one number serves all jobs, and a renewal
costs one write.
"""

from __future__ import annotations

import os

from computepool.agent.sandbox import launcher


class Fence:
    """A memory file with one number. Launchers get the read-only descriptor `fd`."""

    def __init__(self) -> None:
        self._file = os.memfd_create("fence", os.MFD_CLOEXEC)
        os.fchmod(self._file, 0o600)  # Whoever has `fd` could otherwise open the file again, for writing.
        self.set_deadline(0)
        self.fd = os.open(f"/proc/self/fd/{self._file}", os.O_RDONLY | os.O_CLOEXEC)

    def set_deadline(self, deadline_s: float) -> None:
        """Set the deadline, in boot time (clock.py); 0 for none."""
        os.pwrite(self._file, launcher.DEADLINE.pack(int(deadline_s * 1000)), 0)

    def close(self) -> None:
        os.close(self._file)
        os.close(self.fd)
