"""What every op refuses: layouts outside of their storage, operands that do not fit, indexes of a wrong dtype."""

from __future__ import annotations

import numpy as np
import pytest
import tallow
from tallow.error import (
    DeviceMismatch,
    DTypeMismatch,
    InvalidArgument,
    InvalidLayout,
    ShapeMismatch,
    TallowError,
    UnsupportedDType,
)
from tallow.layout import Layout
from tallow.op import BinaryOp, CmpOp, ReduceOp, UnaryOp

from . import calls, custom_ops, matrix
from .bench import dtype_of, shape_of
from .calls import layout
from .oracle.formats import FLOATS, INTEGERS
from .test_cells import forged, storage_class

ADD, EQ, SUM, NEG = BinaryOp("add"), CmpOp("eq"), ReduceOp("sum"), UnaryOp("neg")
# One more element than the storages of these tests have.
LONG, LONG_IMAGE = Layout(shape_of(4), (1,), 1), Layout(shape_of(1, 1, 2, 2), (4, 4, 2, 1), 1)
STEPPED = Layout(shape_of(4), (2,), 0)


@pytest.fixture
def x(device):
    return device.storage(np.arange(4, dtype=np.float32))


@pytest.fixture
def y(device):
    return device.storage(np.arange(4, 8, dtype=np.float32))


@pytest.fixture
def indexes(device):
    return device.storage(np.zeros(4, np.uint32))


VECTOR, IMAGE = layout(4), layout(1, 1, 2, 2)
MATRICES, LONG_MATRICES = layout(1, 2, 2), Layout(shape_of(1, 2, 2), (4, 2, 1), 1)
LINE, LONG_LINE = layout(1, 1, 4), Layout(shape_of(1, 1, 4), (4, 4, 1), 1)

OUTSIDE = {
    "try_clone": lambda x, y, i: x.try_clone(LONG),
    "const_set": lambda x, y, i: x.const_set(1.0, LONG),
    "affine": lambda x, y, i: x.affine(STEPPED, 1.0, 0.0),
    "powf": lambda x, y, i: x.powf(LONG, 2.0),
    "elu": lambda x, y, i: x.elu(LONG, 2.0),
    "to_dtype": lambda x, y, i: x.to_dtype(LONG, dtype_of("f16")),
    "neg": lambda x, y, i: x.unary_impl(NEG, STEPPED),
    "add": lambda x, y, i: x.binary_impl(ADD, y, VECTOR, LONG),
    "eq": lambda x, y, i: x.cmp(EQ, y, LONG, VECTOR),
    "sum": lambda x, y, i: x.reduce_op(SUM, LONG, (0,)),
    "where_cond": lambda x, y, i: i.where_cond(VECTOR, x, VECTOR, y, LONG),
    "gather": lambda x, y, i: x.gather(VECTOR, i, LONG, 0),
    "index_select": lambda x, y, i: x.index_select(i, LONG, VECTOR, 0),
    "scatter_set": lambda x, y, i: x.scatter_set(VECTOR, i, VECTOR, y, LONG, 0),
    "scatter_add": lambda x, y, i: x.scatter_add(LONG, i, VECTOR, y, VECTOR, 0),
    "index_add": lambda x, y, i: x.index_add(VECTOR, i, STEPPED, y, VECTOR, 0),
    "matmul": lambda x, y, i: x.matmul(y, (1, 2, 2, 2), MATRICES, LONG_MATRICES),
    "conv1d": lambda x, y, i: x.conv1d(LONG_LINE, y, layout(1, 1, 2), calls.ParamsConv1D(**calls.LINE)),
    "conv2d": lambda x, y, i: x.conv2d(
        IMAGE, y, Layout(shape_of(1, 1, 1, 2), (1, 1, 1, 4), 0), calls.ParamsConv2D(**calls.IMAGE)
    ),
    "avg_pool2d": lambda x, y, i: x.avg_pool2d(LONG_IMAGE, (1, 1), (1, 1)),
    "max_pool2d": lambda x, y, i: x.max_pool2d(LONG_IMAGE, (1, 1), (1, 1)),
    "upsample_nearest1d": lambda x, y, i: x.upsample_nearest1d(LONG_LINE, 2),
    "upsample_nearest2d": lambda x, y, i: x.upsample_nearest2d(LONG_IMAGE, 2, 2),
    "upsample_bilinear2d": lambda x, y, i: x.upsample_bilinear2d(LONG_IMAGE, 4, 4, False, None, None),
    "copy_strided_src": lambda x, y, i: x.copy_strided_src(y, 0, LONG),
    "interleave2": lambda x, y, i: x.apply_op2(VECTOR, y, LONG, custom_ops.Interleave2()),
    "reverse": lambda x, y, i: x.inplace_op1(LONG, custom_ops.Reverse()),
}


