"""One result for each element: affine, binary, unary, cmp, where, cast, and operands that repeat or are transposed.

An operand may also be a number.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import tallow as tl
import torch
from torch.nn import functional

from ..libraries import DTYPES, Data
from ..work import HALVES, Op, Work, close, matrix_text

_MUL, _ADD = 1.5, 0.25
# What f32 functions may be off by, and the rounding of a half.
_FUNCTION_ULPS = {"f32": 4, "f16": 1, "bf16": 1}


def _affine(data: Data) -> Work:
    x = data.x
    # PyTorch has no op for it; this is the one of its sums that does it in one pass.
    addend = torch.tensor(_ADD)
    return Work(
        shape=matrix_text(data),
        nbytes=2 * data.elements * data.itemsize,
        tallow=lambda: x.tallow.affine(_MUL, _ADD),
        torch=lambda: torch.add(addend, x.torch, alpha=_MUL),
        cupy=lambda: _cupy_affine(data.cupy)(x.cupy),
        check=close(lambda: x.torch.double() * _MUL + _ADD, data, ulps=1, absolute=1),
    )


@cache
def _cupy_affine(cupy: Any) -> Callable[[Any], Any]:
    expression = f"y = T(static_cast<float>(x) * {_MUL}f + {_ADD}f)"
    kernel: Callable[[Any], Any] = cupy.ElementwiseKernel("T x", "T y", expression, "affine")
    return kernel


def _binary(name: str) -> Op:
    def build(data: Data) -> Work:
        x, y = data.x, data.y
        ours, theirs = getattr(tl.Tensor, name), getattr(torch, name)
        cupy_name = {"mul": "multiply"}.get(name, name)
        cupy_function: Any = getattr(data.cupy, cupy_name, None)
        return Work(
            shape=matrix_text(data),
            nbytes=3 * data.elements * data.itemsize,
            tallow=lambda: ours(x.tallow, y.tallow),
            torch=lambda: theirs(x.torch, y.torch),
            cupy=lambda: cupy_function(x.cupy, y.cupy),
            check=close(lambda: theirs(x.torch.double(), y.torch.double()), data, ulps=1, absolute=1),
        )

    return Op("binary", name, build)


def _unary(name: str, theirs: Callable[[torch.Tensor], torch.Tensor]) -> Op:
    ours = getattr(tl.Tensor, name)

    def build(data: Data) -> Work:
        x = data.x
        cupy_function = getattr(data.cupy, name, None)
        return Work(
            shape=matrix_text(data),
            nbytes=2 * data.elements * data.itemsize,
            tallow=lambda: ours(x.tallow),
            torch=lambda: theirs(x.torch),
            cupy=(lambda: cupy_function(x.cupy)) if cupy_function else f"CuPy has no {name}",
            check=close(lambda: theirs(x.torch.double()), data, ulps=_FUNCTION_ULPS[data.dtype], absolute=1),
        )

    return Op("unary", name, build)


def _cmp(data: Data) -> Work:
    x, y = data.x, data.y
    return Work(
        shape=matrix_text(data),
        nbytes=data.elements * (2 * data.itemsize + 1),
        tallow=lambda: x.tallow.lt(y.tallow),
        torch=lambda: torch.lt(x.torch, y.torch),
        cupy=lambda: data.cupy.less(x.cupy, y.cupy),
        check=close(lambda: torch.lt(x.torch, y.torch), data),
    )


def _where(data: Data) -> Work:
    x, y = data.x, data.y
    condition = data.share(torch.gt(x.torch, y.torch).to(torch.uint8))
    chosen = condition.torch.view(torch.bool)
    cupy_chosen = condition.cupy.view("?") if not data.libraries.why_without_cupy(data.dtype) else None
    return Work(
        shape=matrix_text(data),
        nbytes=data.elements * (3 * data.itemsize + 1),
        tallow=lambda: condition.tallow.where(x.tallow, y.tallow),
        torch=lambda: torch.where(chosen, x.torch, y.torch),
        cupy=lambda: data.cupy.where(cupy_chosen, x.cupy, y.cupy),
        check=close(lambda: torch.where(chosen, x.torch, y.torch), data),
    )


def _cast_from_f32(data: Data) -> Work:
    x = data.share(data.normal(data.rows, data.columns, dtype=torch.float32))
    target = tl.DType(data.dtype)
    return Work(
        shape=matrix_text(data),
        nbytes=data.elements * (4 + data.itemsize),
        tallow=lambda: x.tallow.to_dtype(target),
        torch=lambda: x.torch.to(data.torch_dtype),
        cupy=lambda: x.cupy.astype("float16"),
        check=close(lambda: x.torch.to(data.torch_dtype), data),
    )


def _cast_to_f32(data: Data) -> Work:
    x = data.x
    return Work(
        shape=matrix_text(data),
        nbytes=data.elements * (4 + data.itemsize),
        tallow=lambda: x.tallow.to_dtype(tl.DType.F32),
        torch=lambda: x.torch.float(),
        cupy=lambda: x.cupy.astype("float32"),
        check=close(lambda: x.torch.float(), data),
    )


def _add_small(name: str) -> Op:
    def build(data: Data) -> Work:
        x = data.x
        count = data.columns if name == "row" else data.rows
        small = data.share(data.normal(count, 1) if name == "column" else data.normal(count))
        return Work(
            shape=matrix_text(data),
            nbytes=(2 * data.elements + count) * data.itemsize,
            tallow=lambda: x.tallow + small.tallow,
            torch=lambda: x.torch + small.torch,
            cupy=lambda: x.cupy + small.cupy,
            check=close(lambda: x.torch.double() + small.torch.double(), data, ulps=1, absolute=1),
        )

    return Op("binary", f"add a {name}", build)


def _with_number(name: str, call: Callable[[Any], Any], result_bytes: int | None = None) -> Op:
    """An op whose other operand is a number, which is written alike for all libraries."""

    def build(data: Data) -> Work:
        x = data.x
        return Work(
            shape=matrix_text(data),
            nbytes=data.elements * (data.itemsize + (data.itemsize if result_bytes is None else result_bytes)),
            tallow=lambda: call(x.tallow),
            torch=lambda: call(x.torch),
            cupy=lambda: call(x.cupy),
            check=close(lambda: call(x.torch.double()), data, ulps=1, absolute=1),
        )

    return Op("unary", name, build)


def _add_transposed(data: Data) -> Work:
    x = data.x
    y = data.share(data.y.torch.view(data.columns, data.rows))
    ours, theirs = y.tallow.T, y.torch.T
    cupy_transposed = y.cupy.T if not data.libraries.why_without_cupy(data.dtype) else None
    return Work(
        shape=matrix_text(data),
        nbytes=3 * data.elements * data.itemsize,
        tallow=lambda: x.tallow + ours,
        torch=lambda: x.torch + theirs,
        cupy=lambda: x.cupy + cupy_transposed,
        check=close(lambda: x.torch.double() + theirs.double(), data, ulps=1, absolute=1),
    )


def _eight(x: Any, y: Any) -> Any:
    """Eight ops, written alike for both libraries."""
    x = (x * 2.0 + y - 1.0).abs()
    return ((x * y).maximum(y) + 0.5) * 0.25


_fused = tl.fuse(_eight)


def _eight_fused(data: Data) -> Work:
    x, y = data.x, data.y
    return Work(
        shape=matrix_text(data),
        nbytes=3 * data.elements * data.itemsize,
        tallow=lambda: _fused(x.tallow, y.tallow),
        torch=lambda: _eight(x.torch, y.torch),
        cupy="CuPy's names differ",
        compiles=True,
        # Each op rounds, so that the bits are those of the ops one by one.
        check=close(lambda: _eight(x.torch, y.torch), data),
    )


# Ops that PyTorch does otherwise under the name: `round` to halves, and parts of complex numbers as views.
_OTHERWISE = {"round", "real", "imag", "conj"}
# PyTorch's names of ops that the spec calls otherwise.
_THEIRS = {"recip": "reciprocal", "sqr": "square", "bitwise_invert": "bitwise_not"}
_INTEGERS = {2: torch.int16, 4: torch.int32}


def _theirs(name: str) -> Callable[..., Any] | None:
    """PyTorch's function."""
    own = _THEIRS.get(name, name)
    return None if name in _OTHERWISE else getattr(torch, own, None) or getattr(functional, own, None)


