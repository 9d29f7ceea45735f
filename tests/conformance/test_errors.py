"""Refusals that take more than another argument in the smallest call: of those test_refusals.py asks."""

from __future__ import annotations

import numpy as np
import pytest
import tallow
from tallow.op import BinaryOp, UnaryOp
from tallow.runtime.base.error import (
    DeviceMismatch,
    InvalidArgument,
    InvalidLayout,
    TallowError,
    UnsupportedDType,
)
from tallow.runtime.core.conv import ParamsConv1D, ParamsConv2D, ParamsConvTranspose1D
from tallow.runtime.core.layout import Layout

from . import calls, matrix
from .bench import dtype_of, shape_of
from .calls import layout
from .oracle.formats import NO_ROW, NUMPY
from .test_cells import forged, storage_class

ADD, NEG = BinaryOp("add"), UnaryOp("neg")
# One more element than the storages of these tests have.
LONG = Layout(shape_of(4), (1,), 1)
VECTOR, MATRIX = layout(4), layout(2, 2)


@pytest.fixture
def x(device):
    return device.storage(np.arange(4, dtype=np.float32))


@pytest.fixture
def y(device):
    return device.storage(np.arange(4, 8, dtype=np.float32))


@pytest.fixture
def indexes(device):
    return device.storage(np.zeros(4, np.uint32))


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


def test_operands_on_two_devices_of_a_backend_are_refused():
    with pytest.raises(DeviceMismatch) as caught:
        forged_storage("metal", 0).binary_impl(ADD, forged_storage("metal", 1), VECTOR, VECTOR)
    assert caught.value.devices == ("metal:0", "metal:1")


def forged_storage(backend: str, ordinal: int) -> tallow.Storage:
    """A storage of a backend that may have no runtime here; which device it is on shows before that matters."""
    device = forged(matrix.class_of(backend, "Device"), ordinal=ordinal, plans={})
    return tallow.Storage(forged(storage_class(backend), device=device, dtype=dtype_of("f32"), length=4, kind=0))


PARAMETERS = {
    "conv2d": lambda: ParamsConv2D(**{**calls.IMAGE, "stride": 0}),
    "conv1d": lambda: ParamsConv1D(**{**calls.LINE, "k_size": 5}),
    "conv_transpose1d": lambda: ParamsConvTranspose1D(**{**calls.LINE, "padding": 4}, output_padding=0),
}


@pytest.mark.parametrize("op", PARAMETERS)
def test_parameters_that_no_convolution_has_are_refused(op):
    with pytest.raises(InvalidArgument) as caught:
        PARAMETERS[op]()
    assert caught.value.op == op
    assert caught.value.reason


@pytest.mark.parametrize("op", ["scatter_set", "scatter_add"])
@pytest.mark.parametrize("strides", [(1, 1), (0, 1), (1, 0)])
def test_a_target_with_an_element_in_several_places_is_refused(op, strides, x, y, indexes):
    with pytest.raises(InvalidArgument, match="at several positions") as caught:
        getattr(x, op)(Layout(shape_of(2, 2), strides, 0), indexes, MATRIX, y, MATRIX, 1)
    assert caught.value.op == op


@pytest.mark.parametrize("name", NO_ROW)
def test_the_device_works_after_many_errors(name, device):
    storage = device.storage(np.arange(4).astype(NUMPY[name]))
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
