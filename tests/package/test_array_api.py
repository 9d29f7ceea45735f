"""The namespace of the array API: where array_api_strict has a result, tallow has the same dtype, shape and values."""

from __future__ import annotations

import inspect
import itertools
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import array_api_strict as strict
import ml_dtypes
import numpy as np
import pytest
import tallow as tl
from tallow import Device, Tensor, array_api

FLOATS = ("float32", "float64")
INEXACT = (*FLOATS, "complex64", "complex128")
DTYPES = (
    "bool",
    *("int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64"),
    *INEXACT,
)
OWN = {"Device", "set_array_api_strict_flags", "get_array_api_strict_flags", "reset_array_api_strict_flags"}
OWN |= {"ArrayAPIStrictFlags", "__version__"}
FUNCTIONS = [name for name in strict.__all__ if inspect.isfunction(getattr(strict, name)) and name not in OWN]


def sample(dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Numbers of a dtype, small, with both signs where it has them, and all different from 0."""
    generator = np.random.default_rng([seed, *shape])
    if dtype == "bool":
        return generator.integers(0, 2, shape).astype(bool)
    numbers = generator.integers(1, 6, shape) * (1 if "uint" in dtype else generator.choice([-1, 1], shape))
    if "float" in dtype or "complex" in dtype:
        numbers = numbers * 0.25
    if "complex" in dtype:
        numbers = numbers + 1j * generator.choice([-0.5, 0.75], shape)
    return numbers.astype(dtype)


def namespace_of(device: Device) -> ModuleType:
    return Tensor.zeros(0, device=device).__array_namespace__()


def as_numpy(value: Any) -> np.ndarray:
    return value.numpy() if isinstance(value, Tensor) else np.asarray(value._array)


def assert_alike(actual: Any, expected: Any) -> None:
    if isinstance(expected, tuple | list):
        assert len(actual) == len(expected)
        for one, other in zip(actual, expected, strict=True):
            assert_alike(one, other)
    elif hasattr(expected, "_array"):
        actual, expected = as_numpy(actual), as_numpy(expected)
        assert actual.shape == expected.shape
        assert actual.dtype == expected.dtype
        real = np.dtype(expected.dtype.type(0).real.dtype)
        epsilon = float(ml_dtypes.finfo(real).eps) if real.kind == "f" else 0
        np.testing.assert_allclose(actual, expected, rtol=20 * epsilon, atol=20 * epsilon)
    else:
        assert actual == expected


def compare(device: Device, call: Callable[[ModuleType, Callable[[np.ndarray], Any]], Any]) -> bool:
    """Compare a call in both namespaces; False if array_api_strict has no result."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            expected = call(strict, strict.asarray)
        except (TypeError, ValueError, NotImplementedError, np.linalg.LinAlgError):
            return False
        if expected is NotImplemented:
            return False
        actual = call(namespace_of(device), lambda array: Tensor.from_numpy(array, device=device))
    assert_alike(actual, expected)
    return True


def test_every_name_is_there() -> None:
    reference = {name: getattr(strict, name) for name in strict.__all__ if name not in OWN}
    assert [name for name in reference if name not in array_api.__all__ or not hasattr(array_api, name)] == []
    parameters = {
        name: [list(inspect.signature(function).parameters) for function in (getattr(array_api, name), expected)]
        for name, expected in reference.items()
        if inspect.isfunction(expected)
    }
    assert {name: pair for name, pair in parameters.items() if pair[0][: len(pair[1])] != pair[1]} == {}


@pytest.mark.parametrize("module", ["linalg", "fft"])
def test_every_name_of_the_extensions_is_there(module: str) -> None:
    expected, actual = getattr(strict, module), getattr(array_api, module)
    for name in expected.__all__:
        names = list(inspect.signature(getattr(expected, name)).parameters)
        assert list(inspect.signature(getattr(actual, name)).parameters)[: len(names)] == names, name


def test_parts_of_complex_numbers_are_rounded_alone(device: Device) -> None:
    parts = [np.inf, -np.inf, np.nan, -2.5, 0.5, 3.25e20]
    numbers = np.array([complex(real, imaginary) for real in parts for imaginary in parts])
    actual = array_api.round(Tensor.from_numpy(numbers, device=device)).numpy()
    np.testing.assert_array_equal(actual, np.round(numbers))


def has_common_dtype(first: str, second: str) -> bool:
    try:
        strict.result_type(getattr(strict, first), getattr(strict, second))
    except TypeError:
        return False
    return True


UNARY = [
    name
    for name in FUNCTIONS
    if list(inspect.signature(getattr(strict, name)).parameters) == ["x"]
    and name not in ("finfo", "iinfo", "unique_all", "unique_counts", "unique_inverse", "unique_values", "nonzero")
]
# What complex numbers lack, which array_api_strict does not refuse where one is a Python number.
ORDERED = ("greater", "greater_equal", "less", "less_equal", "maximum", "minimum")
BINARY = [name for name in FUNCTIONS if list(inspect.signature(getattr(strict, name)).parameters) == ["x1", "x2"]]


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_operand(device: Device, name: str) -> None:
    shape = (3, 2)
    assert sum(compare(device, lambda xp, of, d=d: getattr(xp, name)(of(sample(d, shape)))) for d in DTYPES)


@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_operands_promote_and_broadcast(device: Device, name: str) -> None:
    shapes = ((2, 3), (3, 2)) if name == "matmul" else ((3, 2), (2,)) if name != "vecdot" else ((3, 2), (1, 2))
    done = 0
    for first, second in itertools.product(DTYPES, repeat=2):
        if not has_common_dtype(first, second):
            continue
        x, y = sample(first, shapes[0]), sample(second, shapes[1], 1)
        if "shift" in name or name == "pow":
            y = np.abs(y)
        done += compare(device, lambda xp, of, x=x, y=y: getattr(xp, name)(of(x), of(y)))
    assert done


@pytest.mark.parametrize("name", [name for name in BINARY if name not in ("matmul", "vecdot")])
@pytest.mark.parametrize("number", [True, 2, 1.5, 0.5 + 1j], ids=str)
def test_one_of_two_operands_may_be_a_number(device: Device, name: str, number: complex) -> None:
    if isinstance(number, complex) and name in ORDERED:
        with pytest.raises(tl.UnsupportedDType, match="order"):
            getattr(array_api, name)(Tensor([1.0], device=device), number)
        return
    for dtype in DTYPES:
        compare(device, lambda xp, of, d=dtype: getattr(xp, name)(of(sample(d, (3, 2))), number))
        if name not in ("pow", "bitwise_left_shift", "bitwise_right_shift"):
            compare(device, lambda xp, of, d=dtype: getattr(xp, name)(number, of(sample(d, (3, 2)))))


REDUCED = ("sum", "prod", "max", "min", "mean", "std", "var", "all", "any", "argmax", "argmin", "count_nonzero")


@pytest.mark.parametrize("name", REDUCED)
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2)], ids=str)
def test_reductions(device: Device, name: str, axis: Any) -> None:
    done = 0
    for dtype in DTYPES:
        for keepdims in (False, True):
            x = sample(dtype, (2, 3, 2))
            done += compare(device, lambda xp, of, x=x, k=keepdims: getattr(xp, name)(of(x), axis=axis, keepdims=k))
    assert done or (isinstance(axis, tuple) and name.startswith("arg"))


