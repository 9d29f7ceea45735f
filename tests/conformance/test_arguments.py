"""Arguments from outside become Python's own at the border, whichever library their types are of."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest
from tallow import DType, InvalidArgument, InvalidLayout, Layout, OutOfMemory, Shape, Tensor
from tallow.op import ReduceOp, UnaryOp
from tallow.runtime.core.conv import ParamsConv1D, ParamsConv2D, ParamsConvTranspose2D

from . import calls
from .calls import layout

REFUSED = [2.0, np.float64(2), "2", None, (2,)]


@pytest.fixture
def x(device):
    return device.storage(np.arange(12, dtype=np.float32))


@pytest.mark.parametrize("strides", [np.int32(2**30), np.int64(2**62), np.int64(2**63 - 1)])
def test_strides_of_numpy_do_not_wrap(strides, x):
    wide = Layout((5,), (strides,))
    assert wide.end == 4 * int(strides) + 1
    with pytest.raises(InvalidLayout):
        x.const_set(1.0, wide)
    assert x.to_numpy().tolist() == list(range(12))


@pytest.mark.parametrize("make", [functools.partial(Layout, (5,), (1,)), functools.partial(Layout.contiguous, (5,))])
def test_an_offset_of_numpy_does_not_wrap(make, x):
    far = make(np.int64(2**63 - 1))
    assert far.end == 2**63 + 4
    with pytest.raises(InvalidLayout):
        x.const_set(1.0, far)
    with pytest.raises(InvalidLayout):
        x.unary_impl(UnaryOp("neg"), far)


CALLS = {
    "gather": lambda x, i, n: x.gather(layout(3, 4), i, layout(3, 2), n(1)),
    "index_select": lambda x, i, n: x.index_select(i, layout(3, 4), layout(6), n(0)),
    "reduce_op": lambda x, i, n: x.reduce_op(ReduceOp("sum"), layout(3, 4), (n(0), n(1))),
    "matmul": lambda x, i, n: x.matmul(x, (n(1), n(3), n(3), n(4)), layout(1, 3, 4), layout(1, 4, 3)),
    "max_pool2d": lambda x, i, n: x.max_pool2d(layout(1, 1, 3, 4), (n(2), n(2)), (n(1), n(2))),
    "avg_pool2d": lambda x, i, n: x.avg_pool2d(layout(1, 1, 3, 4), (n(2), n(2)), (n(1), n(2))),
    "upsample_nearest1d": lambda x, i, n: x.upsample_nearest1d(layout(1, 3, 4), n(100)),
    "upsample_nearest2d": lambda x, i, n: x.upsample_nearest2d(layout(1, 1, 3, 4), n(20), n(50)),
    "upsample_bilinear2d": lambda x, i, n: x.upsample_bilinear2d(
        layout(1, 1, 3, 4), n(20), n(50), False, n(2), np.float32(1.5)
    ),
    "affine": lambda x, i, n: x.affine(layout(12), n(100), n(100)),
    "powf": lambda x, i, n: x.powf(layout(12), n(2)),
    "elu": lambda x, i, n: x.elu(layout(12), n(100)),
    "conv1d": lambda x, i, n: x.conv1d(
        layout(1, 1, 12), x, layout(1, 1, 2), ParamsConv1D(**{name: n(size) for name, size in LINE.items()})
    ),
    "conv2d": lambda x, i, n: x.conv2d(
        layout(1, 1, 3, 4), x, layout(1, 1, 2, 2), ParamsConv2D(**{name: n(size) for name, size in IMAGE.items()})
    ),
    "conv_transpose2d": lambda x, i, n: x.conv_transpose2d(
        layout(1, 1, 3, 4),
        x,
        layout(1, 1, 2, 2),
        ParamsConvTranspose2D(**{name: n(size) for name, size in IMAGE.items()}, output_padding=n(1)),
    ),
    "narrow": lambda x, i, n: x.unary_impl(UnaryOp("neg"), layout(12).narrow(n(0), n(3), n(4), n(2))),
    "layout": lambda x, i, n: x.unary_impl(UnaryOp("neg"), Layout((n(2), n(2)), (n(5), n(1)), n(3))),
}
LINE = {**calls.LINE, "l_in": 12, "padding": 100, "stride": 2}
IMAGE = {**calls.IMAGE, "i_h": 3, "i_w": 4, "k_h": 2, "k_w": 2, "padding": 1, "stride": 2}


@pytest.mark.parametrize("name", CALLS)
def test_integers_of_numpy_do_as_those_of_python(name, device, x):
    i = device.storage(np.array([0, 1, 2, 0, 1, 2], np.uint32))
    expected = CALLS[name](x, i, int).to_numpy()
    # Twice what fits an i8 comes up in each of the calls.
    assert CALLS[name](x, i, np.int8).to_numpy().tobytes() == expected.tobytes()


@pytest.mark.parametrize("integer", [np.int8, np.int64])
def test_copies_take_integers_of_numpy(integer, device, x):
    target = device.storage(np.zeros(200, np.float32))
    x.copy_strided_src(target, integer(120), layout(12))
    x.copy2d(target, integer(2), integer(3), integer(4), integer(100), integer(1), integer(5))
    expected = np.zeros(200, np.float32)
    expected[120:132] = np.arange(12)
    expected[5:8], expected[105:108] = (1, 2, 3), (5, 6, 7)
    assert target.to_numpy().tolist() == expected.tolist()


def test_what_is_kept_is_an_int_of_python():
    actual = Layout((np.int8(2), True), [np.uint16(3), np.int64(1)], np.int32(4))
    params = ParamsConv1D(**{name: np.int16(size) for name, size in calls.LINE.items()})
    kept = (*actual.shape, *actual.strides, actual.start_offset, *Shape(np.array([2, 3])), *dataclasses.astuple(params))
    assert {type(number) for number in kept} == {int}
    assert actual == Layout((2, 1), (3, 1), 4)


# Each of these equals an integer, so that a cache would answer with one what the other is asked for.
@pytest.mark.parametrize("value", REFUSED)
def test_what_is_no_integer_is_refused_and_spoils_no_later_call(value, x):
    size = 37  # of which no other test has a layout
    for make in (
        lambda: Layout.contiguous((size,), value),
        lambda: Layout((size,), (1,), value),
        lambda: Layout((size,), (value,)),
        lambda: Layout.contiguous((size, value)),
        lambda: Layout.contiguous((size, size)).narrow(0, value, 1),
        lambda: x.upsample_nearest1d(layout(1, 1, 12), value),
        lambda: x.gather(layout(12), x, layout(12), value),
        lambda: x.copy_strided_src(x, value, layout(2)),
        lambda: ParamsConv1D(**{**calls.LINE, "stride": value}),
    ):
        with pytest.raises(InvalidArgument):
            make()
    later = Layout.contiguous((size,), 2)
    assert type(later.start_offset) is int
    assert later.end == size + 2
    assert type(Layout.contiguous((size, 2)).shape[1]) is int


def test_a_bool_leaves_no_trace_in_later_layouts(x):
    result = Layout.contiguous((41, True), False)
    assert repr(result) == repr(Layout.contiguous((41, 1), 0))
    assert "True" not in repr(result)
    assert repr(x.reduce_op(ReduceOp("sum"), layout(3, 4), (True,)).to_numpy()) == repr(
        np.array([6.0, 22.0, 38.0], np.float32)
    )


@pytest.mark.parametrize("number", [10**400, -(10**400), None, "2", 1j, [1.0]])
def test_what_is_no_number_is_refused(number, device, x):
    vector = layout(12)
    for call in (
        lambda: x.affine(vector, number, 0),
        lambda: x.affine(vector, 1, number),
        lambda: device.storage(np.arange(12)).affine(vector, number, 0),
        lambda: x.powf(vector, number),
        lambda: x.elu(vector, number),
        lambda: x.const_set(number, vector),
        lambda: device.rand_uniform_f64(number, 1, Shape((2,)), DType.F32),
        lambda: device.rand_normal_f64(0, number, Shape((2,)), DType.F32),
        lambda: Tensor.zeros(2, device=device).powf(number),
    ):
        with pytest.raises(InvalidArgument, match=r"(mul|add|alpha|value|lo|std) (must be|is)|imaginary part"):
            call()


def test_arguments_of_other_types_are_named(device, x):
    vector = layout(12)
    for call, message in (
        (lambda: x.affine((12,), 1, 0), "affine: layout must be of type Layout, not tuple"),
        (lambda: x.unary_impl("neg", vector), "unary_impl: op must be of type UnaryOp, not str"),
        (lambda: x.matmul(None, (1, 2, 2, 2), vector, vector), "matmul: rhs must be of type Storage, not NoneType"),
        (lambda: x.matmul(x, (1, 2, 2), vector, vector), "matmul: bmnk must be a sequence of 4 integers"),
        (lambda: x.to_dtype(vector, 32), "to_dtype: dtype must be a DType, its name or NumPy's type of it, not 32"),
        (lambda: x.conv1d(vector, x, vector, calls.LINE), "conv1d: params must be of type ParamsConv1D, not dict"),
        (lambda: x.apply_op1(vector, abs), "apply_op1: the op is an object of a class that derives from CustomOp1"),
        (lambda: x.upsample_bilinear2d(vector, 1, 1, 1, None, None), "align_corners must be True or False, not 1"),
        (lambda: device.zeros(3.5, DType.F32), "a shape must be a sequence of integers, not 3.5"),
        (lambda: x.cat(vector, np.array(3), (vector,), 0), "cat: others must be a sequence of Storage, not array"),
        (lambda: device.storage([1.0]), "storage: array must be of type numpy.ndarray, not list"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            call()


def test_integers_of_thousands_of_digits_are_refused_without_being_printed(device):
    huge, images = 10**5000, Tensor.ones((1, 1, 4, 4), device=device)
    for call in (
        lambda: device.rand_integers(huge, 9, Shape((2,))),
        lambda: device.rand_integers(0, huge, Shape((2,))),
        lambda: device.set_seed(huge),
        lambda: device.quantized_zeros(huge, "Q4_0"),
        lambda: images.max_pool2d(2, padding=huge),
        lambda: images.avg_pool2d(huge),
    ):
        with pytest.raises(InvalidArgument, match="must have at most 256 bits, not 16610"):
            call()
    with pytest.raises(OutOfMemory):
        device.quantized_zeros(10**30 // 32 * 32, "Q4_0")


@pytest.mark.parametrize("array", [np.ones(2)[:0], np.zeros(2, [("a", int)])], ids=["empty", "fields"])
def test_arrays_that_compare_with_nothing_are_refused(device, array):
    images = Tensor.ones((1, 1, 4, 4), device=device)
    with pytest.raises(InvalidArgument, match="padding must be an integer or a pair of integers"):
        images.avg_pool2d(2, padding=array)
    with pytest.raises(InvalidArgument, match="there is no api_version"):
        images.__array_namespace__(api_version=array)
