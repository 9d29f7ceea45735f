"""The cases: one op on shared data, called in each library, and the check of its result."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from .libraries import DTYPES, Data

HALVES = ("f16", "bf16")
# What a result is wrong by, or empty. The second argument says whether it is a peer's.
Check = Callable[[Tensor, bool], str]

# Peers may add in the dtype of the elements where tallow adds in f32; they are asked whether they mean the same.
_PEER_SLACK = 64
_F32 = torch.finfo(torch.float32).eps
# Elements that are compared at once: the comparison is in f64, and data fill a good part of the memory.
_CHUNK = 1 << 25


@dataclass(frozen=True, kw_only=True)
class Work:
    """One op on data: a call of each library, or in place of CuPy's the reason why it has none."""

    shape: str
    check: Check
    tallow: Callable[[], Any]
    torch: Callable[[], Tensor]
    cupy: Callable[[], Any] | str
    # The bytes that the op has to read and write, or for what is bound by arithmetic its operations.
    nbytes: int
    flops: int = 0
    # Where an op in place leaves its result.
    output: Tensor | None = None
    # Whether each call gives the same bits.
    repeats: bool = True
    # Whether torch.compile makes one kernel of PyTorch's call, which is then timed too.
    compiles: bool = False


@dataclass(frozen=True)
class Op:
    """An op of the table, and what makes its work from data."""

    family: str
    name: str
    build: Callable[[Data], Work]
    dtypes: tuple[str, ...] = tuple(DTYPES)


def matrix_text(data: Data) -> str:
    """The shape of the data's matrix."""
    return f"{data.rows} x {data.columns}"


def close(expected: Callable[[], Tensor], data: Data, ulps: float = 0, absolute: float = 0) -> Check:
    """Check that each element is as expected, exactly unless a tolerance is given.

    `ulps` is in units in the last place of the data's dtype, `absolute` in those of 1.0 in f32, the dtype of
    accumulators.
    """
    expected_once = cache(expected)
    epsilon = torch.finfo(data.torch_dtype).eps

    def check(actual: Tensor, is_peer: bool) -> str:
        expected = expected_once()
        if actual.shape != expected.shape:
            return f"the shape is {tuple(actual.shape)}, expected {tuple(expected.shape)}"
        relative, least = ulps * epsilon, absolute * _F32
        if is_peer:
            # Where a sum is near 0, its terms are not, and rounding them to the dtype shows.
            relative, least = _PEER_SLACK * relative, _PEER_SLACK * (relative + least)
        return _worst(actual.reshape(-1), expected.reshape(-1), relative, least)

    return check


def _worst(actual: Tensor, expected: Tensor, relative: float, least: float) -> str:
    for start in range(0, actual.numel(), _CHUNK):
        left, right = (tensor[start : start + _CHUNK].double() for tensor in (actual, expected))
        # What is equal once it is rounded is right, infinity and NaN too.
        excess = ((left - right).abs() / (right.abs() * relative + least)).nan_to_num_(math.inf)
        excess[(left == right.to(actual.dtype)) | (left.isnan() & right.isnan())] = 0
        index = int(excess.argmax())
        if excess[index] > 1:
            return (
                f"element {start + index} is {left[index].item():.9g}, expected {right[index].item():.9g}: "
                f"{excess[index].item():.3g} times the error that is allowed"
            )
    return ""


def distributed(data: Data, mean: float, deviation: float, lowest: float, below: float) -> Check:
    """Check mean, standard deviation and bounds of random numbers: generators draw different ones."""
    epsilon = torch.finfo(data.torch_dtype).eps

    def check(actual: Tensor, is_peer: bool) -> str:
        values = actual.reshape(-1)
        # Six standard deviations of what is estimated, and the rounding of the dtype.
        allowed = 6 * deviation / math.sqrt(values.numel()) + epsilon / 4
        found_mean = torch.mean(values, dtype=torch.float32).item()
        found_deviation = values.float().std().item()
        least, most = values.min().item(), values.max().item()
        if abs(found_mean - mean) > allowed or abs(found_deviation - deviation) > allowed:
            return f"mean {found_mean:.6g} and deviation {found_deviation:.6g}, expected {mean} and {deviation:.6g}"
        # Some generators reach the upper bound by rounding.
        if least < lowest or most > below or (most == below and not is_peer):
            return f"numbers from {least} to {most}, expected them from {lowest} to below {below}"
        return ""

    return check
