"""Attention by the kernels for the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from .....dtype import DType
from .....kernels import constants, host_arguments
from ...array_backend.ops.operand import Operand
from ..kernels import Result, bits_of
from .native import by_plan, sources_of
from .native_index import few_indexes, wrong_index

if TYPE_CHECKING:
    from ..kernels import HostKernels
    from ..storage import CpuStorage

# The fields before `run_parts`.
_ADDRESSES: Final = 6


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
    batches, heads, queries, size = query.layout.shape
    key_heads, keys = key.layout.shape[1:3]
    dtype, count, packer = query.dtype, query.layout.elem_count, host_arguments.ATTEND_ROWS
    operands = {"query": query, "key": key, "value": value}
    if mask is not None or count * keys == 0 or size > constants.TILE_TERMS:
        return None
    kernel = kernels.address("host_attention", f"attend_{dtype.value}")
    if kernel is None or any(operand.layout.strides[-1] != 1 for operand in operands.values()):
        return None
    strides = [stride for operand in operands.values() for stride in operand.layout.strides[:-1]]
    index_fields, index_dtype = [0, 0, 0], DType.I64
    if lengths is not None:
        operands["indexes"], index_dtype = lengths, lengths.dtype
        *index_fields, _ = few_indexes(lengths)
    packed = packer.pack(
        *(0,) * _ADDRESSES, kernels.run_parts, batches, key_heads, heads // key_heads, queries, keys, size, *strides,
        *index_fields, bits_of(scale, DType.F32), is_causal, 1,
    )  # fmt: skip
    return kernels.call(
        kernel,
        packer,
        packed,
        key.storage,
        Result(packer.places["result"], count, dtype),
        sources_of(packer, operands),
        wrong=wrong_index("scaled_dot_product_attention", packer.places["wrong"], index_dtype, keys + 1),
        products=2 * count * keys,
    )
