"""Ray on one machine, with two CPUs."""

from __future__ import annotations

import subprocess
import tempfile

import ray

from bench.peers.measure import SLOTS, TRUE, Measured, asked_sizes, emit, measure

OBJECT_STORE_BYTES = 200 * 2**20


def noop(number: int) -> int:
    return number


def start_process(_number: int) -> int:
    return subprocess.run([TRUE], stdin=subprocess.DEVNULL, check=True).returncode


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
    # Not TMPDIR: the paths of Ray's sockets must stay under 108 bytes.
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
        emit(measure(Ray(), Measured(name=f"Ray {ray.__version__}"), asked_sizes()))
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
