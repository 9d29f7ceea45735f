"""Running sums and sorting, of rows."""

from __future__ import annotations

import math

import torch

from ..libraries import Data, Operand
from ..work import Op, Work, close

_LENGTH = 4096


def _rows(data: Data) -> Operand:
    columns = min(_LENGTH, data.elements)
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


OPS = (
    # PyTorch's running sums of halves are off by whole units: there is nothing to compare with.
    Op("order", f"cumsum, rows of {_LENGTH}", _cumsum, ("f32",)),
    Op("order", f"argsort, rows of {_LENGTH}", _argsort),
)
