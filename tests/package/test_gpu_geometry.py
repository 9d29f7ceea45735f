"""How the ops of the GPU backends share elements among launches, blocks and threads. No GPU needed."""

import math
from itertools import product

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tallow.runtime.backends.gpu_backend.driver.grid import MAX_BLOCKS
from tallow.runtime.backends.gpu_backend.ops import copy, reduce
from tallow.runtime.backends.gpu_backend.ops.geometry import LIMIT, divisor, parts, split, tiled

RANK = 8


def places(dims, strides):
    """Where each element is, in row-major order."""
    return [sum(map(math.prod, zip(index, strides, strict=True))) for index in np.ndindex(*dims)]


def located(count, geometry, operands):
    """What kernels make of the elements of a geometry, rank, dims, multipliers, shifts and strides: their places."""
    rank, *remaining = geometry
    dims, multipliers, shifts = (remaining[start : start + RANK] for start in (0, RANK, 2 * RANK))
    strides = [remaining[start : start + RANK] for start in range(3 * RANK, (3 + operands) * RANK, RANK)]
    for element in range(count):
        result, index = [0] * operands, element
        for dim in range(rank):
            quotient = ((index * multipliers[dim] >> 32) + index) >> shifts[dim]
            for operand in range(operands):
                result[operand] += (index - quotient * dims[dim]) * strides[operand][dim]
            index = quotient
        yield tuple(result)


shapes = st.lists(st.integers(1, 5), max_size=5).map(tuple)


@st.composite
def strided(draw, operands=2):
    """A shape and the strides of operands, which may broadcast, be permuted or skip."""
    shape = draw(shapes)
    strides = []
    for _ in range(operands):
        steps, step = [0] * len(shape), draw(st.sampled_from((1, 1, 1, 2)))
        for dim in draw(st.permutations(range(len(shape)))) if draw(st.booleans()) else reversed(range(len(shape))):
            steps[dim] = 0 if draw(st.integers(0, 5)) == 0 else step
            step *= shape[dim] * draw(st.sampled_from((1, 1, 1, 1, 2)))
        strides.append(tuple(steps))
    return shape, tuple(strides)


@given(st.integers(1, LIMIT - 1), st.integers(0, LIMIT - 1))
def test_a_product_divides(size, index):
    multiplier, shift = divisor(size)
    assert multiplier < 1 << 32
    assert ((index * multiplier >> 32) + index) >> shift == index // size


