"""Tensors of more than 2**32 elements: on either side of the line everything is where it should be."""

from __future__ import annotations

import numpy as np
import pytest
from tallow import BinaryOp, Device, DType, Layout, ReduceOp, Shape, Storage, UnaryOp

# Side by side they would not fit into memory.
pytestmark = pytest.mark.xdist_group("memory")

LINE = 1 << 32
COUNT = LINE + 3000
WIDTH = 1024
ROWS = (LINE >> 10) + 5
# Marked elements: around 0, the line of signed and of unsigned 32 bits, and the end.
PLACES = (0, 1, (1 << 31) - 1, 1 << 31, LINE - 1, LINE, LINE + 1, COUNT - 1)
WHOLE = Layout.contiguous(Shape((COUNT,)))


@pytest.fixture
def device(gpu) -> Device:
    free, _ = gpu.driver.memory_info()
    if free < 5 * COUNT:
        pytest.skip(f"needs {5 * COUNT >> 30} GiB of free memory on the device, which has {free >> 30}")
    return Device(gpu)


def span(start: int, count: int) -> Layout:
    return Layout(Shape((count,)), (1,), start)


def read(storage: Storage, start: int, count: int = 1) -> list[int]:
    small = storage.inner.device.empty(storage.inner.dtype, count)
    storage.copy_strided_src(Storage(small), 0, span(start, count))
    return small.to_numpy().tolist()


@pytest.fixture
def marked(device: Device) -> Storage:
    """Zeros, but for the number of each marked place."""
    storage = device.zeros(Shape((COUNT,)), DType.U8)
    for number, index in enumerate(PLACES, 1):
        storage.const_set(number, span(index, 1))
    return storage


def check_marks(storage: Storage, of_mark=lambda number: number, of_zero: int = 0) -> None:
    for number, index in enumerate(PLACES, 1):
        assert read(storage, index) == [of_mark(number)], index
    for start in (10, LINE - 200, LINE + 200):
        assert set(read(storage, start, 100)) == {of_zero}


def test_copies(marked: Storage, device: Device) -> None:
    check_marks(marked.try_clone(WHOLE))
    shifted = device.zeros(Shape((COUNT,)), DType.U8)
    marked.copy_strided_src(shifted, 1, span(0, COUNT - 1))
    for number, index in enumerate(PLACES[:-1], 1):
        if index + 1 not in PLACES:
            assert read(shifted, index + 1) == [number]
    two_d = device.zeros(Shape((ROWS * WIDTH,)), DType.U8)
    marked.copy2d(two_d, ROWS - 5, WIDTH, WIDTH, WIDTH, 0, 5 * WIDTH)
    for number, index in enumerate(PLACES[:5], 1):
        assert read(two_d, index + 5 * WIDTH) == [number]


def test_a_transposed_view(marked: Storage, device: Device) -> None:
    half = COUNT // 2
    transposed = Layout(Shape((half, 2)), (1, half), 0)
    result = device.zeros(Shape((COUNT,)), DType.U8)
    marked.copy_strided_src(result, 0, transposed)
    for number, index in enumerate(PLACES, 1):
        column, row = divmod(index, half)
        assert read(result, row * 2 + column) == [number]


def test_elementwise(marked: Storage, device: Device) -> None:
    check_marks(marked.affine(WHOLE, 2, 3), lambda number: 2 * number + 3, 3)
    check_marks(marked.unary_impl(UnaryOp.SQR, WHOLE), lambda number: number**2)
    check_marks(marked.binary_impl(BinaryOp.ADD, marked, WHOLE, WHOLE), lambda number: 2 * number)
    half = COUNT // 2
    transposed = Layout(Shape((half, 2)), (1, half), 0)
    plain = Layout.contiguous(Shape((half, 2)))
    total = marked.binary_impl(BinaryOp.ADD, marked, transposed, plain)
    for number, position in enumerate(PLACES, 1):
        column, row = divmod(position, half)
        other = row * 2 + column
        assert read(total, other) == [number + (PLACES.index(other) + 1 if other in PLACES else 0)]


def test_reductions(marked: Storage) -> None:
    rows = Layout.contiguous(Shape((ROWS - 5, WIDTH)))
    assert marked.reduce_op(ReduceOp.MAX, WHOLE, (0,)).to_numpy().tolist() == [len(PLACES)]
    assert marked.reduce_op(ReduceOp.SUM, WHOLE, (0,)).to_numpy().tolist() == [sum(range(1, len(PLACES) + 1))]
    by_row = marked.reduce_op(ReduceOp.SUM, rows, (1,)).to_numpy()
    by_column = marked.reduce_op(ReduceOp.SUM, rows, (0,)).to_numpy()
    inside = [(number, index) for number, index in enumerate(PLACES, 1) if index < rows.elem_count]
    expected_rows, expected_columns = np.zeros(ROWS - 5, np.uint8), np.zeros(WIDTH, np.uint8)
    for number, index in inside:
        expected_rows[index // WIDTH] += number
        expected_columns[index % WIDTH] += number
    np.testing.assert_array_equal(by_row, expected_rows)
    np.testing.assert_array_equal(by_column, expected_columns)
    positions = marked.reduce_op(ReduceOp.ARGMAX, rows, (1,)).to_numpy()
    # Of two marks in a row the larger, which is the later one.
    best = {index // WIDTH: index % WIDTH for _, index in inside}
    assert {row: int(positions[row]) for row in best} == best


def test_indexing(device: Device) -> None:
    table = device.zeros(Shape((ROWS * WIDTH,)), DType.U8)
    layout = Layout.contiguous(Shape((ROWS, WIDTH)))
    chosen = [0, (1 << 21) - 1, 1 << 21, (1 << 22) - 1, 1 << 22, ROWS - 1]
    for number, row in enumerate(chosen, 1):
        table.const_set(number, span(row * WIDTH, WIDTH))
    indexes = device.storage(np.array(chosen, np.int64))
    vector = Layout.contiguous(Shape((len(chosen),)))
    selected = table.index_select(indexes, layout, vector, 0).to_numpy().reshape(len(chosen), WIDTH)
    np.testing.assert_array_equal(selected, np.repeat(np.arange(1, 7), WIDTH).reshape(6, WIDTH))
    columns = Layout(Shape((len(chosen), WIDTH)), (1, 0), 0)
    gathered = table.gather(layout, indexes, columns, 0).to_numpy().reshape(len(chosen), WIDTH)
    np.testing.assert_array_equal(gathered, selected)
    flat = device.storage(selected.reshape(-1))
    shape = Layout.contiguous(Shape((len(chosen), WIDTH)))
    added = table.index_add(layout, indexes, vector, flat, shape, 0)
    table.scatter_add(layout, indexes, columns, flat, shape, 0)
    for storage in (added, table):
        for number, row in enumerate(chosen, 1):
            assert set(read(storage, row * WIDTH, WIDTH)) == {2 * number}
        assert set(read(storage, 5 * WIDTH, WIDTH)) == {0}
    table.scatter_set(layout, indexes, columns, flat, shape, 0)
    for number, row in enumerate(chosen, 1):
        assert set(read(table, row * WIDTH, WIDTH)) == {number}
