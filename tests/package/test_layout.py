"""Layouts and shapes against NumPy's strides."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tallow import InvalidArgument, InvalidLayout, Layout, Shape, ShapeMismatch
from tallow.runtime.core.layout import collapse

Places = NDArray[np.int64]

SIZES = st.lists(st.integers(0, 4), max_size=4).map(tuple)


def places(layout: Layout) -> Places:
    """The element of the storage that each place of the layout is."""
    storage = np.arange(max(layout.end, layout.start_offset, 1), dtype=np.int64)
    strides = [8 * stride for stride in layout.strides]
    return np.lib.stride_tricks.as_strided(storage[layout.start_offset :], layout.shape, strides)


def step(draw: st.DrawFn, layout: Layout, array: Places) -> tuple[Layout, Places]:
    """One view of both, chosen at random."""
    rank = layout.rank
    kinds = ["broadcast_as", "unsqueeze"] + (["transpose", "permute", "narrow"] if rank else [])
    kind = draw(st.sampled_from(kinds))
    if kind == "transpose":
        first, second = draw(st.integers(-rank, rank - 1)), draw(st.integers(-rank, rank - 1))
        return layout.transpose(first, second), array.swapaxes(first, second)
    if kind == "permute":
        order = draw(st.permutations(range(rank)))
        return layout.permute(order), array.transpose(order)
    if kind == "narrow":
        dim = draw(st.integers(0, rank - 1))
        start, stride = draw(st.integers(0, array.shape[dim])), draw(st.integers(1, 3))
        index = (slice(None),) * dim + (slice(start, None, stride),)
        narrowed = array[index]
        return layout.narrow(dim, start, narrowed.shape[dim], stride), narrowed
    if kind == "unsqueeze":
        dim = draw(st.integers(-rank - 1, rank))
        return layout.unsqueeze(dim), np.expand_dims(array, dim)
    shape = tuple(draw(st.integers(0, 3)) if size == 1 else size for size in array.shape)
    shape = (draw(st.integers(0, 2)), *shape)
    return layout.broadcast_as(shape), np.broadcast_to(array, shape)


@st.composite
def views(draw: st.DrawFn) -> tuple[Layout, Places]:
    """A layout that some views lead to, and the places that NumPy's views of the same kind lead to."""
    shape = draw(SIZES)
    count = int(np.prod(shape))
    start = draw(st.integers(0, 5))
    layout, array = Layout.contiguous(shape, start), np.arange(start, start + count).reshape(shape)
    for _ in range(draw(st.integers(0, 3))):
        if layout.rank < 7:
            layout, array = step(draw, layout, array)
    return layout, array


@given(views())
def test_views_reach_the_elements_that_numpy_reaches(view: tuple[Layout, Places]) -> None:
    layout, array = view
    assert layout.shape == array.shape
    assert layout.elem_count == array.size
    np.testing.assert_array_equal(places(layout), array)


@given(views())
def test_end_is_one_past_the_last_element(view: tuple[Layout, Places]) -> None:
    layout, array = view
    assert layout.end == (array.max() + 1 if array.size else 0)
    layout.check("test", layout.end)
    if layout.end:
        with pytest.raises(InvalidLayout, match=f"storage of at least {layout.end}"):
            layout.check("test", layout.end - 1)


@given(views())
def test_contiguous_means_row_major_order(view: tuple[Layout, Places]) -> None:
    layout, array = view
    in_order = np.array_equal(array.reshape(-1), np.arange(array.size) + layout.start_offset)
    assert layout.is_contiguous == (in_order or array.size == 0)


@given(views())
def test_overlapping_means_an_element_in_several_places(view: tuple[Layout, Places]) -> None:
    layout, array = view
    assert layout.overlaps_itself == (np.unique(array).size < array.size)


def test_strides_that_mesh_overlap() -> None:
    assert Layout(Shape((3, 2)), (1, 1)).overlaps_itself
    assert not Layout(Shape((2, 3)), (3, 1)).overlaps_itself
    assert not Layout(Shape((0, 3)), (1, 1)).overlaps_itself
    assert not Layout(Shape((1, 3)), (1, 1)).overlaps_itself


