"""Dask.distributed on one machine: a scheduler and two worker processes of one thread each."""

from __future__ import annotations

import subprocess

import distributed

from bench.peers.measure import SLOTS, TRUE, Measured, asked_sizes, emit, measure


def noop(number: int) -> int:
    return number


def start_process(_number: int) -> int:
    return subprocess.run([TRUE], stdin=subprocess.DEVNULL, check=True).returncode


class Dask:
    def __init__(self, client: distributed.Client) -> None:
        self._client = client

    def calls(self, count: int) -> None:
        # pure=False: else a second call with the same argument is answered from memory.
        self._client.gather(self._client.map(noop, range(count), pure=False))

    def processes(self, count: int) -> None:
        self._client.gather(self._client.map(start_process, range(count), pure=False))

    def call(self) -> None:
        self._client.submit(noop, 1, pure=False).result(timeout=30)


def main() -> None:
    cluster = distributed.LocalCluster(
        n_workers=SLOTS, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
    )
    measured = Measured(name=f"Dask.distributed {distributed.__version__}")
    with cluster, distributed.Client(cluster) as client:
        emit(measure(Dask(client), measured, asked_sizes()))


if __name__ == "__main__":
    main()
