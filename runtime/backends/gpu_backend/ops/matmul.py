"""Matrix products, by a library and by the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from .....dtype import HALF, DType
from .....kernels import arguments
from .....kernels.constants import ACCESS_BYTES, MATMUL_SIDE
from ....base.error import InvalidArgument
from ....program.builder import Facts, ProgramBuilder
from ....program.values import Address, Buffer, Operand, address_of, dense
from ..driver.grid import MAX_BLOCKS, ceil_divide
from ..libraries.matrices import Matrices, matrices
from . import copy
from .geometry import LIMIT, parts

if TYPE_CHECKING:
    from ..libraries.library import Blas

Sizes = tuple[int, int, int, int]

# The side of the smallest tiles of f16 and bf16.
_HALF_TILE: Final = 2 * MATMUL_SIDE


def by_library(
    build: ProgramBuilder,
    library: Blas,
    lhs: Operand,
    rhs: Operand,
    bmnk: Sizes,
    bias: Operand | None = None,
    *,
    result: DType | None = None,
) -> Buffer | None:
    """b products of matrices (m, k) and (k, n): (b, m, n). The layouts end in the dims of the matrices.

    A bias (n) is added to the products. Products are in the dtype of the operands, those of 16-bit floats, where that
    is the `result`, in f32. None where there is nothing to multiply, or sizes are more than the library counts.
    """
    b, m, n, _ = bmnk
    if 0 in bmnk:
        return None
    lhs, left = as_matrices(build, lhs)
    rhs, right = as_matrices(build, rhs)
    if left is None or right is None:
        return None
    products = build.empty(result or lhs.dtype, b * m * n)
    if bias is not None:
        copy.copy(build, bias.as_strided((b * m, n), (0, *bias.strides)), dense(products, (b * m, n)))
    build.append(library.multiply(lhs.dtype, bmnk, left, right, products.address, bias is not None, result))
    return products


def matmul(build: ProgramBuilder, lhs: Operand, rhs: Operand, bmnk: Sizes, bias: Operand | None = None) -> Buffer:
    """Multiply by the kernel, which takes any sizes, and adds a bias (n) before it rounds."""
    b, m, n, k = bmnk
    dtype = lhs.dtype
    result = build.empty(dtype, b * m * n)
    if result.length and k == 0 and bias is None:
        build.zero(result)
    elif result.length:
        multiply_by_kernel(build, lhs, rhs, bmnk, result.address, bias)
    return result


def fills_tiles(facts: Facts, dtype: DType, mnk: tuple[int, int, int]) -> bool:
    """Return True if kernels of large tiles take matrices of such sizes and keep half of the device busy at least."""
    m, n, k = mnk
    length, side = ACCESS_BYTES // dtype.itemsize, _HALF_TILE if dtype in HALF else MATMUL_SIDE
    blocks = ceil_divide(m, side) * ceil_divide(n, side)
    is_tiled = (dtype in HALF or dtype is DType.F32) and n % length == k % length == 0 and min(m, n) > MATMUL_SIDE
    return is_tiled and m < LIMIT and 2 * blocks >= facts.multiprocessors


def by_tiles(build: ProgramBuilder, lhs: Operand, rhs: Operand, bmnk: Sizes) -> Buffer:
    """Multiply by kernels of large tiles, for which operands are copied where accesses would not be aligned."""

    def tiled(operand: Operand) -> Operand:
        *batch, outer, inner = zip(operand.shape, operand.strides, strict=True)
        is_dense = _dense_along(operand, inner, outer, [stride for _, stride in batch])
        return operand if is_dense else copy.copied(build, operand)

    return matmul(build, tiled(lhs), tiled(rhs), bmnk)


def multiply(build: ProgramBuilder, library: Blas, lhs: Operand, rhs: Operand, bmnk: Sizes, result: Address) -> None:
    """Products of at least one element each, written to the address `result`."""
    lhs, left = as_matrices(build, lhs)
    rhs, right = as_matrices(build, rhs)
    if left is None or right is None:
        multiply_by_kernel(build, lhs, rhs, bmnk, result)
    else:
        build.append(library.multiply(lhs.dtype, bmnk, left, right, result))


def as_matrices(build: ProgramBuilder, operand: Operand) -> tuple[Operand, Matrices | None]:
    """An operand as a library takes it, copied where it must be; no matrices where they are too large for one."""
    read = matrices(operand.storage.address, operand.layout, operand.itemsize)
    if read is not None or operand.layout.is_contiguous:
        return operand, read
    copied = copy.contiguous(build, operand)
    return copied, matrices(copied.storage.address, copied.layout, copied.itemsize)


def multiply_by_kernel(
    build: ProgramBuilder, lhs: Operand, rhs: Operand, bmnk: Sizes, result: Address, bias: Operand | None = None
) -> None:
    """Products by the kernel, written to the address `result`."""
    _, m, n, k = bmnk
    name, side, most = _kernel(lhs, rhs, bmnk)
    down = ceil_divide(m, side)
    tiles = down * ceil_divide(n, side)
    if max(m, n, k, tiles) >= LIMIT:
        raise InvalidArgument("matmul", f"sizes {(m, n, k)} are more than a kernel can number; use smaller matrices")
    itemsize = lhs.itemsize
    strides = lhs.strides[:-2], rhs.strides[:-2]
    # Tiles are numbered too.
    for _, first, offsets, batches, geometry in parts(1, lhs.shape[:-2], strides, ceil_divide(most, tiles)):
        packed = arguments.matmul(
            result=result + first * m * n * itemsize, lhs=lhs.address + offsets[0] * itemsize,
            rhs=rhs.address + offsets[1] * itemsize, lhs_stride_m=lhs.strides[-2], lhs_stride_k=lhs.strides[-1],
            rhs_stride_k=rhs.strides[-2], rhs_stride_n=rhs.strides[-1], bias=address_of(bias),
            bias_stride=0 if bias is None else bias.strides[0], m=m, n=n, k=k, batches=batches, geometry=geometry,
        )  # fmt: skip
        blocks = batches * tiles
        if side == _HALF_TILE and blocks < build.facts.multiprocessors:
            # Tiles of half the columns, for targets that make them.
            blocks = batches * down * ceil_divide(n, side // 2)
        build.launch("matmul", name, blocks, packed, build.facts.shared_bytes if side == _HALF_TILE else 0)


def _kernel(lhs: Operand, rhs: Operand, bmnk: Sizes) -> tuple[str, int, int]:
    """The kernel for operands, the side of the smallest tiles that it makes, and how many of these it can number."""
    _, m, n, k = bmnk
    name = f"matmul_{lhs.dtype.value}"
    side = _HALF_TILE if lhs.dtype in HALF else MATMUL_SIDE
    is_large = min(m, n) > MATMUL_SIDE and ceil_divide(m, side) * ceil_divide(n, side) <= MAX_BLOCKS
    if (lhs.dtype in HALF or lhs.dtype is DType.F32) and is_large:
        *of_rows, row_stride, lhs_step = lhs.strides
        *of_columns, rhs_step, column_stride = rhs.strides
        left = _dense_along(lhs, (k, lhs_step), (m, row_stride), of_rows)
        right = _dense_along(rhs, (n, column_stride), (k, rhs_step), of_columns)
        if left and right:
            return f"{name}_tiles_{left}{right}", side, MAX_BLOCKS
    return name, MATMUL_SIDE, LIMIT


def _dense_along(operand: Operand, inner: tuple[int, int], outer: tuple[int, int], batch: Sequence[int]) -> str:
    """ "n" for an operand that is dense along its inner dim, "t" along its outer one, in aligned accesses; else "".

    A dim is its size and its stride.
    """
    length = ACCESS_BYTES // operand.itemsize
    if not operand.address.is_aligned() or any(stride % length for stride in batch):
        return ""
    for letter, (size, stride), (_, other) in (("n", inner, outer), ("t", outer, inner)):
        if stride == 1 and size % length == 0 and other % length == 0:
            return letter
    return ""
