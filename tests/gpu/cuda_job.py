"""A job that uses a graphics card through nothing but the driver's library: prints what it found as one JSON object.

Runs inside the sandbox with the standard library alone. A kernel in portable code (PTX) adds two vectors, so the driver's
own compiler has to work too.
"""

from __future__ import annotations

import array
import ctypes
import glob
import json
import os
import time
from typing import Any

PTX = b"""
.version 6.4
.target sm_50
.address_size 64
.visible .entry add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n) {
  .reg .pred %p; .reg .f32 %f<4>; .reg .b32 %r<6>; .reg .b64 %d<8>;
  ld.param.u64 %d1, [a]; ld.param.u64 %d2, [b]; ld.param.u64 %d3, [c]; ld.param.u32 %r1, [n];
  mov.u32 %r2, %ntid.x; mov.u32 %r3, %ctaid.x; mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r3, %r2, %r4;
  setp.ge.u32 %p, %r5, %r1; @%p bra done;
  mul.wide.u32 %d4, %r5, 4;
  add.s64 %d5, %d1, %d4; add.s64 %d6, %d2, %d4; add.s64 %d7, %d3, %d4;
  ld.global.f32 %f1, [%d5]; ld.global.f32 %f2, [%d6]; add.f32 %f3, %f1, %f2; st.global.f32 [%d7], %f3;
done: ret;
}
\0"""
COUNT = 1_000_000
COPY_MB = 256


def main() -> None:
    found: dict[str, Any] = {
        "uid": os.getuid(),
        "nodes": sorted(glob.glob("/dev/nvidia*") + glob.glob("/dev/dri/*")),
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "sys": sorted(os.listdir("/sys")) if os.path.isdir("/sys") else [],
    }
    try:
        use_card(found)
    except (OSError, RuntimeError) as error:
        found["error"] = str(error)
    print(json.dumps(found))


def use_card(found: dict[str, Any]) -> None:
    cuda = ctypes.CDLL("libcuda.so.1")
    found["cuInit"] = cuda.cuInit(0)

    def check(name: str, *arguments: Any) -> None:
        if code := getattr(cuda, name)(*arguments):
            raise RuntimeError(f"{name} answered {code}")

    if found["cuInit"]:
        return
    count, device, context = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p()
    check("cuDeviceGetCount", ctypes.byref(count))
    check("cuDeviceGet", ctypes.byref(device), 0)
    name = ctypes.create_string_buffer(100)
    check("cuDeviceGetName", name, 100, device)
    found |= {"count": count.value, "name": name.value.decode()}
    check("cuCtxCreate_v2", ctypes.byref(context), 0, device)
    found["added"] = add_vectors(check)
    found["copy_gb_s"] = copy_speed(check)


def add_vectors(check: Any) -> bool:
    module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
    check("cuModuleLoadData", ctypes.byref(module), PTX)
    check("cuModuleGetFunction", ctypes.byref(kernel), module, b"add")
    first = array.array("f", range(COUNT))
    second = array.array("f", (2 * number for number in range(COUNT)))
    result = array.array("f", bytes(4 * COUNT))
    pointers = [allocate(check, 4 * COUNT) for _ in range(3)]
    for pointer, values in zip(pointers, (first, second), strict=False):
        check("cuMemcpyHtoD_v2", pointer, ctypes.c_void_p(values.buffer_info()[0]), ctypes.c_size_t(4 * COUNT))
    arguments = [*pointers, ctypes.c_uint(COUNT)]
    addresses = (ctypes.c_void_p * 4)(*(ctypes.addressof(value) for value in arguments))
    check("cuLaunchKernel", kernel, (COUNT + 255) // 256, 1, 1, 256, 1, 1, 0, None, addresses, None)
    check("cuCtxSynchronize")
    check("cuMemcpyDtoH_v2", ctypes.c_void_p(result.buffer_info()[0]), pointers[2], ctypes.c_size_t(4 * COUNT))
    return all(result[number] == 3 * number for number in range(0, COUNT, 997))


def copy_speed(check: Any) -> float:
    size = COPY_MB * 1024 * 1024
    source, target = allocate(check, size), allocate(check, size)
    check("cuMemcpyDtoD_v2", target, source, ctypes.c_size_t(size))
    check("cuCtxSynchronize")
    begin = time.perf_counter()
    for _ in range(20):
        check("cuMemcpyDtoD_v2", target, source, ctypes.c_size_t(size))
    check("cuCtxSynchronize")
    return round(20 * size / (time.perf_counter() - begin) / 1e9, 1)


def allocate(check: Any, size: int) -> ctypes.c_uint64:
    pointer = ctypes.c_uint64()
    check("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
    return pointer


if __name__ == "__main__":
    main()
