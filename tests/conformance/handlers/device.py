"""The device methods."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import tallow
from tallow.runtime.base.error import InvalidArgument, OutOfMemory
from tallow.runtime.core.layout import Layout

from .. import values
from ..bench import Bench, dtype_of, shape_of
from ..comparison import assert_close, assert_same, tolerance
from ..oracle import movement as oracle_movement
from ..oracle import randomness as oracle
from ..oracle.formats import COMPLEX, EXTENDED, INTEGERS, NUMPY, from_number, spacing

SEEDS = (0, 42, 2**32 - 1, 2**32, 0x0123_4567_89AB_CDEF, 2**64 - 1)
SHAPES = ((), (1,), (2,), (3,), (5,), (0,), (2, 0, 3), (4, 5), (2, 3, 1, 2, 3), (257,), (1025,))
BOUNDS = ((0.0, 1.0), (-2.5, 3.75), (0.1, 0.3), (1.0, 1.0625), (-1e-3, 1e-3), (-448.0, 448.0))
NORMALS = ((0.0, 1.0), (0.0, 0.25), (3.5, 0.5), (-100.0, 7.0), (2.0, 0.0))


def set_seed(bench: Bench) -> None:
    dtype = dtype_of("f32")
    for seed in SEEDS:
        where = bench.where(f"seed {seed}")
        for _ in range(2):
            bench.device.set_seed(seed)
            drawn = bench.device.rand_uniform_f64(0.0, 1.0, shape_of(7), dtype)
            got = bench.read(drawn, "f32", (7,), where)
            assert_same(got, oracle.uniform("f32", seed, 0, 7, 0.0, 1.0), where)
    for seed in (-1, 2**64):
        with pytest.raises(InvalidArgument):
            bench.device.set_seed(seed)


def get_current_seed(bench: Bench) -> None:
    for seed in SEEDS:
        bench.device.set_seed(seed)
        assert bench.device.get_current_seed() == seed
    bench.device.rand_uniform_f64(0.0, 1.0, shape_of(7), dtype_of("f32"))
    assert bench.device.get_current_seed() == SEEDS[-1], "drawing numbers keeps the seed"


def rand_uniform_f64(bench: Bench) -> None:
    dtype = dtype_of(bench.name)
    for seed, (low, up) in zip((*SEEDS, 7)[: len(BOUNDS)], BOUNDS, strict=True):
        bench.device.set_seed(seed)
        block = 0
        for shape in SHAPES:
            where = bench.where(f"[{low}, {up}), shape {shape}, seed {seed}, block {block}")
            count = math.prod(shape)
            drawn = bench.device.rand_uniform_f64(low, up, shape_of(*shape), dtype)
            expected = oracle.uniform(bench.name, seed, block, count, low, up)
            assert_same(bench.read(drawn, bench.name, (count,), where), expected, where)
            block += oracle.blocks_used(bench.name, count)
    wrong = ((1.0, 1.0), (2.0, 1.0), (math.nan, 1.0), (0.0, math.inf))
    _check_refusals(bench, bench.device.rand_uniform_f64, wrong)


def rand_normal_f64(bench: Bench) -> None:
    dtype = dtype_of(bench.name)
    for seed, (mean, std) in zip(SEEDS[: len(NORMALS)], NORMALS, strict=True):
        bench.device.set_seed(seed)
        block = 0
        for shape in SHAPES:
            where = bench.where(f"mean {mean}, std {std}, shape {shape}, seed {seed}, block {block}")
            count = math.prod(shape)
            drawn = bench.device.rand_normal_f64(mean, std, shape_of(*shape), dtype)
            got = bench.read(drawn, bench.name, (count,), where)
            deviation = EXTENDED(std) * oracle.normal(bench.name, seed, block, count)
            ulps = tolerance("normal", bench.name)
            # Next to a mean, what the deviation may be off counts in its own units.
            slack = ulps * spacing(bench.name, deviation) if mean else 0.0
            assert_close(bench.name, got, EXTENDED(mean) + deviation, ulps, where, slack=slack, zero_sign=False)
            block += oracle.blocks_used(bench.name, count)
    wrong = ((math.nan, 1.0), (math.inf, 1.0), (0.0, -1.0), (0.0, math.nan), (0.0, math.inf))
    _check_refusals(bench, bench.device.rand_normal_f64, wrong)


def rand_integers(bench: Bench) -> None:
    spans = ((0, 2), (-7, 3), (0, 1), (0, 2**63), (-(2**63), 0), (-(2**40), 2**33 + 1), (2**63 - 5, 2**63))
    for seed, (low, up) in zip((*SEEDS, 7), spans, strict=True):
        bench.device.set_seed(seed)
        block = 0
        for shape in SHAPES:
            where = bench.where(f"[{low}, {up}), shape {shape}, seed {seed}, block {block}")
            count = math.prod(shape)
            got = bench.read(bench.device.rand_integers(low, up, shape_of(*shape)), "i64", (count,), where)
            assert_same(got, oracle.integers(seed, block, count, low, up), where)
            block += -(-count // 2)
    for low, up in ((1, 1), (2, 1), (-(2**63) - 1, 0), (0, 2**63 + 1), (-1, 2**63)):
        with pytest.raises(InvalidArgument):
            bench.device.rand_integers(low, up, shape_of(3))


def _check_refusals(bench: Bench, draw: Callable[..., tallow.Storage], wrong: tuple[tuple[float, float], ...]) -> None:
    """`draw` refuses wrong parameters and more numbers than there is memory for, and takes none from the stream."""
    dtype = dtype_of(bench.name)
    bench.device.set_seed(7)
    for parameters in wrong:
        with pytest.raises(InvalidArgument):
            draw(*parameters, shape_of(3), dtype)
    with pytest.raises(OutOfMemory):
        draw(0.0, 1.0, shape_of(2**50), dtype)
    where = bench.where("after calls that failed")
    got = bench.read(bench.device.rand_uniform_f64(0.0, 1.0, shape_of(3), dtype), bench.name, (3,), where)
    assert_same(got, oracle.uniform(bench.name, 7, 0, 3, 0.0, 1.0), where)


def zeros(bench: Bench) -> None:
    for shape in SHAPES:
        where = bench.where(f"shape {shape}")
        count = math.prod(shape)
        got = bench.read(bench.device.zeros(shape_of(*shape), dtype_of(bench.name)), bench.name, (count,), where)
        assert_same(got, np.zeros(count, NUMPY[bench.name]), where)


def alloc_uninit(bench: Bench) -> None:
    for shape in SHAPES:
        where = bench.where(f"shape {shape}")
        count = math.prod(shape)
        storage = bench.device.alloc_uninit(shape_of(*shape), dtype_of(bench.name))
        storage.const_set(2.0, Layout.contiguous(shape_of(count)))
        got = bench.read(storage, bench.name, (count,), where)
        assert_same(got, np.full(count, from_number(bench.name, 2.0)), where)


def arange(bench: Bench) -> None:
    integers = [(0, 1), (7, -3), (-5, 0), (2**63 - 2, 1), (-(2**63), 2**62), (2**64 + 3, -(2**70) + 5)]
    floats = [(0.0, 0.1), (-3.7, 0.3), (1e5, -0.7), (1, 1e-17), (0.5, 2), (-0.0, 0.0), (1e300, 1e308), (math.nan, 1.0)]
    for start, step in integers + floats:
        for count in (0, 1, 2, 3, 7, 16, 17, 4099):
            where = bench.where(f"{count} from {start} by {step}")
            result = bench.device.arange(start, step, shape_of(count), dtype_of(bench.name))
            got = bench.read(result, bench.name, (count,), where)
            assert_same(got, oracle_movement.arange(bench.name, start, step, count), where)


def storage_from_slice(bench: Bench) -> None:
    numbers = [0.0, -0.0, 1, -1, 2.5, -3.75, 0.1, 300, 70000, -1e10, 1e300, math.inf, -math.inf, math.nan]
    if bench.name in COMPLEX:
        numbers += [1j, 2.5 - 0.1j, complex(-0.0, math.inf), complex(math.nan, -0.0)]
    for chosen in (numbers, [], [7], tuple(range(100))):
        where = bench.where(f"{len(chosen)} numbers")
        got = bench.read(
            bench.device.storage_from_slice(chosen, dtype_of(bench.name)), bench.name, (len(chosen),), where
        )
        exact = [number if isinstance(number, complex) else float(number) for number in chosen]
        expected = np.array([from_number(bench.name, number) for number in exact], NUMPY[bench.name])
        assert_same(got, expected, where)
    if bench.name in INTEGERS:
        bounds = INTEGERS[bench.name]
        extremes = [bounds.lowest, bounds.highest, bounds.highest - 1]
        got = bench.read(
            bench.device.storage_from_slice(extremes, dtype_of(bench.name)), bench.name, (3,), bench.where("extremes")
        )
        assert got.tolist() == extremes, f"integers that f64 can't hold: {got.tolist()}, expected {extremes}"


def storage(bench: Bench) -> None:
    _check_upload(bench, owned=False)


def storage_owned(bench: Bench) -> None:
    _check_upload(bench, owned=True)


def _check_upload(bench: Bench, *, owned: bool) -> None:
    upload = bench.device.storage_owned if owned else bench.device.storage
    patterns = values.sweep(bench.generator, bench.name, 2**12)
    wide = values.mixed(bench.generator, bench.name, (6, 8))
    stretched = np.broadcast_to(wide[:1], (3, 8))
    arrays = [patterns, wide, wide.T, wide[::2, 1::3], wide[::-1], stretched, wide[0, 0].reshape(()), wide[:0]]
    for array in arrays:
        where = bench.where(f"array of shape {array.shape}, strides {array.strides}")
        expected = np.ascontiguousarray(array).reshape(-1).copy()
        got = bench.read(upload(array), bench.name, expected.shape, where)
        assert_same(got, expected, where)
    if not owned:
        array = values.modest(bench.generator, bench.name, (5,))
        copy = upload(array)
        kept = array.copy()
        array[:] = 0
        assert_same(bench.read(copy, bench.name, (5,), "a changed array"), kept, "the storage has elements of its own")
        read = copy.to_numpy()
        read[:] = 0
        assert_same(bench.read(copy, bench.name, (5,), "a changed result"), kept, "to_numpy gives a copy")


def synchronize(bench: Bench) -> None:
    assert bench.device.synchronize() is None


def compile_kernel(bench: Bench) -> None:
    source = 'extern "C" __global__ void double_all(int* elements) { elements[threadIdx.x] *= 2; }'
    storage = bench.device.storage(np.arange(8, dtype=np.int32))
    bench.device.compile("double_all", source, (), "int*").launch(1, 8, storage)
    assert_same(storage.to_numpy(), 2 * np.arange(8, dtype=np.int32), "a kernel of a user's own")


def graph(bench: Bench) -> None:
    vector = Layout.contiguous(shape_of(8))
    source = bench.device.storage(np.arange(8, dtype=np.int32))
    with tallow.Graph(bench.device) as captured:
        with captured.capture():
            result = source.unary_impl(tallow.UnaryOp.NEG, vector)
        for numbers in (np.arange(8, dtype=np.int32), np.arange(3, 11, dtype=np.int32)):
            source.assign(vector, bench.device.storage(numbers), vector)
            captured.replay()
            assert_same(result.to_numpy(), -numbers, "a replay")


HANDLERS = {
    "set_seed": set_seed,
    "get_current_seed": get_current_seed,
    "rand_uniform_f64": rand_uniform_f64,
    "rand_normal_f64": rand_normal_f64,
    "rand_integers": rand_integers,
    "zeros": zeros,
    "alloc_uninit": alloc_uninit,
    "arange": arange,
    "storage_from_slice": storage_from_slice,
    "storage": storage,
    "storage_owned": storage_owned,
    "synchronize": synchronize,
    "compile": compile_kernel,
    "graph": graph,
}
