"""Dims that are padded, cut, rolled or reversed, as affine maps from positions of the result to elements of the source.

Rolling is circular padding that is cut off at the other end, and reversing is reflection: `size - 1` elements in front
of the first one, without those after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from ...limits import MAX_RANK

CONSTANT: Final = "constant"
REFLECT: Final = "reflect"
REPLICATE: Final = "replicate"
CIRCULAR: Final = "circular"
MODES: Final = (CONSTANT, REFLECT, REPLICATE, CIRCULAR)
_RUNS: Final = 3


class Run(NamedTuple):
    """Adjacent positions of a result: the one at p has element `origin + step * p`, or is filled where that is -1."""

    begin: int
    end: int
    origin: int
    step: int

    @property
    def is_filled(self) -> bool:
        """Return True if no elements of the source are there."""
        return self.origin < 0 and not self.step

    def element(self, position: int) -> int:
        """The element at a position."""
        return self.origin + self.step * position


# After the last one.
_NO_RUN: Final = Run(0, 1 << 62, 0, 0)


class PaddedDim(NamedTuple):
    """A dim of a result with `size` positions, and its stride in the source."""

    size: int
    stride: int
    runs: tuple[Run, ...]


def needed(mode: str, count: int) -> int:
    """The elements that a dim needs to pad an end with `count` new ones."""
    return {CONSTANT: 0, REPLICATE: 1, REFLECT: count + 1, CIRCULAR: count}[mode]


@lru_cache(maxsize=4096)
def runs(size: int, mode: str, before: int, after: int) -> tuple[Run, ...]:
    """The runs of a dim of `size` elements, of which there are one to three unless the result is empty."""
    last, end = size - 1, before + size + after
    head, tail = {
        CONSTANT: ((-1, 0), (-1, 0)),
        REFLECT: ((before, -1), (2 * last + before, -1)),
        REPLICATE: ((0, 0), (last, 0)),
        CIRCULAR: ((size - before, 1), (-before - size, 1)),
    }[mode]
    bounds = 0, max(before, 0), min(max(before + size, 0), end), end
    merged: list[Run] = []
    for begin, stop, line in zip(bounds, bounds[1:], (head, (-before, 1), tail), strict=False):
        if begin >= stop:
            continue
        run = Run(begin, stop, *line)
        # One element continues those before it in any step: a reversed dim is one run.
        if merged and stop - begin == 1 and merged[-1].element(begin) == run.element(begin):
            merged[-1] = merged[-1]._replace(end=stop)
        else:
            merged.append(run)
    return tuple(merged)


@lru_cache(maxsize=4096)
def padded_dims(
    shape: tuple[int, ...], strides: tuple[int, ...], mode: str, before: tuple[int, ...], after: tuple[int, ...]
) -> tuple[PaddedDim, ...]:
    """The fewest dims that reach the same elements in the same order, of which there is one; the outermost is first."""
    # Size, stride and new elements of each, the innermost first.
    dims: list[tuple[int, int, int, int]] = []
    for size, stride, front, back in zip(shape[::-1], strides[::-1], before[::-1], after[::-1], strict=True):
        is_plain = not front and not back
        if is_plain and size == 1:
            continue
        if dims:
            count, step, *ends = dims[-1]
            # Rows of dense elements are padded as elements are, unless they are mirrored or repeated.
            is_row = not any(ends) and (is_plain or mode in (CONSTANT, CIRCULAR))
            is_reversed = mode == REFLECT and [front, back, *ends] == [size - 1, 1 - size, count - 1, 1 - count]
            if stride == step * count and (is_row or is_reversed):
                last = is_reversed * (count - 1)
                dims[-1] = size * count, step, front * count + last, back * count - last
                continue
        dims.append((size, stride, front, back))
    dims = dims or [(1, 1, 0, 0)]
    return tuple(
        [
            PaddedDim(front + size + back, stride, runs(size, mode, front, back))
            for size, stride, front, back in dims[::-1]
        ]
    )


def packed_runs(dims: Sequence[PaddedDim], starts: Sequence[int] = ()) -> tuple[int, ...]:
    """The ends of three runs of each dim, run after run, then the origins and the steps, as kernels take them.

    The dims are filled up to the most. Positions are counted from `starts` on.
    """
    rows = []
    for dim, start in zip(dims, starts or [0] * len(dims), strict=True):
        rows.append([Run(run.begin, max(run.end - start, 0), run.element(start), run.step) for run in dim.runs])
    rows += [[]] * (MAX_RANK - len(rows))
    runs = [row[which] if which < len(row) else _NO_RUN for which in range(_RUNS) for row in rows]
    return (*[run.end for run in runs], *[run.origin for run in runs], *[run.step for run in runs])