@given(strided(), st.integers(2, 40))
def test_parts_reach_every_element_in_order(drawn, limit):
    shape, strides = drawn
    actual = []
    for part in parts(7, shape, strides, limit):
        count = part.elements
        assert part.first == len(actual)
        assert 0 < count < limit
        assert part.blocks == -(-count // 7)
        offsets = part.offsets
        actual += [tuple(map(sum, zip(offsets, index, strict=True))) for index in located(count, part.geometry, 2)]
    assert actual == list(zip(*(places(shape, operand) for operand in strides), strict=True))


def test_a_part_begins_where_whole_accesses_fit():
    pieces = list(split((2 * LIMIT + 5,), [(1,)]))
    assert [piece.first % 16 for piece in pieces] == [0, 0, 0]
    assert sum(math.prod(piece.dims) for piece in pieces) == 2 * LIMIT + 5


@settings(max_examples=30)
@given(strided(operands=1), st.sampled_from((1, 2, 4, 8)), st.integers(16, 70), st.integers(16, 70))
def test_tiles_turn_every_element_once(drawn, itemsize, lines, columns):
    outer, (steps,) = drawn
    assume(len(outer) <= 3)
    dims = (*outer, lines, columns)
    strides = [copy.row_major(dims), (*(step * lines * columns for step in steps), 1, lines)]
    launches = tiled(dims, strides, 1, itemsize)
    assert launches is not None
    (part,) = launches
    side = {1: 128, 2: 64, 4: 32, 8: 32}[itemsize]
    assert (part.elements, part.blocks) == (0, math.prod(outer) * -(-lines // side) * -(-columns // side))
    count = math.prod(dims)
    assert part.geometry[1:3] == (columns, lines)
    assert sorted(located(count, part.geometry, 2)) == sorted(
        zip(*(places(dims, operand) for operand in strides), strict=True)
    )


def test_more_tiles_than_a_launch_has_blocks_are_several_launches():
    count = 2 * MAX_BLOCKS + 5
    dims = (count, 20, 30)
    launches = tiled(dims, [copy.row_major(dims), (600, 1, 20)], 1, 4)
    assert launches is not None
    assert [(part.elements, part.blocks) for part in launches] == [
        (0, MAX_BLOCKS),
        (MAX_BLOCKS, MAX_BLOCKS),
        (2 * MAX_BLOCKS, 5),
    ]
    assert {part.geometry for part in launches} == {launches[0].geometry}


@given(strided(), st.sampled_from((1, 2, 4, 8)), st.sampled_from((1, 2, 4, 8, 16)), st.sampled_from((1, 4, 16)))
def test_copies_move_the_same_bytes_in_wide_elements(drawn, itemsize, alignment, inner):
    shape, (_, source) = drawn
    alignment = max(alignment, itemsize)
    shape, source = (*shape, inner), (*(step * inner for step in source), 1)
    target = copy.row_major(shape)
    plan = copy._copy_plan(shape, target, source, itemsize, alignment, False)
    assert plan.kernel == f"copy_b{8 * plan.width}_strided"
    assert alignment % plan.width == 0
    moved = set()
    for part in plan.parts:
        for places_of in located(part.elements, part.geometry, 2):
            bytes_of = [(index + offset) * plan.width for index, offset in zip(places_of, part.offsets, strict=True)]
            moved |= {tuple(begin + byte for begin in bytes_of) for byte in range(plan.width)}
    both = zip(places(shape, target), places(shape, source), strict=True)
    assert moved == {(to * itemsize + i, from_ * itemsize + i) for to, from_ in both for i in range(itemsize)}


@given(strided(operands=1), st.sampled_from((1, 2, 4, 8)))
def test_fills_reach_what_the_layout_reaches(drawn, itemsize):
    shape, (strides,) = drawn
    plan = copy._fill_plan(shape, strides, itemsize, 16)
    assert plan.width <= 8
    written = {index * plan.width + byte for part in plan.parts for (index,) in located(part.elements, part.geometry, 1)
               for byte in range(plan.width)}  # fmt: skip
    assert written == {index * itemsize + byte for index in places(shape, strides) for byte in range(itemsize)}


def reduced(plan, elements, is_ordered):
    """Which (place, position) each output is made of, in a model of the two kernels of the first pass."""
    terms = [[] for _ in range(plan.outputs)]
    for kernel, _, offset, splits, packer in plan.passes:
        fields = packer.keywords
        outputs, length, chunk, reduced_rank = (fields[name] for name in ("outputs", "length", "chunk", "reduced_rank"))
        rank, *remaining = fields["geometry"]
        if kernel == "rows":
            pack, inner, dense = 1, 1, fields["dense"]
        else:
            packs, per_row, inner = fields["packs"], fields["packs_per_row"], fields["inner"]
            pack, dense = {1: 8, 2: 8, 4: 4, 8: 2}[elements.itemsize], False
        dims, strides = remaining[:RANK], remaining[3 * RANK :]
        saved = [places(dims[reduced_rank:rank][::-1], strides[reduced_rank:rank][::-1])]
        rows = range(length) if dense else places(dims[:reduced_rank][::-1], strides[:reduced_rank][::-1])
        assert splits * chunk >= length
        for number, index in enumerate(saved[0]):
            column = 0 if kernel == "rows" else number % per_row * pack
            for i in range(pack if kernel == "rows" else min(pack, inner - column)):
                output = number if kernel == "rows" else number // per_row * inner + column + i
                terms[output] += [(offset + index + i + row, position) for position, row in enumerate(rows)]
        if kernel == "columns":
            assert len(saved[0]) == packs
        assert outputs == plan.outputs
    return [sorted(places_of) if is_ordered else sorted(index for index, _ in places_of) for places_of in terms]


@given(strided(operands=1), st.data(), st.sampled_from((1, 2, 4, 8)), st.booleans())
def test_reductions_take_every_element_of_an_output_once(drawn, data, itemsize, is_ordered):
    shape, (strides,) = drawn
    dims = tuple(data.draw(st.lists(st.sampled_from(range(len(shape))), unique=True))) if shape else ()
    elements = reduce._Elements(itemsize, 8, is_ordered, 128)
    saved = [dim for dim in range(len(shape)) if dim not in dims]
    actual = []
    for plan in reduce._plans(elements, shape, strides, dims, 4):
        assert plan.first == len(actual)
        actual += reduced(plan, elements, is_ordered)
    expected = []
    for index in product(*(range(shape[dim]) for dim in saved)):
        begin = sum(i * strides[dim] for i, dim in zip(index, saved, strict=True))
        inner = places([shape[dim] for dim in sorted(dims)], [strides[dim] for dim in sorted(dims)])
        terms = [(begin + slot, position) for position, slot in enumerate(inner)]
        expected.append(sorted(terms) if is_ordered else sorted(slot for slot, _ in terms))
    assert actual == expected
