"""The kernels for the host: threads, memory, processes, and the way without them."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import shutil
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tallow as tl
from tallow.kernels import host_arguments
from tallow.runtime.backends.cpu_backend.kernels import HostKernels, address_of_array
from tallow.runtime.base.error import InvalidArgument, InvalidIndex, OutOfMemory
from tallow.runtime.compilation import host_compiler
from tallow.runtime.kernels.code_cache import CodeCache, cache_folder
from tallow.runtime.program.values import NULL

from .arrays import REALS

KERNELS = HostKernels.open()
pytestmark = pytest.mark.skipif(KERNELS is None, reason="no kernels for this machine; run 'opgen compile --host'")


@pytest.fixture
def threads() -> Iterator[None]:
    before = tl.get_threads()
    yield
    tl.set_threads(before)


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


@pytest.mark.usefixtures("threads")
def test_results_are_the_same_for_every_number_of_threads() -> None:
    x, y = tl.Tensor(random(513, 700)), tl.Tensor(random(700, 513))

    def gradients(x: tl.Tensor) -> list[tl.Tensor]:
        operands = [tl.Var(x), tl.Var(x[:, :1]), tl.Var(x[:, 1:2])]
        grads = (operands[0].scaled_dot_product_attention(*operands[1:], causal=True) * x).sum().backward()
        return [grads[each].flatten() for each in operands]

    rows = tl.Tensor(np.random.default_rng(1).integers(0, 513, (513, 700)))
    column = rows.reshape((-1, 1)), x.reshape((-1, 1)).to_dtype(tl.DType.BF16)
    blocks = tl.QTensor.quantize(tl.Tensor(random(513, 704)), "Q4_1")
    heads = tl.Tensor(random(2, 3, 150, 40))
    calls = {
        "gelu": lambda: x.gelu(),
        "transposed": lambda: x + y.t(),
        "bf16": lambda: x.to_dtype(tl.DType.BF16).exp(),
        "sum": lambda: x.sum(),
        "rows": lambda: x.sum(1),
        "columns": lambda: x.sum(0),
        "softmax": lambda: x.softmax(1),
        "row formula": lambda: x.softmin(1),
        "row formula of columns": lambda: x.softmin(0),
        "row formula of short rows": lambda: x.reshape((-1, 27)).softmin(1),
        "norm": lambda: x.rms_norm(None, 1e-5),
        "linear": lambda: x[:3].linear(x),
        "attention": lambda: heads.scaled_dot_product_attention(heads, heads, causal=True),
        "attention's gradients": lambda: tl.cat(gradients(heads), 0),
        "linear of bf16": lambda: column[1].reshape((513, 700))[:1].linear(column[1].reshape((513, 700))),
        "blocks": lambda: tl.QMatMul(blocks).forward(tl.Tensor(random(5, 704))),
        "rounded": lambda: tl.QMatMul(blocks, activations="q8_1").forward(tl.Tensor(random(3, 704))),
        "many rounded": lambda: tl.QMatMul(blocks, activations="q8_1").forward(tl.Tensor(random(77, 704))),
        "decoded": lambda: blocks.dequantize(),
        "cumsum": lambda: x.cumsum(0),
        "argsort": lambda: x.argsort(1),
        "short argsort": lambda: x.reshape((-1, 27)).argsort(1),
        "fill": lambda: x.t().contiguous()[:, 1:].fill_(0.5),
        "copy": lambda: y.t().contiguous(),
        "gather": lambda: x.gather(rows, 0),
        "index_add": lambda: x.index_add(rows[0], y.t(), 1),
        "max_pool2d": lambda: x.reshape((9, 57, 7, 100)).max_pool2d(2),
        "matmul": lambda: x.to_dtype(tl.DType.BF16) @ y.to_dtype(tl.DType.BF16),
        "matmul of f32": lambda: x[:200] @ y,
        "conv2d": lambda: x.reshape((9, 57, 7, 100)).conv2d(x.reshape((-1,))[: 40 * 57 * 6].reshape((40, 57, 2, 3))),
        "bilinear": lambda: x.reshape((9, 57, 7, 100)).upsample_bilinear2d(20, 130, False),
        "bicubic": lambda: x.reshape((9, 57, 7, 100)).upsample_bicubic2d(20, 130, False),
        "randn": lambda: tl.Tensor.randn((300, 400)),
        "scatter_add": lambda: y[:, :1].contiguous().to_dtype(tl.DType.BF16).scatter_add(*column, 0),
    }
    for name, call in calls.items():
        results = []
        for count in (1, 2, 5):
            tl.set_threads(count)
            tl.Device.cpu().set_seed(1)
            results.append(call().to_dtype(tl.DType.F32).numpy().tobytes())
        assert len(set(results)) == 1, name


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "f8e4m3", "u8", "i64"])
@pytest.mark.parametrize(
    ("shape", "dims"),
    [
        ((5, 3, 7, 7), (0, 2, 3)),
        ((400, 2, 7), (0, 2)),
        # Lanes that two runs share, and runs that end with the lanes.
        ((48, 2, 7, 7), (0, 2, 3)),
        ((31, 2, 100), (0, 2)),
        ((5, 2, 515), (0, 2)),
        # Runs that are longer than what is gathered at once, and that do not end with it.
        ((3, 2, 3136), (0, 2)),
        ((9, 2, 5, 3000), (0, 3)),
        # The last elements are few.
        ((2, 3, 1025), (0, 2)),
        ((64, 2, 64), (0, 2)),
    ],
)
def test_reductions_over_dims_apart_have_the_bits_of_those_side_by_side(
    shape: tuple[int, ...], dims: tuple[int, ...], dtype: str
) -> None:
    numbers = np.abs(random(*shape) * 3) if dtype == "u8" else random(*shape) * 3
    numbers.flat[::5], numbers.flat[1::7] = 0.0, -0.0
    x = tl.Tensor(numbers).to_dtype(dtype)
    saved = [dim for dim in range(x.rank) if dim not in dims]
    side_by_side = x.permute(*saved, *dims).contiguous()
    last = tuple(range(len(saved), x.rank))
    names = ["sum", "max", "min", "prod", *(["mean", "var", "norm", "logsumexp"] if x.dtype.is_float else [])]
    for name in names:
        actual, expected = getattr(x, name)(dims), getattr(side_by_side, name)(last)
        assert actual.numpy().tobytes() == expected.numpy().tobytes(), name
    # A NaN is found in a run, and is the only result.
    if x.dtype.is_float and x.dtype.value != "f8e4m3":
        x.narrow(dims[-1], shape[dims[-1]] - 1, 1).fill_(float("nan"))
        assert x.max(dims).isnan().all().item()


@pytest.mark.parametrize("length", [1, 2, 3, 7, 8, 9, 63, 64, 65])
def test_places_in_short_rows(length: int) -> None:
    numbers = np.random.default_rng(0).integers(-3, 3, (50, length)).astype(np.float32)
    numbers[7, length // 2] = np.nan
    x = tl.Tensor(numbers)
    np.testing.assert_array_equal(x.argmax(1).numpy(), numbers.argmax(1))
    np.testing.assert_array_equal(x.argmin(1).numpy(), numbers.argmin(1))


@pytest.mark.usefixtures("threads")
def test_a_call_from_several_threads_waits_for_none() -> None:
    from concurrent.futures import ThreadPoolExecutor

    tl.set_threads(3)
    x = tl.Tensor(random(300, 1000))
    expected = x.silu().numpy()
    with ThreadPoolExecutor(4) as pool:
        for result in pool.map(lambda _: x.silu().numpy(), range(32)):
            np.testing.assert_array_equal(result, expected)


def run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program]
    return subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_forked_process_has_threads_of_its_own() -> None:
    program = """
