"""What backends on array libraries do with any library: functions that it lacks, and dtypes that it cannot hold."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from tallow import Device, DType, Tensor, UnsupportedDType
from tallow.cpu_backend import library as numpy_library
from tallow.dtype import Array
from tallow.runtime.backends import backend
from tallow.runtime.backends.array_backend import precise, transfer

DTYPES = list(numpy_library.DTYPES)
FUNCTIONS = {
    name: function
    for name, function in inspect.getmembers(precise, inspect.isfunction)
    if function.__module__ == precise.__name__ and not name.startswith("_")
}


def library_like_numpy() -> ModuleType:
    """A library of its own with NumPy's words."""
    library = ModuleType("library")
    vars(library).update(vars(numpy_library), DTYPES={**numpy_library.DTYPES}, LACKING={**numpy_library.LACKING})
    return library


@pytest.mark.parametrize("dtype", (np.float32, np.float64))
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_functions_are_as_precise_as_their_dtype(name: str, dtype: type[np.floating[Any]]) -> None:
    rng, count = np.random.default_rng(0), 500
    magnitudes = 10.0 ** rng.uniform(np.log10(np.finfo(dtype).tiny) + 1, 4.9, count)
    x = np.concatenate([rng.normal(0, 1, count), rng.uniform(-30, 30, count), magnitudes, -magnitudes, [0.0, -0.0]])
    x = x.astype(dtype)
    function: Callable[..., Any] = FUNCTIONS[name]
    operands = [x] if len(inspect.signature(function).parameters) == 2 else [x, rng.permutation(x)]
    if list(inspect.signature(function).parameters)[-1] == "axis":
        actual, expected = function(numpy_library, x, 0), np.array([np.logaddexp.reduce(x.astype(np.longdouble))])
    else:
        actual = function(numpy_library, *operands)
        wide = operands if name == "nextafter" else [operand.astype(np.float64) for operand in operands]
        expected = getattr(numpy_library, name)(*wide)
    assert actual.dtype == dtype
    rounded = expected.astype(dtype)
    # The sum of logarithms near 0 loses the digits that cancel.
    scale = np.maximum(np.abs(rounded), 1 if name == "logaddexp" else np.finfo(dtype).tiny)
    is_finite = np.isfinite(rounded)
    assert np.array_equal(np.isfinite(actual), is_finite)
    assert np.all(np.abs(actual - expected)[is_finite] <= 4 * np.spacing(scale)[is_finite])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_dtype_that_the_library_changes_is_refused(dtype: DType) -> None:
    library = library_like_numpy()
    transfer.refuse_unheld(library, "cpu")
    assert library.LACKING == numpy_library.LACKING, "NumPy holds all of its dtypes"
    # It loses the lowest byte of each number.
    stored = dtype.numpy if dtype.is_of_numpy else np.dtype(f"{'u' if dtype.itemsize == 1 else 'i'}{dtype.itemsize}")

    def from_numpy(array: Array, device: object) -> Array:
        copy: Array = numpy_library.from_numpy(array, device)
        if copy.dtype == stored:
            copy.view("u1").reshape(-1, stored.itemsize)[:, 0] = 0
        return copy

    vars(library)["from_numpy"] = from_numpy
    transfer.refuse_unheld(library, "cpu")
    assert (dtype in library.DTYPES) is not dtype.is_inexact, "nothing is computed in such a float"
    with pytest.raises(
        UnsupportedDType, match=r"and gives \S+ for \S+; let 'setup' of spec/backends/cpu.yaml enable it"
    ):
        transfer.native(library, dtype)


def test_a_dtype_that_the_library_refuses_is_refused() -> None:
    library = library_like_numpy()

    def from_numpy(array: Array, device: object) -> Array:
        raise ValueError("no such numbers")

    vars(library)["from_numpy"] = from_numpy
    transfer.refuse_unheld(library, "cpu")
    assert library.LACKING.keys() == {*DTYPES}
    with pytest.raises(UnsupportedDType, match="refuses it, ValueError: no such numbers"):
        transfer.native(library, DType.F32)


def test_no_result_is_of_a_dtype_that_the_library_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum of i32 is one of i64."""
    metal = pytest.importorskip("tallow.metal_backend.library")
    monkeypatch.setenv("TALLOW_METAL_CPU", "1")
    monkeypatch.setattr(backend, "_opened", {**backend._opened})
    x = Tensor([1, 2], dtype="i32", device=Device.metal())
    monkeypatch.setitem(metal.LACKING, DType.I64, "it has 32 bits")
    with pytest.raises(UnsupportedDType, match="it has 32 bits"):
        x.sum()
