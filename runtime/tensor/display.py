"""How tensors are printed: `repr` gives their exact elements, `str` a table in the style of PyTorch's.

The latter is that of Candle (candle-core/src/display.rs).
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...dtype import Array
from ..base.error import InvalidArgument
from ..core.argument import boolean, integer

if TYPE_CHECKING:
    from . import Tensor


class _Options(NamedTuple):
    precision: int = 4
    threshold: int = 1000
    edge_items: int = 3
    line_width: int = 80
    sci_mode: bool | None = None


# Whatever more digits were asked for, they would be those of no number that a tensor holds.
_MOST_DIGITS = 1000

_options = _Options()


def set_print_options(
    *,
    precision: int = 4,
    threshold: int = 1000,
    edge_items: int = 3,
    line_width: int = 80,
    sci_mode: bool | None = None,
) -> None:
    """Set how tensors are shown; what is not given goes back to its default.

    A tensor of more than `threshold` elements is shown by the first and the last `edge_items` places of each dim.
    `line_width` is in characters. For `str` alone, `precision` is the number of digits after the point, and `sci_mode`
    writes numbers with exponents or never does; None decides by their sizes.

    >>> tl.set_print_options(precision=2)
    >>> print(tl.Tensor([1 / 3, 2 / 3]))
    [0.33, 0.67]
    Tensor[[2], f32]
    >>> tl.set_print_options()
    """
    global _options
    _options = _Options(
        _option("precision", precision, 0, _MOST_DIGITS),
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


def debug(tensor: Tensor) -> str:
    """Show the elements of a tensor with the fewest digits, of a large one those at its edges, then dtype and device.

    The brackets are those of the outermost dim: `Tensor[1, 2; f32, label]`. Where not all elements are shown, the dims
    are: `Tensor[0, 1, 2, ..., 7, 8, 9; dims 1234; i64]`.
    """
    options = _options
    cut = _cut_dims(tensor, options)
    facts = f"{tensor.dtype.value}{tensor.device.display}"
    if cut or tensor.elem_count == 0:
        facts = f"dims {', '.join(map(str, tensor.shape))}; {facts}"
    if tensor.elem_count == 0:
        return f"Tensor[{facts}]"
    values = _edges(tensor, cut, options.edge_items)
    # Columns are lined up where there are several rows.
    width = max(len(_shortest(value)) for value in values.flat) if values.ndim > 1 else 0
    return f"Tensor{_rows(values, cut, options, _shortest, width, 'Tensor')[:-1]}; {facts}]"


def pretty(tensor: Tensor) -> str:
    """Show the elements of a tensor, of a large one those at its edges, and below them shape, dtype and device."""
    options = _options
    cut = _cut_dims(tensor, options)
    values = _edges(tensor, cut, options.edge_items)
    text = _formatter(values, options)
    width = max((len(text(value)) for value in values.flat), default=1)
    facts = f"{list(tensor.shape)}, {tensor.dtype.value}{tensor.device.display}"
    return f"{_rows(values, cut, options, text, width)}\nTensor[{facts}]"


def _cut_dims(tensor: Tensor, options: _Options) -> list[int]:
    """Return the dims whose middle is not shown."""
    if tensor.elem_count <= options.threshold:
        return []
    return [dim for dim, size in enumerate(tensor.shape) if size > 2 * options.edge_items]


def _edges(tensor: Tensor, cut: list[int], edge: int) -> Array:
    """Return the elements that are shown."""
    shown = tensor
    for dim in cut:
        size = tensor.shape[dim]
        places = np.r_[0:edge, size - edge : size]
        shown = shown.index_select(type(tensor).from_numpy(places, tensor.device), dim)
    return _printable(shown.numpy())


def _rows(
    values: Array, cut: list[int], options: _Options, text: Callable[[Any], str], width: int, prefix: str = ""
) -> str:
    """Lay out the elements in brackets, each `width` wide; the text goes on after a prefix."""
    if not values.ndim:
        return f"[{text(values[()])}]"
    # NumPy leaves out the middle of a dim with more than 2 * edge places: one more will do.
    for dim in cut:
        values = np.insert(values, options.edge_items, 0, axis=dim)
    per_line = max(1, options.line_width // (width + 2))
    is_cut_row = values.ndim - 1 in cut
    body = np.array2string(
        values,
        separator=", ",
        prefix=prefix,
        formatter={"all": lambda value: text(value).rjust(width)},
        threshold=0 if cut else sys.maxsize,
        edgeitems=options.edge_items,
        # NumPy takes the brackets on both sides off the width of a line.
        max_line_width=sys.maxsize if is_cut_row else 2 * values.ndim + per_line * (width + 2) - 2,
    )
    return re.sub(r"\n+", "\n", re.sub(r"\.\.\.,\n", "...\n", body))


def _printable(values: Array) -> Array:
    """Return the values in a dtype that NumPy can print: short floats are all numbers of f32."""
    return values if values.dtype.kind in "biuc" or values.dtype == np.float64 else values.astype(np.float32)


def _formatter(values: Array, options: _Options) -> Callable[[Any], str]:
    if values.dtype.kind in "biu":
        return str
    if values.dtype.kind == "c":
        real, imag = (_formatter(part, options) for part in (values.real, values.imag))
        return lambda value: _complex(value, real, imag)
    sizes = np.abs(values[np.isfinite(values) & (values != 0)])
    sci_mode = options.sci_mode
    if sci_mode is None:
        smallest, largest = (sizes.min(), sizes.max()) if sizes.size else (1.0, 1.0)
        sci_mode = bool(largest > 1000 * smallest or largest > 1e8 or smallest < 1e-4)
    if sci_mode:
        return lambda value: _scientific(value, options.precision)
    if np.array_equal(sizes, np.ceil(sizes)):
        return lambda value: f"{value:.0f}." if np.isfinite(value) else _not_finite(value)
    return lambda value: f"{value:.{options.precision}f}" if np.isfinite(value) else _not_finite(value)


def _scientific(value: Any, precision: int) -> str:
    if not np.isfinite(value):
        return _not_finite(value)
    mantissa, exponent = f"{value:.{precision}e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def _complex(value: Any, real: Callable[[Any], str], imag: Callable[[Any], str]) -> str:
    """Write both parts, as Python does: 1.5-2.j."""
    second = imag(value.imag)
    return f"{real(value.real)}{'' if second.startswith('-') else '+'}{second}j"


def _not_finite(value: Any) -> str:
    return "NaN" if np.isnan(value) else "inf" if value > 0 else "-inf"


def _shortest(value: Any) -> str:
    """Write a number with the fewest digits that tell it from its neighbours, and an exponent where Python does.

    A float that is a whole number ends in a point, as NumPy and PyTorch write it.
    """
    if isinstance(value, np.integer | np.bool_):
        return str(value)
    if isinstance(value, np.complexfloating):
        return _complex(value, _shortest, _shortest)
    if not np.isfinite(value):
        return _not_finite(value)
    if value == 0 or 1e-4 <= abs(value) < 1e16:
        return np.format_float_positional(value, trim=".")
    return np.format_float_scientific(value, trim="-", exp_digits=1)