# What is called besides, by name: the arrays, and the call.
CALLS: dict[str, tuple[tuple[int, ...], Callable[..., Any]]] = {
    "arange": ((2,), lambda xp, x: xp.arange(1, 7, 2, dtype=x.dtype)),
    "asarray": ((2,), lambda xp, x: (xp.asarray([1, 2]), xp.asarray([True]), xp.asarray(x, copy=True))),
    "astype": ((3,), lambda xp, x: [xp.astype(x, getattr(xp, d)) for d in ("float64", "complex64", "bool")]),
    "broadcast": ((3, 1), lambda xp, x: xp.broadcast_arrays(x, xp.ones((1, 4), dtype=x.dtype))),
    "broadcast_to": ((3, 1), lambda xp, x: xp.broadcast_to(x, (2, 3, 4))),
    "clip": ((5,), lambda xp, x: (xp.clip(x, 1, 2), xp.clip(x, max=x[0]), xp.clip(x))),
    "concat": ((2, 3), lambda xp, x: (xp.concat([x, x], axis=1), xp.concat((x, x), axis=None))),
    "cumulative": ((2, 3), lambda xp, x: xp.cumulative_sum(x, axis=1, include_initial=True)),
    "cumulative_prod": ((4,), lambda xp, x: (xp.cumulative_prod(x), xp.cumulative_prod(x, dtype=xp.complex128))),
    "diff": ((2, 4), lambda xp, x: (xp.diff(x), xp.diff(x, axis=0, n=1, prepend=x))),
    "round": ((1,), lambda xp, x: xp.round(xp.arange(-3.5, 4, 0.5, dtype=x.dtype))),
    "expand_dims": ((2, 3), lambda xp, x: (xp.expand_dims(x, axis=0), xp.expand_dims(x, axis=(0, -1)))),
    "eye": ((1,), lambda xp, x: [xp.eye(3, 4, k=k, dtype=x.dtype) for k in (-4, -1, 0, 2, 5)]),
    "flip": ((2, 3), lambda xp, x: (xp.flip(x), xp.flip(x, axis=1), xp.flip(x, axis=(0, 1)))),
    "full": ((1,), lambda xp, x: (xp.full((2,), 1, dtype=x.dtype), xp.full_like(x, 1), xp.full(2, True))),
    "isin": ((2, 3), lambda xp, x: (xp.isin(x, x[0, :2]), xp.isin(x, xp.zeros(0, dtype=x.dtype)))),
    "linspace": ((1,), lambda xp, x: xp.linspace(0, 2, 5, dtype=x.dtype, endpoint=False)),
    "meshgrid": ((3,), lambda xp, x: xp.meshgrid(x, x[:2], x[:1], indexing="ij") + xp.meshgrid(x, x[:2])),
    "moveaxis": ((2, 3, 4), lambda xp, x: (xp.moveaxis(x, 0, -1), xp.moveaxis(x, (0, 1), (1, 2)))),
    "nonzero": ((3, 4), lambda xp, x: xp.nonzero(x)),
    "ones": ((2,), lambda xp, x: (xp.ones_like(x), xp.ones(2, dtype=x.dtype), xp.zeros_like(x))),
    "permute_dims": ((2, 3, 4), lambda xp, x: xp.permute_dims(x, (2, 0, 1))),
    "repeat": (
        (2, 3),
        lambda xp, x: (xp.repeat(x, 2), xp.repeat(x, 3, axis=1), xp.repeat(x, xp.asarray([1, 2]), axis=0)),
    ),
    "reshape": ((2, 3), lambda xp, x: (xp.reshape(x, (3, -1)), xp.reshape(x, (6,), copy=True))),
    "roll": ((3, 4), lambda xp, x: (xp.roll(x, 5), xp.roll(x, (1, -2), axis=(0, 1)), xp.roll(x, -1, axis=1))),
    "searchsorted": ((4,), lambda xp, x: [xp.searchsorted(xp.sort(x), x, side=s) for s in ("left", "right")]),
    "sorter": ((4,), lambda xp, x: xp.searchsorted(x, x, sorter=xp.argsort(x))),
    "sort": ((3, 4), lambda xp, x: (xp.sort(x), xp.sort(x, axis=0, descending=True))),
    "argsort": ((3, 4), lambda xp, x: xp.argsort(x, axis=0)),
    "squeeze": ((1, 2, 1), lambda xp, x: (xp.squeeze(x, axis=0), xp.squeeze(x, axis=(0, 2)))),
    "stack": ((2, 3), lambda xp, x: (xp.stack([x, x]), xp.stack([x, x], axis=-1))),
    "take": ((3, 4), lambda xp, x: (xp.take(x, xp.asarray([2, -1]), axis=0), xp.take(x[0, ...], xp.asarray([1])))),
    "take_along_axis": ((3, 4), lambda xp, x: xp.take_along_axis(x, xp.asarray([[1, -1, 0]]), axis=1)),
    "tensordot": ((3, 2), lambda xp, x: (xp.tensordot(x, x.T, axes=1), xp.tensordot(x, x, axes=((0, 1), (0, 1))))),
    "tile": ((2, 3), lambda xp, x: (xp.tile(x, (2, 1)), xp.tile(x, (3,)), xp.tile(x, (2, 1, 2)))),
    "triangles": ((3, 4), lambda xp, x: (xp.tril(x), xp.tril(x, k=-1), xp.triu(x), xp.triu(x, k=1))),
    "unique_counts": ((3, 4), lambda xp, x: sorted_by_value(xp, *xp.unique_counts(x))),
    "unique_values": ((3, 4), lambda xp, x: xp.sort(xp.unique_values(x))),
    "unique_all": ((3, 4), lambda xp, x: sorted_by_value(xp, *[xp.unique_all(x)[i] for i in (0, 1, 3)])),
    "unique_inverse": ((3, 4), lambda xp, x: restored(xp, *xp.unique_inverse(x))),
    "unstack": ((3, 2), lambda xp, x: xp.unstack(x, axis=1)),
    "where": ((3, 4), lambda xp, x: (xp.where(x == x[0, 0], x, x[0, ...]), xp.where(x != x[0, 0], x, 1))),
    "vector_norm": (
        (3, 4),
        lambda xp, x: [xp.linalg.vector_norm(x, axis=0, ord=o) for o in (0, 1, 2, 3, xp.inf, -xp.inf)],
    ),
    "matrix_norm": (
        (2, 3, 4),
        lambda xp, x: [xp.linalg.matrix_norm(x, ord=o) for o in ("fro", "nuc", 1, -1, 2, -2, xp.inf)],
    ),
    "matrix_norm_keepdims": (
        (2, 3),
        lambda xp, x: [xp.linalg.matrix_norm(x, ord=o, keepdims=True) for o in (1, xp.inf, 2)],
    ),
    "cross": ((2, 3), lambda xp, x: xp.linalg.cross(x, x[::-1, :])),
    "outer": ((3,), lambda xp, x: xp.linalg.outer(x, x)),
    "diagonal": ((2, 3, 4), lambda xp, x: [xp.linalg.diagonal(x, offset=o) for o in (-4, -1, 0, 2)]),
    "trace": ((2, 3, 3), lambda xp, x: (xp.linalg.trace(x), xp.linalg.trace(x, offset=1))),
    "det": ((2, 3, 3), lambda xp, x: (xp.linalg.det(x), *xp.linalg.slogdet(x))),
    "inv": ((3, 3), lambda xp, x: xp.linalg.inv(with_diagonal(xp, x))),
    "pinv": ((3, 4), lambda xp, x: xp.linalg.pinv(x)),
    "power": ((3, 3), lambda xp, x: [xp.linalg.matrix_power(with_diagonal(xp, x), n) for n in (0, 1, 5, -2)]),
    "rank": ((3, 3), lambda xp, x: xp.linalg.matrix_rank(x)),
    "qr": ((3, 4), lambda xp, x: xp.linalg.qr(x)),
    "solve": (
        (3, 3),
        lambda xp, x: (xp.linalg.solve(with_diagonal(xp, x), x), xp.linalg.solve(with_diagonal(xp, x), x[0, ...])),
    ),
    "svd": ((4, 3), lambda xp, x: xp.linalg.svd(x, full_matrices=False)[1]),
    "eig": ((3, 3), lambda xp, x: (rebuilt(xp, x), sorted_by_parts(xp, xp.linalg.eigvals(with_diagonal(xp, x))))),
    "fft": (
        (4, 5),
        lambda xp, x: (
            xp.fft.fft(x),
            xp.fft.ifft(x, n=3, axis=0),
            xp.fft.fft(x, n=9, norm="forward"),
            xp.fft.fftn(x, norm="ortho"),
            xp.fft.ifftn(x, s=(2, 3), axes=(0, 1)),
        ),
    ),
    "rfft": ((4, 5), lambda xp, x: (xp.fft.rfft(x, norm="ortho"), xp.fft.rfftn(x), xp.fft.ihfft(x, n=4))),
    "irfft": ((4, 5), lambda xp, x: (xp.fft.irfft(x, n=7), xp.fft.irfft(x, axis=0), xp.fft.irfftn(x), xp.fft.hfft(x))),
    "fftshift": (
        (4, 5),
        lambda xp, x: (xp.fft.fftshift(x), xp.fft.ifftshift(x, axes=1), *frequencies(xp)),
    ),
    "cholesky": ((3, 3), lambda xp, x: xp.linalg.cholesky(symmetric(xp, x))),
    "eigh": ((3, 3), lambda xp, x: (xp.linalg.eigvalsh(symmetric(xp, x)), xp.linalg.eigh(symmetric(xp, x))[0])),
}


