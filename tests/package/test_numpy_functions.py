"""NumPy's functions and ufuncs called with tensors: each gives what it gives of arrays, or is refused by name."""

from __future__ import annotations

import math
import operator as op
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.special
from tallow import Device, DType, TallowError, Tensor, UnsupportedOperand, Var
from tallow.runtime.array_api.numpy.protocol import _functions, _ufuncs

generator = np.random.default_rng(0)
ROWS, OTHER = generator.normal(size=(2, 2, 3)).astype(np.float32)
LINE, POSITIVE = ROWS[0].copy(), np.abs(ROWS) + 0.5
SQUARE = (np.eye(3) * 3 + generator.normal(size=(3, 3))).astype(np.float32)
INTEGERS, PLACES = np.array([[5, 0, 3], [2, 7, 2]]), np.array([2, 0, 1])
MASK, PAIRS = ROWS > 0, (ROWS + 1j * OTHER).astype(np.complex64)
CUBE = generator.normal(size=(2, 3, 2)).astype(np.float32)
BROKEN = np.array([1.0, math.nan, -math.inf, math.inf, 2.5, math.nan], np.float32)

# Arguments that functions of NumPy's take, of which each takes some.
ARGUMENTS: list[tuple[Any, ...]] = [
    *[(array,) for array in (ROWS, LINE, POSITIVE, SQUARE, INTEGERS, PLACES, MASK, PAIRS, BROKEN)],
    *[(ROWS, OTHER), (INTEGERS, INTEGERS[::-1].copy()), (MASK, ROWS > 0.5), (PAIRS, PAIRS + 1), (LINE, LINE + 1)],
    *[(POSITIVE, 2), (2, POSITIVE), (INTEGERS, 2), (ROWS, LINE), (SQUARE, LINE), (SQUARE, SQUARE), (ROWS, SQUARE)],
    *[(ROWS, 0), (ROWS, 1), (ROWS, -1), (SQUARE, 2), (LINE, 3), (ROWS, (3, 2)), (ROWS, 0, 1)],
    *[([ROWS, OTHER],), ([LINE, LINE],), ([SQUARE, SQUARE], 1), ((ROWS, OTHER), 0), ([LINE],)],
    *[(MASK, ROWS, OTHER), (MASK, ROWS, 0), (ROWS, -0.5, 0.5), (LINE, PLACES), (LINE, PLACES, 0), (ROWS, [1, 1], 0)],
    *[("ij,kj->ik", ROWS, OTHER), ("ii", SQUARE), (ROWS, 1, 0), (ROWS, (0, 1)), (SQUARE, 3, 1), (ROWS, [2, 1, 1], 1)],
    *[(CUBE,), (CUBE, 2), (ROWS, np.float64), (LINE, np.sort(LINE), LINE)],
    *[
        (INTEGERS, -1),
        (INTEGERS * 7, -1),
        (ROWS, np.int64(1)),
        (ROWS, np.float32(2)),
        (ROWS, 2.0),
        ([LINE, np.float32(2)],),
        ([2, LINE],),
    ],
    *[(ROWS, INTEGERS % 2), (np.sort(LINE), ROWS), (ROWS, 3, -1), (LINE, 1), (ROWS, MASK), (MASK, ROWS)],
]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"axis": 0},
    {"axis": -1, "keepdims": True},
    {"axis": (0, 1)},
    {"k": 1},
    {"ddof": 1},
    {"n": 2},
    {"kind": "stable", "axis": 0},
    {"stable": True},
    {"axis": 5},
]

FUNCTIONS: dict[str, Callable[..., Any]] = {
    f"{prefix}{name}": function
    for prefix, module in (("", np), ("linalg.", np.linalg), ("fft.", np.fft))
    for name in dir(module)
    if hasattr(function := getattr(module, name), "_implementation") or isinstance(function, np.ufunc)
}
# What writes files, and what takes arguments that nothing else does.
LEFT_OUT = {
    "array2string",
    "save",
    "savez",
    "savez_compressed",
    "savetxt",
    "busday_count",
    "busday_offset",
    "is_busday",
}
VECTORS = ("linalg.eig", "linalg.eigh", "linalg.qr", "linalg.svd")
LEFT_OUT |= {"datetime_as_string", "isnat"}


