"""Measures a few kernels, and compares them with the speed of a copy within the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..base.error import TallowError
from ..tensor import Tensor

if TYPE_CHECKING:
    from ...device import Device

# Operands grow until adding two of them takes this many seconds, or they have this many bytes.
_LONG_ENOUGH: Final = 2e-3
_LARGEST: Final = 1 << 28
_FIRST: Final = 1 << 14
_COLUMNS: Final = 1024
_REPETITIONS: Final = 3
_SECONDS: Final = 0.02
_LARGEST_MATRIX: Final = 4096


class Time(NamedTuple):
    """The time of one call."""

    kernel: str
    seconds: float
    gigabytes_per_second: float | None
    """The bytes of operands and results each second; None where arithmetic is the bound."""
    of_copy: float | None
    """That as a fraction of the bandwidth of a copy within the device."""
    teraflops: float | None
    """Products and sums each second; None where memory is the bound."""


def times(device: Device) -> Iterator[Time]:
    """Yield the time of a copy first: its bandwidth is the ceiling of memory-bound kernels."""
    x = _operand(device)
    y = x.zeros_like()
    size = 4 * x.elem_count
    ceiling = 2 * size / _measure(device, lambda: y.copy_(x))
    yield Time(f"copy of {size >> 10} KiB", 2 * size / ceiling, ceiling / 1e9, 1.0, None)
    rows = x.reshape(-1, _COLUMNS)
    memory: list[tuple[str, Callable[[], Any], int]] = [
        ("add f32", lambda: x + y, 3 * size),
        ("gelu f32", lambda: x.gelu(), 2 * size),
        ("sum f32", lambda: x.sum(), size),
        ("softmax f32", lambda: rows.softmax(-1), 2 * size),
        ("transposed copy f32", lambda: rows.t().contiguous(), 2 * size),
        ("cumsum f32", lambda: rows.cumsum(-1), 2 * size),
    ]
    for name, call, nbytes in memory:
        seconds = _measure(device, call)
        yield Time(name, seconds, nbytes / seconds / 1e9, nbytes / seconds / ceiling, None)
    for dtype in ("f32", "bf16"):
        try:
            yield _product(device, dtype)
        except TallowError:  # a device may lack the dtype
            continue


def _operand(device: Device) -> Tensor:
    """Return enough ones for a call to take longer than its launch."""
    count = _FIRST
    while True:
        x = Tensor.ones(count, device=device)
        if 4 * count >= _LARGEST or _once(device, lambda x=x: x + x) >= _LONG_ENOUGH:  # type: ignore[misc]
            return x
        count *= 4


def _product(device: Device, dtype: str) -> Time:
    size = 64
    while True:
        x = Tensor.ones((size, size), device=device).to_dtype(dtype)
        if size >= _LARGEST_MATRIX or _once(device, lambda x=x: x @ x) >= _LONG_ENOUGH:  # type: ignore[misc]
            break
        size *= 2
    seconds = _measure(device, lambda: x @ x)
    return Time(f"matmul {dtype}, {size} x {size}", seconds, None, None, 2 * size**3 / seconds / 1e12)


def _once(device: Device, call: Callable[[], Any]) -> float:
    """Return the seconds of the second call: the first may compile."""
    call()
    return _seconds(device, call, 1)


def _measure(device: Device, call: Callable[[], Any]) -> float:
    """Return the seconds of a call: the least mean of a few series."""
    count = max(1, int(_SECONDS / max(_once(device, call), 1e-6)))
    return min(_seconds(device, call, count) for _ in range(_REPETITIONS)) / count


def _seconds(device: Device, call: Callable[[], Any], count: int) -> float:
    device.synchronize()
    begin = perf_counter()
    for _ in range(count):
        call()
    device.synchronize()
    return perf_counter() - begin
