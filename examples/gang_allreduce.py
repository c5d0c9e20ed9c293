#!/usr/bin/env python3
"""All-reduce between the members of a job on several nodes, in the manner of MPI: plain sockets, standard library alone.

Every member has a vector; at the end, each has the sum of all. In a ring, each member talks to its two neighbours only, and
sends about twice its vector, however many members there are.

Run:  pool submit examples/gang_allreduce.py --wait
      with --nodes 3, where three nodes of one owner, or of a mesh, are free
"""

from __future__ import annotations

import array
import contextlib
import socket
import sys
import time

import computepool


class Ring:
    """The connections of one member: it sends to the next rank, and receives from the one before."""

    def __init__(self) -> None:
        gang = computepool.gang()
        self.rank, self.size = gang.rank, gang.size
        with socket.create_server((gang.address, gang.port)) as listener:
            self._next = _connect(gang.addresses[(gang.rank + 1) % gang.size], gang.port)
            self._before, _ = listener.accept()

    def exchange(self, part: array.array[float]) -> array.array[float]:
        """Send a part to the next member, and return the one that the member before has sent."""
        data, received = memoryview(part.tobytes()), bytearray()
        self._next.setblocking(False)
        self._before.setblocking(True)
        sent = 0
        while sent < len(data) or len(received) < len(data):
            if sent < len(data):
                with contextlib.suppress(BlockingIOError):
                    sent += self._next.send(data[sent:])
            if len(received) < len(data):
                self._before.settimeout(0.001 if sent < len(data) else 60)
                try:
                    piece = self._before.recv(len(data) - len(received))
                except TimeoutError:
                    continue
                if not piece:
                    raise ConnectionError("the member before has gone")
                received += piece
        return array.array("d", bytes(received))

    def all_reduce(self, vector: array.array[float]) -> None:
        """Replace the vector by the sum of all members' vectors."""
        bounds = [len(vector) * index // self.size for index in range(self.size + 1)]
        parts = [slice(bounds[index], bounds[index + 1]) for index in range(self.size)]
        for step in range(self.size - 1):  # afterwards, each member has the sum of one part
            mine, theirs = parts[(self.rank - step) % self.size], parts[(self.rank - step - 1) % self.size]
            received = self._exchange(vector, mine, theirs)
            vector[theirs] = array.array("d", (a + b for a, b in zip(vector[theirs], received, strict=True)))
        for step in range(self.size - 1):  # and passes it on
            mine, theirs = parts[(self.rank + 1 - step) % self.size], parts[(self.rank - step) % self.size]
            vector[theirs] = self._exchange(vector, mine, theirs)

    def _exchange(self, vector: array.array[float], mine: slice, theirs: slice) -> array.array[float]:
        # Parts may differ by one number: they travel with the same length.
        longest = -(-len(vector) // self.size)
        part = vector[mine]
        part.extend([0.0] * (longest - len(part)))
        return self.exchange(part)[: theirs.stop - theirs.start]


def _connect(address: str, port: int) -> socket.socket:
    deadline = time.monotonic() + 60
    while True:
        try:
            return socket.create_connection((address, port), timeout=10)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def main() -> None:
    gang, length = computepool.gang(), int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    ring = Ring()
    vector = array.array("d", [float(gang.rank + 1)]) * length
    begin = time.monotonic()
    ring.all_reduce(vector)
    total = sum(range(1, gang.size + 1))
    if set(vector) != {float(total)}:
        sys.exit(f"rank {gang.rank}: the sum is wrong")
    took_s = time.monotonic() - begin
    print(f"rank {gang.rank} of {gang.size}: every number is {total}, after {took_s:.2f} s")


if __name__ == "__main__":
    main()
