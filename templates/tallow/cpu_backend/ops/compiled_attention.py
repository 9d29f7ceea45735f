"""Attention by the kernels for the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ...array_backend.ops.operand import Operand
from ...dtype import DType
from ...error import InvalidIndex
from ...host_memory import tells_lack_of_memory
from ...kernels import constants, host_arguments
from ...threads import get_threads
from .. import room
from ..kernels import bits_of
from .compiled import by_plan

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
    """As `attention.scaled_dot_product`; None where NumPy does it."""
    batches, heads, queries, size = query.layout.shape
    key_heads, keys = key.layout.shape[1:3]
    dtype, count, operands = query.dtype, query.layout.elem_count, (query, key, value)
    if mask is not None or count * keys == 0 or size > constants.TILE_TERMS:
        return None
    kernel = kernels.kernel("host_attention", f"attend_{dtype.value}")
    if kernel is None or any(operand.layout.strides[-1] != 1 for operand in operands):
        return None
    sizes = kernels.run_parts, batches, key_heads, heads // key_heads, queries, size
    strides = [stride for operand in operands for stride in operand.layout.strides[:-1]]
    rest = *sizes, *strides, bits_of(scale, DType.F32), is_causal
    offsets = [operand.layout.start_offset * dtype.itemsize for operand in operands]
    pack, numpy_type, whole = host_arguments.ATTEND_ROWS.pack, dtype.numpy, np.full(batches, keys, np.int64)
    chosen = None if lengths is None else lengths.layout

    @tells_lack_of_memory
    def run(query: CpuStorage, key: CpuStorage, value: CpuStorage, *lengths: CpuStorage) -> CpuStorage:
        counts = whole
        if chosen is not None:
            found = lengths[0].view(chosen).reshape(-1)
            wrong = (found < 0) | (found > keys)
            if wrong.any():
                raise InvalidIndex("scaled_dot_product_attention", int(found[wrong][0]), keys + 1)
            counts = np.empty(batches, np.int64)
            counts[:] = found
        made = type(query)(query.device, dtype, room.empty(count, numpy_type))
        places = [each.address + offset for each, offset in zip((query, key, value), offsets, strict=True)]
        kernel(pack(made.address, *places, counts.ctypes.data, *rest, get_threads()))
        return made

    return run