def with_diagonal(xp: ModuleType, x: Any) -> Any:
    """A matrix that is far from singular."""
    return x + 9 * xp.eye(3, dtype=x.dtype)


def symmetric(xp: ModuleType, x: Any) -> Any:
    """A positive definite matrix."""
    return xp.conj(x).mT @ x + 3 * xp.eye(3, dtype=x.dtype)


def frequencies(xp: ModuleType) -> list[Any]:
    """Those of five and of four points."""
    return [xp.fft.fftfreq(5, dtype=xp.float32), xp.fft.rfftfreq(4, d=0.5, dtype=xp.float64)]


def rebuilt(xp: ModuleType, x: Any) -> Any:
    """A matrix of its eigenvalues and eigenvectors, of which the standard leaves order and length open."""
    values, vectors = xp.linalg.eig(x)
    return (vectors * values) @ xp.linalg.inv(vectors)


def sorted_by_parts(xp: ModuleType, numbers: Any) -> Any:
    """Complex numbers in an order."""
    return xp.take(numbers, xp.argsort(xp.real(numbers) + xp.imag(numbers) / 64))


def sorted_by_value(xp: ModuleType, values: Any, *others: Any) -> Any:
    order = xp.argsort(values)
    return [xp.take(part, order) for part in (values, *others)]


