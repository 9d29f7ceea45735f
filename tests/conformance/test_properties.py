"""What holds for every view of a tensor, whichever views of views it was made by."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tallow.op import ReduceOp, UnaryOp
from tallow.runtime.core.layout import Layout

from . import matrix
from .bench import dtype_of, read, shape_of
from .calls import layout
from .oracle.formats import NUMPY, convert

each_example = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def views(draw):
    """The elements of a storage, a view of them in NumPy, and the layout of the same view."""
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=4)))
    elements = np.arange(math.prod(shape), dtype=np.int32)
    view, index = elements.reshape(shape), Layout.contiguous(shape_of(*shape))
    for _ in range(draw(st.integers(0, 4))):
        view, index = draw(st.sampled_from([permuted, narrowed, broadcast, unsqueezed, squeezed]))(draw, view, index)
    return elements, view, index


def permuted(draw, view, index):
    order = draw(st.permutations(range(view.ndim)))
    return view.transpose(order), index.permute(order)


def narrowed(draw, view, index):
    if view.ndim == 0:
        return view, index
    dim = draw(st.integers(0, view.ndim - 1))
    start = draw(st.integers(0, view.shape[dim]))
    step = draw(st.integers(1, 3))
    length = draw(st.integers(0, -(-(view.shape[dim] - start) // step)))
    indices = (slice(None),) * dim + (slice(start, start + length * step, step),)
    return view[indices], index.narrow(dim, start, length, step)


def broadcast(draw, view, index):
    sizes = tuple(draw(st.integers(0, 3)) if size == 1 else size for size in view.shape)
    shape = (draw(st.integers(1, 3)), *sizes) if view.ndim < 5 else sizes
    return np.broadcast_to(view, shape), index.broadcast_as(shape_of(*shape))


def unsqueezed(draw, view, index):
    if view.ndim == 6:
        return view, index
    dim = draw(st.integers(0, view.ndim))
    return np.expand_dims(view, dim), index.unsqueeze(dim)


def squeezed(draw, view, index):
    ones = [dim for dim, size in enumerate(view.shape) if size == 1]
    if not ones:
        return view, index
    dim = draw(st.sampled_from(ones))
    return view.squeeze(dim), index.squeeze(dim)


@each_example
@given(views())
def test_a_view_is_copied_in_its_order(device, example):
    elements, view, index = example
    assert tuple(index.shape) == view.shape
    destination = device.storage(np.full(view.size + 2, -1, np.int32))
    device.storage(elements).copy_strided_src(destination, 1, index)
    assert destination.to_numpy().tolist() == [-1, *view.ravel().tolist(), -1]


@each_example
@given(views(), st.data())
def test_a_view_is_summed_along_any_dims(device, example, data):
    elements, view, index = example
    dims = data.draw(st.lists(st.sampled_from(range(view.ndim)), unique=True) if view.ndim else st.just([]))
    total = view.sum(axis=tuple(dims), keepdims=True, dtype=np.int64)
    result = device.storage(elements).reduce_op(ReduceOp("sum"), index, tuple(dims))
    assert read(result, "i32", total.shape, f"dims {dims}").tolist() == total.tolist()


@each_example
@given(views())
def test_a_view_is_negated(device, example):
    elements, view, index = example
    result = device.storage(elements).unary_impl(UnaryOp("neg"), index)
    assert read(result, "i32", view.shape, "neg").tolist() == (-view).tolist()


@each_example
@given(views(), st.data())
def test_rows_of_a_view_are_selected(device, example, data):
    elements, view, index = example
    dims = [dim for dim, size in enumerate(view.shape) if size]
    if not dims:
        return
    dim = data.draw(st.sampled_from(dims))
    rows = data.draw(st.lists(st.integers(0, view.shape[dim] - 1), max_size=6))
    indexes = device.storage(np.array(rows, np.int16))
    result = device.storage(elements).index_select(indexes, index, layout(len(rows)), dim)
    expected = view.take(np.array(rows, np.int64), axis=dim)
    assert read(result, "i32", expected.shape, f"rows {rows} of dim {dim}").tolist() == expected.tolist()


@each_example
@given(st.permutations(range(9)))
def test_gather_undoes_scatter_set(device, order):
    indexes = device.storage(np.array(order, np.int64))
    source = device.storage(np.arange(9, dtype=np.float32))
    target = device.storage(np.zeros(9, np.float32))
    target.scatter_set(layout(9), indexes, layout(9), source, layout(9), 0)
    assert target.gather(layout(9), indexes, layout(9), 0).to_numpy().tolist() == list(range(9))


@each_example
@given(st.data())
def test_any_float_is_converted(device, data):
    source, target = matrix.widest_float(device.backend), data.draw(st.sampled_from(matrix.dtypes_of(device.backend)))
    array = np.array(data.draw(st.lists(st.floats(width=int(source[1:])), max_size=40)), NUMPY[source])
    result = device.storage(array).to_dtype(layout(len(array)), dtype_of(target))
    expected = convert(source, target, array)
    nans = np.isnan(array)
    got = read(result, target, array.shape, target)
    assert got[~nans].tobytes() == expected[~nans].tobytes()


@each_example
@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=40), st.data())
def test_any_i64_is_converted(device, numbers, data):
    target = data.draw(st.sampled_from(matrix.dtypes_of(device.backend)))
    array = np.array(numbers, np.int64)
    result = device.storage(array).to_dtype(layout(len(array)), dtype_of(target))
    assert read(result, target, array.shape, target).tobytes() == convert("i64", target, array).tobytes()
