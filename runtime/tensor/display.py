"""How tensors are printed: their elements as nested lists, then dtype, and device and shape where these are not clear.

    >>> tl.Tensor([[1.0, 2.5], [3.0, 4.0]])
    Tensor([[1.0, 2.5],
            [3.0, 4.0]], dtype=f32)

As in NumPy and PyTorch, a tensor of rank 0 has no brackets, and a large one shows the elements at its edges.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from ...dtype import Array
from ..base.error import InvalidArgument
from ..core.argument import boolean, integer
from ..host import cast
from .batch import levels_of
from .shape.indexing import IndexMethods

Text = Callable[[Any], str]
"""Writes an element."""

_MAX_DIGITS: Final = 1000
"""More digits than any number of a tensor has."""

# Numbers beyond these are written with exponents, as are those whose ratio of largest to smallest exceeds _RATIO.
_SMALLEST, _LARGEST, _RATIO = 1e-4, 1e8, 1e5


class _Options(NamedTuple):
    precision: int = 4
    threshold: int = 1000
    edge_items: int = 3
    line_width: int = 80
    sci_mode: bool | None = None


_options = _Options()


def set_print_options(
    *,
    precision: int = 4,
    threshold: int = 1000,
    edge_items: int = 3,
    line_width: int = 80,
    sci_mode: bool | None = None,
) -> None:
    """Set how tensors are printed, by `repr` and `str` alike; what is left out goes back to its default.

    A tensor of more than `threshold` elements is shown by the first and the last `edge_items` elements of each dim.
    `line_width` is in characters. `precision` is the largest number of digits after the point. `sci_mode` writes
    numbers with exponents or never does; None decides by their sizes.

    >>> tl.set_print_options(precision=2)
    >>> tl.Tensor([1 / 3, 2 / 3])
    Tensor([0.33, 0.67], dtype=f32)
    >>> tl.set_print_options()
    """
    global _options
    _options = _Options(
        _option("precision", precision, 0, _MAX_DIGITS),
        _option("threshold", threshold, 0),
        _option("edge_items", edge_items, 1),
        _option("line_width", line_width, 1),
        None if sci_mode is None else boolean("set_print_options", "sci_mode", sci_mode),
    )


def _option(name: str, value: int, least: int, most: float = math.inf) -> int:
    number = integer("set_print_options", name, value)
    if not least <= number <= most:
        bounds = f"{least} or more" if most == math.inf else f"from {least} to {most}"
        raise InvalidArgument("set_print_options", f"{name} is {bounds}, not {number}")
    return number


def text_of(tensor: IndexMethods) -> str:
    """Return the text of a tensor: `Tensor([1., 2.], dtype=f32)`.

    The shape is there where the elements do not show it, and `is_recorded=True` for what depends on a variable.
    """
    options, name = _options, type(tensor).__name__
    if sizes := [level.size for level in levels_of(tensor._storage)]:
        # The elements of one example cannot be read.
        return f"{name}(one example of {sizes[0]}, shape={tuple(tensor.shape)}, dtype={tensor.dtype.value})"
    cut = _cut_dims(tensor, options)
    values = _edges(tensor, cut, options.edge_items)
    facts = [f"dtype={tensor.dtype.value}"]
    if cut or (values.size == 0 and values.shape != (0,)):
        facts.insert(0, f"shape={tuple(tensor.shape)}")
    # A variable's class says so itself.
    if tensor._storage.is_recorded and name == "Tensor":
        facts.append("is_recorded=True")
    elements = f"{name}({_rows(values, cut, options, f'{name}(')},"
    ending = f"{', '.join(facts)}{tensor.device.display})"
    last = elements.rpartition("\n")[2]
    is_too_long = len(last) + len(ending) >= options.line_width and values.ndim > 0
    return f"{elements}\n{' ' * (len(name) + 1)}{ending}" if is_too_long else f"{elements} {ending}"


def _cut_dims(tensor: IndexMethods, options: _Options) -> list[int]:
    """Return the dims whose middle is not shown."""
    if tensor.elem_count <= options.threshold:
        return []
    return [dim for dim, size in enumerate(tensor.shape) if size > 2 * options.edge_items]


def _edges(tensor: IndexMethods, cut: list[int], edge: int) -> Array:
    """Return the elements that are shown."""
    part = tensor
    for dim in cut:
        size = tensor.shape[dim]
        positions = np.r_[0:edge, size - edge : size]
        part = part.index_select(part.from_numpy(positions, tensor.device), dim)
    values = part.numpy()
    # NumPy cannot print short floats, all of which are numbers of f32.
    return (
        values
        if values.dtype.kind in "biuc" or values.dtype == np.float64
        else cast.astype(values, np.dtype(np.float32))
    )


def _rows(values: Array, cut: list[int], options: _Options, prefix: str) -> str:
    """Write the elements in nested brackets; lines after the first are indented by the width of a prefix."""
    text = _formatter(values, options)
    if not values.ndim:
        return text(values[()])
    if not values.size:
        return "[]"
    # Columns are lined up where there are several rows.
    width = max(len(text(value)) for value in values.flat)
    # NumPy leaves out the middle of a dim with more than 2 * edge elements: one more will do.
    for dim in cut:
        values = np.insert(values, options.edge_items, 0, axis=dim)
    per_line = max(1, (options.line_width - len(prefix) - values.ndim) // (width + 2))
    is_cut_row = values.ndim - 1 in cut
    lines_up = values.ndim > 1 or values.size > per_line
    body = np.array2string(
        values,
        separator=", ",
        prefix=prefix,
        formatter={"all": lambda value: text(value).rjust(width if lines_up else 0)},
        threshold=0 if cut else sys.maxsize,
        edgeitems=options.edge_items,
        # NumPy takes the brackets on both sides and the prefix off the width of a line.
        max_line_width=sys.maxsize if is_cut_row else 2 * values.ndim + len(prefix) + per_line * (width + 2) - 2,
    )
    return re.sub(r"\n+", "\n", re.sub(r"\.\.\.,\n", "...\n", body))


def _formatter(values: Array, options: _Options) -> Text:
    """Return what writes each of some elements, all with as many digits."""
    if values.dtype.kind in "biu":
        return str
    if values.dtype.kind == "c":
        real, imag = (_formatter(part, options) for part in (values.real, values.imag))
        return lambda value: _complex(value, real, imag)
    finite = values[np.isfinite(values)]
    sizes = np.abs(finite[finite != 0])
    is_whole = bool((sizes == np.trunc(sizes)).all())
    if _has_exponents(sizes, is_whole, options):
        digits = max((_fraction(np.format_float_scientific(size, options.precision)) for size in sizes), default=0)
        return lambda value: _scientific(value, digits)
    digits = max((_fraction(np.format_float_positional(size, options.precision)) for size in sizes), default=0)
    return lambda value: _positional(value, digits)


def _has_exponents(sizes: Array, is_whole: bool, options: _Options) -> bool:
    if options.sci_mode is not None:
        return options.sci_mode
    if not sizes.size:
        return False
    smallest, largest = sizes.min(), sizes.max()
    return bool(largest > _LARGEST or (not is_whole and (smallest < _SMALLEST or largest > _RATIO * smallest)))


def _fraction(text: str) -> int:
    """Return how many digits a number has after its point."""
    return len(text.partition("e")[0].rstrip("0").partition(".")[2])


def _positional(value: Any, digits: int) -> str:
    if not np.isfinite(value):
        return _not_finite(value)
    return f"{value:.{digits}f}" if digits else f"{value:.0f}."


def _scientific(value: Any, digits: int) -> str:
    if not np.isfinite(value):
        return _not_finite(value)
    mantissa, exponent = f"{value:.{digits}e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def _complex(value: Any, real: Text, imag: Text) -> str:
    """Write both parts, as Python does: 1.5-2.j."""
    second = imag(value.imag)
    return f"{real(value.real)}{'' if second.startswith('-') else '+'}{second}j"


def _not_finite(value: Any) -> str:
    return "nan" if np.isnan(value) else "inf" if value > 0 else "-inf"