@pytest.mark.parametrize("op", OUTSIDE)
def test_a_layout_outside_of_its_storage_is_refused_at_once(op, x, y, indexes):
    with pytest.raises(InvalidLayout) as caught:
        OUTSIDE[op](x, y, indexes)
    assert caught.value.op == op
    assert caught.value.length == 4
    assert x.to_numpy().tolist() == [0, 1, 2, 3], "nothing was written"
    assert y.to_numpy().tolist() == [4, 5, 6, 7], "nothing was written"


def test_a_negative_start_offset_is_refused(x):
    with pytest.raises(TallowError):
        x.unary_impl(NEG, Layout(shape_of(2), (1,), -1))


def test_an_empty_layout_reaches_nothing_and_fits(x):
    empty = Layout(shape_of(3, 0), (100, 100), 1000)
    assert x.unary_impl(NEG, empty).length == 0


@pytest.mark.parametrize(
    ("op", "call"),
    {
        "copy_strided_src": lambda x, y: x.copy_strided_src(y, 1, VECTOR),
        "copy2d": lambda x, y: x.copy2d(y, 2, 2, 3, 2, 0, 0),
    }.items(),
)
def test_a_copy_that_does_not_fit_is_refused(op, call, x, y):
    with pytest.raises((InvalidLayout, InvalidArgument)) as caught:
        call(x, y)
    assert caught.value.op == op
    assert y.to_numpy().tolist() == [4, 5, 6, 7], "nothing was written"


DTYPE_PAIRS = {
    "add": lambda x, other, i: x.binary_impl(ADD, other, VECTOR, VECTOR),
    "eq": lambda x, other, i: x.cmp(EQ, other, VECTOR, VECTOR),
    "where_cond": lambda x, other, i: i.where_cond(VECTOR, x, VECTOR, other, VECTOR),
    "matmul": lambda x, other, i: x.matmul(other, (1, 2, 2, 2), MATRICES, MATRICES),
    "conv1d": lambda x, other, i: x.conv1d(LINE, other, layout(1, 1, 2), calls.ParamsConv1D(**calls.LINE)),
    "scatter_set": lambda x, other, i: x.scatter_set(VECTOR, i, VECTOR, other, VECTOR, 0),
    "scatter_add": lambda x, other, i: x.scatter_add(VECTOR, i, VECTOR, other, VECTOR, 0),
    "index_add": lambda x, other, i: x.index_add(VECTOR, i, VECTOR, other, VECTOR, 0),
    "copy_strided_src": lambda x, other, i: x.copy_strided_src(other, 0, VECTOR),
    "copy2d": lambda x, other, i: x.copy2d(other, 2, 2, 2, 2, 0, 0),
}


@pytest.mark.parametrize("op", DTYPE_PAIRS)
def test_operands_of_two_dtypes_are_refused(op, device, x, indexes):
    other = device.storage(np.zeros(4, np.int32))
    with pytest.raises(DTypeMismatch) as caught:
        DTYPE_PAIRS[op](x, other, indexes)
    assert caught.value.op == op
    assert {dtype.value for dtype in caught.value.dtypes} == {"f32", "i32"}


