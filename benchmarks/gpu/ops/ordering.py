"""Running sums and sorting, of rows."""

from __future__ import annotations

import math

import torch

from ..libraries import Data, Operand
from ..work import Op, Work, close

_LENGTH = 4096
_LONG = 65536
_FIRST = 50


def _rows(data: Data, length: int = _LENGTH) -> Operand:
    columns = min(length, data.elements)
    return data.share(data.x.torch.view(-1)[: data.elements // columns * columns].view(-1, columns))


def _cumsum(data: Data) -> Work:
    x = _rows(data)
    rows, columns = x.torch.shape
    return Work(
        shape=f"{rows} x {columns}",
        nbytes=2 * x.torch.numel() * data.itemsize,
        tallow=lambda: x.tallow.cumsum(-1),
        torch=lambda: torch.cumsum(x.torch, -1),
        cupy=lambda: data.cupy.cumsum(x.cupy, -1),
        # Rounding errors of a sum in f32 add up like a random walk.
        check=close(lambda: x.torch.double().cumsum(-1), data, ulps=1, absolute=64 * math.sqrt(columns)),
    )


def _argsort(data: Data) -> Work:
    x = _rows(data)
    rows, columns = x.torch.shape
    return Work(
        shape=f"{rows} x {columns}",
        nbytes=x.torch.numel() * (data.itemsize + 4),
        tallow=lambda: x.tallow.argsort(-1),
        torch=lambda: torch.sort(x.torch, dim=-1, stable=True)[1],
        cupy="CuPy's sort of rows is not stable",
        check=close(lambda: torch.sort(x.torch, dim=-1, stable=True)[1], data),
    )


def _sort(data: Data) -> Work:
    x = _rows(data, data.elements)
    return Work(
        shape=str(data.elements),
        nbytes=data.elements * (2 * data.itemsize + 4),
        tallow=lambda: x.tallow.sort(-1)[1],
        torch=lambda: torch.sort(x.torch, dim=-1, stable=True)[1],
        cupy="CuPy's sort gives no positions",
        check=close(lambda: torch.sort(x.torch, dim=-1, stable=True)[1], data),
    )


def _topk(data: Data) -> Work:
    x = _rows(data, _LONG)
    rows, columns = x.torch.shape
    return Work(
        shape=f"{rows} x {columns}",
        nbytes=x.torch.numel() * data.itemsize,
        tallow=lambda: x.tallow.topk(_FIRST)[0],
        torch=lambda: torch.topk(x.torch, _FIRST)[0],
        cupy="CuPy has no topk",
        check=close(lambda: torch.topk(x.torch, _FIRST)[0], data),
    )


OPS = (
    # PyTorch's running sums of halves are off by whole units: there is nothing to compare with.
    Op("ordering", f"cumsum, rows of {_LENGTH}", _cumsum, ("f32",)),
    Op("ordering", f"argsort, rows of {_LENGTH}", _argsort),
    Op("ordering", "sort of all", _sort),
    Op("ordering", f"topk of {_FIRST}, rows of {_LONG}", _topk),
)
