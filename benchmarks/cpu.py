"""How long the CPU backend takes beside plain NumPy, both timed in the same run.

python benchmarks/cpu.py
"""

from collections.abc import Callable
from time import perf_counter

import numpy as np
from tallow import BinaryOp, Device, DType, Layout, ReduceOp, UnaryOp

SECONDS_PER_CASE = 0.5
DEVICE = Device.cpu()


def time_both(ours: Callable[[], object], numpy: Callable[[], object]) -> tuple[float, float]:
    """The shortest time of each in seconds; they take turns, so that a busy machine slows both."""
    shortest = [float("inf"), float("inf")]
    end = perf_counter() + SECONDS_PER_CASE
    while perf_counter() < end:
        for index, call in enumerate((ours, numpy)):
            start = perf_counter()
            call()
            shortest[index] = min(shortest[index], perf_counter() - start)
    return shortest[0], shortest[1]


def cases(count: int) -> dict[str, tuple[Callable[[], object], Callable[[], object]]]:
    """By name, a call of the backend and the NumPy call that computes the same, on f32 matrices of `count` squared."""
    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal((count, count), dtype=np.float32) for _ in range(2))
    x, y = DEVICE.storage(a), DEVICE.storage(b)
    plain = Layout.contiguous((count, count))
    turned = plain.transpose(0, 1)
    row = Layout.contiguous((count,)).broadcast_as((count, count))
    f16 = x.to_dtype(plain, DType.F16)
    half = a.astype(np.float16)
    return {
        "add": (lambda: x.binary_impl(BinaryOp.ADD, y, plain, plain), lambda: a + b),
        "add, one transposed": (lambda: x.binary_impl(BinaryOp.ADD, y, plain, turned), lambda: a + b.T),
        "add a row": (lambda: x.binary_impl(BinaryOp.ADD, y, plain, row), lambda: a + b[0]),
        "exp": (lambda: x.unary_impl(UnaryOp.EXP, plain), lambda: np.exp(a)),
        "exp in f16": (
            lambda: f16.unary_impl(UnaryOp.EXP, plain),
            lambda: np.exp(half.astype(np.float32)).astype(np.float16),
        ),
        "sum of rows": (lambda: x.reduce_op(ReduceOp.SUM, plain, (1,)), lambda: a.sum(axis=1)),
        "matmul": (
            lambda: x.matmul(y, (1, count, count, count), plain, plain),
            lambda: a @ b,
        ),
    }


def main() -> None:
    print(f"{'op':<22}{'f32 matrix':>14}{'tallow':>14}{'NumPy':>14}{'ratio':>8}")
    for count in (32, 1024):
        for name, (ours, numpy) in cases(count).items():
            taken, reference = time_both(ours, numpy)
            columns = f"{taken * 1e6:>11.1f} us{reference * 1e6:>11.1f} us{taken / reference:>8.2f}"
            print(f"{name:<22}{f'{count} x {count}':>14}{columns}")


if __name__ == "__main__":
    main()