def restored(xp: ModuleType, values: Any, inverse: Any) -> Any:
    return xp.reshape(xp.take(values, xp.reshape(inverse, (-1,))), inverse.shape)


@pytest.mark.parametrize("name", CALLS)
def test_calls(device: Device, name: str) -> None:
    shape, call = CALLS[name]
    done = 0
    # array_api_strict has these of integers too, where the standard leaves them open.
    dtypes = FLOATS if name == "round" else INEXACT if name in ("linspace", "rank") else DTYPES
    for dtype in dtypes:
        x = sample(dtype, shape)
        done += compare(device, lambda xp, of, x=x: call(xp, of(x)))
    assert done


def test_dtypes_and_their_limits() -> None:
    for dtype in DTYPES:
        own, theirs = getattr(array_api, dtype), getattr(strict, dtype)
        for kind in (
            "bool",
            "signed integer",
            "unsigned integer",
            "integral",
            "real floating",
            "complex floating",
            "numeric",
        ):
            assert array_api.isdtype(own, kind) == strict.isdtype(theirs, kind)
        for other in DTYPES:
            try:
                expected = strict.result_type(theirs, getattr(strict, other))
            except TypeError:
                continue
            assert array_api.result_type(own, getattr(array_api, other)) is getattr(
                array_api, str(np.dtype(expected._np_dtype))
            )
            assert array_api.can_cast(own, getattr(array_api, other)) == strict.can_cast(theirs, getattr(strict, other))
        if "int" in dtype:
            info, expected_info = array_api.iinfo(own), strict.iinfo(theirs)
            assert (info.bits, info.max, info.min) == (expected_info.bits, expected_info.max, expected_info.min)
        elif dtype != "bool":
            info, expected_info = array_api.finfo(own), strict.finfo(theirs)
            names = ("bits", "eps", "max", "min", "smallest_normal")
            assert [getattr(info, name) for name in names] == [getattr(expected_info, name) for name in names]


