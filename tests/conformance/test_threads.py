"""One device used from several threads at once gives each of them what it gives one alone, bit for bit."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tallow as tl
from tallow.runtime.backends.gpu_backend.execute.program import GpuPlan
from tallow.runtime.backends.plan import Key, Plan, Plans

from . import matrix
from .oracle.formats import Array

THREADS = 8


def cast(x: tl.Tensor) -> tl.Tensor:
    """The elements in one floating-point dtype after the other, of those that the backend has."""
    for name in ("f64", "bf16", "f16"):
        if name in matrix.dtypes_of(x.device.backend):
            x = x.to_dtype(name)
    return x


Program = Callable[[tl.Tensor, tl.Tensor, tl.Tensor], tl.Tensor]
# What has memory, plans or a library's handle of its own besides operands and result. Each takes x and y of shape
# (96, 80), and one index below 80 for each element.
PROGRAMS: dict[str, Program] = {
    "map": lambda x, y, _: (x.exp() + y * 3 - 1).relu() / 2,
    "transposed": lambda x, y, _: (x.T + y.T * 2).contiguous(),
    "where": lambda x, y, _: (x > y).where(x, 0.5),
    "cast": lambda x, *_: cast(x),
    "matmul": lambda x, y, _: x @ y.T,
    "matmul of a view": lambda x, y, _: x.T[:, 3:50] @ y[5:52],
    "matmul of a cast": lambda x, y, _: cast(x) @ cast(y).T,
    "matmul i64": lambda _, __, i: i @ i.T,
    "conv2d": lambda x, y, _: x.reshape(2, 4, 24, 40).conv2d(y.reshape(40, 4, 6, 8)[:, :, :3, :3], padding=1),
    "conv1d": lambda x, y, _: x.reshape(4, 8, 240).conv1d(y.reshape(96, 8, 10), stride=2),
    "conv_transpose2d": lambda x, y, _: x.reshape(2, 4, 24, 40).conv_transpose2d(y.reshape(4, 30, 8, 8)[:, :, :3, :3]),
    "pool": lambda x, *_: x.reshape(2, 4, 24, 40).avg_pool2d(3) + x.reshape(2, 4, 24, 40).max_pool2d(3),
    "upsample": lambda x, *_: x.reshape(2, 4, 24, 40).upsample_bilinear2d(50, 30),
    "sum": lambda x, *_: x.sum(),
    "sum of columns": lambda x, *_: x.sum(dim=0),
    "extremes": lambda x, y, _: x.max(dim=1) - y.min(dim=1),
    "places": lambda x, *_: x.argmax(dim=0),
    "gather": lambda x, _, i: x.gather(i, 1),
    "index_select": lambda x, _, i: x.index_select(i[0], 0),
    "scatter": lambda x, y, i: x.scatter(i, y, 1),
    "scatter_add": lambda x, y, i: x.scatter_add(i, y, 1),
    "index_add": lambda x, y, i: x.index_add(i[0], y.T.contiguous().T[:80], 0),
    "cat": lambda x, y, _: tl.cat([x, y, x.T.contiguous().reshape(96, 80)], 1),
    "in place": lambda x, y, i: x.copy().scatter_(i, y, 1).fill_(2),
}


@pytest.fixture
def switching() -> Iterator[None]:
    """Threads take turns all the time, not each for five milliseconds."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def test_threads_share_a_device(device: tl.Device, switching: None, full: bool) -> None:
    generator = np.random.default_rng(7)

    def operands() -> tuple[Array, Array, Array]:
        return *generator.standard_normal((2, 96, 80), np.float32), generator.integers(0, 80, (96, 80))

    inputs = [operands() for _ in range(THREADS)]
    run = {
        (thread, name): lambda program=program, arrays=arrays: program(
            *(tl.Tensor(array, device=device) for array in arrays)
        ).numpy()
        for thread, arrays in enumerate(inputs)
        for name, program in PROGRAMS.items()
    }
    alone = {key: program().tobytes() for key, program in run.items()}
    start = threading.Barrier(THREADS)

    def work(thread: int) -> list[str]:
        names = random.Random(thread).sample(list(PROGRAMS), len(PROGRAMS)) * (3 if full else 1)
        start.wait()
        return [name for name in names if run[thread, name]().tobytes() != alone[thread, name]]

    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(work, range(THREADS))) == [[]] * THREADS


# What kernels of the host or a library refuse for some reason, so that another function does it.
REFUSED: dict[str, Program] = {
    "power": lambda x, *_: x.powf(2.5).to_dtype("i16").flip(1),
    "many short tensors": lambda x, *_: tl.cat([x[:1]] * 20),
    "rolled": lambda x, *_: x.roll(1, 0),
    "products of integers": lambda _, __, i: i.T @ i,
    "sort of columns": lambda x, *_: x.sort(0)[0],
}


class Remembered(Plans):
    """Plans, with the keys of those that were put there."""

    def __init__(self) -> None:
        super().__init__()
        self.keys_of_plans: list[Key] = []

    def store(self, key: Key, plan: Plan) -> None:
        """Note the key, unless what is compiled takes the place of what compiled it."""
        if isinstance(plan, GpuPlan) or not isinstance(self.get(key), GpuPlan):
            self.keys_of_plans.append(key)
        super().store(key, plan)


def test_no_plan_refuses(device: tl.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan of a function that refuses a call would be found by another thread before the right one is there."""
    generator = np.random.default_rng(7)
    arrays = *generator.standard_normal((2, 96, 80), np.float32), generator.integers(0, 80, (96, 80))
    x, y, i = (tl.Tensor(array, device=device) for array in arrays)
    for name, program in (PROGRAMS | REFUSED).items():
        plans = Remembered()
        monkeypatch.setattr(x.storage.inner.device, "plans", plans)
        program(x, y, i).numpy()
        twice = {key for key in plans.keys_of_plans if plans.keys_of_plans.count(key) > 1}
        assert twice == set(), name


def test_threads_pass_tensors_on(device: tl.Device, switching: None) -> None:
    """What a thread makes, another one reads, changes and drops, without waiting for the device in between."""
    array = np.arange(5000, dtype=np.float32)

    def work(tensor: tl.Tensor) -> tl.Tensor:
        return (tensor + 1).T.contiguous()

    with ThreadPoolExecutor(THREADS) as pool:
        tensors = [tl.Tensor(array + number, device=device) for number in range(THREADS)]
        for _ in range(20):
            tensors = [*pool.map(work, tensors)]
            tensors = tensors[1:] + tensors[:1]
        for number, tensor in enumerate(tensors):
            expected = array + (number + 20) % THREADS + 20
            assert tensor.numpy().tobytes() == expected.astype(np.float32).tobytes()


def test_threads_draw_from_one_stream(device: tl.Device, switching: None) -> None:
    """No draw is given twice, and none is lost: together they are what one thread draws."""
    draws, count = 40, 1000
    device.set_seed(11)
    alone = {tl.Tensor.rand((count,), device=device).numpy().tobytes() for _ in range(THREADS * draws)}
    device.set_seed(11)
    start = threading.Barrier(THREADS)

    def work(_: int) -> list[bytes]:
        start.wait()
        return [tl.Tensor.rand((count,), device=device).numpy().tobytes() for _ in range(draws)]

    with ThreadPoolExecutor(THREADS) as pool:
        together = [drawn for drawn_by_one in pool.map(work, range(THREADS)) for drawn in drawn_by_one]
    assert len(set(together)) == len(together)
    assert set(together) == alone
