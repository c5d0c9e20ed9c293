"""Dask.distributed on one machine: a scheduler and two worker processes with one thread each."""

from __future__ import annotations

import distributed

from bench.peers.measure import SLOTS, Measured, emit, measure, noop, requested_sizes, start_process


class Dask:
    def __init__(self, client: distributed.Client) -> None:
        self._client = client

    def calls(self, count: int) -> None:
        # Without pure=False, a second call with the same argument is answered from memory.
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
        emit(measure(Dask(client), measured, requested_sizes()))


if __name__ == "__main__":
    main()