def test_what_is_made_of_no_tensor_is_on_the_device_that_led_to_the_namespace(device: Device) -> None:
    xp = namespace_of(device)
    assert xp.__name__ == "tallow.array_api"
    assert xp.__array_namespace_info__().default_device() == device
    result = (xp.asarray([1.0]), xp.asarray(np.arange(3)), xp.arange(3), xp.zeros(2), xp.full((), 1), xp.eye(2))
    assert {x.device for x in result} == {device}
    assert xp.zeros(2, device=Device.cpu()).device == Device.cpu()
    here = Tensor([1.0])
    assert xp.asarray(here) is here
    assert xp.zeros_like(here).device == Device.cpu()
    assert xp.arange(Tensor(3, device=device)).tolist() == [0, 1, 2]
    assert xp.full((2,), Tensor(3, device=device)).tolist() == [3, 3]


def test_tensors_lead_to_the_namespace(device: Device) -> None:
    x = Tensor([1.0, 2.0], device=device)
    assert (x.__array_namespace__() is array_api) == (device == Device.cpu())
    assert x.__array_namespace__() is namespace_of(device)
    assert x.__array_namespace__(api_version="2025.12").__array_api_version__ == "2025.12"
    with pytest.raises(tl.InvalidArgument, match=r"2020\.12.*the versions are"):
        x.__array_namespace__(api_version="2020.12")
    assert x.size == 2
    assert x.to_device(device) is x
    assert [3, 4, 5][Tensor(1, device=device)] == 4
    with pytest.raises(TypeError, match="an index is an integer"):
        [3][x]
    info = array_api.__array_namespace_info__()
    assert device in info.devices()
    assert info.default_device() == Device.cpu()
    assert info.capabilities()["max dimensions"] == 8
    assert set(info.dtypes(kind="integral")) == {name for name in DTYPES if "int" in name}