def there(device: Device, value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return Tensor.from_numpy(value, device)
    return type(value)([there(device, it) for it in value]) if isinstance(value, list | tuple) else value


class Refusal(NamedTuple):
    """What NumPy answers to a call that it does not take."""

    error: Exception


def calls(function: Callable[..., Any]) -> Iterator[tuple[tuple[Any, ...], dict[str, Any], Any]]:
    """Calls of a function, with NumPy's answers."""
    for arguments in ARGUMENTS:
        if isinstance(function, np.ufunc) and len(arguments) > function.nin:
            continue
        if isinstance(arguments[0], str) and function is not np.einsum:
            continue
        for options in OPTIONS if len(arguments) == 1 else (OPTIONS[0], OPTIONS[-1]):
            try:
                with np.errstate(all="ignore"):
                    answer = function(*[_copied(it) for it in arguments], **options)
            except Exception as error:
                answer = Refusal(error)
            yield arguments, options, answer


class TakenApartError(Exception):
    """NumPy took the elements of a tensor to the host."""


def is_supported(device: Device, value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(is_supported(device, it) for it in value)
    return not isinstance(value, np.ndarray) or device.supports(DType.from_numpy(value.dtype))


def taken_apart(tensor: Tensor, *_: Any, **__: Any) -> Any:
    raise TakenApartError("the elements went to the host unasked")


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


def agree(actual: Any, expected: Any, device: Device, *, is_sorted: bool = False, has_values: bool = True) -> None:
    if isinstance(expected, tuple | list):
        assert len(actual) == len(expected)
        for one, other in zip(actual, expected, strict=True):
            agree(one, other, device)
    elif isinstance(actual, Tensor):
        assert isinstance(expected, np.ndarray | np.generic)
        assert actual.device == device
        assert tuple(actual.shape) == expected.shape
        values = actual.numpy().astype(expected.dtype)
        if is_sorted:
            values, expected = np.sort(values), np.sort(expected)
        if has_values:
            np.testing.assert_allclose(values, expected, rtol=2e-5, atol=2e-5)
    else:
        # Nothing of a tensor was in it.
        assert isinstance(actual, str) or np.array_equal(actual, expected)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(FUNCTIONS.keys() - LEFT_OUT))
def test_a_function_of_numpy_agrees_or_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, device: Device, name: str
) -> None:
    function = FUNCTIONS[name]
    monkeypatch.setattr(Tensor, "__array__", taken_apart)
    answers = [it for it in calls(function) if is_supported(device, it[0]) and not isinstance(it[2], Refusal)]
    has_op = function in (_ufuncs() if isinstance(function, np.ufunc) else _functions())
    agreed = 0
    for arguments, options, expected in answers:
        call = f"{name}{arguments}{options}"
        try:
            actual = function(*there(device, list(arguments)), **options)
        except TakenApartError:
            # A list of tensors is an array for most functions, as for numpy.asarray.
            assert isinstance(arguments[0], list | tuple), call
        except TallowError as error:
            assert has_op or isinstance(error, UnsupportedOperand), call
            assert names_function(error, function), f"{call}: {error}"
        except Exception as error:
            raise AssertionError(call) from error
        else:
            # Vectors of decompositions are unique but for their sign.
            if name in VECTORS and isinstance(expected, tuple):
                actual, expected = tuple(map(abs, actual)), tuple(map(np.abs, expected))
            agree(actual, expected, device, is_sorted=name == "unique_values", has_values=name != "empty_like")
            agreed += any(isinstance(it, np.ndarray) for it in arguments)
    if has_op and all(map(device.supports, (DType.F64, DType.COMPLEX64))):
        assert agreed > len(answers) / 10, f"{agreed} of {len(answers)} calls have a result"


def names_function(error: Exception, function: Callable[..., Any]) -> bool:
    return re.match(rf"numpy\.(\w+\.)*{function.__name__}: ", str(error)) is not None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(FUNCTIONS.keys() - LEFT_OUT))