def _defined(name: str, x: Any) -> Any:
    """Normal numbers, brought to where a function is defined."""
    match name:
        case "log" | "log2" | "log10" | "log1p" | "sqrt" | "rsqrt" | "pow":
            return x.abs() + 0.125
        case "asin" | "acos" | "atanh":
            return x.tanh()
        case "acosh":
            return x.abs() + 1
    return x


def _wide(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.complex128) if x.is_complex() else x.double()


def _of_spec(op: tl.UnaryOp | tl.BinaryOp, theirs: Callable[..., Any]) -> Op:
    """An op of the spec and PyTorch's function of its name.

    One of integers works on the bits of the numbers, one of complex numbers on pairs of them.
    """
    ours, floats = getattr(tl.Tensor, op.value), tuple(name for name in DTYPES if tl.DType(name) in op.dtypes)
    if op is tl.BinaryOp.NEXTAFTER:
        # PyTorch has none of f16.
        floats = tuple(name for name in floats if name != "f16")
    is_complex = all(dtype.is_complex for dtype in op.dtypes)
    dtypes = ("f32",) if is_complex else floats or tuple(DTYPES)

    def build(data: Data) -> Work:
        operands = [data.x.torch, data.y.torch][: 1 + isinstance(op, tl.BinaryOp)]
        if is_complex:
            operands = [torch.view_as_complex(x.view(data.rows, data.columns // 2, 2)) for x in operands]
        elif floats:
            operands[0] = _defined(op.value, operands[0])
        else:
            operands = [x.view(_INTEGERS[data.itemsize]) for x in operands]
        if "shift" in op.value:
            operands[1] = operands[1] & 7
        shared = [data.share(x) for x in operands]
        dtype = shared[0].tallow.dtype
        # The next number of a wider dtype is another one.
        is_own = not (floats or is_complex) or op is tl.BinaryOp.NEXTAFTER
        cupy_function = getattr(data.cupy, op.value, None)
        ulps = 0 if is_own else _FUNCTION_ULPS[data.dtype]
        return Work(
            shape=matrix_text(data),
            nbytes=operands[0].numel() * (len(shared) * dtype.itemsize + op.result_of(dtype).itemsize),
            tallow=lambda: ours(*(x.tallow for x in shared)),
            torch=lambda: theirs(*operands),
            cupy=(lambda: cupy_function(*(x.cupy for x in shared))) if cupy_function else f"CuPy has no {op.value}",
            check=close(lambda: theirs(*(operands if is_own else map(_wide, operands))), data, ulps, float(not is_own)),
        )

    return Op("binary" if isinstance(op, tl.BinaryOp) else "unary", op.value, build, dtypes)


_CHOSEN = (
    Op("unary", "affine", _affine),
    _binary("add"),
    _binary("mul"),
    _unary("exp", torch.exp),
    _unary("gelu", lambda x: functional.gelu(x, approximate="tanh")),
    _unary("gelu_erf", functional.gelu),
    _unary("silu", functional.silu),
    _unary("nan_to_num", torch.nan_to_num),
    Op("binary", "lt", _cmp),
    Op("binary", "where", _where),
    _with_number("add a number", lambda x: x + _MUL),
    _with_number("divide by a number", lambda x: x / 3),
    _with_number("greater than a number", lambda x: x > _ADD, 1),
    Op("unary", "cast from f32", _cast_from_f32, HALVES),
    Op("unary", "cast to f32", _cast_to_f32, HALVES),
    _add_small("row"),
    _add_small("column"),
    Op("binary", "add, one side transposed", _add_transposed),
    Op("fused", "eight ops, fused", _eight_fused),
)
_NAMES = {op.name for op in _CHOSEN}
# With every other op of the spec that PyTorch has too.
OPS = (
    *_CHOSEN,
    *(
        _of_spec(op, theirs)
        for op in (*tl.UnaryOp, *tl.BinaryOp)
        if op.value not in _NAMES and (theirs := _theirs(op.value)) is not None
    ),
)
