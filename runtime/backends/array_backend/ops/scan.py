"""Scans along a dim: by a word of the library, or in log2(n) steps where it has none (Hillis and Steele 1986)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

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

# Libraries add up one after the other, so that rounding errors grow with the number of elements.
_SUMMED: Final = 64


def scan(
    build: ProgramBuilder, op: MethodOp, operand: Operand, dim: int, reverse: bool, exclusive: bool = False
) -> HostCall:
    """Element i along `dim` is a reduction of the elements 0 to i; some ops return its position too."""
    library, device = build.facts.library, build.facts.handle
    rule, dtype, target = functors(library).scans[op], operand.dtype, op.result_of(operand.dtype)
    layout, length = operand.layout, operand.shape[dim]

    def run(storage: ArrayStorage) -> Any:
        x = cast.widen(library, storage.view(layout), dtype)
        if layout.elem_count == 0:
            empty = [storage.result(library.full(x.shape, 0, library.DTYPES[of], device), of) for of in results]
            return tuple(empty) if op.gives_positions else empty[0]
        x = _flip(library, x, dim) if reverse else x
        prefixes = _accumulate(library, rule, _contributions(library, rule, x, dtype), dim, dtype)
        values = _shift(library, prefixes, dim, rule.identity) if exclusive else prefixes
        if rule.finish is not None:
            counts = _along(library, library.arange(length, device), x, dim) + (0 if exclusive else 1)
            values = rule.finish(values, x, library.astype(counts, values.dtype))
        values = _flip(library, values, dim) if reverse else values
        result = storage.result(_rounded(library, values, target), target)
        if not op.gives_positions:
            return result
        positions = _positions(library, x, prefixes, dim, device)
        if reverse:
            positions = length - 1 - _flip(library, positions, dim)
        return result, storage.result(library.astype(positions, library.DTYPES[DType.U32]), DType.U32)

    results = (target, DType.U32) if op.gives_positions else (target,)
    return build.host(run, operand.storage)


def _contributions(library: Any, rule: Scan, x: Any, dtype: DType) -> Any:
    """Return what each element contributes, in the dtype in which contributions accumulate."""
    x = x if rule.element is None else rule.element(x)
    wide = None
    if rule.result is not None:
        wide = library.DTYPES[rule.result.compute]
    elif rule.accumulate is not None and dtype.is_inexact:
        wide = cast.accumulating(library, dtype)
    return x if wide is None or x.dtype == wide else library.astype(x, wide)


def _accumulate(library: Any, rule: Scan, x: Any, dim: int, dtype: DType) -> Any:
    is_sum = rule.identity == 0 and not library.is_integer(x)
    if rule.word is None:
        prefixes = _double(library, rule.combine, x, dim)
    elif is_sum and x.dtype == library.DTYPES[dtype]:
        prefixes = _sums(library, rule.word, x, dim)
    else:
        prefixes = rule.word(x, dim, x.dtype)
    # Kernels begin with the identity, so that no sum is -0.0.
    return rule.combine(library.constant(0, prefixes), prefixes) if is_sum else prefixes


def _sums(library: Any, word: Callable[[Any, int, Any], Any], x: Any, dim: int) -> Any:
    """Return inclusive sums of floats: those within blocks, and of the blocks in front."""
    shape, length = x.shape, x.shape[dim]
    if length <= _SUMMED:
        return word(x, dim, x.dtype)
    count = -(-length // _SUMMED)
    padding = (*shape[:dim], count * _SUMMED - length, *shape[dim + 1 :])
    padded = library.concat([x, library.broadcast_to(library.constant(0, x), padding)], dim)
    blocks = library.reshape(padded, (*shape[:dim], count, _SUMMED, *shape[dim + 1 :]))
    prefixes = word(blocks, dim + 1, x.dtype)
    totals = _sums(library, word, prefixes[(slice(None),) * (dim + 1) + (_SUMMED - 1, ...)], dim)
    before = _shift(library, totals, dim, 0)
    sums = library.reshape(before, (*shape[:dim], count, 1, *shape[dim + 1 :])) + prefixes
    return _slice(library.reshape(sums, padded.shape), dim, 0, length)


def _double(library: Any, combine: Any, x: Any, dim: int) -> Any:
    """Return inclusive prefixes. Each step combines twice as many elements."""
    distance, length = 1, x.shape[dim]
    while distance < length:
        later = combine(_slice(x, dim, 0, length - distance), _slice(x, dim, distance, length))
        x = library.concat([_slice(x, dim, 0, distance), later], dim)
        distance *= 2
    return x


def _positions(library: Any, x: Any, prefixes: Any, dim: int, device: Any) -> Any:
    """Return the position of each prefix's element: of equals the last, and the first NaN."""
    is_match = x == prefixes
    if not library.is_integer(x):
        is_nan = library.isnan(x)
        # A NaN counts where none is before it.
        earlier = library.isnan(_shift(library, prefixes, dim, 0))
        is_match = library.where(is_nan, ~earlier, is_match & ~library.isnan(prefixes))
    order = _along(library, library.arange(x.shape[dim], device), x, dim)
    matches = library.where(is_match, order, library.constant(0, order))
    return (
        library.cummax(matches, dim) if library.cummax is not None else _double(library, library.maximum, matches, dim)
    )


def _along(library: Any, numbers: Any, x: Any, dim: int) -> Any:
    """Return a vector with a number for each position of a dim, which broadcasts to `x`."""
    return library.reshape(numbers, tuple(-1 if at == dim else 1 for at in range(len(x.shape))))


def _slice(x: Any, dim: int, begin: int, end: int) -> Any:
    return x[(slice(None),) * dim + (slice(begin, end), ...)]


def _shift(library: Any, x: Any, dim: int, first: float | None) -> Any:
    """Return `x` moved by one position along a dim, with `first` in front."""
    shape = _slice(x, dim, 0, 1).shape
    front = library.broadcast_to(library.reshape(library.constant(first, x), (1,) * len(shape)), shape)
    return library.concat([front, _slice(x, dim, 0, x.shape[dim] - 1)], dim)


def _flip(library: Any, x: Any, dim: int) -> Any:
    length = x.shape[dim]
    return library.take(x, length - 1 - library.arange(length, library.device_of(x)), dim)


def _rounded(library: Any, x: Any, target: DType) -> Any:
    if target.is_inexact:
        return cast.narrow(library, x, target)
    own = library.DTYPES[target]
    return cast.wrap(library, x if x.dtype == own else library.astype(x, own), target)
