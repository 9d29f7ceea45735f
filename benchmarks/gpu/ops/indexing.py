"""Elements chosen by indexes, which are i64 in all libraries: gather, index_select, index_add, scatter_add."""

from __future__ import annotations

from functools import partial
from typing import Any

import tallow as tl
import torch

from ..libraries import Data
from ..work import Op, Work, close, matrix_text

_INDEX_BYTES = 8
# Sums of a few elements one after the other, in units in the last place of 1.0.
_SUM_ERROR = 64


def _gather(data: Data) -> Work:
    x, indices = data.x, data.indices
    return Work(
        shape=matrix_text(data),
        nbytes=data.elements * (2 * data.itemsize + _INDEX_BYTES),
        tallow=lambda: x.tallow.gather(indices.tallow, 1),
        torch=lambda: torch.gather(x.torch, 1, indices.torch),
        cupy=lambda: data.cupy.take_along_axis(x.cupy, indices.cupy, axis=1),
        check=close(lambda: torch.gather(x.torch, 1, indices.torch), data),
    )


def _index_select(data: Data) -> Work:
    x, rows = data.x, data.row_numbers
    return Work(
        shape=matrix_text(data),
        nbytes=2 * data.elements * data.itemsize + data.rows * _INDEX_BYTES,
        tallow=lambda: x.tallow.index_select(rows.tallow, 0),
        torch=lambda: torch.index_select(x.torch, 0, rows.torch),
        cupy=lambda: data.cupy.take(x.cupy, rows.cupy, axis=0),
        check=close(lambda: torch.index_select(x.torch, 0, rows.torch), data),
    )


def _index_add(data: Data) -> Work:
    x, y, rows = data.x, data.y, data.row_numbers

    def add_in_cupy() -> Any:
        result = x.cupy.copy()
        data.cupy.add.at(result, rows.cupy, y.cupy)
        return result

    return Work(
        shape=matrix_text(data),
        nbytes=3 * data.elements * data.itemsize + data.rows * _INDEX_BYTES,
        tallow=lambda: x.tallow.index_add(rows.tallow, y.tallow, 0),
        torch=lambda: torch.index_add(x.torch, 0, rows.torch, y.torch),
        cupy=add_in_cupy,
        check=close(
            lambda: torch.index_add(x.torch.double(), 0, rows.torch, y.torch.double()),
            data,
            ulps=1,
            absolute=_SUM_ERROR,
        ),
    )


def _scatter_add(data: Data, *, ours_repeats: bool = True, theirs_repeats: bool = False) -> Work:
    x, y, indices = data.x, data.y, data.indices

    def ours() -> Any:
        with tl.deterministic(ours_repeats):
            return x.tallow.scatter_add(indices.tallow, y.tallow, 1)

    def theirs() -> torch.Tensor:
        torch.use_deterministic_algorithms(theirs_repeats)
        try:
            return torch.scatter_add(x.torch, 1, indices.torch, y.torch)
        finally:
            torch.use_deterministic_algorithms(False)

    return Work(
        shape=matrix_text(data),
        nbytes=data.elements * (3 * data.itemsize + _INDEX_BYTES),
        tallow=ours,
        torch=theirs,
        cupy="CuPy has no scatter_add along a dim",
        repeats=ours_repeats,
        check=close(
            lambda: torch.scatter_add(x.torch.double(), 1, indices.torch, y.torch.double()),
            data,
            ulps=1,
            absolute=_SUM_ERROR,
        ),
    )


OPS = (
    Op("indexing", "gather", _gather),
    Op("indexing", "index_select", _index_select),
    Op("indexing", "index_add", _index_add),
    Op("indexing", "scatter_add", _scatter_add),
    Op("indexing", "scatter_add, both in any order", partial(_scatter_add, ours_repeats=False)),
    Op("indexing", "scatter_add, both deterministic", partial(_scatter_add, theirs_repeats=True)),
)