import os, numpy as np, tallow as tl
tl.set_threads(4)
x = tl.Tensor(np.ones((1000, 1000), np.float32))
first = x.exp().numpy()
child = os.fork()
if child == 0:
    os._exit(0 if (x.exp().numpy() == first).all() else 1)
print(os.waitpid(child, 0)[1], (x.exp().numpy() == first).all(), len(os.listdir("/proc/self/task")))
"""
    result = run(program)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("0 True")


def test_numpy_serves_without_threads_and_without_kernels() -> None:
    program = (
        "import tallow as tl; print(tl.Device.cpu().inner.kernels); print(tl.Tensor([1.0, 2.0]).exp().sum().item())"
    )
    result = run(program, TALLOW_THREADS="0")
    assert result.stdout.startswith("None\n10.107")


def test_wrong_numbers_of_threads() -> None:
    with pytest.raises(InvalidArgument, match="count is a number from 1 to 256, not 0"):
        tl.set_threads(0)
    result = run("import tallow as tl; tl.get_threads()", TALLOW_THREADS="many")
    assert "TALLOW_THREADS" in result.stderr and "'many'" in result.stderr


class Guarded:
    """Memory that ends where none may be read or written."""

    def __init__(self, nbytes: int) -> None:
        page = mmap.PAGESIZE
        full = -(-nbytes // page) * page
        self._memory = mmap.mmap(-1, full + page)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.mprotect(ctypes.c_void_p(start + full), ctypes.c_size_t(page), 0) == 0
        self.address = start + full - nbytes


@pytest.mark.parametrize("count", [1, 3, 31, 513, 1025])
@pytest.mark.parametrize(("dtype", "itemsize"), [("u8", 1), ("bf16", 2), ("f16", 2), ("f32", 4), ("f64", 8)])
def test_kernels_stay_inside_their_operands(count: int, dtype: str, itemsize: int) -> None:
    assert KERNELS is not None
    source, result, largest = Guarded(count * itemsize), Guarded(count * itemsize), Guarded(itemsize)
    states = np.empty(64, np.uint8)
    kernel, run_parts = KERNELS.address("span", f"sqr_{dtype}"), KERNELS.address("span", "run_parts")
    packed = host_arguments.map_operands(
        kernel=kernel, addresses=(result.address, source.address, *(NULL,) * 3), threads=1, operands=2, results=1,
        rank=1, itemsizes=(itemsize, itemsize, 1, 1, 1), count=count, dims=(count, *(0,) * 7),
        strides=(1, *(0,) * 7, 1, *(0,) * 31), parameters=(0, 0, 0),
    )  # fmt: skip
    KERNELS.kernel("span", "map_operands")(packed.packed())
    packed = host_arguments.fold_rows(
        result=largest.address, source=source.address, states=address_of_array(states), run_parts=run_parts, outputs=1,
        length=count, outer_run=1, outer_run_stride=0, outer_stride=0, run=0, run_stride=0, step=0, threads=1,
        parameters=(0,),
    )  # fmt: skip
    KERNELS.kernel("fold", f"max_{dtype}_rows")(packed.packed())


@pytest.mark.parametrize("shape", [(40, 50), (3, 17, 33), (2, 5, 7, 9), (1, 300), (600, 8)])
def test_operands_of_any_layout_are_brought_into_spans(shape: tuple[int, ...]) -> None:
    array = random(*shape)
    other = random(*shape[::-1])
    x, y = tl.Tensor(array).to_dtype(tl.DType.F16), tl.Tensor(other).to_dtype(tl.DType.F16)
    half, transposed = array.astype(np.float16), other.astype(np.float16)
    permuted = y.permute(tuple(reversed(range(len(shape)))))
    got = (x * permuted).numpy()
    expected = (half.astype(np.float32) * transposed.T.astype(np.float32)).astype(np.float16)
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(
        (x.flip([0]) + x[:, :1]).numpy(), (half[::-1].astype(np.float32) + half[:, :1]).astype(np.float16)
    )


def some_layouts(rank: int) -> Iterator[tuple[tl.Tensor, tuple[int, ...]]]:
    """Tensors whose dims are permuted, sliced, repeated and reversed, and some of their dims."""
    generator = np.random.default_rng(rank)
    for _ in range(60):
        sizes = generator.choice([1, 2, 3, 5, 17, 70, 130], rank)
        if sizes.prod() > 1 << 16:
            continue
        x = tl.Tensor(generator.integers(-9, 9, sizes)).to_dtype("f32").permute(generator.permutation(rank).tolist())
        if generator.random() < 0.3:
            x = x[..., ::2]
        if generator.random() < 0.3:
            x = x.narrow(0, x.shape[0] // 2, x.shape[0] - x.shape[0] // 2)
        if generator.random() < 0.2:
            x = x.narrow(1, 0, 1).broadcast_as((x.shape[0], 3, *x.shape[2:]))
        if generator.random() < 0.2:
            x = x.flip([0])
        yield x, tuple(sorted(generator.choice(rank, generator.integers(1, rank + 1), replace=False).tolist()))


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("rank", [2, 3, 4, 5])
def test_any_dims_of_any_layout_are_reduced(rank: int) -> None:
    tl.set_threads(3)
    for x, dims in some_layouts(rank):
        array = x.numpy()
        np.testing.assert_array_equal(x.sum(dims).numpy(), array.sum(dims), f"{x.layout}, {dims}")
        np.testing.assert_array_equal(x.max(dims).numpy(), array.max(dims))
        variance = array.astype(np.float64).var(dims)
        np.testing.assert_allclose(x.var(dims, correction=0).numpy(), variance, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(x.argmax(dims[0]).numpy(), array.argmax(dims[0]))


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("shape", [(5, 70, 300), (3, 2000, 2), (270_000, 1, 2)])
@pytest.mark.parametrize("dtype", [tl.DType.F32, tl.DType.BF16])
def test_indexes_choose_elements_of_any_layout(shape: tuple[int, ...], dim: int, dtype: tl.DType) -> None:
    tl.set_threads(3)
    generator = np.random.default_rng(0)
    array, terms = generator.integers(-9, 9, (2, *shape)).astype(np.float32)
    x, y = (tl.Tensor(each.T.copy()).to_dtype(dtype).permute((2, 1, 0)) for each in (array, terms))
    mark, size = np.iinfo(np.int32).max, shape[dim]
    indexes = generator.integers(0, size, shape, np.int32)
    vector = np.moveaxis(indexes, dim, 0)[:, 0, 0].copy()
    indexes[generator.random(shape) < 0.1] = mark
    at, saved = tl.Tensor(indexes), indexes != mark
    chosen = np.where(saved, indexes, 0)
    positions = tuple(chosen if axis == dim else grid for axis, grid in enumerate(np.indices(shape)))

    def rounded(values: np.ndarray) -> np.ndarray:
        return values.astype(dtype.numpy).astype(np.float32)

    np.testing.assert_array_equal(x.gather(at, dim).numpy(), np.where(saved, array[positions], 0))
    np.testing.assert_array_equal(x.index_select(tl.Tensor(vector), dim).numpy(), array.take(vector, dim))
    kept_places = tuple(grid[saved] for grid in positions)
    expected = array.copy()
    expected[kept_places] = terms[saved]
    np.testing.assert_array_equal(x.scatter(at, y, dim).numpy(), expected)
    expected = array.copy()
    np.add.at(expected, kept_places, terms[saved])
    np.testing.assert_array_equal(x.scatter_add(at, y, dim).numpy(), rounded(expected))
    expected = array.copy()
    np.add.at(np.moveaxis(expected, dim, 0), vector, np.moveaxis(terms, dim, 0))
    np.testing.assert_array_equal(x.index_add(tl.Tensor(vector), y, dim).numpy(), rounded(expected))
    # Of several wrong indexes the first one is told.
    indexes.flat[[indexes.size // 2, indexes.size // 3]] = size + 1, size + 2
    for call in (lambda at: x.gather(at, dim), lambda at: x.scatter_(at, y, dim)):
        with pytest.raises(InvalidIndex, match=f"index {size + 2} is"):
            call(tl.Tensor(indexes))
    np.testing.assert_array_equal(x.numpy(), array)


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("length", [1, 63, 64, 65, 256, 1000, 2048, 2049, 40_000])
def test_the_first_of_the_best_is_found(length: int, dtype: tl.DType) -> None:
    generator = np.random.default_rng(length)
    # There are many of each number, and rows with zeros of both signs, with NaNs, and of nothing but these.
    numbers = generator.integers(0 if dtype is tl.DType.U8 else -9, 9, (12, length)).astype(np.float32)
    numbers[1:3] = np.where(generator.random((2, length)) < 0.5, -0.0, 0.0)
    if dtype.is_float:
        numbers[3:5, length // 2 :: 7] = np.nan
        numbers[5] = np.nan
        numbers[6, -1] = np.nan
    x = tl.Tensor(numbers).to_dtype(dtype)
    held = x.to_dtype(tl.DType.F64).numpy()
    for sign, actual in ((1, x.argmax(1)), (-1, x.argmin(1))):
        np.testing.assert_array_equal(actual.numpy(), np.argmax(held * sign, 1))


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("dtype", [tl.DType.F32, tl.DType.F64])
def test_the_best_of_rows_of_any_length(dtype: tl.DType) -> None:
    for length in [*range(1, 140), 2049]:
        rows = random(length + 1, length)
        rows[0, 0] = rows[-1, -1] = np.inf
        rows[1, 0] = -np.inf
        x = tl.Tensor(rows).to_dtype(dtype)
        assert x.max(1).tolist() == rows.max(1).tolist(), length
        assert x.min(1).tolist() == rows.min(1).tolist(), length
        # A NaN wins wherever it is, and is in no other row.
        rows[range(length), range(length)] = np.nan
        x = tl.Tensor(rows).to_dtype(dtype)
        for best in (x.max(1), x.min(1)):
            assert np.isnan(best.numpy()).tolist() == [True] * length + [False], length


@pytest.mark.parametrize("dtype", [tl.DType.F32, tl.DType.BF16])
def test_a_nan_anywhere_makes_a_softmax_of_nan(dtype: tl.DType) -> None:
    for length in (1, 5, 31, 32, 33, 64, 100, 9000):
        indices = range(0, length, max(length // 100, 1))
        rows = 30 * random(len(indices) + 1, length)
        for row, index in enumerate(indices):
            rows[row, index] = np.nan
        x = tl.Tensor(rows).to_dtype(dtype)
        for result in (x.softmax(1), x.log_softmax(1)):
            is_nan = np.isnan(result.to_dtype(tl.DType.F32).numpy())
            assert is_nan[:-1].all() and not is_nan[-1].any(), length


@pytest.mark.parametrize("dtype", [tl.DType.F32, tl.DType.BF16, tl.DType.F16, tl.DType.F8E4M3])
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize(("size", "length"), [(70, 600), (600, 70), (9, 140_000)])
def test_sums_of_a_scatter_are_rounded_once_and_leave_the_rest(
    size: int, length: int, dim: int, dtype: tl.DType
) -> None:
    tl.set_threads(3)
    generator = np.random.default_rng(0)
    lines = 600 if length < 10_000 else 4
    array, terms = (generator.standard_normal((count, lines), np.float32).T for count in (size, length))
    indexes = generator.integers(0, size, (length, lines), np.int64).T
    x, y, at = (tl.Tensor(np.moveaxis(each, 1, dim).copy()) for each in (array, terms, indexes))
    x, y = x.to_dtype(dtype), y.to_dtype(dtype)
    # NaNs of other bits than those that conversions make.
    bits = np.moveaxis(x.numpy(), dim, 1).copy().view(f"u{dtype.itemsize}")
    bits[::5, ::3] = np.iinfo(bits.dtype).max - (0 if dtype is tl.DType.F8E4M3 else 5)
    x = tl.Tensor(np.moveaxis(bits.view(dtype.numpy), 1, dim).copy())
    expected = bits.view(dtype.numpy).astype(np.float32)
    values = np.moveaxis(y.to_dtype(tl.DType.F32).numpy(), dim, 1)
    rows = np.broadcast_to(np.arange(lines)[:, None], indexes.shape)
    np.add.at(expected, (rows, indexes), values)
    result = np.moveaxis(x.scatter_add(at, y, dim).numpy(), dim, 1)
    touched = np.zeros((lines, size), bool)
    touched[rows, indexes] = True
    rounded = tl.Tensor(expected).to_dtype(dtype).numpy()
    np.testing.assert_array_equal(result.astype(np.float32), rounded.astype(np.float32))
    np.testing.assert_array_equal(result.copy().view(bits.dtype)[~touched], bits[~touched])


def test_what_is_written_and_read_at_once_is_as_if_copied_first() -> None:
    array = np.arange(6000, dtype=np.float32).reshape(60, 100)
    for write in ("copy", "add"):
        x = tl.Tensor(array)
        expected = array.copy()
        if write == "copy":
            x[1:] = x[:-1]
            expected[1:] = array[:-1]
        else:
            x[:, 1:] += x[:, :-1]
            expected[:, 1:] += array[:, :-1]
        np.testing.assert_array_equal(x.numpy(), expected)


# Calls of kernels that find their places themselves, of operands that end where memory does if `tensor` has them so.
CALLS = """
def call_all(tensor):
    kinds = (np.uint8, np.uint8), (np.float16, np.int16), (np.float32, np.uint32), (np.float64, np.int64)
    for dtype, index_dtype in kinds:
        x = lambda *shape: tensor(np.arange(np.prod(shape)).reshape(shape).astype(dtype))
        index = lambda *shape: tensor((np.arange(np.prod(shape)).reshape(shape) % 3).astype(index_dtype))
        for i in (1, 7, 40):
            x(3, i, 11).index_select(index(5), 0)
            x(5, i, 3).index_select(index(700), 2)
            x(3, i, 9).gather(index(2, i, 9), 0)
            x(i, 3).gather(index(i, 1300), 1)
            x(i, 3).scatter_(index(i, 900), x(i, 900), 1)
            x(3, i).scatter_add_(index(70, i), x(70, i), 0)
            x(3, i, 2).index_add(index(9), x(9, i, 2), 0)
            x(i, 13, 9).permute((2, 1, 0)).contiguous()
            x(i, 300)[:, ::3].contiguous()
            x(i, 1).broadcast_as(i, 70).contiguous()
            tl.cat([x(i, 5), x(i, 6)], 1)
            x(i, 20)[:, 3:9].copy_(x(6, i).t())
            x(i, 20)[:, ::2].add_(x(i, 10))
            x(i, 20)[:, 3:9].fill_(2)
            x(3, 5 * i).argsort()
            x(5 * i, 3).t().argsort(descending=True)
            x(3, 30 * i).topk(5)
            x(3, i).cumsum(0)
            x(i, 3).cumsum(1)
            x(3, i).cumprod(1)
            x(3 * i).searchsorted(x(i, 3))
            x(i, 70).sum(1)
            x(70, i).max(0)
            tl.Tensor.rand((i, 33), dtype=tl.DType.F16)
            tl.Tensor.randn((i, 33))
            image = x(2, 3, i + 3, 2 * i + 2)
            image.max_pool2d((2, 3), (1, 2))
            image[:, :, :, 1:].max_pool2d(2)
            image.upsample_nearest2d(i, 5 * i)
            if dtype != np.uint8:
                x(70, i).var(0)
                x(i, 70).softmax(1)
                x(i, 70).log_softmax(1)
                for rows in x(i, 70), x(70, i).t(), x(40, i), x(9, i, 3).transpose(1, 2), x(i, 80)[:, ::2]:
                    rows.softmin(-1)
                x(i, 70).layer_norm(x(70), x(70))
                x(i, 70).cross_entropy(index(i).to_dtype(tl.DType.I64))
                angles = tensor(np.ones((i + 2, 11), np.float32))
                for interleaved in (False, True):
                    x(2, i, 22).rope(angles, angles, index(1)[0], interleaved)
                image.avg_pool2d(2)
                x(3, 5 * i).linear(x(9, 5 * i), x(9))
                x(1, i).linear(x(7, i + 3)[:, 3:])
                x(3, i) @ x(i, 300)[:, 7:]
                for half in x(2, i).to_dtype(tl.DType.BF16), x(3, i).to_dtype(tl.DType.BF16):
                    half @ half[:1].t()
                    half.linear(half)
                x(1, 4, i, 9).scaled_dot_product_attention(x(1, 2, 70, 9), x(1, 2, 70, 9), causal=True)
                image.upsample_bilinear2d(2 * i, 3 * i, False)
                image.permute((1, 0, 3, 2)).upsample_bilinear2d(9, 4, True)
                x(i, 200) @ x(200, i)
                x(i, 9).t() @ x(i, i).t()
                x(i, 40)[:, ::2].linear(x(i, 20), x(i))
                image.conv2d(x(5, 3, 2, 2), padding=1)
                image[:, :, ::2].conv2d(x(33, 3, 1, 2), stride=2, dilation=2)
                image.conv_transpose2d(x(3, 2, 3, 2), padding=1, stride=2)
    for format in "F16", "Q5_0", "Q8_0", "Q4K", "Q3K":
        x = tensor(np.ones((13, 1280), np.float32))
        blocks = tl.QTensor.quantize(x[:3], format)
        blocks.dequantize()
        for rows in x, x[:5], x[:1]:
            for activations in (None, "q8_1") if format != "F16" else (None,):
                tl.QMatMul(blocks, activations=activations).forward(rows)
