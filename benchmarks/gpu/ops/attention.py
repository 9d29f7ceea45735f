"""Attention: of all tokens to those before them, and of one token to a cache of keys."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch.nn import functional

from ..libraries import Data, Operand
from ..work import HALVES, Op, Work, close

_SIZE = 128
_TOKENS = 4096
_BATCHES_AND_HEADS = (4, 16)
_CACHED = 8192
_HEADS, _KEY_HEADS = 32, 8


def _prefill(data: Data, *, by_kernel: bool) -> Work:
    batches, heads = _BATCHES_AND_HEADS
    tokens = min(max(data.elements // (batches * heads * _SIZE), 1), _TOKENS)
    query, key, value = (data.share(data.normal(batches, heads, tokens, _SIZE)) for _ in range(3))
    work = _attention(
        data,
        query,
        key,
        value,
        flops=2 * query.torch.numel() * tokens,
        shape=f"{batches} x {heads} x {tokens} x {_SIZE}",
    )
    if not by_kernel:
        return work
    length = data.share(torch.tensor([tokens], device=query.torch.device))
    operands = query.torch, key.torch, value.torch
    return replace(
        work,
        # Libraries take no length that only the device knows.
        tallow=lambda: query.tallow.scaled_dot_product_attention(
            key.tallow, value.tallow, causal=True, lengths=length.tallow
        ),
        torch=lambda: torch.ops.aten._scaled_dot_product_flash_attention(*operands, is_causal=True)[0],
    )


def _decode(data: Data, max_batches: int) -> Work:
    cached = min(max(data.elements // (2 * _KEY_HEADS * _SIZE), 1), _CACHED)
    batches = min(max(data.elements // (2 * _KEY_HEADS * _SIZE * cached), 1), max_batches)
    query = data.share(data.normal(batches, _HEADS, 1, _SIZE))
    key, value = (data.share(data.normal(batches, _KEY_HEADS, cached, _SIZE)) for _ in range(2))
    shape = f"{batches} x {_HEADS} x 1 x {_SIZE}, {_KEY_HEADS} x {cached} keys"
    return _attention(data, query, key, value, flops=0, shape=shape)


def _attention(data: Data, query: Operand, key: Operand, value: Operand, *, flops: int, shape: str) -> Work:
    is_causal = query.torch.shape[2] > 1

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(
            q, k, v, is_causal=is_causal, enable_gqa=q.shape[1] != k.shape[1]
        )

    def expected() -> torch.Tensor:
        # One of the batch at a time, for the scores in f64.
        parts = zip(*(operand.torch.split(1) for operand in (query, key, value)), strict=True)
        return torch.cat([attend(*(part.double() for part in each)) for each in parts])

    return Work(
        shape=shape,
        nbytes=2 * (query.torch.numel() + key.torch.numel()) * data.itemsize,
        flops=flops,
        tallow=lambda: query.tallow.scaled_dot_product_attention(key.tallow, value.tallow, causal=is_causal),
        torch=lambda: attend(query.torch, key.torch, value.torch),
        cupy="CuPy has no attention",
        # Weights are rounded to the dtype, as those of every library that multiplies on matrix cores.
        check=close(
            expected, data, ulps=1, absolute=128 + torch.finfo(data.torch_dtype).eps / torch.finfo(torch.float32).eps
        ),
    )


OPS = (
    Op("attention", "attention of all tokens", lambda data: _prefill(data, by_kernel=False)),
    Op("attention", "attention of all tokens, own kernels", lambda data: _prefill(data, by_kernel=True), HALVES),
    Op("attention", "attention of one token", lambda data: _decode(data, 1)),
    Op("attention", "attention of one token each", lambda data: _decode(data, 16)),
)
