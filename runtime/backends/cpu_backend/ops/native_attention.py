"""Attention by the kernels for the host."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from .....dtype import DType
from .....kernels import constants, host_arguments
from ....program.builder import ProgramBuilder
from ....program.operand import Operand
from ....program.values import NOWHERE, Buffer
from ..values import PRODUCTS, RUN_PARTS, THREADS, address_of, number_bits
from .native_index import index_record, index_stride

if TYPE_CHECKING:
    from ..kernels import HostKernels

# The columns of strips that kernels make of heads divide this.
_STRIP: Final = 32


def scaled_dot_product(
    build: ProgramBuilder,
    kernels: HostKernels,
    query: Operand,
    key: Operand,
    value: Operand,
    mask: Operand | None,
    lengths: Operand | None,
    is_causal: bool,
    scale: float,
) -> Buffer | None:
    """As `attention.scaled_dot_product_attention`; None where NumPy does it."""
    op = "scaled_dot_product_attention"
    results = _attend(build, kernels, op, query, key, value, mask, lengths, is_causal, scale, has_logsumexp=False)
    return None if results is None else results[0]


def scaled_dot_product_with_logsumexp(
    build: ProgramBuilder,
    kernels: HostKernels,
    query: Operand,
    key: Operand,
    value: Operand,
    mask: Operand | None,
    lengths: Operand | None,
    is_causal: bool,
    scale: float,
) -> tuple[Buffer, ...] | None:
    """As `attention.scaled_dot_product_attention_with_logsumexp`; None where NumPy does it."""
    op = "scaled_dot_product_attention_with_logsumexp"
    return _attend(build, kernels, op, query, key, value, mask, lengths, is_causal, scale, has_logsumexp=True)


def _attend(
    build: ProgramBuilder,
    kernels: HostKernels,
    op: str,
    query: Operand,
    key: Operand,
    value: Operand,
    mask: Operand | None,
    lengths: Operand | None,
    is_causal: bool,
    scale: float,
    *,
    has_logsumexp: bool,
) -> tuple[Buffer, ...] | None:
    dtype, count, kernel = query.dtype, query.layout.elem_count, f"attend_{query.dtype.value}"
    if not _has(kernels, kernel, query, key) or mask is not None:
        return None
    if any(each.strides[-1] != 1 for each in (query, key, value)):
        return None
    results = [build.empty(dtype, count)]
    if has_logsumexp:
        results.append(build.empty(DType.F32, math.prod(query.shape[:3])))
    packed = host_arguments.attend_rows(
        result=results[0].address, logsumexp=results[1].address if has_logsumexp else NOWHERE, query=query.address,
        key=key.address, value=value.address, query_strides=query.strides[:-1], key_strides=key.strides[:-1],
        value_strides=value.strides[:-1], **_shared(op, query, key, lengths, is_causal, scale),
    )  # fmt: skip
    work = max(2 * count * key.shape[2] // PRODUCTS, key.layout.elem_count)
    build.launch("host_attention", kernel, 1, packed, work=work)
    return tuple(results)


def gradients(
    build: ProgramBuilder,
    kernels: HostKernels,
    query: Operand,
    key: Operand,
    value: Operand,
    result: Operand,
    gradient: Operand,
    logsumexp: Operand,
    mask: Operand | None,
    lengths: Operand | None,
    is_causal: bool,
    of_mask: bool,
    scale: float,
) -> tuple[Buffer, ...] | None:
    """As `attention_gradient.scaled_dot_product_attention_gradient`; None where NumPy does it."""
    dtype, count, size, keys = query.dtype, query.layout.elem_count, query.shape[3], key.shape[2]
    op, kernel = "scaled_dot_product_attention_gradient", f"attend_gradient_{dtype.value}"
    if not _has(kernels, kernel, query, key):
        return None
    sum_size = -(-size // _STRIP) * _STRIP
    sums = build.empty(DType.F32, count // size * sum_size)
    results = [build.empty(dtype, each.layout.elem_count) for each in (query, key, value)]
    if of_mask and mask is not None:
        results.append(build.empty(dtype, count // size * keys))
    packed = host_arguments.attend_gradient_rows(
        query_gradient=results[0].address, key_gradient=results[1].address, value_gradient=results[2].address,
        mask_gradient=results[3].address if len(results) > 3 else NOWHERE, query=query.address, key=key.address,
        value=value.address, made=result.address, gradient=gradient.address, logsumexp=logsumexp.address,
        mask=address_of(mask), sums=sums.address, query_strides=query.strides, key_strides=key.strides,
        value_strides=value.strides, made_strides=result.strides, gradient_strides=gradient.strides,
        logsumexp_strides=logsumexp.strides, mask_strides=(0,) * 4 if mask is None else mask.strides,
        sum_size=sum_size, **_shared(op, query, key, lengths, is_causal, scale),
    )  # fmt: skip
    build.launch("host_attention", kernel, 1, packed, work=5 * count * keys // PRODUCTS)
    return tuple(results)


def _has(kernels: HostKernels, kernel: str, query: Operand, key: Operand) -> bool:
    has_elements = query.layout.elem_count * key.layout.elem_count != 0
    return has_elements and query.shape[3] <= constants.TILE_TERMS and kernels.has("host_attention", kernel)


def _shared(
    op: str, query: Operand, key: Operand, lengths: Operand | None, is_causal: bool, scale: float
) -> dict[str, Any]:
    """The fields that all kernels have."""
    batches, heads, queries, size = query.shape
    key_heads, keys = key.shape[1:3]
    index_dtype = DType.I64 if lengths is None else lengths.dtype
    _, index_bytes, index_shift = index_dtype.index_form
    return {
        "indexes": address_of(lengths), "wrong": index_record(op, index_dtype, keys + 1), "run_parts": RUN_PARTS,
        "batches": batches, "key_heads": key_heads, "group": heads // key_heads, "queries": queries, "keys": keys,
        "size": size, "index_stride": 0 if lengths is None else index_stride(lengths), "index_bytes": index_bytes,
        "index_shift": index_shift, "scale": number_bits(scale, DType.F32), "is_causal": is_causal,
        "threads": THREADS,
    }  # fmt: skip
