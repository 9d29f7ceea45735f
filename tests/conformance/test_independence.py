"""Results have elements of their own, operands may be one storage, and the same call gives the same bits."""

from __future__ import annotations

import numpy as np
import pytest
import tallow
from tallow.op import BinaryOp, ReduceOp, UnaryOp
from tallow.runtime.core.conv import ParamsConv2D
from tallow.runtime.core.layout import Layout

from . import calls, matrix, values
from .bench import dtype_of, read, shape_of
from .calls import layout
from .oracle.formats import COMPLEX, EXTENDED, FLOATS, NUMPY, encode

VECTOR, IMAGE = layout(4), layout(1, 1, 2, 2)

# Calls whose result has the elements of the storage, so that nothing had to be computed.
UNCHANGED = {
    "try_clone": lambda x: x.try_clone(VECTOR),
    "to_dtype": lambda x: x.to_dtype(VECTOR, x.dtype),
    "affine": lambda x: x.affine(VECTOR, 1.0, 0.0),
    "abs": lambda x: x.unary_impl(UnaryOp("abs"), VECTOR),
    "floor": lambda x: x.unary_impl(UnaryOp("floor"), VECTOR),
    "ceil": lambda x: x.unary_impl(UnaryOp("ceil"), VECTOR),
    "round": lambda x: x.unary_impl(UnaryOp("round"), VECTOR),
    "relu": lambda x: x.unary_impl(UnaryOp("relu"), VECTOR),
    "maximum": lambda x: x.binary_impl(BinaryOp("maximum"), x, VECTOR, VECTOR),
    "sum of no dims": lambda x: x.reduce_op(ReduceOp("sum"), VECTOR, ()),
    "max of no dims": lambda x: x.reduce_op(ReduceOp("max"), VECTOR, ()),
    "sum of one element": lambda x: x.reduce_op(ReduceOp("sum"), layout(4, 1), (1,)),
    "max_pool2d": lambda x: x.max_pool2d(IMAGE, (1, 1), (1, 1)),
    "upsample_nearest1d": lambda x: x.upsample_nearest1d(layout(1, 1, 4), 4),
    "upsample_nearest2d": lambda x: x.upsample_nearest2d(IMAGE, 2, 2),
}
# Those that numbers without an order have.
COMPLEX_CALLS = ("try_clone", "to_dtype", "sum of no dims", "sum of one element")
UNCHANGED_FLOATS = {
    "powf": lambda x: x.powf(VECTOR, 1.0),
    "elu": lambda x: x.elu(VECTOR, 1.0),
    "avg_pool2d": lambda x: x.avg_pool2d(IMAGE, (1, 1), (1, 1)),
    "upsample_bilinear2d": lambda x: x.upsample_bilinear2d(IMAGE, 2, 2, False, None, None),
}


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (call, name)
        for call in UNCHANGED
        for name in NUMPY
        if name != "bool" and (name not in COMPLEX or call in COMPLEX_CALLS)
    ],
)
def test_a_result_that_equals_its_operand_is_another_storage(call, name, device):
    check_apart(device, name, UNCHANGED[call])


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("call", UNCHANGED_FLOATS)
def test_a_float_result_that_equals_its_operand_is_another_storage(call, name, device):
    check_apart(device, name, UNCHANGED_FLOATS[call])


def check_apart(device, name, call):
    numbers = np.arange(1, 5).astype(NUMPY[name])
    x = device.storage(numbers)
    result = call(x)
    # A library's powers may be off by a unit in the last place.
    inputs = result.to_numpy().astype(np.complex128), numbers.astype(np.complex128)
    assert np.allclose(*inputs, rtol=1e-15, atol=0), "the call gives what it was given"
    result.const_set(0.0, VECTOR)
    assert x.to_numpy().tobytes() == numbers.tobytes(), "a write to the result reached the operand"


@pytest.mark.parametrize("name", ["f32", "bf16", "i32"])
def test_every_result_can_be_written(name, device):
    def make(name: str, length: int) -> tallow.Storage:
        # A matrix of zeros has no factors.
        return device.storage(np.ones(length, NUMPY[name]))

    cells = [cell for cell in tallow.support() if cell.backend == device.backend and cell.status == "supported"]
    for cell in cells:
        if cell.method in matrix.STORAGE_METHODS and cell.dtype is dtype_of(name):
            result = calls.call_storage(cell, make)
            # What was sent has no elements.
            if isinstance(result, tallow.Storage) and result.length:
                result.const_set(3.0, layout(result.length))
                assert set(result.to_numpy().tolist()) == {result.dtype.kind == "bool" or 3}, cell.op or cell.method


def test_index_add_leaves_its_operand(device):
    x = device.storage(np.ones(4, np.float32))
    nothing = device.storage(np.zeros(0, np.uint32))
    empty = device.storage(np.zeros(0, np.float32))
    result = x.index_add(VECTOR, nothing, layout(0), empty, layout(0), 0)
    result.const_set(0.0, VECTOR)
    assert x.to_numpy().tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("name", ["f16", "f32", "i64"])