def test_what_numpy_refuses_is_refused_in_words(device: Device, name: str) -> None:
    """By errors that name the function, unless Python or NumPy raises them, as for a wrong number of arguments."""
    function = FUNCTIONS[name]
    if function not in _ufuncs() and function not in _functions():
        return
    for arguments, options, answer in calls(function):
        if isinstance(answer, Refusal) and isinstance(arguments[0], np.ndarray) and is_supported(device, arguments):
            with suppress(TypeError, type(answer.error)):
                try:
                    function(*there(device, list(arguments)), **options)
                except TallowError as error:
                    assert names_function(error, function), f"{name}{arguments}{options}: {error}"


@pytest.mark.parametrize("name", sorted(FUNCTIONS.keys() - LEFT_OUT))
def test_what_has_no_op_is_a_type_error(device: Device, name: str) -> None:
    function, x = FUNCTIONS[name], Tensor.from_numpy(SQUARE, device)
    if function in _ufuncs() or function in _functions():
        return
    messages = []
    for count in range(1, 5):
        with pytest.raises(TypeError) as caught:
            function(*[x] * count)
        messages.append(str(caught.value))
    assert any(re.search(r"numpy[.\w]*: tensors have no op for it; use \S", it) for it in messages), messages


@pytest.mark.parametrize("name", ["add", "multiply", "maximum", "minimum", "logical_and", "logical_or", "logaddexp"])
def test_reductions_by_ufuncs(device: Device, name: str) -> None:
    ufunc, x = getattr(np, name), Tensor.from_numpy(CUBE, device)
    for options in ({}, {"axis": 1}, {"axis": -1, "keepdims": True}, {"axis": None}, {"axis": (0, 2)}):
        agree(ufunc.reduce(x, **options), np.asarray(ufunc.reduce(CUBE, **options)), device)
    if name in ("add", "multiply"):
        agree(ufunc.accumulate(x, axis=1), ufunc.accumulate(CUBE, axis=1), device)
    agree(ufunc.outer(x, LINE), ufunc.outer(CUBE, LINE), device)
    agree(ufunc.outer(2.0, x), ufunc.outer(np.float32(2), CUBE), device)


def test_every_kind_of_sort_is_stable(device: Device) -> None:
    values = np.array([2, 0, 2, 1, 0], np.float32)
    x = Tensor.from_numpy(values, device)
    for options in ({"kind": "stable"}, {"kind": "quicksort"}, {"stable": True}):
        agree(np.argsort(x, **options), np.argsort(values, kind="stable"), device)
        agree(np.sort(x, **options), np.sort(values), device)


