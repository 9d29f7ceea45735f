"""`Tensor.to` from one device to another, compared with PyTorch's, in one direction and in both at once."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator

import tallow as tl
from tallow import Device

from .ranks import slowest_seconds

ROUNDS = 7
# As many copies as take some milliseconds.
BYTES_IN_ROUND = 1 << 32
MAX_COPIES = 200


def report(first: str, second: str, most: int) -> Iterator[str]:
    """All lines."""
    devices = Device.parse(first), Device.parse(second)
    variants: dict[str, Callable[[int], tuple[Callable[[], object], Callable[[], object], Callable[[], None]]]] = {
        "tallow": lambda nbytes: _tallow_copies(devices, nbytes)
    }
    if all(device.backend in ("cuda", "rocm") for device in devices):
        try:
            import torch  # noqa: F401
        except ImportError:
            yield "PyTorch is not installed, so tallow is measured alone"
        else:
            variants["PyTorch"] = lambda nbytes: _torch_copies(devices, nbytes)
    yield f"{first} and {second}, tallow {tl.__version__}"
    yield ""
    yield "| bytes | " + " | ".join(f"{name}, GB/s | {name}, both at once" for name in variants) + " |"
    yield "| ---: " * (1 + 2 * len(variants)) + "|"
    nbytes = 1 << 20
    while nbytes <= most:
        speeds = []
        for prepare in variants.values():
            there, both, synchronize = prepare(nbytes)
            for copy in (there, both):
                count = max(1, min(MAX_COPIES, BYTES_IN_ROUND // nbytes))
                slowest_seconds(copy, 3, synchronize)
                times = [slowest_seconds(copy, count, synchronize) for _ in range(ROUNDS)]
                speeds.append(nbytes / statistics.median(times) / 1e9)
        yield f"| {nbytes} | " + " | ".join(f"{speed:.1f}" for speed in speeds) + " |"
        nbytes *= 4


def _tallow_copies(
    devices: tuple[Device, Device], nbytes: int
) -> tuple[Callable[[], object], Callable[[], object], Callable[[], None]]:
    """A copy, one in each direction, and what waits for them."""
    first, second = devices
    x, y = (tl.ones(nbytes // 4, device=device) for device in devices)

    def synchronize() -> None:
        first.synchronize()
        second.synchronize()

    return lambda: x.to(second), lambda: (x.to(second), y.to(first)), synchronize


def _torch_copies(
    devices: tuple[Device, Device], nbytes: int
) -> tuple[Callable[[], object], Callable[[], object], Callable[[], None]]:
    """Return the copies of PyTorch."""
    import torch

    first, second = (torch.device("cuda", device.ordinal) for device in devices)
    x, y = (torch.ones(nbytes // 4, device=device) for device in (first, second))

    def synchronize() -> None:
        torch.cuda.synchronize(first)
        torch.cuda.synchronize(second)

    return (
        lambda: x.to(second, non_blocking=True),
        lambda: (x.to(second, non_blocking=True), y.to(first, non_blocking=True)),
        synchronize,
    )
