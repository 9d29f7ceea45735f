"""Histograms of tensors, and lines between them. Of bins that are counted, the host reads the extremes."""

# ruff: noqa: D103 - they do what NumPy's functions of the same names do

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

from ....dtype import DType
from ...base.error import GradientError, InvalidArgument, UnsupportedOperand
from ...tensor import Tensor
from ..creation import linspace as _linspace

__all__ = ["histogram", "histogram2d", "histogram_bin_edges", "linspace"]

Range = tuple[float, float]


def linspace(
    start: Any, stop: Any, num: int = 50, endpoint: builtins.bool = True, dtype: DType | None = None
) -> Tensor:
    tensor = start if isinstance(start, Tensor) else stop
    own = tensor.dtype if tensor.dtype.is_inexact else DType.F32
    steps = _linspace(0, 1, num, dtype=own.real, device=tensor.device, endpoint=endpoint)
    difference = stop - start
    line: Tensor = start + difference * steps.reshape(-1, *[1] * difference.rank)
    return line if dtype is None else line.to_dtype(dtype)


def histogram_bin_edges(a: Tensor, bins: Any = 10, range: Range | None = None) -> Tensor:
    if isinstance(bins, str):
        raise UnsupportedOperand("histogram", f"there is no rule '{bins}' for bins; give their number or their edges")
    dtype = a.dtype if a.dtype.is_inexact else DType.F32
    if not isinstance(bins, int):
        edges = bins if isinstance(bins, Tensor) else Tensor(bins, device=a.device)
        if edges.rank != 1 or (edges[1:] < edges[:-1]).any():
            raise InvalidArgument("histogram", "edges of bins are a vector in ascending order; sort it")
        return edges.to_dtype(dtype)
    if a.is_recorded:
        raise GradientError("histogram", "edges between the extremes of a tensor have no gradient; use x.detach()")
    if range is not None and not (isinstance(range, list | tuple) and len(range) == 2):
        raise InvalidArgument("histogram", f"range is a pair of the lowest and the highest edge, not {range}")
    lowest, highest = (a.min().item(), a.max().item()) if range is None and a.elem_count else range or (0.0, 1.0)
    if lowest == highest:
        lowest, highest = lowest - 0.5, highest + 0.5
    return _linspace(lowest, highest, bins + 1, dtype=dtype, device=a.device)


def _bins(x: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
    """The bin of each element, and whether it is in one: the last bin has its end too."""
    bins = edges.searchsorted(x, "right").to_dtype(DType.I64) - 1
    return bins.minimum(edges.elem_count - 2), (x >= edges[0]) & (x <= edges[-1])


def _counted(bins: Tensor, inside: Tensor, count: int, weights: Tensor | None) -> Tensor:
    chosen = None if weights is None else weights.flatten()[inside]
    return bins[inside].bincount(chosen, count)


def histogram(
    a: Tensor,
    bins: Any = 10,
    range: Range | None = None,
    density: builtins.bool | None = None,
    weights: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    edges = histogram_bin_edges(a, bins, range)
    counts = _counted(*_bins(a.flatten().to_dtype(edges.dtype), edges), edges.elem_count - 1, weights)
    if density:
        counts = counts / (counts.sum() * edges.diff())
    return counts, edges


def histogram2d(
    x: Tensor,
    y: Tensor,
    bins: Any = 10,
    range: Sequence[Range] | None = None,
    density: builtins.bool | None = None,
    weights: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    each = bins if isinstance(bins, list | tuple) and len(bins) == 2 else (bins, bins)
    spans = (None, None) if range is None else range
    lines = [histogram_bin_edges(*its) for its in zip((x, y), each, spans, strict=True)]
    (rows, is_row), (columns, is_column) = (
        _bins(line.flatten().to_dtype(edges.dtype), edges) for line, edges in zip((x, y), lines, strict=True)
    )
    height, width = (edges.elem_count - 1 for edges in lines)
    counts = _counted(rows * width + columns, is_row & is_column, height * width, weights)
    table = counts.reshape(height, width).to_dtype(lines[0].dtype)
    if density:
        table = table / table.sum() / (lines[0].diff().unsqueeze(1) * lines[1].diff())
    return table, lines[0], lines[1]
