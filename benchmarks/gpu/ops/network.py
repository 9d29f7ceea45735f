"""Softmax, norms, losses and variances of rows, gated units, and rotary embeddings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from ..libraries import Data
from ..work import HALVES, Check, Op, Work, close, matrix_text

_LENGTHS = (4096, 64)
# As many classes as GPT-2 has tokens.
_CLASSES = (4096, 50257)
_EPSILON = 1e-5
_SIZE, _HEADS = 64, 16


def _close(expected: Callable[[], torch.Tensor], data: Data) -> Check:
    # Differences and sums are rounded to f32 in between.
    return close(expected, data, ulps=1 if data.dtype in HALVES else 16, absolute=32)


def _rows(
    name: str,
    length: int,
    ours: Callable[[Any, Any], Any],
    theirs: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> Op:
    """An op on rows, which may have a vector of their length for weight and bias."""

    def build(data: Data) -> Work:
        columns = min(length, data.elements)
        x = data.share(data.x.torch.view(-1)[: data.elements // columns * columns].view(-1, columns))
        vector = data.share(data.normal(columns))
        return Work(
            shape=f"{x.torch.shape[0]} x {columns}",
            nbytes=2 * x.torch.numel() * data.itemsize,
            tallow=lambda: ours(x.tallow, vector.tallow),
            torch=lambda: theirs(x.torch, vector.torch),
            cupy="CuPy has none",
            compiles=True,
            check=_close(lambda: theirs(x.torch.double(), vector.torch.double()), data),
        )

    return Op("network", f"{name}, rows of {length}", build)


def _numbers(
    name: str,
    length: int,
    ours: Callable[[Any, Any], Any],
    theirs: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    target_bytes: int = 0,
) -> Op:
    """An op that makes one number of each row, which may have a target in it."""

    def build(data: Data) -> Work:
        columns = min(length, data.elements)
        x = data.share(data.x.torch.view(-1)[: data.elements // columns * columns].view(-1, columns))
        rows = x.torch.shape[0]
        targets = data.positions(columns, rows)
        return Work(
            shape=f"{rows} x {columns}",
            nbytes=(x.torch.numel() + rows) * data.itemsize + rows * target_bytes,
            tallow=lambda: ours(x.tallow, targets.tallow),
            torch=lambda: theirs(x.torch, targets.torch),
            cupy="CuPy has none",
            compiles=True,
            check=_close(lambda: theirs(x.torch.double(), targets.torch), data),
        )

    return Op("network", f"{name}, rows of {length}", build)


def _silu_mul(data: Data) -> Work:
    x, y = data.x, data.y
    return Work(
        shape=matrix_text(data),
        nbytes=3 * data.elements * data.itemsize,
        tallow=lambda: x.tallow.silu_mul(y.tallow),
        torch=lambda: functional.silu(x.torch) * y.torch,
        cupy="CuPy has none",
        compiles=True,
        check=_close(lambda: functional.silu(x.torch.double()) * y.torch.double(), data),
    )


def _transposed(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    left, right = x.chunk(2, -1)
    return torch.cat((left * cos - right * sin, left * sin + right * cos), -1).to(x.dtype)


def _rope(data: Data) -> Work:
    size = min(_SIZE, data.elements)
    heads = min(_HEADS, data.elements // size)
    tokens = data.elements // (heads * size)
    x = data.share(data.x.torch.view(-1)[: heads * tokens * size].view(1, heads, tokens, size))
    angles = data.normal(tokens, size // 2, dtype=torch.float32)
    cos, sin = data.share(angles.cos()), data.share(angles.sin())
    return Work(
        shape=f"{heads} x {tokens} x {size}",
        nbytes=2 * x.torch.numel() * data.itemsize + 2 * angles.numel() * angles.itemsize,
        tallow=lambda: x.tallow.rope(cos.tallow, sin.tallow),
        torch=lambda: _transposed(x.torch, cos.torch, sin.torch),
        cupy="CuPy has none",
        compiles=True,
        check=_close(lambda: _transposed(x.torch.double(), cos.torch, sin.torch), data),
    )


OPS = (
    *(
        _rows(name, length, ours, theirs)
        for length in _LENGTHS
        for name, ours, theirs in (
            ("softmax", lambda x, _: x.softmax(-1), lambda x, _: x.softmax(-1)),
            ("log_softmax", lambda x, _: x.log_softmax(-1), lambda x, _: x.log_softmax(-1)),
            (
                "layer_norm",
                lambda x, w: x.layer_norm(w, w, _EPSILON),
                lambda x, w: functional.layer_norm(x, w.shape, w, w, _EPSILON),
            ),
            (
                "rms_norm",
                lambda x, w: x.rms_norm(w, _EPSILON),
                lambda x, w: functional.rms_norm(x, w.shape, w, _EPSILON),
            ),
        )
    ),
    *(
        _numbers(
            "cross_entropy",
            classes,
            lambda x, targets: x.cross_entropy(targets, reduction="none"),
            lambda x, targets: functional.cross_entropy(x, targets, reduction="none"),
            target_bytes=8,
        )
        for classes in _CLASSES
    ),
    *(_numbers("var", length, lambda x, _: x.var(-1), lambda x, _: x.var(-1)) for length in _LENGTHS),
    Op("network", "silu_mul", _silu_mul),
    Op("network", "rope", _rope),
)
