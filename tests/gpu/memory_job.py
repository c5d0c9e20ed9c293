"""A job that takes memory of its card through nothing but the driver's library: `memory_job.py MEGABYTES SECONDS`.

Prints as one JSON object what was free before and what it took, and then keeps it for some seconds.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from typing import Any

#: Kept by the module, so that a function call leaves it behind in its worker.
TAKEN: list[Any] = []


def take(megabytes: int) -> dict[str, int]:
    cuda = ctypes.CDLL("libcuda.so.1")

    def check(name: str, *arguments: Any) -> None:
        if code := getattr(cuda, name)(*arguments):
            raise RuntimeError(f"{name} answered {code}")

    device, context = ctypes.c_int(), ctypes.c_void_p()
    free, total, pointer = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_uint64()
    check("cuInit", 0)
    check("cuDeviceGet", ctypes.byref(device), 0)
    check("cuCtxCreate_v2", ctypes.byref(context), 0, device)
    check("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    if megabytes:
        check("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(megabytes << 20))
    TAKEN.append((cuda, context, pointer))
    return {"free_mb": free.value >> 20, "total_mb": total.value >> 20, "taken_mb": megabytes}


if __name__ == "__main__":
    print(json.dumps(take(int(sys.argv[1]))), flush=True)
    time.sleep(float(sys.argv[2]))
