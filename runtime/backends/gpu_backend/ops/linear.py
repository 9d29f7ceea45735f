"""Matrix products to which a row is added: the layers of networks. Sums of products and the bias are rounded once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .....dtype import DType
from ....program.builder import ProgramBuilder
from ....program.values import Buffer, Operand
from . import copy, matmul

if TYPE_CHECKING:
    from ..libraries.library import BiasedBlas, Blas


def by_fused_library(
    build: ProgramBuilder, library: BiasedBlas, x: Operand, weight: Operand, bias: Operand | None
) -> Buffer | None:
    """(m, k) by the transpose of a weight (n, k), plus a bias (n): (m, n), in one launch.

    None where there is no bias, or nothing to multiply, and where the library refuses.
    """
    sizes = _sizes(x, weight)
    if bias is None or 0 in sizes:
        return None
    x, left = matmul.as_matrices(build, _aligned(build, x))
    weight, right = matmul.as_matrices(build, _transposed(_aligned(build, weight)))
    bias = _aligned(build, copy.contiguous(build, bias))
    if left is None or right is None:
        return None
    _, m, n, k = sizes
    result = build.empty(x.dtype, m * n)
    call = library.multiply_and_add(x.dtype, (m, n, k), left, right, bias.address, result.address)
    return result if build.append(call) else None


def by_library(
    build: ProgramBuilder,
    library: Blas,
    x: Operand,
    weight: Operand,
    bias: Operand | None,
    *,
    result: DType | None = None,
) -> Buffer | None:
    """Multiply by a library that adds the product to the bias in place: as of `matmul.by_library`."""
    return matmul.by_library(build, library, x, _transposed(weight), _sizes(x, weight), bias, result=result)


def by_kernel(build: ProgramBuilder, x: Operand, weight: Operand, bias: Operand | None) -> Buffer:
    """Multiply by the kernel of matrix products, which takes any sizes."""
    return matmul.matmul(build, x, _transposed(weight), _sizes(x, weight), bias)


def without_bias(
    build: ProgramBuilder, library: Blas, x: Operand, weight: Operand, bias: Operand | None
) -> Buffer | None:
    """Multiply by a library that would round a sum of f16 or bf16 before it adds the bias: None where there is one."""
    return by_library(build, library, x, weight, None) if bias is None else None


def _aligned(build: ProgramBuilder, operand: Operand) -> Operand:
    """Return the operand if a library may read it in aligned accesses, else a copy."""
    if operand.address.is_aligned():
        return operand
    return copy.copied(build, operand)


def _sizes(x: Operand, weight: Operand) -> matmul.Sizes:
    (m, k), (n, _) = x.shape, weight.shape
    return 1, m, n, k


def _transposed(weight: Operand) -> Operand:
    return Operand(weight.storage, weight.layout.transpose(0, 1))