@pytest.mark.parametrize("op", DTYPE_PAIRS)
def test_operands_on_devices_of_two_backends_are_refused(op, x, indexes):
    with pytest.raises(DeviceMismatch) as caught:
        DTYPE_PAIRS[op](x, forged_storage(another_backend(x), 0), indexes)
    assert caught.value.op == op
    assert len(set(caught.value.devices)) == 2


def test_operands_on_two_devices_of_a_backend_are_refused():
    with pytest.raises(DeviceMismatch) as caught:
        forged_storage("metal", 0).binary_impl(ADD, forged_storage("metal", 1), VECTOR, VECTOR)
    assert caught.value.devices == ("metal:0", "metal:1")


def another_backend(x: tallow.Storage) -> str:
    """A backend that a storage is not on."""
    return next(backend for backend in matrix.BACKENDS if backend not in ("cpu", x.device.backend))


def forged_storage(backend: str, ordinal: int) -> tallow.Storage:
    """A storage of a backend that may have no runtime here; which device it is on shows before that matters."""
    device = forged(matrix.class_of(backend, "Device"), ordinal=ordinal, plans={})
    return tallow.Storage(forged(storage_class(backend), device=device, dtype=dtype_of("f32"), length=4, kind=0))


SHORT, MATRIX = layout(3), layout(2, 2)
SHAPES = {
    "add": lambda x, y, i: x.binary_impl(ADD, y, VECTOR, SHORT),
    "eq": lambda x, y, i: x.cmp(EQ, y, VECTOR, MATRIX),
    "where_cond": lambda x, y, i: i.where_cond(VECTOR, x, VECTOR, y, SHORT),
    "gather": lambda x, y, i: x.gather(MATRIX, i, VECTOR, 0),
    "index_select": lambda x, y, i: x.index_select(i, VECTOR, MATRIX, 0),
    "scatter_set": lambda x, y, i: x.scatter_set(VECTOR, i, VECTOR, y, SHORT, 0),
    "scatter_add": lambda x, y, i: x.scatter_add(layout(1, 2), i, MATRIX, y, MATRIX, 1),
    "index_add": lambda x, y, i: x.index_add(VECTOR, i, VECTOR, y, SHORT, 0),
    "matmul": lambda x, y, i: x.matmul(y, (1, 2, 2, 2), MATRICES, layout(1, 4, 1)),
    "conv1d": lambda x, y, i: x.conv1d(layout(1, 2, 2), y, layout(1, 1, 2), calls.ParamsConv1D(**calls.LINE)),
    "max_pool2d": lambda x, y, i: x.max_pool2d(MATRIX, (1, 1), (1, 1)),
    "upsample_nearest1d": lambda x, y, i: x.upsample_nearest1d(MATRIX, 2),
    "upsample_bilinear2d": lambda x, y, i: x.upsample_bilinear2d(MATRIX, 2, 2, True, None, None),
}


@pytest.mark.parametrize("op", SHAPES)
def test_operands_whose_shapes_do_not_fit_are_refused(op, x, y, indexes):
    with pytest.raises(ShapeMismatch) as caught:
        SHAPES[op](x, y, indexes)
    assert caught.value.op == op
    assert caught.value.shapes


