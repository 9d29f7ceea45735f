"""Attention and its gradients by a library."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ..... import results
from .....kernels import launches
from ....program.builder import ProgramBuilder
from ....program.values import Buffer, Operand
from ..libraries.library import AttentionGradientParams, AttentionParams
from .attention import form, suits_libraries
from .copy import contiguous

if TYPE_CHECKING:
    from ..libraries.library import Attention


def attention(
    build: ProgramBuilder,
    library: Attention,
    query: Operand,
    key: Operand,
    value: Operand,
    mask: Operand | None,
    lengths: Operand | None,
    is_causal: bool,
    scale: float,
) -> Buffer | None:
    """Compute attention by a library; None for what that refuses, and for what is faster by kernels."""
    if mask is not None or lengths is not None or not suits_libraries((query, key, value), is_causal, scale):
        return None
    result = build.empty(query.dtype, query.layout.elem_count)
    params = AttentionParams(form(query), form(key), form(value), is_causal, scale)
    call = library.attention(query.dtype, params, query.address, key.address, value.address, result.address)
    fallback = partial(
        launches.scaled_dot_product_attention, x=query, keys=key, values=value, mask=None, lengths=None,
        is_causal=is_causal, scale=scale,
    )  # fmt: skip
    return result if build.append(call, fallback) else None


def attention_with_logsumexp(
    build: ProgramBuilder,
    library: Attention,
    query: Operand,
    key: Operand,
    value: Operand,
    mask: Operand | None,
    lengths: Operand | None,
    is_causal: bool,
    scale: float,
) -> tuple[Buffer, ...] | None:
    """Compute attention by a library, and log(sum(exp(score))) of each query."""
    if mask is not None or lengths is not None or not suits_libraries((query, key, value), is_causal, scale):
        return None
    outputs = tuple(map(build.output, results.scaled_dot_product_attention_with_logsumexp(query)))
    params = AttentionParams(form(query), form(key), form(value), is_causal, scale)
    addresses = query.address, key.address, value.address, *(each.address for each in outputs)
    call = library.attention_with_logsumexp(query.dtype, params, *addresses)
    fallback = partial(
        launches.scaled_dot_product_attention_with_logsumexp, x=query, keys=key, values=value, mask=None, lengths=None,
        is_causal=is_causal, scale=scale,
    )  # fmt: skip
    return outputs if build.append(call, fallback) else None


def attention_gradient(
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
    nondeterministic: bool = False,
) -> tuple[Buffer, ...] | None:
    """Compute the gradients by a library; None for what that refuses, and for what is faster by kernels.

    In any order, algorithms are allowed whose bits differ from run to run.
    """
    operands = query, key, value, result, gradient
    is_plain = mask is None and lengths is None and not of_mask
    # cuDNN adds up gradients of such queries in another order in each call, whatever the flags.
    is_uneven = is_causal and query.shape[2] != key.shape[2] and not nondeterministic
    if not is_plain or is_uneven or not suits_libraries(operands, is_causal, scale):
        return None
    types = results.scaled_dot_product_attention_gradient(query, key, value, mask, of_mask)
    outputs = [build.output(each) for each in types if each is not None]
    own = AttentionParams(form(query), form(key), form(value), is_causal, scale)
    params = AttentionGradientParams(own, form(result), form(gradient), nondeterministic)
    fallback = partial(
        launches.scaled_dot_product_attention_gradient, x=query, keys=key, values=value, result=result,
        gradient=gradient, logsumexp=logsumexp, mask=None, lengths=None, is_causal=is_causal, of_mask=False,
        scale=scale,
    )  # fmt: skip
    addresses = [each.address for each in (*operands, contiguous(build, logsumexp))]
    call = library.attention_gradient(query.dtype, params, *addresses, *(each.address for each in outputs))
    return tuple(outputs) if build.append(call, fallback) else None


def attention_gradient_in_any_order(
    build: ProgramBuilder, library: Attention, *arguments: Any
) -> tuple[Buffer, ...] | None:
    """Compute the gradients by algorithms whose bits may differ from run to run."""
    return attention_gradient(build, library, *arguments, nondeterministic=True)