def test_one_storage_may_be_every_operand(name, device):
    numbers = np.arange(16).astype(NUMPY[name])
    x = device.storage(numbers)
    front, back = layout(2, 4), Layout(shape_of(2, 4), (1, 2), 8)
    added = read(x.binary_impl(BinaryOp("add"), x, front, back), name, (2, 4), "add")
    assert added.tolist() == (numbers[:8].reshape(2, 4) + numbers[8:].reshape(4, 2).T).tolist()
    transposed = Layout(shape_of(1, 4, 4), (0, 1, 4), 0)
    product = read(x.matmul(x, (1, 4, 4, 4), layout(1, 4, 4), transposed), name, (4, 4), "matmul")
    matrix = numbers.reshape(4, 4)
    assert product.tolist() == (matrix @ matrix.T).tolist()


def test_a_storage_may_be_copied_into_itself(device):
    x = device.storage(np.arange(12, dtype=np.float32))
    x.copy_strided_src(x, 6, Layout(shape_of(2, 3), (1, 2), 0))
    assert x.to_numpy().tolist() == [0, 1, 2, 3, 4, 5, 0, 2, 4, 1, 3, 5]
    x.copy2d(x, 2, 2, 3, 2, 0, 8)
    assert x.to_numpy().tolist() == [0, 1, 2, 3, 4, 5, 0, 2, 0, 1, 3, 4]


@pytest.mark.parametrize("name", ["bf16", "f16", "f32", "f64"])
def test_the_same_call_gives_the_same_bits(name, device):
    generator = np.random.default_rng(5)
    x = device.storage(values.modest(generator, name, (40 * 40,)))
    indexes = device.storage(generator.integers(0, 3, 40 * 40).astype(np.uint32))
    vector, matrix, image = layout(1600), layout(1, 40, 40), layout(1, 1, 40, 40)
    params = ParamsConv2D(b_size=1, c_in=1, c_out=4, i_h=40, i_w=40, k_h=20, k_w=20, padding=3, stride=2, dilation=1)

    def scattered():
        total = device.zeros(shape_of(3), dtype_of(name))
        total.scatter_add(layout(3), indexes, layout(1600), x, vector, 0)
        return total

    repeated = {
        "sum": lambda: x.reduce_op(ReduceOp("sum"), vector, (0,)),
        "sum of columns": lambda: x.reduce_op(ReduceOp("sum"), layout(40, 40), (0,)),
        "softmax of columns": lambda: x.softmax(layout(40, 40), 0),
        "cumsum": lambda: x.cumsum(layout(40, 40), 1, False, False),
        "gradient of a weight of rows": lambda: x.rms_norm_gradient(*weight_of_rows)[1],
        "matmul": lambda: x.matmul(x, (1, 40, 40, 40), matrix, matrix),
        "conv2d": lambda: x.conv2d(image, x, layout(4, 1, 20, 20), params),
        "index_add": lambda: x.index_add(layout(40, 40), indexes, vector_of_40, x, layout(40, 40), 0),
        "scatter_add": scattered,
    }
    vector_of_40 = layout(40)
    weight_of_rows = layout(40, 40), x, layout(40, 40), x, vector_of_40, None, None, True, 1e-5
    for label, call in repeated.items():
        first = call().to_numpy().tobytes()
        assert all(call().to_numpy().tobytes() == first for _ in range(3)), f"{label} differs between runs"


def test_scatter_add_in_f32_sums_in_order(device):
    # From left to right the large numbers cancel before the small one comes; any other order loses it.
    numbers = np.array([1e8, -1e8, 1.0], np.float32)
    total, indexes = device.storage(np.zeros(1, np.float32)), device.storage(np.zeros(3, np.uint8))
    total.scatter_add(layout(1), indexes, layout(3), device.storage(numbers), layout(3), 0)
    assert total.to_numpy().tolist() == [1.0]


@pytest.mark.parametrize("name", ["f16"])
def test_4096_ones_in_f16_sum_to_4096(name, device):
    ones = device.storage(encode(name, np.ones(4096, EXTENDED)))
    assert ones.reduce_op(ReduceOp("sum"), layout(4096), (0,)).to_numpy().tolist() == [4096]


@pytest.mark.parametrize("name", ["u8", "f16", "f32", "f64"])
@pytest.mark.parametrize(
    ("offset", "strides"), [(0, (1000, 1)), (1, (1000, 1)), (0, (0, 1)), (1, (0, 1)), (0, (1, 525))]
)
def test_many_elements_are_added_as_few_are(name, offset, strides, device):
    """So many fill any GPU: they are taken in whole packs or tiles, and one by one where no pack fits."""
    rows, columns = 525, 1000
    generator = np.random.default_rng(0)
    line, other = (values.modest(generator, name, (columns,)) for _ in range(2))
    few = device.storage(line).binary_impl(BinaryOp("add"), device.storage(other), layout(columns), layout(columns))
    indices = offset + np.add.outer(strides[0] * np.arange(rows), strides[1] * np.arange(columns))
    buffer = np.zeros(indices.max() + 1, NUMPY[name])
    buffer[indices] = other
    many = device.storage(np.tile(line, rows)).binary_impl(
        BinaryOp("add"), device.storage(buffer), layout(rows, columns), Layout(shape_of(rows, columns), strides, offset)
    )
    expected = np.broadcast_to(few.to_numpy(), (rows, columns))
    assert read(many, name, (rows, columns), f"{strides} from {offset} on").tobytes() == expected.tobytes()