"""


@pytest.mark.usefixtures("threads")
def test_kernels_that_find_their_places_stay_inside_their_operands() -> None:
    tl.set_threads(1)
    saved = []

    def tensor(array: np.ndarray) -> tl.Tensor:
        memory = Guarded(array.nbytes)
        saved.append(memory)
        guarded = np.frombuffer((ctypes.c_char * array.nbytes).from_address(memory.address), array.dtype)
        guarded[:] = array.reshape(-1)
        storage = tl.Device.cpu().storage_owned(guarded)
        assert storage.inner.address == memory.address
        return tl.Tensor.from_storage(storage, array.shape)

    scope: dict[str, object] = {"np": np, "tl": tl}
    exec(CALLS, scope)
    scope["call_all"](tensor)  # type: ignore[operator]


def test_a_plan_keeps_nothing_and_reports_what_fails() -> None:
    x = tl.Tensor(random(3, 5))
    inner = x.storage.inner
    inner.device.plans.clear()
    x.clamp(-1.0, 1.0)
    x.layer_norm(None, None, 1e-5)
    clamp, norm = inner.device.plans.values()
    held = inner, inner.device, inner.dtype
    before = [sys.getrefcount(each) for each in held]
    for _ in range(100):
        assert (clamp(inner, -0.5, 0.5).data == inner.data.clip(-0.5, 0.5)).all()
        result = weakref.ref(norm(inner)[0].data)
        assert result() is None
        for wrong in ((), (inner, 1.0)):
            with pytest.raises(TypeError, match="another number of arguments"):
                clamp(*wrong)
        with pytest.raises(AttributeError, match="address"):
            norm(3)
    # A hundred calls that kept something would show.
    assert all(sys.getrefcount(each) < count + 50 for each, count in zip(held, before, strict=True))
    with pytest.raises(OutOfMemory, match=f"cpu: no memory for {4 << 50} bytes"):
        tl.Tensor(1.0).broadcast_as((1 << 50,)).gelu()


@pytest.mark.full
@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
@pytest.mark.parametrize("family", host_compiler.FAMILIES)
def test_a_family_is_compiled_by_gxx(family: str) -> None:
    """Where no clang is installed, g++ compiles the kernels when the package is first used."""
    target = host_compiler.native_target()
    assert target is not None
    compiler = next(each for each in host_compiler.compilers(target) if each.toolchain.name == "gcc")
    assert compiler.compile(host_compiler.read_source(f"{family}.cpp"), f"{family}.cpp")


@pytest.mark.full
@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ has the sanitizers")
def test_kernels_under_sanitizers(tmp_path: Path) -> None:
    sources, headers = Path(tl.__file__).parent / "kernels", Path(tl.__file__).parent / "runtime/kernels"
    # One of each function is enough; NumPy does what the others would do.
    some = "fill_b16|argsort_f16|argsort_i64|add_f16|map_operands|join_rows|gather|scatter_set_b8"
    some += "|scatter_add_f16|scatter_add_f32"
    some += "|max_pool2d_f16|avg_pool2d_f32|upsample_nearest_b8|upsample_bilinear2d_f16|matmul_f16|convolve_f32"
    some += "|attend_f32|product_(bf16|f16|f64)|product_of_columns_(bf16|f16|f64)|block_product_F16"
    some += "|(block_product|rounded_product|decode)_(Q5_0|Q8_0|Q4K|Q3K)|decode_F16"
    some += "|sum_f16_rows|max_f32_columns|var_f32_columns|softmax_f16|log_softmax_f32|layer_norm_f16"
    some += "|softmin_(f16|f32)|uniform_f16|normal_f32|cross_entropy_f32|rope_f16|scan_sum_f16|scan_prod_u8|search_f16"
    flags = "-DTALLOW_VECTOR -std=c++17 -O0 -w -shared -fPIC -pthread -fno-exceptions -fsanitize=address,undefined"
    families = "span", "fold", "host_index", "host_product", "host_few_rows", "host_random", "host_row", "host_rows"
    families += "host_window", "host_attention", "host_sort", "host_scan", "host_blocks"
    version = subprocess.check_output(["g++", "--version"], text=True)
    included = [file.read_text() for folder in (sources, headers) for file in sorted(folder.glob("*.hpp"))]
    for family in families:
        lines = (sources / f"{family}.cpp").read_text().splitlines()
        saved = [line for line in lines if not re.match(rf"TALLOW_KERNEL\((?!({some}),)", line)]
        source, library = tmp_path / f"{family}.cpp", tmp_path / f"{family}.so"
        source.write_text("\n".join(saved))

        def compiled(source: Path = source, library: Path = library) -> bytes:
            command = ["g++", *flags.split(), '-DTALLOW_TARGET="x86-64"', f"-I{sources}", f"-I{headers}", str(source)]
            subprocess.run([*command, "-o", str(library)], check=True)
            return library.read_bytes()

        # Once, as long as all sources are the same.
        made_of = (version, flags, source.read_text(), *included)
        library.write_bytes(CodeCache(cache_folder()).get(made_of, compiled, bytes))
    program = f"""
