"""Functions of elements. Operands broadcast and are promoted; one of two may be a Python number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeGuard, TypeVar

from ...dtype import DType
from ..tensor import Tensor
from .data_types import Scalar, promoted_operands

_Function = TypeVar("_Function", bound=Callable[..., Tensor])

_INTEGERS = ("bool", "unsigned", "signed")
_REAL = (*_INTEGERS, "float")


def _described(function: _Function, name: str, method: Callable[..., Any]) -> _Function:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = method.__doc__
    return function


def _unary(name: str, method: str, *, unchanged: tuple[str, ...] = ()) -> Callable[[Tensor], Tensor]:
    """Make the standard's function `name` of a method of tensors; dtypes of some kinds stay as they are."""
    compute = getattr(Tensor, method)

    def function(x: Tensor, /) -> Tensor:
        result: Tensor = x.copy() if x.dtype.kind in unchanged else compute(x)
        return result

    return _described(function, name, compute)


def _binary(name: str, method: str) -> Callable[[Tensor | Scalar, Tensor | Scalar], Tensor]:
    """Make the standard's function `name` of a method of tensors."""
    compute = getattr(Tensor, method)

    def function(x1: Tensor | Scalar, x2: Tensor | Scalar, /) -> Tensor:
        result: Tensor = compute(*promoted_operands(name, x1, x2))
        return result

    return _described(function, name, compute)


def _of_any_dtypes(name: str, method: str) -> Callable[[Tensor | Scalar, Tensor | Scalar], Tensor]:
    """Make the standard's function `name` of a method that takes tensors of more dtypes than go together."""
    compute = getattr(Tensor, method)
    promoted = _binary(name, method)

    def function(x1: Tensor | Scalar, x2: Tensor | Scalar, /) -> Tensor:
        if not (isinstance(x1, Tensor) and isinstance(x2, Tensor)):
            return promoted(x1, x2)
        result: Tensor = compute(x1, x2)
        return result

    return _described(function, name, compute)


abs = _unary("abs", "abs", unchanged=("unsigned",))
acos = _unary("acos", "acos")
acosh = _unary("acosh", "acosh")
add = _binary("add", "add")
asin = _unary("asin", "asin")
asinh = _unary("asinh", "asinh")
atan = _unary("atan", "atan")
atan2 = _binary("atan2", "atan2")
atanh = _unary("atanh", "atanh")
bitwise_and = _binary("bitwise_and", "__and__")
bitwise_invert = _unary("bitwise_invert", "__invert__")
bitwise_left_shift = _binary("bitwise_left_shift", "__lshift__")
bitwise_or = _binary("bitwise_or", "__or__")
bitwise_right_shift = _binary("bitwise_right_shift", "__rshift__")
bitwise_xor = _binary("bitwise_xor", "__xor__")
ceil = _unary("ceil", "ceil", unchanged=_INTEGERS)
conj = _unary("conj", "conj", unchanged=_REAL)
copysign = _binary("copysign", "copysign")
cos = _unary("cos", "cos")
cosh = _unary("cosh", "cosh")
divide = _binary("divide", "div")
equal = _of_any_dtypes("equal", "eq")
exp = _unary("exp", "exp")
expm1 = _unary("expm1", "expm1")
floor = _unary("floor", "floor", unchanged=_INTEGERS)
floor_divide = _binary("floor_divide", "floor_divide")
greater = _of_any_dtypes("greater", "gt")
greater_equal = _of_any_dtypes("greater_equal", "ge")
hypot = _binary("hypot", "hypot")
imag = _unary("imag", "imag")
less = _of_any_dtypes("less", "lt")
less_equal = _of_any_dtypes("less_equal", "le")
log = _unary("log", "log")
log1p = _unary("log1p", "log1p")
log2 = _unary("log2", "log2")
log10 = _unary("log10", "log10")
logaddexp = _binary("logaddexp", "logaddexp")
logical_and = _of_any_dtypes("logical_and", "logical_and")
logical_not = _unary("logical_not", "logical_not")
logical_or = _of_any_dtypes("logical_or", "logical_or")
logical_xor = _of_any_dtypes("logical_xor", "logical_xor")
maximum = _binary("maximum", "maximum")
minimum = _binary("minimum", "minimum")
multiply = _binary("multiply", "mul")
negative = _unary("negative", "neg")
nextafter = _binary("nextafter", "nextafter")
not_equal = _of_any_dtypes("not_equal", "ne")
positive = _unary("positive", "copy")
real = _unary("real", "real", unchanged=_REAL)
reciprocal = _unary("reciprocal", "recip")
remainder = _binary("remainder", "remainder")
sign = _unary("sign", "sign")
signbit = _unary("signbit", "signbit")
sin = _unary("sin", "sin")
sinh = _unary("sinh", "sinh")
sqrt = _unary("sqrt", "sqrt")
square = _unary("square", "sqr")
subtract = _binary("subtract", "sub")
tan = _unary("tan", "tan")
tanh = _unary("tanh", "tanh")
trunc = _unary("trunc", "trunc", unchanged=_INTEGERS)


def _predicate(name: str, method: str, of_integers: bool) -> Callable[[Tensor], Tensor]:
    """Make the standard's function `name` of a predicate of floats, which has one answer for integers."""
    compute = getattr(Tensor, method)

    def function(x: Tensor, /) -> Tensor:
        if x.dtype.kind in _INTEGERS:
            return Tensor.full(x.shape, of_integers, dtype=DType.BOOL, device=x.device)
        result: Tensor = compute(x)
        return result

    return _described(function, name, compute)


isfinite = _predicate("isfinite", "isfinite", True)
isinf = _predicate("isinf", "isinf", False)
isnan = _predicate("isnan", "isnan", False)


def pow(x1: Tensor | Scalar, x2: Tensor | Scalar, /) -> Tensor:
    """Raise x1 to the power x2, as `Tensor.pow` does."""
    base, exponent = promoted_operands("pow", x1, x2)
    # A number stays one, because no negative one is an exponent of integers.
    return base.pow(exponent if isinstance(x2, Tensor | complex) else x2)


def _is_real(bound: Tensor | Scalar | None) -> TypeGuard[float | None]:
    return bound is None or type(bound) in (int, float)


def clip(x: Tensor, /, min: Tensor | Scalar | None = None, max: Tensor | Scalar | None = None) -> Tensor:
    """Keep elements between bounds, which broadcast with them; a bound of None is none. NaN stays."""
    if x.dtype.is_float and _is_real(min) and _is_real(max) and not (min is None and max is None):
        return x.clamp(min, max)
    result = x.copy()
    for bound, method in ((min, Tensor.maximum), (max, Tensor.minimum)):
        if bound is not None:
            result = method(*promoted_operands("clip", result, bound))
    return result


_round = _unary("round", "rint", unchanged=_INTEGERS)


def round(x: Tensor, /) -> Tensor:
    """Round to integers, complex numbers in both parts; infinite and NaN parts stay as they are."""
    if not x.dtype.is_complex:
        return _round(x)
    # What is added is finite, as a product with 1j has to be, and exact.
    added = [part.isfinite().where(_round(part) - part, 0).to_dtype(x.dtype) for part in (x.real(), x.imag())]
    return x + (added[0] + added[1] * Tensor(1j, dtype=x.dtype, device=x.device))