@pytest.mark.parametrize("left", [np.float32(2), np.float64(2), np.array(2.0), np.int64(2), np.float32([1, 2, 3]), 2])
def test_operands_on_the_left(device: Device, left: Any) -> None:
    x = Tensor.from_numpy(POSITIVE, device)
    array = left if isinstance(left, np.ndarray) and left.ndim else float(left)
    for operator in (op.add, op.sub, op.mul, op.truediv, op.floordiv, op.mod, op.pow, op.lt, op.ge, op.eq, op.ne):
        actual = operator(left, x)
        assert actual.dtype in (DType.F32, DType.BOOL)
        agree(actual, operator(array, POSITIVE), device)
        agree(operator(x, left), operator(POSITIVE, array), device)
        assert operator(x, left).dtype is actual.dtype
    matrix = Tensor.from_numpy(SQUARE, device)
    agree(POSITIVE @ matrix, POSITIVE @ SQUARE, device)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: np.add(x, x, out=x), r"numpy\.add: with tensors there is no argument out=; write x\[\.\.\.\] = "),
        (lambda x: np.add(x, x, out=ROWS.copy()), r"numpy\.add: .* do not go to an array unasked; use x\.numpy\(\)"),
        (lambda x: np.add(ROWS, ROWS, out=x), r"numpy\.add: out= is a Tensor"),
        (lambda x: np.add(x, x, where=MASK), r"numpy\.add: with tensors there is no argument where=; choose with "),
        (lambda x: np.add(x, x, dtype="f8"), r"numpy\.add: with tensors there is no argument dtype=; convert with "),
        (lambda x: np.sum(x, where=MASK), r"numpy\.sum: with tensors there is no argument where=; choose with "),
        (lambda x: np.sum(x, 0, None, ROWS[0]), r"numpy\.sum: .* do not go to an array unasked; use x\.numpy\(\)"),
        (lambda x: np.sum(x, initial=1), r"numpy\.sum: with tensors there is no argument initial=; leave it out"),
        (lambda x: np.add.reduce(x, initial=1), r"numpy\.add\.reduce: with tensors there is no argument initial="),
        (lambda x: np.add.at(x, [0], 1), r"numpy\.add\.at: .*; use x\.index_add"),
        (lambda x: np.add.reduceat(x, [0]), r"numpy\.add\.reduceat: tensors have no op for it; use "),
        (lambda x: np.median(x), r"numpy\.median: tensors have no op for it; use numpy\.median\(x\.numpy\(\)\)"),
        (lambda x: np.copyto(x, x), r"numpy\.copyto: tensors have no op for it; use x\.copy_\(source\)"),
        (lambda x: scipy.special._ufuncs.erf(x), r"^erf: tensors have no op for it; use x\.erf\(\)"),
        (lambda x: np.add(x, [1, 2, 3]), r"an operand is a list, .*; use Tensor"),
        (lambda x: np.dot(x, [1, 2, 3]), r"b is a list, .*; use Tensor"),
        (lambda x: op.iadd(ROWS.copy(), x), r"numpy\.add: .* do not go to an array unasked; use x\.numpy\(\)"),
    ],
)
def test_what_is_refused_says_what_to_call(
    device: Device, call: Callable[[Tensor], Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tensor, "__array__", taken_apart)
    with pytest.raises(TypeError, match=message):
        call(Tensor.from_numpy(ROWS, device))


def test_functions_of_numpy_are_recorded(device: Device) -> None:
    for call, slopes in (
        (lambda v: np.sum(np.sin(v)), np.cos(ROWS)),
        (lambda v: np.sum(np.mean(np.multiply(ROWS, v), axis=0)), ROWS / 2),
        (lambda v: np.add.reduce(np.concatenate([v, v]), axis=None), np.full(ROWS.shape, 2)),
        (lambda v: np.trace(np.outer(v, OTHER)), OTHER),
        (lambda v: np.linalg.norm(v) ** 2, 2 * ROWS),
        (lambda v: np.einsum("ij,ij->", v, v), 2 * ROWS),
        (lambda v: np.sum(np.diag(v[0])), np.array([[1, 1, 1], [0, 0, 0]])),
    ):
        v = Var(Tensor.from_numpy(ROWS, device))
        result = call(v)
        assert result.is_recorded
        np.testing.assert_allclose(result.backward()[v].numpy(), slopes, rtol=1e-5, atol=1e-6)


def test_numpy_still_makes_arrays_of_tensors(device: Device, tmp_path: Path) -> None:
    x = Tensor.from_numpy(ROWS, device)
    for array in (np.asarray(x), np.array(x), np.asarray(x, np.float64)):
        assert isinstance(array, np.ndarray)
        np.testing.assert_array_equal(array, ROWS)
    np.save(tmp_path / "x.npy", x)
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), ROWS)
    np.testing.assert_array_equal(x, ROWS)


@pytest.mark.parametrize("dtype", DType)
def test_numpy_takes_dtypes(dtype: DType) -> None:
    assert np.dtype(dtype) == dtype.numpy
    assert np.zeros(3, dtype).dtype == dtype.numpy
    assert np.dtype(dtype) == dtype == np.dtype(dtype)


def test_astype_copies_as_in_numpy(device: Device) -> None:
    x = Tensor.from_numpy(ROWS, device)
    assert x.astype(np.float32, copy=False) is x
    assert x.astype("f32").storage is not x.storage
    assert x.astype(np.int32).dtype is DType.I32