import ctypes, numpy as np, tallow as tl
from tallow.runtime.backends.cpu_backend.kernels import HostKernels
kernels = HostKernels({{name: ctypes.CDLL(f"{tmp_path}/{{name}}.so") for name in {families}}})
HostKernels.open = classmethod(lambda cls: kernels)
{CALLS}
call_all(tl.Tensor)
"""
    results = [
        subprocess.check_output(["g++", f"-print-file-name=lib{name}.so"], text=True) for name in ("asan", "ubsan")
    ]
    options = {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "halt_on_error=1", "TALLOW_THREADS": "2"}
    result = run(program, LD_PRELOAD=":".join(map(str.strip, results)), **options)
    assert result.returncode == 0, result.stderr


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("dtype", [tl.DType.U8, tl.DType.BF16, tl.DType.F64])
@pytest.mark.parametrize("count", [1, 3])
def test_rows_of_any_length_are_joined(dtype: tl.DType, count: int) -> None:
    generator = np.random.default_rng(0)
    tl.set_threads(count)
    short = *range(1, 10), 16, 32
    for rows, widths in [(1, (70_001, 3, 140_000)), (700, (1, 99, 400)), (5, short), (20_000, short), (3, (4,))]:
        arrays = [generator.integers(0, 9, (rows + 1, width)) for width in widths]
        tensors = [tl.Tensor(array).to_dtype(dtype)[1:] for array in arrays]
        tensors[-1] = tensors[-1].T.contiguous().T
        got = tl.cat(tensors, 1).to_dtype(tl.DType.I64).numpy()
        np.testing.assert_array_equal(got, np.concatenate(arrays, 1)[1:])


def test_many_rows_are_joined() -> None:
    arrays = [random(3, width, 2) for width in (4, 0, *range(1, 31))]
    tensors = [tl.Tensor(array) for array in arrays]
    np.testing.assert_array_equal(tl.cat(tensors, 1).numpy(), np.concatenate(arrays, 1))
    np.testing.assert_array_equal(tl.cat([x[:2] for x in tensors], 1).numpy(), np.concatenate(arrays, 1)[:2])
    # Two of the operands are in too many strides to be joined with others.
    blocks = [random(2, 3, 4, 5, 6)[:, ::2, ::3, ::2, ::5] for _ in range(2)]
    arrays = [random(2, 2, 2, 3, 2), *blocks, random(2, 2, 2, 3, 2)]
    for dim in range(5):
        tensors = [tl.Tensor(array) for array in arrays]
        tensors[1:3] = [tl.Tensor(block.base)[:, ::2, ::3, ::2, ::5] for block in blocks]
        np.testing.assert_array_equal(tl.cat(tensors, dim).numpy(), np.concatenate(arrays, dim))


@pytest.mark.parametrize("size", [2**50, 2**64 - 1])
def test_images_for_which_there_is_no_room(size: int) -> None:
    line, image = tl.Tensor(random(1, 2, 4)), tl.Tensor(random(1, 2, 4, 4))
    for upsample in (
        lambda: line.upsample_nearest1d(size),
        lambda: image.upsample_nearest2d(size, 2),
        lambda: image.upsample_bilinear2d(2, size, False),
        lambda: image.upsample_bicubic2d(2, size, False),
    ):
        with pytest.raises(OutOfMemory):
            upsample()


def test_reductions_of_rows_with_two_outer_strides() -> None:
    array = np.random.default_rng(0).integers(-9, 9, (5, 6, 7, 8, 3))
    x = tl.Tensor(array)
    for view, dims in (
        ((slice(None),), (1, 3)),
        ((slice(None),), (0, 2, 4)),
        ((slice(None), slice(None, None, 2)), (3, 4)),
        ((slice(1, None), slice(None), slice(None, None, 3)), (4,)),
        ((slice(None), slice(None), slice(None, None, 2)), (3,)),
        ((slice(None), slice(None, None, 2), slice(None), slice(None, None, 2)), (2,)),
    ):
        for dtype in ("i64", "f32", "bf16"):
            part, expected = x.to_dtype(dtype)[view], array[view]
            assert np.array_equal(part.sum(dims).to_dtype("i64").numpy(), expected.sum(dims)), (view, dims, dtype)
            assert np.array_equal(part.max(dims).to_dtype("i64").numpy(), expected.max(dims)), (view, dims, dtype)


@pytest.mark.parametrize("name", ["f32", "f64", "complex64", "complex128"])
def test_determinants_overflow_only_in_the_result(name: str) -> None:
    large = 2.0**100 if name in ("f32", "complex64") else 2.0**1000
    numbers = np.diag([large, large, 1 / large, 1 / large, -3])
    dtype = tl.DType(name)
    matrices = tl.Tensor(
        np.stack([numbers, numbers @ np.diag([1, 1, 1, 1, large]), numbers @ np.diag([1, 1, large, large, 1])])
    )
    matrices = matrices.to_dtype(dtype)
    assert tl.linalg.det(matrices).numpy().real.tolist() == [-3.0, -3.0 * large, -np.inf]
    sign, logarithm = tl.linalg.slogdet(matrices)
    assert sign.numpy().real.tolist() == [-1.0] * 3
    expected = np.log(3) + np.log(large) * np.arange(3)
    np.testing.assert_allclose(logarithm.numpy(), expected, 1e-6)


def test_a_value_that_is_not_finite_spoils_its_column_alone() -> None:
    x, values = random(4, 4) + 4 * np.eye(4, dtype=np.float32), random(4, 40)
    values[2, 3], values[0, 35] = np.inf, np.nan
    solved = tl.linalg.solve(tl.Tensor(x), tl.Tensor(values)).numpy()
    assert np.isnan(solved).all(0).nonzero()[0].tolist() == [3, 35]
    assert np.isfinite(np.delete(solved, [3, 35], 1)).all()


@pytest.mark.parametrize("number", [0, 2, -3, 2**24, 2**24 + 1, -(2**53) - 1, 2**70 + 1])
def test_integers_are_rounded_once_to_the_numbers_of_a_kernel(number: int) -> None:
    for name in ("f32", "f64"):
        ones = tl.ones((1,), dtype=name)
        assert ones.affine(number, 0).item() == np.array(number, object).astype(name.replace("f", "float")).item()
