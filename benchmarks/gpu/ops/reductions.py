"""Sum, mean, logsumexp, max and argmax over all elements, the last and the first dim."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from ..libraries import Data
from ..work import Check, Op, Work, close, matrix_text

_DIMS: dict[str, int | None] = {"all": None, "the last dim": 1, "the first dim": 0}


def _reduced(data: Data, dim: int | None) -> int:
    return data.elements if dim is None else (data.rows, data.columns)[dim]


def _reduction(name: str, over: str, theirs: Callable[..., torch.Tensor], check: Callable[[Data], Check]) -> Op:
    dim = _DIMS[over]

    def build(data: Data) -> Work:
        x = data.x
        ours = getattr(x.tallow, name)
        results = data.elements // _reduced(data, dim)
        size = 4 if name == "argmax" else data.itemsize
        function: Any = getattr(data.cupy, name, None)
        return Work(
            shape=matrix_text(data),
            nbytes=data.elements * data.itemsize + results * size,
            tallow=lambda: ours(dim),
            torch=(lambda: theirs(x.torch)) if dim is None else (lambda: theirs(x.torch, dim)),
            cupy=lambda: function(x.cupy, dim),
            check=check(data),
        )

    return Op("reductions", f"{name} over {over}", build)


def _sum(over: str) -> Op:
    dim = _DIMS[over]

    def check(data: Data) -> Check:
        # Rounding errors of a sum in f32 add up like a random walk, in partial sums that do.
        spread = 64 * math.sqrt(_reduced(data, dim))
        return close(lambda: torch.sum(data.x.torch, dim, dtype=torch.float64), data, ulps=1, absolute=spread)

    return _reduction("sum", over, torch.sum, check)


def _mean(over: str) -> Op:
    dim = _DIMS[over]

    def check(data: Data) -> Check:
        count = _reduced(data, dim)
        spread = 64 / math.sqrt(count)
        return close(lambda: torch.sum(data.x.torch, dim, dtype=torch.float64) / count, data, ulps=1, absolute=spread)

    return _reduction("mean", over, torch.mean, check)


def _logsumexp(over: str) -> Op:
    dim = _DIMS[over]

    def check(data: Data) -> Check:
        return close(lambda: torch.logsumexp(data.x.torch.double(), dim), data, ulps=2)

    return _reduction("logsumexp", over, torch.logsumexp, check)


def _exact(name: str, over: str, theirs: Callable[..., torch.Tensor]) -> Op:
    dim = _DIMS[over]

    def check(data: Data) -> Check:
        return close(lambda: theirs(data.x.torch) if dim is None else theirs(data.x.torch, dim), data)

    return _reduction(name, over, theirs, check)


OPS = (
    *(_sum(over) for over in _DIMS),
    *(_mean(over) for over in ("all", "the last dim")),
    *(_logsumexp(over) for over in ("the last dim", "the first dim")),
    *(_exact("max", over, torch.amax) for over in _DIMS),
    *(_exact("argmax", over, torch.argmax) for over in ("all", "the last dim")),
)
