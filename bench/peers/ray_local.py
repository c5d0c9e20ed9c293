"""Ray on one machine, with two CPUs."""

from __future__ import annotations

import tempfile

import ray

from bench.peers.measure import SLOTS, Measured, emit, measure, noop, requested_sizes, start_process

OBJECT_STORE_BYTES = 200 * 2**20


class Ray:
    def __init__(self) -> None:
        self._noop = ray.remote(noop)
        self._start_process = ray.remote(start_process)

    def calls(self, count: int) -> None:
        ray.get([self._noop.remote(number) for number in range(count)])

    def processes(self, count: int) -> None:
        ray.get([self._start_process.remote(number) for number in range(count)])

    def call(self) -> None:
        ray.get(self._noop.remote(1))


def main() -> None:
    # Not in TMPDIR, because the paths of Ray's sockets must have less than 108 bytes.
    with tempfile.TemporaryDirectory(prefix="bench-ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        run(folder)


def run(folder: str) -> None:
    ray.init(
        num_cpus=SLOTS,
        include_dashboard=False,
        object_store_memory=OBJECT_STORE_BYTES,
        logging_level="error",
        log_to_driver=False,
        _node_ip_address="127.0.0.1",
        _temp_dir=folder,
    )
    try:
        emit(measure(Ray(), Measured(name=f"Ray {ray.__version__}"), requested_sizes()))
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