@given(views(), st.randoms())
def test_reshape_is_a_view_wherever_numpy_has_one(view: tuple[Layout, Places], random: Callable[..., int]) -> None:
    layout, array = view
    sizes = [size for size in array.shape if size != 1]
    # Dims are split and merged by handing factors on to a neighbour.
    for _ in range(2):
        if sizes:
            at = random.randrange(len(sizes))
            factor = random.choice([d for d in range(1, sizes[at] + 1) if sizes[at] % d == 0] or [1])
            sizes[at : at + 1] = [factor, sizes[at] // factor]
        if len(sizes) > 1:
            at = random.randrange(len(sizes) - 1)
            sizes[at : at + 2] = [sizes[at] * sizes[at + 1]]
    reshaped = layout.reshape(sizes[:8])
    try:
        expected = np.reshape(places(layout), sizes, copy=False)
    except ValueError:
        assert reshaped is None
    else:
        assert reshaped is not None
        np.testing.assert_array_equal(places(reshaped), expected)


@given(views())
def test_collapsed_dims_reach_the_same_elements_in_the_same_order(view: tuple[Layout, Places]) -> None:
    layout, array = view
    dims, strides = layout.collapsed()
    collapsed = Layout(Shape(dims), strides, layout.start_offset)
    np.testing.assert_array_equal(places(collapsed).reshape(-1), array.reshape(-1))
    assert 1 not in dims
    if layout.is_contiguous:
        assert len(dims) <= 1


@given(views(), st.data())
def test_layouts_collapse_together(view: tuple[Layout, Places], data: st.DataObject) -> None:
    layout, _ = view
    other = Layout.contiguous(layout.shape).permute(data.draw(st.permutations(range(layout.rank))))
    other = Layout(layout.shape, other.strides)
    dims, (strides, other_strides) = collapse(layout.shape, (layout.strides, other.strides))
    for original, steps in ((layout, strides), (other, other_strides)):
        collapsed = Layout(Shape(dims), steps, original.start_offset)
        np.testing.assert_array_equal(places(collapsed).reshape(-1), places(original).reshape(-1))


@given(SIZES, SIZES)
def test_shapes_broadcast_as_in_numpy(lhs: tuple[int, ...], rhs: tuple[int, ...]) -> None:
    try:
        expected = np.broadcast_shapes(lhs, rhs)
    except ValueError:
        with pytest.raises(ShapeMismatch):
            Shape.broadcast("test", Shape(lhs), Shape(rhs))
    else:
        assert Shape.broadcast("test", Shape(lhs), Shape(rhs)) == expected


def test_squeeze_drops_dims_of_size_1_only() -> None:
    layout = Layout.contiguous((2, 1, 3))
    assert layout.squeeze(1) == Layout.contiguous((2, 3))
    assert layout.squeeze(-2).shape == (2, 3)
    with pytest.raises(InvalidArgument, match="dim 0 of shape"):
        layout.squeeze(0)


def test_layouts_are_equal_and_hash_by_what_they_reach() -> None:
    layout = Layout(Shape((2, 3)), (3, 1))
    assert layout == Layout.contiguous((2, 3))
    assert hash(layout) == hash(Layout.contiguous([2, 3]))
    assert layout != Layout.contiguous((2, 3), 1)
    assert pickle.loads(pickle.dumps(layout)) == layout


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Shape((2, -1)), "sizes of dims are 0 or more"),
        (lambda: Shape((1,) * 9), "at most 8 dims"),
        (lambda: Shape((2.5,)), "sequence of integers"),
        (lambda: Shape(5), "sequence of integers"),
        (lambda: Shape(()).dim("test", 0), "rank 0"),
        (lambda: Shape((2, 3)).dim("test", 2), "use one from -2 to 1"),
        (lambda: Shape((2, 3)).dim("test", -3), "use one from -2 to 1"),
        (lambda: Layout(Shape((2, 3)), (1,)), "needs 2 strides"),
        (lambda: Layout(Shape((2, 3)), (3, -1)), "strides are 0 or more"),
        (lambda: Layout.contiguous((2, 3)).permute((0, 0)), "do not name each of the 2 dims once"),
        (lambda: Layout.contiguous((2, 3)).permute((0,)), "do not name each of the 2 dims once"),
        (lambda: Layout.contiguous((2, 3)).narrow(1, 1, 3), "stay below 3"),
        (lambda: Layout.contiguous((2, 3)).narrow(1, 0, 2, 3), "stay below 3"),
        (lambda: Layout.contiguous((2, 3)).narrow(1, 4, 0), "stay below 3"),
        (lambda: Layout.contiguous((2, 3)).narrow(1, -1, 1), "count from the front: start at 2"),
        (lambda: Layout.contiguous((2, 3)).narrow(1, -4, 1), "start at 0 or more"),
        (lambda: Layout.contiguous((2, 3)).narrow(1, 0, -1), "a length is 0 or more"),
        (lambda: Layout.contiguous((2, 3)).narrow(1, 0, 1, 0), "a step 1 or more"),
        (lambda: Layout.contiguous((2, 3)).unsqueeze(3), "from -3 to 2, not 3"),
        (lambda: Layout.contiguous((1,) * 8).unsqueeze(0), "at most 8 dims"),
    ],
)
def test_what_is_out_of_range_is_said(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Layout.contiguous((2, 3)).broadcast_as((3,)),
        lambda: Layout.contiguous((2, 3)).broadcast_as((2, 4)),
        lambda: Layout.contiguous((2, 3)).broadcast_as((2, 3, 1)),
        lambda: Layout.contiguous((2, 3)).reshape((5,)),
    ],
)
def test_shapes_that_do_not_fit_are_said(make: Callable[[], object]) -> None:
    with pytest.raises(ShapeMismatch):
        make()


def test_a_start_before_the_storage_is_an_error() -> None:
    with pytest.raises(InvalidLayout, match="start offset of at least 0"):
        Layout(Shape((2,)), (1,), -1).check("test", 10)


def test_shapes_and_strides_of_any_sequence() -> None:
    layout = Layout((2, 3), [3, 1])
    assert isinstance(layout.shape, Shape)
    assert layout == Layout.contiguous((2, 3))
    assert hash(layout) == hash(Layout.contiguous((2, 3)))
    assert layout.is_contiguous
    with pytest.raises(InvalidArgument, match="0 or more"):
        Layout((2, -3), (3, 1))


def test_broadcasts_that_fail_name_their_op() -> None:
    for op in ("add", "mul", "add"):
        with pytest.raises(ShapeMismatch, match=f"{op}: shapes .* neither is 1"):
            Shape.broadcast(op, Shape((2, 3)), Shape((2,)))
