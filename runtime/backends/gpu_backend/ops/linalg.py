"""Matrices: triangles, and decompositions by a library, else on the host.

The libraries have columns first: row-major matrices are transposed for them. They never read a NaN or an
infinity, for which they return finite numbers, or fail for the entire batch: all results of such a matrix are NaN, as
on the host.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeAlias, TypeVar, cast

import numpy as np

from ..... import results
from .....dtype import Array, DType
from .....kernels import arguments
from .....kernels.constants import BLOCK_SIZE, COPY_ELEMENTS
from .....op import BinaryOp, MethodOp, ReduceOp, UnaryOp
from ....host import linalg
from ....program.builder import ProgramBuilder
from ....program.values import NULL, Buffer, Operand, Pointer, dense
from ..driver.grid import blocks_for
from ..libraries.solver import are_few_columns, are_many
from . import copy, elementwise, matmul, on_host, reduce
from .elementwise import applied
from .geometry import Dims, Part, parts

if TYPE_CHECKING:
    from ..libraries.solver import SolverLibrary
    from ..memory.storage import GpuStorage

P = ParamSpec("P")
Result = TypeVar("Result", bound="Buffer | tuple[Buffer, ...]")
ByLibrary: TypeAlias = "Callable[Concatenate[ProgramBuilder, SolverLibrary, Operand, P], Result | None]"
"""An op by a library; None where another op has to do it."""

# What a kernel adds to positions as numbers of 64 bits, which wrap.
_WRAP = 1 << 64


def _of_finite(is_lower: bool = False) -> Callable[[ByLibrary[P, Result]], ByLibrary[P, Result]]:
    """Replace matrices with a NaN or an infinity by identity matrices, and their results by NaN.

    With `is_lower` it reads the lower triangle alone.
    """

    def decorate(function: ByLibrary[P, Result]) -> ByLibrary[P, Result]:
        @wraps(function)
        def op(
            build: ProgramBuilder, library: SolverLibrary, x: Operand, /, *args: P.args, **kwargs: P.kwargs
        ) -> Result | None:
            if not x.layout.elem_count:
                return None
            outer = x.layout.rank - 2
            used = dense(triangle(build, x, 0, False), x.shape) if is_lower else x
            finite = _all_finite(build, used, (outer, outer + 1))
            flags = dense(finite, x.shape[:-2])
            flags = flags.as_strided(x.shape, (*flags.strides, 0, 0))
            identity = _identity(build, x)
            identity = identity.as_strided(x.shape, (*[0] * outer, *identity.strides))
            replaced = applied(build, MethodOp.WHERE_COND, flags, x, identity)
            result = function(build, library, replaced, *args, **kwargs)
            if isinstance(result, tuple):
                return cast("Result", tuple([_nan_unless(build, finite, buffer) for buffer in result]))
            return None if result is None else cast("Result", _nan_unless(build, finite, result))

        return op

    return decorate


def _all_finite(build: ProgramBuilder, x: Operand, dims: Dims) -> Buffer:
    """Whether neither NaN nor infinity is among the elements along some dims."""
    return reduce.reduce(build, ReduceOp.ALL, applied(build, UnaryOp.ISFINITE, x), dims)


def _identity(build: ProgramBuilder, x: Operand) -> Operand:
    """One identity matrix of the shape of these."""
    rows, columns = x.shape[-2:]
    result = dense(build.empty(x.dtype, rows * columns), (rows, columns))
    build.zero(result.storage)
    copy.const_set(build, result.as_strided((min(rows, columns),), (columns + 1,)), 1)
    return result


def _nan_unless(build: ProgramBuilder, finite: Buffer, result: Buffer) -> Buffer:
    """Results, of which each matrix has as many, that are NaN where it was not finite."""
    count = finite.length
    x = dense(result, (count, result.length // count))
    flags = dense(finite, (count,)).as_strided(x.shape, (1, 0))
    return elementwise.ternary(build, MethodOp.WHERE_COND, flags, x, copy.repeated_number(build, x, math.nan, x.shape))


def triangle(build: ProgramBuilder, x: Operand, diagonal: int, is_upper: bool) -> Buffer:
    """The elements on a diagonal and on one side of it, and 0."""
    result = build.empty(x.dtype, x.layout.elem_count)
    source, width = x.address, x.itemsize
    direction = -1 if is_upper else 1
    for blocks, _, (to, from_, number), count, geometry in _diagonal_parts(x.shape, x.strides, direction):
        packed = arguments.triangle(
            result=result.address + to * width,
            source=source + from_ * width,
            count=count,
            diagonal=(number - direction * diagonal) % _WRAP,
            geometry=geometry,
        )
        build.launch("copy", f"triangle_b{8 * width}", blocks, packed)
    return result


@lru_cache(maxsize=1024)
def _diagonal_parts(shape: Dims, strides: Dims, direction: int) -> tuple[Part, ...]:
    if 0 in shape:
        return ()
    numbers = (*(0,) * (len(shape) - 2), -direction % _WRAP, direction % _WRAP)
    return parts(COPY_ELEMENTS * BLOCK_SIZE, shape, (copy.row_major(shape), strides, numbers))


@_of_finite(is_lower=True)
def cholesky_by_library(build: ProgramBuilder, library: SolverLibrary, x: Operand) -> Buffer | None:
    """Lower triangles, which are the transposed upper ones of the transposed matrices."""
    factor = copy.copied(build, x)
    pointers = _pointers(build, factor)
    build.call(library.cholesky, x.dtype, x.shape[-1], _count(x), factor.address, pointers)
    return triangle(build, factor, 0, False)


@_of_finite()
def det_by_library(build: ProgramBuilder, library: SolverLibrary, x: Operand) -> Buffer | None:
    """Determinants, the products of diagonals, which the host multiplies."""
    return on_host.computed(build, _product, _factored(build, library, x), results.det(x))[0]


def _product(pivots: Array, diagonal: Array) -> tuple[Array]:
    with np.errstate(all="ignore"):
        return (_signs(pivots, diagonal.dtype) * diagonal.prod(-1),)


@_of_finite()
def slogdet_by_library(build: ProgramBuilder, library: SolverLibrary, x: Operand) -> tuple[Buffer, ...] | None:
    """Their signs, and the logarithms of their absolute values."""
    return on_host.computed(build, _sign_and_logarithm, _factored(build, library, x), *results.slogdet(x))


def _sign_and_logarithm(pivots: Array, diagonal: Array) -> tuple[Array, Array]:
    with np.errstate(all="ignore"):
        size = np.abs(diagonal)
        signs = _signs(pivots, diagonal.dtype) * np.where(size == 0, size, diagonal / size).prod(-1)
        return signs, np.log(size).sum(-1)


def _factored(build: ProgramBuilder, library: SolverLibrary, x: Operand) -> tuple[Operand, Operand]:
    """Row exchanges, counted from 1, and the diagonals of upper triangles."""
    size, count = x.shape[-1], _count(x)
    factors, pivots = copy.copied(build, x), build.empty(DType.I32, count * size)
    pointers = _pointers(build, factors)
    build.call(library.lu, x.dtype, size, count, factors.address, pivots.address, pointers)
    shape = (*x.shape[:-2], size)
    return dense(pivots, shape), factors.as_strided(shape, (*factors.strides[:-2], size + 1))


def _signs(pivots: Array, dtype: np.dtype[Any]) -> Array:
    """The signs of determinants that row exchanges make."""
    exchanges = (pivots != np.arange(1, pivots.shape[-1] + 1)).sum(-1)
    return np.where(exchanges % 2, -1, 1).astype(dtype)


@_of_finite()
def solve_by_library(build: ProgramBuilder, library: SolverLibrary, x: Operand, values: Operand) -> Buffer | None:
    """The columns of which matrices make `values`; of a column with a NaN or an infinity all are NaN."""
    if not values.layout.elem_count:
        return None
    size, columns, count = x.shape[-1], values.shape[-1], _count(x)
    factors, pivots = copy.copied(build, x), build.empty(DType.I32, count * size)
    solution = copy.copied(build, _transposed(values))
    pointers = _pointers(build, factors), _pointers(build, solution, size)
    addresses = factors.address, pivots.address, solution.address
    build.call(library.solve, x.dtype, size, columns, count, *addresses, *pointers)
    outer = values.shape[:-2]
    finite = dense(_all_finite(build, values, (len(outer),)), (*outer, columns))
    result = _transposed(solution)
    flags = finite.as_strided(result.shape, (*finite.strides[:-1], 0, 1))
    return elementwise.ternary(
        build, MethodOp.WHERE_COND, flags, result, copy.repeated_number(build, result, math.nan, result.shape)
    )


@_of_finite(is_lower=True)
def eigh_by_library(
    build: ProgramBuilder, library: SolverLibrary, x: Operand, has_vectors: bool
) -> tuple[Buffer, ...] | None:
    """Eigenvalues and eigenvectors of Hermitian matrices."""
    size, count = x.shape[-1], _count(x)
    columns, values = copy.copied(build, _transposed(x)), build.empty(x.dtype.real, count * size)
    build.call(library.eigh, x.dtype, size, count, has_vectors, columns.address, values.address)
    return (values, copy.fresh(build, _transposed(columns))) if has_vectors else (values,)


@_of_finite()
def qr_by_library(
    build: ProgramBuilder, library: SolverLibrary, x: Operand, is_complete: bool
) -> tuple[Buffer, ...] | None:
    """Orthonormal columns and upper triangles."""
    *outer, rows, columns = x.shape
    count, reflectors = _count(x), min(rows, columns)
    q_columns = rows if is_complete else reflectors
    width = max(q_columns, columns)
    # With capacity for all columns of Q.
    matrices = dense(build.empty(x.dtype, count * width * rows), (*outer, width, rows))
    copy.copy(build, _transposed(x), matrices.as_strided((*outer, columns, rows), matrices.strides))
    factors = dense(build.empty(x.dtype, count * reflectors), (*outer, 1, reflectors))
    sizes = (width * rows * x.itemsize, count, matrices.address, factors.address)
    pointers = _pointers(build, matrices, rows), _pointers(build, factors, rows)
    build.call(library.qr, x.dtype, rows, columns, *sizes, *pointers)
    steps = _transposed(matrices).strides
    upper = triangle(build, matrices.as_strided((*outer, q_columns, columns), steps), 0, True)
    if are_many(count, rows):
        flat = dense(matrices.storage, (count, width, rows))
        return _reflected(build, library, flat, dense(factors.storage, (count, reflectors)), q_columns), upper
    build.call(library.orthonormal, x.dtype, rows, q_columns, reflectors, *sizes)
    return copy.fresh(build, matrices.as_strided((*outer, rows, q_columns), steps)), upper


def _reflected(
    build: ProgramBuilder, library: SolverLibrary, matrices: Operand, factors: Operand, q_columns: int
) -> Buffer:
    """Orthonormal columns of many small matrices, of whose reflectors libraries make one after the other.

    They are the first columns of 1 - V T V^H, where the columns of V are the reflectors, and the inverse of T has the
    inverse factors on its diagonal, above it what V^H V has, and 0 below (Puglisi 1992).
    """
    (count, _, rows), (_, reflectors) = matrices.shape, factors.shape
    shape = (count, reflectors, rows)
    # V transposed, as columns are rows here.
    lines = _with_ones(build, triangle(build, matrices.as_strided(shape, matrices.strides), 1, True), shape)
    conjugate = applied(build, UnaryOp.CONJ, lines) if lines.dtype.is_complex else lines
    square = (count, reflectors, reflectors)
    products = dense(matmul.matmul(build, conjugate, _transposed(lines), (count, reflectors, reflectors, rows)), square)
    system = _with_ones(build, triangle(build, _scaled(build, products, factors), 1, True), square)
    padded = conjugate.as_strided((count, reflectors, q_columns), conjugate.strides)
    solved = solve_by_library(build, library, system, _scaled(build, padded, factors))
    assert solved is not None, "no matrix is empty"
    sizes = (count, rows, q_columns, reflectors)
    taken_off = dense(
        matmul.matmul(build, _transposed(lines), dense(solved, padded.shape), sizes), (count, rows, q_columns)
    )
    identity = _identity(build, taken_off)
    return elementwise.binary(
        build, BinaryOp.SUB, identity.as_strided(taken_off.shape, (0, *identity.strides)), taken_off
    )


def _with_ones(build: ProgramBuilder, storage: Buffer, shape: Dims) -> Operand:
    """Matrices whose diagonals become 1."""
    result = dense(storage, shape)
    (count, rows, columns), (step, *_) = shape, result.strides
    copy.const_set(build, result.as_strided((count, min(rows, columns)), (step, columns + 1)), 1)
    return result


def _scaled(build: ProgramBuilder, x: Operand, factors: Operand) -> Operand:
    """Rows times a factor each."""
    return applied(build, BinaryOp.MUL, x, factors.as_strided(x.shape, (*factors.strides, 0)))


@_of_finite()
def svd_by_library(
    build: ProgramBuilder, library: SolverLibrary, x: Operand, has_vectors: bool, is_full: bool
) -> tuple[Buffer, ...] | None:
    """Compute singular values, between singular vectors if these are requested.

    Where the rotations of the library's method do not come to an end, the host finds them.
    """
    *outer, rows, columns = x.shape
    count, (few, many) = _count(x), sorted((rows, columns))
    # The library gets wide matrices transposed; their left vectors are the right ones, in rows.
    is_wide = columns > rows
    matrices = copy.copied(build, x if is_wide else _transposed(x))
    # A call for all matrices makes square ones of the left vectors.
    left_columns = many if is_full or are_few_columns(count, many) else few
    values, infos = build.empty(x.dtype.real, count * few), build.empty(DType.I32, count)
    left = dense(build.empty(x.dtype, count * many * left_columns), (*outer, left_columns, many))
    right = dense(build.empty(x.dtype, count * few * few), (*outer, few, few))
    addresses = (matrices.address, left.address, values.address, right.address, infos.address)
    build.call(library.svd, x.dtype, (many, few, left_columns), count, has_vectors, *addresses)
    outputs: tuple[Buffer, ...] = (values,)
    if has_vectors:
        if not is_full:
            left = left.as_strided((*outer, few, many), left.strides)
        # Columns of the right vectors, of which the conjugate ones are wanted.
        conjugate = applied(build, UnaryOp.CONJ, right) if x.dtype.is_complex else right
        if is_wide:
            outputs = copy.fresh(build, _transposed(conjugate)), values, copy.contiguous(build, left).storage
        else:
            outputs = copy.fresh(build, _transposed(left)), values, conjugate.storage
    build.host(_complete_svd, dense(infos, (count,)), x, outputs, has_vectors, is_full)
    return outputs


def _complete_svd(infos: Operand, x: Operand, targets: Sequence[GpuStorage], has_vectors: bool, is_full: bool) -> None:
    """Store what the host finds where the library did not find the values of a matrix."""
    if on_host.read(infos).any():
        on_host.store(targets, linalg.svd(on_host.read(x), has_vectors, is_full))


def _pointers(build: ProgramBuilder, x: Operand, size: int = 0) -> Pointer:
    """The address of those of contiguous matrices, if one call is to work on all: rows are as long as their columns."""
    *_, columns, rows = x.shape
    count = _count(x)
    if not are_many(count, size or rows):
        return NULL
    result, step = build.empty(DType.I64, count), columns * rows * x.itemsize
    packed = arguments.arange_integers(result=result.address, count=count, start=x.address, step=step)
    build.launch("arange", "arange_i64_integers", blocks_for(count, DType.I64.itemsize), packed)
    return result.address


def _count(x: Operand) -> int:
    return math.prod(x.shape[:-2])


def _transposed(x: Operand) -> Operand:
    (*outer, rows, columns), (*steps, row, column) = x.shape, x.strides
    return x.as_strided((*outer, columns, rows), (*steps, column, row))


def cholesky(build: ProgramBuilder, x: Operand) -> Buffer:
    """Compute on the host, which waits for the device; then the results are copied back."""
    return on_host.computed(build, linalg.cholesky, (x,), results.cholesky(x))[0]


def det(build: ProgramBuilder, x: Operand) -> Buffer:
    """Determinants."""
    return on_host.computed(build, linalg.det, (x,), results.det(x))[0]


def slogdet(build: ProgramBuilder, x: Operand) -> tuple[Buffer, ...]:
    """Signs of determinants, and logarithms of their absolute values."""
    return on_host.computed(build, linalg.slogdet, (x,), *results.slogdet(x))


def solve(build: ProgramBuilder, x: Operand, values: Operand) -> Buffer:
    """The columns of which matrices make `values`."""
    return on_host.computed(build, linalg.solve, (x, values), results.solve(x, values))[0]


def eig(build: ProgramBuilder, x: Operand, has_vectors: bool) -> tuple[Buffer, ...]:
    """Eigenvalues and eigenvectors."""
    compute = partial(linalg.eig, has_vectors=has_vectors)
    return on_host.computed(build, compute, (x,), *results.eig(x, has_vectors))


def eigh(build: ProgramBuilder, x: Operand, has_vectors: bool) -> tuple[Buffer, ...]:
    """Eigenvalues and eigenvectors of Hermitian matrices."""
    compute = partial(linalg.eigh, has_vectors=has_vectors)
    return on_host.computed(build, compute, (x,), *results.eigh(x, has_vectors))


def qr(build: ProgramBuilder, x: Operand, is_complete: bool) -> tuple[Buffer, ...]:
    """Orthonormal columns and upper triangles."""
    compute = partial(linalg.qr, is_complete=is_complete)
    return on_host.computed(build, compute, (x,), *results.qr(x, is_complete))


def svd(build: ProgramBuilder, x: Operand, has_vectors: bool, is_full: bool) -> tuple[Buffer, ...]:
    """Compute singular values, between singular vectors if these are requested."""
    compute = partial(linalg.svd, has_vectors=has_vectors, is_full=is_full)
    return on_host.computed(build, compute, (x,), *results.svd(x, has_vectors, is_full))
