"""Measures the machine from inside the sandbox where jobs run: a core, memory, the disk, and each GPU.

A program with the standard library alone. It prints one JSON object per line and stops before its time limit, so that what it
has measured by then counts. It runs at the lowest priority and uses one core at a time.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

#: The time for everything, in seconds, of the two and a half that the agent allows.
BUDGET_S = 2.2
#: The path of cuBLAS, if the agent found it.
CUBLAS_ENV = "COMPUTEPOOL_CUBLAS"
#: Processor time of each part on the reference machine (core/trust/hardware.py), in seconds; together a score of 1000.
REFERENCE_S = {"integers": 0.0330, "floats": 0.0275, "hashes": 0.0256}
_MIB = 1024 * 1024
_STEP_S, _STEPS = 0.001, 3
_COPY_MB, _DISK_MB = 32, 8
_MATRIX = 4096
#: Constants of CUDA and cuBLAS.
_R_16F, _COMPUTE_32F, _GEMM_DEFAULT = 2, 68, -1
_HALF_ONE = 0x3C00


# ---------------------------------------------------------------- a core
def integers() -> int:
    state, total = 12345, 0
    for number in range(220_000):
        state = (state * 1_103_515_245 + number) & 0x7FFFFFFF
        total += state >> 7 if state & 1 else state & 0xFF
    return total


def floats() -> float:
    x, total = 0.5, 0.0
    for _ in range(330_000):
        x = 3.7 * x * (1.0 - x)
        total += x / (1.0 + total * 1e-9)
    return total


def hashes() -> bytes:
    block, digest = b"\x5a" * 65_536, hashlib.sha256()
    for _ in range(700):
        digest.update(block)
    return digest.digest()


def core_score() -> int:
    """The best of a few rounds in processor time, which other load hardly affects."""
    logs = 0.0
    for part in (integers, floats, hashes):
        best = min(_took(part) for _ in range(4))
        logs += math.log(REFERENCE_S[part.__name__] / max(best, 1e-6))
    return round(1000 * math.exp(logs / len(REFERENCE_S)))


def _took(part: Callable[[], object]) -> float:
    clock = _clock()
    begin = clock()
    part()
    return clock() - begin


@functools.lru_cache(maxsize=1)
def _clock() -> Callable[[], float]:
    """Processor time, or wall time if the processor clock is too coarse (10 ms in gVisor)."""
    seen, until = {time.thread_time()}, time.perf_counter() + _STEP_S
    while time.perf_counter() < until:
        seen.add(time.thread_time())
    return time.thread_time if len(seen) > _STEPS else time.perf_counter


# ---------------------------------------------------------------- memory and disk
def memory_mb_s() -> int:
    source, target = bytearray(b"\x01") * (_COPY_MB * _MIB), bytearray(_COPY_MB * _MIB)
    view = memoryview(target)

    def copy() -> None:
        view[:] = source

    copy()
    return round(_COPY_MB / max(1e-6, min(_took(copy) for _ in range(4))))


def disk_mb_s(folder: Path) -> int:
    """Write to the disk and read back, once each."""
    path, chunk = folder / "measure.tmp", os.urandom(_MIB)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        begin = time.perf_counter()
        for _ in range(_DISK_MB):
            os.write(descriptor, chunk)
        os.fsync(descriptor)
        with contextlib.suppress(AttributeError, OSError):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.lseek(descriptor, 0, os.SEEK_SET)
        while os.read(descriptor, _MIB):
            pass
        return round(2 * _DISK_MB / max(1e-6, time.perf_counter() - begin))
    finally:
        os.close(descriptor)
        path.unlink(missing_ok=True)


# ---------------------------------------------------------------- cards
class CudaError(RuntimeError):
    """A call of the driver or of cuBLAS failed."""


class Cuda:
    """The driver and cuBLAS calls that a matrix product needs."""

    def __init__(self, cublas: str) -> None:
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.check("cuInit", 0)
        with contextlib.suppress(OSError):  # If it is in the same folder, the loader need not search for it.
            ctypes.CDLL(cublas.replace("libcublas.so", "libcublasLt.so"), mode=ctypes.RTLD_GLOBAL)
        self.cublas = ctypes.CDLL(cublas)

    def check(self, name: str, *arguments: Any) -> None:
        code = getattr(self.driver, name)(*arguments)
        if code:
            raise CudaError(f"{name} answered {code}")

    def count(self) -> int:
        number = ctypes.c_int()
        self.check("cuDeviceGetCount", ctypes.byref(number))
        return number.value

    def gflops(self, index: int, *, until: float) -> int:
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.check("cuDeviceGet", ctypes.byref(device), index)
        self.check("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.check("cuCtxSetCurrent", context)
        try:
            with self._matrices() as matrices:
                return self._multiply(matrices, until=until)
        finally:
            self.driver.cuDevicePrimaryCtxRelease_v2(device)

    @contextlib.contextmanager
    def _matrices(self) -> Iterator[list[ctypes.c_uint64]]:
        made: list[ctypes.c_uint64] = []
        try:
            for _ in range(3):
                pointer, size = ctypes.c_uint64(), _MATRIX * _MATRIX
                self.check("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(2 * size))
                made.append(pointer)
                self.check("cuMemsetD16_v2", pointer, ctypes.c_ushort(_HALF_ONE), ctypes.c_size_t(size))
            yield made
        finally:
            for pointer in made:
                self.driver.cuMemFree_v2(pointer)

    def _multiply(self, matrices: list[ctypes.c_uint64], *, until: float) -> int:
        handle = ctypes.c_void_p()
        if code := self.cublas.cublasCreate_v2(ctypes.byref(handle)):
            raise CudaError(f"cublasCreate answered {code}")
        try:
            self._product(handle, matrices)  # The first one loads the kernel.
            self.check("cuCtxSynchronize")
            best, rounds = math.inf, 0
            while rounds < 1 or (rounds < 20 and time.perf_counter() < until):
                begin = time.perf_counter()
                for _ in range(4):
                    self._product(handle, matrices)
                self.check("cuCtxSynchronize")
                best, rounds = min(best, (time.perf_counter() - begin) / 4), rounds + 1
        finally:
            self.cublas.cublasDestroy_v2(handle)
        return round(2 * _MATRIX**3 / best / 1e9)

    def _product(self, handle: ctypes.c_void_p, matrices: list[ctypes.c_uint64]) -> None:
        one, zero, size = ctypes.c_float(1.0), ctypes.c_float(0.0), _MATRIX
        first, second, result = (ctypes.c_void_p(pointer.value) for pointer in matrices)
        code = self.cublas.cublasGemmEx(
            handle, 0, 0, size, size, size, ctypes.byref(one), first, _R_16F, size, second, _R_16F, size,
            ctypes.byref(zero), result, _R_16F, size, _COMPUTE_32F, _GEMM_DEFAULT,
        )  # fmt: skip
        if code:
            raise CudaError(f"cublasGemmEx answered {code}")


def cards(cublas: str, *, deadline: float) -> Iterator[tuple[int, int | None, str]]:
    """Index, GFLOPS or None, and the reason for None, of each visible card."""
    cuda = Cuda(cublas)
    for index in range(cuda.count()):
        if time.perf_counter() > deadline:
            yield index, None, f"no time was left for GPU {index}"
            continue
        try:
            yield index, cuda.gflops(index, until=min(deadline, time.perf_counter() + 0.4)), ""
        except CudaError as error:
            yield index, None, f"GPU {index}: {error}"


# ---------------------------------------------------------------- the program
def main() -> None:
    begin = time.perf_counter()
    with contextlib.suppress(OSError):
        os.nice(19)
    _emit(cpu=core_score())
    _emit(memory_mb_s=memory_mb_s())
    try:
        _emit(disk_mb_s=disk_mb_s(Path.cwd()))
    except OSError as error:
        _emit(note=f"disk: {error}")
    cublas = os.environ.get(CUBLAS_ENV, "")
    if not cublas:
        return
    try:
        for index, gflops, why in cards(cublas, deadline=begin + BUDGET_S):
            _emit(card=index, gflops=gflops, **({"note": why} if why else {}))
    except (OSError, CudaError, AttributeError) as error:
        _emit(note=f"GPUs: {error}")


def _emit(**found: object) -> None:
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
