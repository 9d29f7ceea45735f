"""Attention by the kernels for the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .....dtype import DType
from .....kernels import constants, host_arguments
from ....kernels.argument_struct import NOWHERE
from ...array_backend.ops.operand import Operand
from ..kernels import THREADS, Result, bits_of
from .native import by_plan, source_of
from .native_index import index_stride, wrong_index

if TYPE_CHECKING:
    from ..kernels import HostKernels
    from ..storage import CpuStorage


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
    batches, heads, queries, size = query.layout.shape
    key_heads, keys = key.layout.shape[1:3]
    dtype, count = query.dtype, query.layout.elem_count
    if mask is not None or count * keys == 0 or size > constants.TILE_TERMS:
        return None
    kernel = kernels.address("host_attention", f"attend_{dtype.value}")
    if kernel is None or any(operand.layout.strides[-1] != 1 for operand in (query, key, value)):
        return None
    index_dtype = DType.I64 if lengths is None else lengths.dtype
    _, index_bytes, index_shift = index_dtype.index_form
    packed = host_arguments.attend_rows(
        result=Result(count, dtype),
        logsumexp=Result(batches * heads * queries, DType.F32) if has_logsumexp else NOWHERE,
        query=source_of(query, 0), key=source_of(key, 1), value=source_of(value, 2),
        indexes=NOWHERE if lengths is None else source_of(lengths, 3),
        wrong=wrong_index(op, index_dtype, keys + 1), run_parts=kernels.run_parts,
        batches=batches, key_heads=key_heads, group=heads // key_heads, queries=queries, keys=keys, size=size,
        query_strides=query.layout.strides[:-1], key_strides=key.layout.strides[:-1],
        value_strides=value.layout.strides[:-1], index_stride=0 if lengths is None else index_stride(lengths),
        index_bytes=index_bytes, index_shift=index_shift, scale=bits_of(scale, DType.F32), is_causal=is_causal,
        threads=THREADS,
    )  # fmt: skip
    return kernels.call(kernel, packed, key.storage, as_tuple=has_logsumexp, products=2 * count * keys)
