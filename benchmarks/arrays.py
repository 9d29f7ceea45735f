"""How long a backend on an array library takes beside the library itself, both timed in the same run.

python -m benchmarks.arrays metal
"""

from __future__ import annotations

import platform
import statistics
from collections.abc import Callable, Iterator
from time import perf_counter

import click
import numpy as np
import tallow as tl

SECONDS_PER_CASE = 1.0
SMALL, LARGE = 1 << 10, 1 << 24


def time_both(ours: Callable[[], object], library: Callable[[], object]) -> tuple[float, float]:
    """The median time of each in seconds; they take turns, so that a busy machine slows both."""
    times: tuple[list[float], list[float]] = [], []
    end = perf_counter() + SECONDS_PER_CASE
    while perf_counter() < end or len(times[0]) < 3:
        for taken, call in zip(times, (ours, library), strict=True):
            start = perf_counter()
            call()
            taken.append(perf_counter() - start)
    return statistics.median(times[0]), statistics.median(times[1])


def cases(device: tl.Device) -> Iterator[tuple[str, int, Callable[[], tl.Tensor], Callable[[], object]]]:
    """The name, the elements, the call of tallow and that of the library; each result is waited for."""
    words = device.inner.library
    generator = np.random.default_rng(0)

    def waited(make: Callable[[], object]) -> Callable[[], object]:
        def call() -> object:
            result = make()
            if words.start is not None:
                words.start(result)
            if words.synchronize is not None:
                words.synchronize(device.inner.handle)
            return result

        return call

    def synchronized(make: Callable[[], tl.Tensor]) -> Callable[[], tl.Tensor]:
        def call() -> tl.Tensor:
            result = make()
            device.synchronize()
            return result

        return call

    for count in (SMALL, LARGE):
        side = int(count**0.5)
        x, y = (tl.Tensor(generator.standard_normal((side, side), np.float32), device=device) for _ in range(2))
        a, b = (words.reshape(each.storage.inner.data, (side, side)) for each in (x, y))
        yield "add", count, synchronized(lambda x=x, y=y: x + y), waited(lambda a=a, b=b: a + b)
        yield "exp", count, synchronized(lambda x=x: x.exp()), waited(lambda a=a: words.xp.exp(a))
        yield "sum", count, synchronized(lambda x=x: x.sum()), waited(lambda a=a: words.xp.sum(a))
        yield "matmul", count, synchronized(lambda x=x, y=y: x @ y), waited(lambda a=a, b=b: words.xp.matmul(a, b))


@click.command()
@click.argument("label")
def main(label: str) -> None:
    """Print a table of the backend of the device LABEL beside its library, in f32."""
    device = tl.Device.parse(label)
    print(f"{device!r} on {platform.machine()}, Python {platform.python_version()}, tallow {tl.__version__}\n")
    print("| op | elements | tallow, us | the library, us | ratio |\n| --- | ---: | ---: | ---: | ---: |")
    for name, count, ours, library in cases(device):
        taken, reference = time_both(ours, library)
        print(f"| {name} | {count} | {taken * 1e6:.1f} | {reference * 1e6:.1f} | {taken / reference:.2f} |")


if __name__ == "__main__":
    main()
