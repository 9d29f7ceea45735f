"""Attention by the kernels for the host."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from .....dtype import DType
from .....kernels import constants, host_arguments
from ....program.values import NOWHERE, Address
from ...array_backend.ops.operand import Operand
from ..kernels import THREADS, Result, Scratch, bits_of
from .native import by_plan, source_of
from .native_index import index_stride, wrong_index

if TYPE_CHECKING:
    from ..kernels import HostKernels
    from ..storage import CpuStorage

# The columns of strips that kernels make of heads divide this.
_STRIP: Final = 32


@by_plan
def scaled_dot_product(
    kernels: HostKernels,
    query: Operand,
    key: Operand,
    value: Operand,
    mask: Operand | None,
    lengths: Operand | None,
    is_causal: bool,
    scale: float,
) -> Callable[..., CpuStorage] | None:
    """As `attention.scaled_dot_product_attention`; None where NumPy does it."""
    op = "scaled_dot_product_attention"
    return _plan(op, kernels, query, key, value, mask, lengths, is_causal, scale, has_logsumexp=False)


@by_plan
def scaled_dot_product_with_logsumexp(
    kernels: HostKernels,
    query: Operand,
    key: Operand,
    value: Operand,
    mask: Operand | None,
    lengths: Operand | None,
    is_causal: bool,
    scale: float,
) -> Callable[..., tuple[CpuStorage, ...]] | None:
    """As `attention.scaled_dot_product_attention_with_logsumexp`; None where NumPy does it."""
    op = "scaled_dot_product_attention_with_logsumexp"
    return _plan(op, kernels, query, key, value, mask, lengths, is_causal, scale, has_logsumexp=True)


def _plan(
    op: str,
    kernels: HostKernels,
    query: Operand,
    key: Operand,
    value: Operand,
    mask: Operand | None,
    lengths: Operand | None,
    is_causal: bool,
    scale: float,
    *,
    has_logsumexp: bool,
) -> Callable[..., Any] | None:
    dtype, count = query.dtype, query.layout.elem_count
    kernel = _kernel(kernels, f"attend_{dtype.value}", query, key)
    if kernel is None or mask is not None or any(each.layout.strides[-1] != 1 for each in (query, key, value)):
        return None
    packed = host_arguments.attend_rows(
        result=Result(count, dtype),
        logsumexp=Result(math.prod(query.layout.shape[:3]), DType.F32) if has_logsumexp else NOWHERE,
        query=source_of(query, 0), key=source_of(key, 1), value=source_of(value, 2),
        query_strides=query.layout.strides[:-1], key_strides=key.layout.strides[:-1],
        value_strides=value.layout.strides[:-1], **_shared(op, kernels, query, key, lengths, 3, is_causal, scale),
    )  # fmt: skip
    return kernels.call(kernel, packed, key.storage, as_tuple=has_logsumexp, products=2 * count * key.layout.shape[2])


@by_plan
def gradients(
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
) -> Callable[..., tuple[CpuStorage, ...]] | None:
    """As `attention_gradient.scaled_dot_product_attention_gradient`; None where NumPy does it."""
    dtype, count, size, keys = query.dtype, query.layout.elem_count, query.layout.shape[3], key.layout.shape[2]
    kernel = _kernel(kernels, f"attend_gradient_{dtype.value}", query, key)
    if kernel is None:
        return None
    sum_size = -(-size // _STRIP) * _STRIP
    op, before = "scaled_dot_product_attention_gradient", 6 if mask is None else 7
    packed = host_arguments.attend_gradient_rows(
        query_gradient=Result(count, dtype), key_gradient=Result(key.layout.elem_count, dtype),
        value_gradient=Result(value.layout.elem_count, dtype),
        mask_gradient=Result(count // size * keys, dtype) if of_mask and mask is not None else NOWHERE,
        query=source_of(query, 0), key=source_of(key, 1), value=source_of(value, 2), made=source_of(result, 3),
        gradient=source_of(gradient, 4), logsumexp=source_of(logsumexp, 5),
        mask=NOWHERE if mask is None else source_of(mask, 6), sums=Scratch(count // size * sum_size, DType.F32),
        query_strides=query.layout.strides, key_strides=key.layout.strides, value_strides=value.layout.strides,
        made_strides=result.layout.strides, gradient_strides=gradient.layout.strides,
        logsumexp_strides=logsumexp.layout.strides, mask_strides=(0,) * 4 if mask is None else mask.layout.strides,
        sum_size=sum_size, **_shared(op, kernels, query, key, lengths, before, is_causal, scale),
    )  # fmt: skip
    return kernels.call(kernel, packed, key.storage, as_tuple=True, products=5 * count * keys)


def _kernel(kernels: HostKernels, name: str, query: Operand, key: Operand) -> Address | None:
    if query.layout.elem_count * key.layout.elem_count == 0 or query.layout.shape[3] > constants.TILE_TERMS:
        return None
    return kernels.address("host_attention", name)


def _shared(
    op: str,
    kernels: HostKernels,
    query: Operand,
    key: Operand,
    lengths: Operand | None,
    given: int,
    is_causal: bool,
    scale: float,
) -> dict[str, Any]:
    """The fields that all kernels have; the lengths are in the storage `given`."""
    batches, heads, queries, size = query.layout.shape
    key_heads, keys = key.layout.shape[1:3]
    index_dtype = DType.I64 if lengths is None else lengths.dtype
    _, index_bytes, index_shift = index_dtype.index_form
    return {
        "indexes": NOWHERE if lengths is None else source_of(lengths, given),
        "wrong": wrong_index(op, index_dtype, keys + 1), "run_parts": kernels.run_parts, "batches": batches,
        "key_heads": key_heads, "group": heads // key_heads, "queries": queries, "keys": keys, "size": size,
        "index_stride": 0 if lengths is None else index_stride(lengths), "index_bytes": index_bytes,
        "index_shift": index_shift, "scale": bits_of(scale, DType.F32), "is_causal": is_causal, "threads": THREADS,
    }  # fmt: skip
