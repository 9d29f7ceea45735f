"""Ops of network layers: in f64 where the library has it, else in f32, and rounded once."""

from __future__ import annotations

from typing import Any

from .....dtype import DType
from .. import strided
from . import cast
from .operand import Operand


def rope(x: Operand, cos: Operand, sin: Operand, positions: Operand, interleaved: bool) -> Any:
    """Each pair (x, y) as (x cos - y sin, x sin + y cos), with the rows of the tables from the positions on."""
    library = x.library
    wide = cast.widest(library, x.array, x.dtype)
    shape = tuple(wide.shape)
    tokens, size = shape[-2:]
    begins = library.reshape(library.astype(positions.array, library.DTYPES[DType.I64]), (-1,))
    count = cos.layout.shape[0] - tokens + 1
    if begins.shape[0]:
        is_wrong = (begins < 0) | (begins >= count)
        x.device.note("rope", library.reshape(positions.array, (-1,)), is_wrong, count)
        begins = library.where(is_wrong, library.constant(0, begins), begins)
    if strided.size(wide) == 0 or count <= 0:
        return x.result(x.array)
    rows = library.reshape(begins, (-1, 1)) + library.arange(tokens, x.device.handle)
    before = (begins.shape[0], *(1,) * (len(shape) - 3)) if len(shape) > 2 else ()
    cosines, sines = (
        library.astype(
            library.reshape(library.take(table.array, library.reshape(rows, (-1,)), 0), (*before, tokens, size // 2)),
            wide.dtype,
        )
        for table in (cos, sin)
    )
    if interleaved:
        pairs = library.reshape(wide, (*shape[:-1], size // 2, 2))
        first, second = pairs[..., 0], pairs[..., 1]
    else:
        first, second = wide[..., : size // 2], wide[..., size // 2 :]
    rotated = [first * cosines - second * sines, first * sines + second * cosines]
    if interleaved:
        rotated = [library.reshape(each, (*shape[:-1], size // 2, 1)) for each in rotated]
    result = library.reshape(library.concat(rotated, len(rotated[0].shape) - 1), shape)
    return x.result(cast.narrow(library, result, x.dtype))