LINEAR_ALGEBRA = [name for name in strict.linalg.__all__ if inspect.isfunction(getattr(strict.linalg, name))]


@pytest.mark.parametrize("name", LINEAR_ALGEBRA)
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_linear_algebra_hands_on_nan_and_infinity(device: Device, name: str, dtype: str) -> None:
    """A matrix with NaN has NaN in each result, one with infinity no finite result, or they are refused."""
    if not device.supports(dtype):
        pytest.skip(f"{device.label} lacks {dtype}")
    function = getattr(namespace_of(device).linalg, name)
    required = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    good = sample(dtype, (3, 3)) @ sample(dtype, (3, 3)).conj().T + 3 * np.eye(3, dtype=dtype)

    def results(x: np.ndarray) -> list[np.ndarray]:
        inputs = [3 if p.annotation == "int" else Tensor(x, device=device) for p in required]
        output = function(*inputs)
        return [tensor.numpy() for tensor in (output if isinstance(output, tuple) else (output,))]

    for number, index in itertools.product((np.nan, np.inf, -np.inf), range(3)):
        bad = good.copy()
        bad[index, index] = number
        try:
            actual = results(bad)
        except tl.InvalidArgument:
            continue
        for array in actual:
            assert not np.isfinite(array).all(), (number, index)
            assert np.isnan(array).any() or not np.isnan(number), (number, index)


BY_MATRIX = {name for name in LINEAR_ALGEBRA if name not in ("cross", "outer", "tensordot", "vecdot", "vector_norm")}


@pytest.mark.parametrize("name", sorted(BY_MATRIX - {"matrix_rank"}))
def test_a_matrix_of_nan_changes_no_other(device: Device, name: str) -> None:
    function = getattr(namespace_of(device).linalg, name)
    required = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    good = sample("float32", (40, 3, 3)) + 8 * np.eye(3, dtype="float32")
    good += good.swapaxes(-1, -2)

    def results(x: np.ndarray) -> list[np.ndarray]:
        result = function(*[3 if p.annotation == "int" else Tensor(x, device=device) for p in required])
        return [tensor.numpy() for tensor in (result if isinstance(result, tuple) else (result,))]

    bad = good.copy()
    bad[7, 1, 1], bad[9, 2, 0] = np.nan, np.inf
    others = [index for index in range(len(good)) if index not in (7, 9)]
    for actual, expected in zip(results(bad), results(good), strict=True):
        assert actual.dtype == expected.dtype
        np.testing.assert_array_equal(actual[others], expected[others])
        assert np.isnan(actual[7]).any()


