"""Running sums and products along a dim: in one launch, or in two where lines are few and long."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final, NamedTuple

from .....kernels import arguments
from .....kernels.constants import ACCESS_BYTES, BLOCK_SIZE, ROW_TEAM
from ....program.builder import ProgramBuilder
from ....program.values import Buffer, Operand, address_of
from ..driver.grid import MOST_BLOCKS, ceil_divide, power_of_two
from . import copy

# With fewer blocks, or threads that walk a column, for each multiprocessor, lines go in splits.
_BUSY_BLOCKS: Final = 4
_BUSY_THREADS: Final = 1024
# A split is worth its sum if a thread has so many accesses of it.
_LEAST_ACCESSES: Final = 8
_MOST_SPLITS: Final = 1024
# A team that is part of a wave makes at most so many rounds; longer rows are a block's.
_TEAM_ROUNDS: Final = 4


class _Plan(NamedTuple):
    """How long lines are split, and how many blocks there are."""

    blocks: int
    chunk: int
    splits: int
    team: int


def cumsum(build: ProgramBuilder, x: Operand, dim: int) -> Buffer:
    """Element i along `dim` is the sum of the elements 0 to i, in the compute dtype, rounded once."""
    return _scan(build, "sum", x, dim)


def cumprod(build: ProgramBuilder, x: Operand, dim: int) -> Buffer:
    """Element i along `dim` is the product of the elements 0 to i, in the compute dtype, rounded once."""
    return _scan(build, "prod", x, dim)


def _scan(build: ProgramBuilder, op: str, x: Operand, dim: int) -> Buffer:
    """Element i along `dim` is what a reduction makes of the elements 0 to i."""
    result = build.empty(x.dtype, x.layout.elem_count)
    if result.length == 0:
        return result
    source = copy.contiguous(build, x)
    rows, length, inner = math.prod(x.shape[:dim]), x.shape[dim], math.prod(x.shape[dim + 1 :])
    find = _row_plan if inner == 1 else _column_plan
    plan = find(x.itemsize, rows, length, inner, build.facts.multiprocessors)
    totals = build.empty(x.dtype.compute, rows * inner * plan.splits) if plan.splits > 1 else None
    to, place = result.address, address_of(totals)
    if inner == 1:
        kind, packed = "row", arguments.scan_rows(
            result=to, source=source.address, totals=place, rows=rows, length=length, chunk=plan.chunk,
            splits=plan.splits, team=plan.team,
        )  # fmt: skip
    else:
        kind, packed = "column", arguments.scan_columns(
            result=to, source=source.address, totals=place, rows=rows, length=length, chunk=plan.chunk, inner=inner,
            splits=plan.splits,
        )  # fmt: skip
    kernel = f"scan_{op}_{x.dtype.value}_{kind}"
    if totals is not None:
        build.launch("scan", f"{kernel}_totals", plan.blocks, packed)
    build.launch("scan", f"{kernel}s", plan.blocks, packed)
    return result


@lru_cache(maxsize=4096)
def _row_plan(itemsize: int, rows: int, length: int, _inner: int, multiprocessors: int) -> _Plan:
    accesses = ceil_divide(length, ACCESS_BYTES // itemsize)
    team = min(ROW_TEAM, power_of_two(accesses)) if accesses <= _TEAM_ROUNDS * ROW_TEAM else BLOCK_SIZE
    unit = team * ACCESS_BYTES // itemsize
    splits = _splits(length, unit, _BUSY_BLOCKS * multiprocessors // ceil_divide(rows * team, BLOCK_SIZE))
    chunk = ceil_divide(ceil_divide(length, splits), unit) * unit
    splits = ceil_divide(length, chunk)
    return _Plan(min(ceil_divide(rows * splits * team, BLOCK_SIZE), MOST_BLOCKS), chunk, splits, team)


@lru_cache(maxsize=4096)
def _column_plan(_itemsize: int, rows: int, length: int, inner: int, multiprocessors: int) -> _Plan:
    splits = _splits(length, 1, _BUSY_THREADS * multiprocessors // (rows * inner))
    chunk = ceil_divide(length, splits)
    splits = ceil_divide(length, chunk)
    return _Plan(min(ceil_divide(rows * inner * splits, BLOCK_SIZE), MOST_BLOCKS), chunk, splits, 1)


def _splits(length: int, unit: int, wanted: int) -> int:
    return max(min(wanted, length // (_LEAST_ACCESSES * unit), _MOST_SPLITS), 1)
