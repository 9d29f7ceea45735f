"""Ops that only move or create elements: transpose to contiguous, copy2d, fill, random numbers."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import tallow as tl
import torch

from ..libraries import Data
from ..work import Op, Work, close, distributed, matrix_text

_VALUE = 1.5


def _transpose(data: Data) -> Work:
    ours, theirs = data.x.tallow.T, data.x.torch.T
    cupy_transposed = data.x.cupy.T if not data.libraries.why_without_cupy(data.dtype) else None
    return Work(
        shape=matrix_text(data),
        nbytes=2 * data.elements * data.itemsize,
        tallow=lambda: ours.contiguous(),
        torch=lambda: theirs.contiguous(),
        cupy=lambda: data.cupy.ascontiguousarray(cupy_transposed),
        check=close(lambda: theirs, data),
    )


def _fill(data: Data) -> Work:
    output = data.output
    return Work(
        shape=matrix_text(data),
        nbytes=data.elements * data.itemsize,
        tallow=lambda: output.tallow.fill_(_VALUE),
        torch=lambda: output.torch.fill_(_VALUE),
        cupy=lambda: output.cupy.fill(_VALUE),
        check=close(lambda: torch.full_like(output.torch, _VALUE), data),
        output=output.torch,
    )


def _copy2d(data: Data) -> Work:
    """The left half of each row to the right half of a row of another matrix."""
    rows, columns, half = data.rows, data.columns, data.columns // 2
    source, target = data.x.tallow.storage, data.output.tallow.storage
    left, right = data.x.torch[:, :half], data.output.torch[:, half:]
    has_cupy = not data.libraries.why_without_cupy(data.dtype)
    cupy_left, cupy_right = (data.x.cupy[:, :half], data.output.cupy[:, half:]) if has_cupy else (None, None)
    return Work(
        shape=f"{rows} x {half} of {columns}",
        nbytes=data.elements * data.itemsize,
        tallow=lambda: source.copy2d(target, rows, half, columns, columns, 0, half),
        torch=lambda: right.copy_(left),
        cupy=lambda: data.cupy.copyto(cupy_right, cupy_left),
        check=close(lambda: left, data),
        output=right,
    )


def _rand_uniform(data: Data) -> Work:
    shape, device, dtype = (data.rows, data.columns), data.libraries.device, tl.DType(data.dtype)
    where = {"dtype": data.torch_dtype, "device": data.libraries.torch_device}
    return Work(
        shape=matrix_text(data),
        nbytes=data.elements * data.itemsize,
        tallow=lambda: tl.Tensor.rand(shape, dtype=dtype, device=device),
        torch=lambda: torch.rand(shape, **where),  # type: ignore[call-overload]
        cupy=(lambda: _cupy_generator(data.cupy).random(shape, dtype=data.cupy.float32))
        if data.dtype == "f32"
        else _NO_HALVES,
        check=distributed(data, mean=0.5, deviation=1 / math.sqrt(12), lowest=0, below=1),
        repeats=False,
    )


def _rand_normal(data: Data) -> Work:
    shape, device, dtype = (data.rows, data.columns), data.libraries.device, tl.DType(data.dtype)
    where = {"dtype": data.torch_dtype, "device": data.libraries.torch_device}

    def draw_cupy() -> Any:
        return _cupy_generator(data.cupy).standard_normal(shape, dtype=data.cupy.float32)

    return Work(
        shape=matrix_text(data),
        nbytes=data.elements * data.itemsize,
        tallow=lambda: tl.Tensor.randn(shape, dtype=dtype, device=device),
        torch=lambda: torch.randn(shape, **where),  # type: ignore[call-overload]
        cupy=draw_cupy if data.dtype == "f32" else _NO_HALVES,
        # Of numbers with 24 random bits none is nine deviations from the mean.
        check=distributed(data, mean=0, deviation=1, lowest=-9, below=9),
        repeats=False,
    )


_NO_HALVES = "CuPy draws f32 and f64 only"


@cache
def _cupy_generator(cupy: Any) -> Any:
    return cupy.random.default_rng(0)


OPS = (
    Op("memory", "transpose to contiguous", _transpose),
    Op("memory", "copy2d", _copy2d),
    Op("memory", "fill", _fill),
    Op("random", "rand_uniform", _rand_uniform),
    Op("random", "rand_normal", _rand_normal),
)