ARGUMENTS = {
    "sum": lambda x, y, i: x.reduce_op(SUM, MATRIX, (0, 0)),
    "max": lambda x, y, i: x.reduce_op(ReduceOp("max"), MATRIX, (2,)),
    "gather": lambda x, y, i: x.gather(VECTOR, i, VECTOR, 1),
    "index_select": lambda x, y, i: x.index_select(i, VECTOR, VECTOR, 2),
    "index_add": lambda x, y, i: x.index_add(VECTOR, i, VECTOR, y, VECTOR, 1),
    "scatter_add": lambda x, y, i: x.scatter_add(layout(), i, layout(), y, layout(), 0),
    "max_pool2d": lambda x, y, i: x.max_pool2d(IMAGE, (0, 1), (1, 1)),
    "avg_pool2d": lambda x, y, i: x.avg_pool2d(IMAGE, (3, 1), (1, 1)),
    "upsample_nearest2d": lambda x, y, i: x.upsample_nearest2d(IMAGE, -1, 2),
    "upsample_bilinear2d": lambda x, y, i: x.upsample_bilinear2d(IMAGE, 2, 2, False, 0.0, None),
    "copy2d": lambda x, y, i: x.copy2d(y, 2, 2, 2, 1, 0, 0),
    "scatter_set": lambda x, y, i: x.scatter_set(Layout(shape_of(4), (0,), 0), i, VECTOR, y, VECTOR, 0),
    "conv2d": lambda x, y, i: calls.ParamsConv2D(**{**calls.IMAGE, "stride": 0}),
    "conv1d": lambda x, y, i: calls.ParamsConv1D(**{**calls.LINE, "k_size": 5}),
    "conv_transpose1d": lambda x, y, i: calls.ParamsConvTranspose1D(**{**calls.LINE, "padding": 4}, output_padding=0),
}


@pytest.mark.parametrize("op", ARGUMENTS)
def test_arguments_out_of_range_are_refused(op, x, y, indexes):
    with pytest.raises(InvalidArgument) as caught:
        ARGUMENTS[op](x, y, indexes)
    assert caught.value.op == op
    assert caught.value.reason


@pytest.mark.parametrize("op", ["scatter_set", "scatter_add"])
@pytest.mark.parametrize("strides", [(1, 1), (0, 1), (1, 0)])
def test_a_target_with_an_element_in_several_places_is_refused(op, strides, x, y, indexes):
    with pytest.raises(InvalidArgument, match="in several places") as caught:
        getattr(x, op)(Layout(shape_of(2, 2), strides, 0), indexes, MATRIX, y, MATRIX, 1)
    assert caught.value.op == op


INDEXED = {
    "gather": lambda x, y, i: x.gather(VECTOR, i, VECTOR, 0),
    "index_select": lambda x, y, i: x.index_select(i, VECTOR, VECTOR, 0),
    "scatter_set": lambda x, y, i: x.scatter_set(VECTOR, i, VECTOR, y, VECTOR, 0),
    "scatter_add": lambda x, y, i: x.scatter_add(VECTOR, i, VECTOR, y, VECTOR, 0),
    "index_add": lambda x, y, i: x.index_add(VECTOR, i, VECTOR, y, VECTOR, 0),
    "where_cond": lambda x, y, i: i.where_cond(VECTOR, x, VECTOR, y, VECTOR),
}


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("op", INDEXED)
def test_indexes_and_conditions_have_an_integer_dtype(op, name, device, x, y):
    with pytest.raises(UnsupportedDType) as caught:
        INDEXED[op](x, y, device.storage(np.zeros(4, FLOATS[name].numpy)))
    assert (caught.value.op, caught.value.dtype.value, caught.value.backend) == (op, name, device.backend)


@pytest.mark.parametrize("name", INTEGERS)
def test_the_device_works_after_many_errors(name, device):
    storage = device.storage(np.arange(4).astype(INTEGERS[name].numpy))
    for _ in range(3):
        with pytest.raises(UnsupportedDType):
            storage.unary_impl(UnaryOp("exp"), VECTOR)
        with pytest.raises(InvalidLayout):
            storage.unary_impl(NEG, LONG)
        assert storage.affine(VECTOR, 2.0, 1.0).to_numpy().tolist() == [1, 3, 5, 7]


@pytest.mark.parametrize("label", ["", "gpu", "cpu:", "cpu:x", "rocm:-1", "cuda:1.5", "CPU"])
def test_labels_that_name_no_device_are_refused(label):
    with pytest.raises(InvalidArgument):
        tallow.Device.parse(label)


def test_the_label_of_a_device_names_it(device):
    assert tallow.Device.parse(device.label) == device
