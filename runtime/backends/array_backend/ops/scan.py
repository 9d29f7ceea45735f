"""Scans along a dim: by a word of the library, or in steps each of which joins twice as many elements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .....array_functors import functors
from .....dtype import DType
from .....op import MethodOp
from ....numerics.rows import Scan
from ....program.builder import ProgramBuilder
from ....program.program import HostCall
from . import cast
from .operand import Operand

if TYPE_CHECKING:
    from ..storage import ArrayStorage


def scan(
    build: ProgramBuilder, op: MethodOp, operand: Operand, dim: int, reverse: bool, exclusive: bool = False
) -> HostCall:
    """Element i along `dim` is what a reduction makes of the elements 0 to i; some ops give its position too."""
    library, device = build.facts.library, build.facts.handle
    own, dtype, target = functors(library).scans[op], operand.dtype, op.result_of(operand.dtype)
    layout, length = operand.layout, operand.shape[dim]

    def run(storage: ArrayStorage) -> Any:
        given = x = cast.widen(library, storage.view(layout), dtype)
        if layout.elem_count:
            x = _flipped(library, x, dim) if reverse else x
            given = x
            x = _contributed(library, own, x, dtype)
            x = _joined(library, own, x, dim)
            joined = x
            if exclusive:
                x = _shifted(library, x, dim, own.identity)
            if own.finish is not None:
                counts = _along(library, library.arange(length, device), x, dim) + (0 if exclusive else 1)
                x = own.finish(x, given, library.astype(counts, x.dtype))
            x = _flipped(library, x, dim) if reverse else x
        result = storage.result(_narrowed(library, x, target), target)
        if not op.gives_positions:
            return result
        if not layout.elem_count:
            return result, storage.result(library.full(x.shape, 0, library.DTYPES[DType.U32], device), DType.U32)
        positions = _positions(library, given, joined, dim, device)
        if reverse:
            positions = length - 1 - _flipped(library, positions, dim)
        return result, storage.result(library.astype(positions, library.DTYPES[DType.U32]), DType.U32)

    return build.host(run, operand.storage)


def _contributed(library: Any, own: Scan, x: Any, dtype: DType) -> Any:
    """What elements in their compute dtype contribute, in the dtype in which they are joined."""
    x = x if own.element is None else own.element(x)
    wide = None
    if own.result is not None:
        wide = library.DTYPES[own.result.compute]
    elif own.accumulate is not None and dtype.is_inexact:
        wide = cast.accumulating(library, dtype)
    return x if wide is None or x.dtype == wide else library.astype(x, wide)


def _joined(library: Any, own: Scan, x: Any, dim: int) -> Any:
    """What the elements up to each contribute together."""
    joined = own.word(x, dim, x.dtype) if own.word is not None else _joined_in_steps(library, own, x, dim)
    if own.identity == 0 and not library.is_integer(joined):
        # As kernels do, which begin with the identity: no sum is -0.0.
        joined = own.combine(library.constant(0, joined), joined)
    return joined


def _joined_in_steps(library: Any, own: Scan, x: Any, dim: int) -> Any:
    distance, length = 1, x.shape[dim]
    while distance < length:
        later = own.combine(_slice(x, dim, 0, length - distance), _slice(x, dim, distance, length))
        x = library.concat([_slice(x, dim, 0, distance), later], dim)
        distance *= 2
    return x


def _along(library: Any, numbers: Any, x: Any, dim: int) -> Any:
    """Numbers for each position of a dim, which broadcast to all elements."""
    return library.reshape(numbers, tuple(-1 if at == dim else 1 for at in range(len(x.shape))))


def _slice(x: Any, dim: int, begin: int, end: int) -> Any:
    return x[(slice(None),) * dim + (slice(begin, end),)]


def _shifted(library: Any, x: Any, dim: int, identity: float | None) -> Any:
    """What comes before each element, at first `identity`."""
    first = _slice(x, dim, 0, 1)
    begin = library.broadcast_to(library.reshape(library.constant(identity, x), (1,) * len(x.shape)), first.shape)
    return library.concat([begin, _slice(x, dim, 0, x.shape[dim] - 1)], dim)


def _flipped(library: Any, x: Any, dim: int) -> Any:
    length = x.shape[dim]
    return library.take(x, length - 1 - library.arange(length, library.device_of(x)), dim)


def _narrowed(library: Any, x: Any, target: DType) -> Any:
    if target.is_inexact:
        return cast.narrow(library, x, target)
    own = library.DTYPES[target]
    return cast.wrap(library, x if x.dtype == own else library.astype(x, own), target)


def _positions(library: Any, x: Any, found: Any, dim: int, device: Any) -> Any:
    """Where the elements that were found are: of equals the last, and the first NaN."""
    is_found = x == found
    if not library.is_integer(x):
        is_nan = library.isnan(x)
        # A NaN is found where none is before it.
        before = library.isnan(_shifted(library, found, dim, 0))
        is_found = library.where(is_nan, ~before, is_found & ~library.isnan(found))
    length = x.shape[dim]
    every = _along(library, library.arange(length, device), x, dim)
    numbers = library.where(is_found, every, library.constant(0, every))
    distance = 1
    while distance < length:
        later = library.maximum(_slice(numbers, dim, 0, length - distance), _slice(numbers, dim, distance, length))
        numbers = library.concat([_slice(numbers, dim, 0, distance), later], dim)
        distance *= 2
    return numbers
