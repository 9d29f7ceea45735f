"""How long the host takes to launch a kernel: one of tallow's own, and one of a user's with as many arguments.

python -m benchmarks.gpu launches --device cuda:0
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter

import numpy as np
import tallow as tl
from tallow.kernels.arguments import binary_contiguous

from .machine import without_garbage_collection

OWN, USERS = "a kernel of tallow's own", "a user's kernel"

_SAXPY = """
extern "C" __global__ void saxpy(float* y, const float* x, float a, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] += a * x[i];
}
"""
_COUNT = 1 << 10
# The queue of a stream holds about a thousand launches.
_ROUNDS, _LAUNCHES = 100, 200


def measure(device: tl.Device) -> dict[str, float]:
    """The seconds that a launch takes, in the middle of many rounds; the two take turns."""
    x, y, z = (tl.Tensor(np.ones(_COUNT, np.float32), device=device) for _ in range(3))
    saxpy = tl.Kernel.compile("saxpy", _SAXPY, device, signature="float*, const float*, float, unsigned")
    kernels = device.inner.kernels  # type: ignore[union-attr]
    result, *sources = [tensor.storage.inner.memory.address for tensor in (z, x, y)]  # type: ignore[union-attr]

    def launch_own() -> None:
        packed = binary_contiguous(result=result, sources=sources, count=_COUNT, parameters=(0,)).packed()
        kernels.launch("binary", "add_f32_contiguous", 1, packed)

    def launch_users() -> None:
        saxpy.launch(_COUNT // 256, 256, y, x, 0.0, _COUNT)

    calls: dict[str, Callable[[], None]] = {OWN: launch_own, USERS: launch_users}
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    with without_garbage_collection():
        for _ in range(_ROUNDS):
            for name, call in calls.items():
                device.synchronize()
                start = perf_counter()
                for _ in range(_LAUNCHES):
                    call()
                times[name].append((perf_counter() - start) / _LAUNCHES)
    return {name: median(measured) for name, measured in times.items()}
