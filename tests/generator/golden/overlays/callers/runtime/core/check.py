"""The checks of the dispatch."""

from ..base.error import InvalidArgument, InvalidLayout, ShapeMismatch


def dim_in_range(layout, dim):
    """Refuse a dim that a layout lacks."""
    raise InvalidLayout(layout, dim)


def same_shape(layout, other):
    """Refuse layouts of two shapes."""
    raise ShapeMismatch(layout, other)


def no_repeats(layout):
    """Refuse a layout that reaches an element twice."""
    raise InvalidLayout(layout)


def positive(number):
    """Refuse what is not above 0."""
    raise InvalidArgument(number)