ORDERS = (-40, -3, -1, -0.5, 0.5, 1, 1.5, 2, 3, 6, 40, np.inf, -np.inf)


@pytest.mark.parametrize("dtype", [dtype for dtype in tl.DType if dtype.is_float and dtype.itemsize > 1], ids=str)
def test_vector_norms_of_extreme_numbers(device: Device, dtype: tl.DType) -> None:
    """The norm of one number is its absolute value, whatever its powers are; gradients are ratios to the norm."""
    if not device.supports(dtype):
        pytest.skip(f"{device.label} lacks {dtype}")
    norm, info = namespace_of(device).linalg.vector_norm, ml_dtypes.finfo(dtype.numpy)
    largest, least, eps = (float(getattr(info, name)) for name in ("max", "smallest_normal", "eps"))
    for number in (-largest, 8.5, least, np.sqrt(least), np.sqrt(largest) * 8):
        x = Tensor(np.array([number], dtype.numpy), device=device)
        for order in ORDERS:
            assert norm(x, ord=order).tolist() == x.abs().sum().tolist(), (number, order)
    for unit in (largest / 256, least * 256, 1.0):
        x = tl.Var(Tensor(np.array([3, -4, 12, 1, 2], np.float64) * unit).to_dtype(dtype).to(device))
        exact = x.detach().numpy().astype(np.longdouble)
        for order in (-1, 0.5, 1.5, 2, 3, 6):
            actual = norm(x, ord=order)
            size = np.abs(exact) / np.longdouble(unit)
            expected = (size**order).sum() ** (1 / np.longdouble(order))
            if expected * unit > largest:
                continue
            np.testing.assert_allclose(float(actual.item()), float(expected * unit), rtol=2 * eps)
            slope = actual.backward()[x].numpy().astype(np.float64)
            np.testing.assert_allclose(
                slope, np.float64(np.sign(exact) * (size / expected) ** (order - 1)), rtol=8 * eps
            )
    zero = tl.Var(Tensor(np.zeros(3, dtype.numpy), device=device))
    some = tl.Var(Tensor(np.array([0, 3, -4], dtype.numpy), device=device))
    for order in ORDERS:
        assert norm(zero, ord=order).backward()[zero].tolist() == [0, 0, 0]
        slope = norm(some, ord=order).backward()[some].to_dtype("f64").numpy()
        assert slope[0] == 0
        assert np.isfinite(slope).all()
        assert np.isnan(norm(Tensor(np.array([1, np.nan, np.inf], dtype.numpy), device=device), ord=order).item())
        assert norm(zero.detach(), ord=order).item() == 0
    assert norm(Tensor(np.zeros((0, 2), dtype.numpy), device=device), ord=3, axis=0).tolist() == [0, 0]


@pytest.mark.parametrize("shapes", [((2,), (3,)), ((1, 2), (3, 1), (2, 2)), ((0,), (2,)), ((2, 1, 3), (), (2,))])
def test_shapes_that_do_not_broadcast_are_named(device: Device, shapes: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(tl.ShapeMismatch, match=r"^broadcast_shapes: shapes .* do not broadcast"):
        array_api.broadcast_shapes(*shapes)
    with pytest.raises(tl.ShapeMismatch, match=r"^broadcast_arrays: shapes .* do not broadcast"):
        array_api.broadcast_arrays(*[Tensor.zeros(shape, device=device) for shape in shapes])
    with pytest.raises(tl.InvalidArgument, match="-1"):
        array_api.broadcast_shapes((2,), (-1,))


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
@pytest.mark.parametrize("target", [(), (0,), (2, 3)])
def test_a_recorded_number_fills_as_any_other(device: Device, shape: tuple[int, ...], target: tuple[int, ...]) -> None:
    number = tl.Var(Tensor.full(shape, 2.5, device=device))
    filled = array_api.full(target, number)
    assert filled.tolist() == array_api.full(target, number.detach()).tolist()
    assert filled.sum().backward()[number].tolist() == Tensor.full(shape, float(np.prod(target))).tolist()
