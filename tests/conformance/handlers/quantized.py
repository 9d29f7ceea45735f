"""Weights in blocks: what they are decoded to, rows of them, and products with them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import numpy as np
import pytest
import tallow
from tallow.runtime.base.error import InvalidArgument

from .. import calls
from ..bench import Bench, read
from ..comparison import assert_same
from ..layouts import Case, Operand
from ..matrix import dtypes_of
from ..oracle import blocks as oracle
from ..oracle.formats import EXTENDED, NO_ROW, NUMPY, Array, encode
from .indexing import check_bad_indexes, draw_indexes

# Zeros, subnormal, ordinary and the largest scales of 16 bits, of both signs.
SCALES = (0.0, -0.0, 2**-24, -(2**-24), 2**-14 - 2**-24, 2**-14, 0.1, -1.0, 3.5, 65504.0, -65504.0)
# Those that only floats with the exponents of f32 have.
WIDE_SCALES = (2**-149, -(2**-149), 2**-133, 2**-126 - 2**-149, 2**-126, 2.0**127, -(2.0**127))
# How far a weight may be off after quantising numbers from -1 to 1 alone, in units of the largest of a block.
STEPS = {"Q4": 0.14, "Q5": 0.07, "Q8": 0.01, "Q2": 0.6, "Q3": 0.4, "Q6": 0.06, "F1": 0.001, "BF": 0.01, "F3": 0}
STEPS |= {"TQ": 0.51, "MX": 0.26, "IQ": 0.14}


def random_bytes(bench: Bench, weights: int, scales: Sequence[float] = ()) -> Array:
    """Bytes of blocks of any bits, with floats of some scales; by default of all that the format has."""
    wide = WIDE_SCALES if bench.name in ("F32", "BF16", "Q8K", "MXFP4") else ()
    return oracle.random_blocks(bench.generator, bench.name, weights, scales or (*SCALES, *wide))


def on_device(bench: Bench, data: Array) -> tallow.QStorage:
    return tallow.QStorage.from_data(data, bench.device, bench.name)


def counts(bench: Bench) -> tuple[int, ...]:
    length = oracle.SIZES[bench.name][0]
    return (0, 1, 3, 5, 8, 9, 1030) if length == 1 else (0, length, 7 * length, 37 * length)


def facts(bench: Bench) -> None:
    length, size = oracle.SIZES[bench.name]
    for count in counts(bench):
        data = random_bytes(bench, count)
        blocks = on_device(bench, data)
        assert (blocks.length, blocks.dtype.value, blocks.device) == (count, bench.name, bench.device)
        assert (blocks.block_size, blocks.size_in_bytes) == (length, count // length * size)
        assert blocks.data.tobytes() == data.tobytes()


def dequantize(bench: Bench) -> None:
    name = "f16" if bench.cell.method == "dequantize_f16" else "f32"
    for count in counts(bench):
        data = random_bytes(bench, count)
        with np.errstate(over="ignore"):
            expected = oracle.decode(bench.name, data).astype(NUMPY[name])
        where = bench.where(f"{count} weights")
        blocks = on_device(bench, data)
        got = read(getattr(blocks, bench.cell.method)(count), name, (count,), where)
        assert_same(got, expected, where)
    with pytest.raises(InvalidArgument, match="elem_count is that of the blocks"):
        getattr(blocks, bench.cell.method)(count + 1)


def quantize(bench: Bench) -> None:
    length = oracle.SIZES[bench.name][0]
    for case in (
        Case((4, length)),
        Case((3, 2 * length), "offset"),
        Case((length, 5), "transposed"),
        Case((0, length)),
    ):
        numbers = bench.generator.uniform(-1, 1, case.shape)
        source = bench.lay_out(encode("f32", numbers.astype(EXTENDED)), case.placement, "f32")
        blocks = tallow.QStorage.zeros(bench.device, numbers.size, bench.name)
        for _ in range(2):
            blocks.quantize(source.storage, source.layout)
        off = np.abs(oracle.decode(bench.name, blocks.data) - source.values.reshape(-1))
        assert off.max(initial=0) <= STEPS.get(bench.name[:2], 0.2), bench.where(case)


def embedding(bench: Bench) -> None:
    hidden = oracle.SIZES[bench.name][0] * (2 if oracle.SIZES[bench.name][0] > 1 else 33)
    data = random_bytes(bench, 5 * hidden)
    blocks = on_device(bench, data)
    for index_name in NO_ROW:
        for placement in ("contiguous", "narrowed columns"):
            ids = bench.lay_out(draw_indexes(bench, index_name, (9,), 5), placement, index_name)
            where = bench.where(f"{index_name}, {placement}")
            got = read(blocks.embedding(5, hidden, ids.storage, ids.layout), "f32", (9, hidden), where)
            rows = data.reshape(5, -1)
            chosen = [
                np.zeros_like(rows[0]) if index == NO_ROW[index_name] else rows[int(index)] for index in ids.values
            ]
            with np.errstate(over="ignore"):
                expected = oracle.decode(bench.name, np.concatenate(chosen))
            assert_same(got, expected.reshape(9, hidden), where)

    def call(ids: Operand) -> object:
        return blocks.embedding(5, hidden, ids.storage, ids.layout)

    check_bad_indexes(bench, "i64", (6,), 5, call)


# Rows of x, its dtype, and how it lies.
FACTORS = (
    *((1, "f32", "contiguous"), (8, "f32", "offset"), (9, "f32", "transposed"), (0, "f32", "contiguous")),
    *((3, "f16", "narrowed columns"), (2, "bf16", "transposed"), (9, "bf16", "offset")),
    *((19, "f32", "offset"), (35, "f32", "contiguous")),
)


def fwd(bench: Bench) -> None:
    length, is_gpu = oracle.SIZES[bench.name][0], bench.device.backend in ("cuda", "rocm")
    for rows, hidden in (
        (5, 3 * max(length, 32)),
        (16, max(length, 16)),
        (3, length),
        (0, length),
        (3, 9 * max(length, 256)),
    ):
        data = random_bytes(bench, rows * hidden, (0.0, -0.5, 1.0, 0.1))
        blocks, weights = on_device(bench, data), oracle.decode(bench.name, data).reshape(rows, hidden)
        for held, name, placement in bench.some(FACTORS):
            if name not in dtypes_of(bench.device.backend):
                continue
            numbers = bench.generator.normal(0, 0.05, (held, hidden)).astype(EXTENDED)
            x = bench.lay_out(encode(name, numbers), placement, name)
            for activations in (None,) if length == 1 else (None, "q8_1"):
                where = bench.where(f"{name} ({held}, {hidden}) by {rows}, {placement}, {activations}")
                result = blocks.fwd(rows, hidden, x.storage, x.layout, activations)
                got = read(result, name, (held, rows), where).astype(np.float64)
                # GPUs may multiply more rows that may be rounded in bf16, and others as they are.
                is_rounded = activations is not None and not (is_gpu and held > 16)
                expected = oracle.product(bench.name, data, x.values, activations if is_rounded else None)
                magnitude = np.abs(x.values.astype(np.float64)) @ np.abs(weights.astype(np.float64).T)
                unit = {"f32": 2**-24, "f16": 2**-11, "bf16": 2**-8}[name]
                if name == "f32" and activations and not is_rounded:
                    unit = 2**-9
                # More rows are multiplied with weights that are rounded to the dtype of x.
                slack = magnitude * (2 * unit + hidden * 2**-24) + 2**-24
                assert (np.abs(got - expected) <= slack).all(), where
                bench.assert_untouched(x, where)
    with pytest.raises(InvalidArgument, match="activations is"):
        blocks.fwd(rows, hidden, x.storage, x.layout, "q8_1" if length == 1 else "q4")
    check_few(bench)


def check_few(bench: Bench) -> None:
    """A row of x has the same bits alone, among others, and again."""
    length = oracle.SIZES[bench.name][0]
    rows, hidden = 7, 10 * max(length, 32)
    blocks = on_device(bench, random_bytes(bench, rows * hidden, (-0.5, 1.0, 0.1)))
    x = bench.lay_out(bench.generator.normal(0, 1, (8, hidden)).astype(np.float32), name="f32")
    for activations in (None,) if length == 1 else (None, "q8_1"):
        where = bench.where(f"a row alone, {activations}")
        every = read(blocks.fwd(rows, hidden, x.storage, x.layout, activations), "f32", (8, rows), where)
        for first, held in ((0, 1), (3, 1), (2, 5), (0, 8)):
            layout = x.layout.narrow(0, first, held)
            result = blocks.fwd(rows, hidden, x.storage, layout, activations)
            assert_same(read(result, "f32", (held, rows), where), every[first : first + held], where)


def joined(bench: Bench) -> None:
    """What makes x gives the same bits joined with the product: of few rows and of more, short ones and long."""
    length = oracle.SIZES[bench.name][0]
    cases = (
        *((max(length, 32), 3), (3 * max(length, 32), 9), (0, 2), (5 * 256, 0)),
        *((256, 8), (9 * 256, 1), (16 * 256, 5), (17 * 256, 2)),
    )
    # Calls with either operand, with both and with neither; without --full each call is one of two halves of them.
    optional = [*itertools.product((True, False), repeat=2)]
    halves = (optional, optional) if bench.full else (optional[::3], optional[1:3])
    for hidden, held in bench.some(cases):
        blocks = on_device(bench, random_bytes(bench, 5 * hidden, (0.0, -0.5, 1.0, 0.1)))
        choices = itertools.product(("contiguous", "transposed"), (None, "q8_1"))
        for number, (placement, activations) in enumerate(choices):
            if activations is None or length > 1:
                where = bench.where(f"({held}, {hidden}), {placement}, {activations}")
                x, y, weight = (
                    bench.lay_out(bench.generator.normal(0, 1, shape).astype(np.float32), laid, "f32")
                    for shape, laid in (((held, hidden), placement), ((held, hidden), "offset"), ((hidden,), "offset"))
                )
                check_joined(bench, blocks, (x, y, weight), halves[(number + held) % 2], activations, where)
                bench.assert_untouched(x, where)


def check_joined(
    bench: Bench,
    blocks: tallow.QStorage,
    operands: tuple[Operand, ...],
    optional: Iterable[tuple[bool, bool]],
    activations: str | None,
    where: str,
) -> None:
    """Compare joined calls, each with or without a scale and an addend, with those that they join."""
    parts = [(operand.storage, operand.layout) for operand in operands]
    (x, layout), y, weight = parts
    held, hidden = layout.shape

    def product(output: tallow.Storage) -> Array:
        return read(blocks.fwd(5, hidden, output, calls.layout(held, hidden), activations), "f32", (held, 5), where)

    if bench.cell.method == "fwd_silu_mul":
        gated = x.binary_impl(tallow.BinaryOp.SILU_MUL, y[0], layout, y[1])
        result = blocks.fwd_silu_mul(5, hidden, x, layout, *y, activations)
        assert_same(read(result, "f32", (held, 5), where), product(gated), where)
        return
    for has_scale, has_addend in optional:
        scale, added = (
            each if is_passed else (None, None) for each, is_passed in ((weight, has_scale), (y, has_addend))
        )
        normed, *sums = x.rms_norm(layout, *scale, *added, 1e-5)
        result, *others = blocks.fwd_rms_norm(5, hidden, x, layout, *scale, *added, activations, 1e-5)
        assert_same(read(result, "f32", (held, 5), where), product(normed), where)
        assert len(others) == len(sums)
        for one, other in zip(others, sums, strict=True):
            assert_same(*(read(each, "f32", (held, hidden), where) for each in (one, other)), where)


def zeros(bench: Bench) -> None:
    for name, (length, size) in oracle.SIZES.items():
        blocks = bench.device.quantized_zeros(3 * length, name)
        assert blocks.data.tobytes() == bytes(3 * size)
        if length > 1:
            with pytest.raises(InvalidArgument, match=f"a multiple of the {length} weights of a {name} block"):
                bench.device.quantized_zeros(length + 1, name)


def from_data(bench: Bench) -> None:
    for name, (length, size) in oracle.SIZES.items():
        data = bench.generator.integers(0, 256, 5 * size, np.uint8)
        blocks = bench.device.quantized_from_data(data, calls.format_of(name))
        assert (blocks.length, blocks.data.tobytes()) == (5 * length, data.tobytes())
        data[:] = 0
        assert blocks.data.any(), "the caller's memory is the blocks'"
        for wrong in (data[1:], data.view(np.int8), data[::2]):
            with pytest.raises(InvalidArgument, match=f"{size} bytes for each {name} block"):
                bench.device.quantized_from_data(wrong, name)


HANDLERS = {
    "block_size": facts,
    "size_in_bytes": facts,
    "data": facts,
    "dequantize": dequantize,
    "dequantize_f16": dequantize,
    "quantize": quantize,
    "embedding": embedding,
    "fwd": fwd,
    "fwd_rms_norm": joined,
    "fwd_silu_mul": joined,
    "quantized_zeros": zeros,
    "quantized_from_data": from_data,
}
