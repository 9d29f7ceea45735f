"""The gradients of attention."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from ..... import results
from .....dtype import DType
from .....kernels import arguments
from .....kernels.constants import ATTENTION_ROWS
from ....base.error import InvalidArgument
from ....program.builder import ProgramBuilder
from ....program.values import NULL, Buffer, Operand, address_of
from ..driver.grid import MAX_BLOCKS, ceil_divide
from ..libraries.library import AttentionGradientParams, AttentionParams
from . import attention
from .copy import contiguous
from .geometry import LIMIT
from .index import Rows, check
from .scalar import element_bits

if TYPE_CHECKING:
    from ..libraries.library import Attention

_FAMILY: Final = "attention_gradient"
_OP: Final = "scaled_dot_product_attention_gradient"


def scaled_dot_product_attention_gradient(
    build: ProgramBuilder,
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
) -> tuple[Buffer, ...]:
    """The gradients of query, key and value, and of the mask if it is asked for."""
    types = results.scaled_dot_product_attention_gradient(query, key, value, mask, of_mask)
    made = [build.output(each) for each in types if each is not None]
    batches, heads, queries, size = query.shape
    key_heads, keys = key.shape[1:3]
    indexes = None if lengths is None else Rows.of(build, _OP, lengths, keys + 1, mark=0)
    if 0 in (query.layout.elem_count, keys):
        if indexes is not None:
            check(build, indexes)
        for each in made:
            build.zero(each)
        return tuple(made)
    # Of a mask only the gradients are written of what is in a tile with something that is seen.
    for each in made[3:]:
        build.zero(each)
    group = heads // key_heads
    row_blocks = batches * key_heads * ceil_divide(group * queries, ATTENTION_ROWS)
    key_blocks = batches * key_heads * ceil_divide(keys, ATTENTION_ROWS)
    if max(group * queries, keys) >= LIMIT or max(row_blocks, key_blocks) > MAX_BLOCKS:
        reason = f"shapes {query.shape} and {key.shape} are more than a kernel can number; use fewer"
        raise InvalidArgument(_OP, reason)
    operands = query, key, value, result, gradient
    query, key, value, result, gradient = (attention.whole(build, operand) for operand in operands)
    logsumexp = contiguous(build, logsumexp)
    products = build.empty(DType.F32, batches * heads * queries)
    packed = arguments.attention_gradient(
        query_gradient=made[0].address, key_gradient=made[1].address,
        value_gradient=made[2].address, mask_gradient=made[3].address if made[3:] else NULL,
        query=query.address, key=key.address, value=value.address, mask=address_of(mask),
        result=result.address, gradient=gradient.address, logsumexp=logsumexp.address,
        products=products.address, indexes=NULL if indexes is None else indexes.indexes.address,
        index=attention.NO_LENGTHS if indexes is None else indexes.fields, is_causal=is_causal,
        index_stride=attention.index_stride(lengths), scale=element_bits(scale, DType.F32),
        query_strides=query.strides[:3], key_strides=key.strides[:3], value_strides=value.strides[:3],
        mask_strides=(0, 0, 0, 0) if mask is None else mask.strides, result_strides=result.strides[:3],
        gradient_strides=gradient.strides[:3], batches=batches, heads=key_heads, group=group, queries=queries,
        keys=keys, head_size=size,
    )  # fmt: skip
    # The kernel of keys takes what that of queries left at `products`.
    name = f"attention_gradient_{query.dtype.value}_{attention.held_size(_OP, size)}"
    build.launch(_FAMILY, f"{name}_queries", row_blocks, packed)
    build.launch(_FAMILY, f"{name}_keys", key_blocks, packed)
    if indexes is not None:
        build.expect_error()
    return tuple(made)


def by_library(
    build: ProgramBuilder,
    library: Attention,
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
    *,
    any_order: bool = False,
) -> tuple[Buffer, ...] | None:
    """The same by a library; None for what that refuses, and for what takes less time by kernels.

    In any order, algorithms are allowed whose bits differ from run to run.
    """
    operands = query, key, value, result, gradient
    is_plain = mask is None and lengths is None and not of_mask
    # cuDNN adds up gradients of such queries in another order in each call, whatever it is asked for.
    is_uneven = is_causal and query.shape[2] != key.shape[2] and not any_order
    if not is_plain or is_uneven or not attention.suits_libraries(operands, is_causal, scale):
        return None
    types = results.scaled_dot_product_attention_gradient(query, key, value, mask, of_mask)
    made = [build.output(each) for each in types if each is not None]
    own = AttentionParams(attention.form(query), attention.form(key), attention.form(value), is_causal, scale)
    params = AttentionGradientParams(own, attention.form(result), attention.form(gradient), any_order)
    fallback = partial(
        scaled_dot_product_attention_gradient, query=query, key=key, value=value, result=result, gradient=gradient,
        logsumexp=logsumexp, mask=None, lengths=None, is_causal=is_causal, of_mask=False, scale=scale,
    )  # fmt: skip
    addresses = [each.address for each in (*operands, contiguous(build, logsumexp))]
    call = library.attention_gradient(query.dtype, params, *addresses, *(each.address for each in made))
    return tuple(made) if build.append(call, fallback) else None


def by_library_in_any_order(
    build: ProgramBuilder,
    library: Attention,
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
    """The same, by algorithms whose bits may differ from run to run."""
    operands = query, key, value, result, gradient
    return by_library(build, library, *operands, logsumexp, mask, lengths, is_causal, of_mask, scale, any_order=True)
