"""What importing the package costs, and what it shows."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from typing import get_args

import pytest
import tallow
from tallow import backends

LIBRARIES = ("hip", "cuda.bindings", "ml_dtypes", "safetensors", "scipy", "nvmath")
# Parts of Python's library that take a millisecond or more, and that few programs need.
SLOW = ("concurrent.futures", "difflib", "inspect", "json", "subprocess", "tempfile")


def test_the_import_loads_no_library_but_numpy() -> None:
    assert not imported_beyond_numpy() & {*LIBRARIES}


def test_the_import_loads_nothing_slow_that_few_programs_need() -> None:
    assert not imported_beyond_numpy() & {*SLOW}


def test_the_import_loads_no_profiler() -> None:
    loaded = {name for name in imported_beyond_numpy() if name.startswith("tallow") and "profile" in name}
    assert loaded == {"tallow.runtime.profile", "tallow.runtime.profile.entry"}


def test_the_import_loads_no_gradients() -> None:
    loaded = {
        name for name in imported_beyond_numpy() if name.startswith(("tallow.gradients", "tallow.runtime.gradient."))
    }
    assert loaded == {"tallow.runtime.gradient.recording"}


@cache
def imported_beyond_numpy() -> set[str]:
    """What NumPy loads itself is not ours to avoid."""
    code = "import numpy, sys; before = set(sys.modules); import tallow; print(*set(sys.modules) - before)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(result.stdout.split())


def test_the_package_shows_its_public_names_alone() -> None:
    modules = set(tallow._MODULES)
    assert {"fft", "linalg", "optim"} <= modules, "what completes in a shell"
    assert dir(tallow) == sorted({*tallow.__all__} | modules)
    for name in dir(tallow):
        assert isinstance(getattr(tallow, name), type(sys)) == (name in modules), name


def test_the_classes_of_every_backend_are_at_the_top() -> None:
    for backend in {cell.backend for cell in tallow.support()}:
        for kind in ("{}Device", "{}Storage", "Q{}Storage"):
            name = kind.format(backend.capitalize())
            assert getattr(tallow, name) is getattr(backends, name)
            assert name in tallow.__all__


@pytest.mark.parametrize(
    "kind", [*get_args(backends.AnyDevice), *get_args(backends.AnyStorage), *get_args(backends.AnyQStorage)]
)
def test_a_type_checker_finds_the_methods_that_a_backend_lacks(kind: type) -> None:
    assert getattr(kind, "__final__", False), f"{kind.__name__} may be abstract"


def test_modules_that_few_programs_need_are_imported_where_they_are_asked_for() -> None:
    code = (
        "import sys, tallow; loaded = set(sys.modules);"
        "assert not {'tallow.fft', 'tallow.linalg', 'tallow.models', 'tallow.array_api'} & loaded;"
        "tallow.fft, tallow.linalg, tallow.models.ModelRuntime, tallow.optim.SGD;"
        "assert {'tallow.fft', 'tallow.linalg', 'tallow.models'} <= {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", ["fft", "linalg"])
def test_extensions_of_the_array_api_are_at_the_top_too(name: str) -> None:
    top, extension = getattr(tallow, name), getattr(tallow.array_api, name)
    namespace = getattr(tallow.Tensor([1.0]).__array_namespace__(), name)
    assert {*top.__all__} == {*extension.__all__}
    for function in top.__all__:
        assert getattr(top, function) is getattr(extension, function) is getattr(namespace, function)


@pytest.mark.parametrize("patch", ["sys._is_gil_enabled = lambda: False", "sys.abiflags = 't'"])
def test_a_free_threaded_python_is_refused_with_a_line(patch: str) -> None:
    code = f"import sys; {patch}\nimport tallow"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    expected = "ImportError: tallow does not support free-threaded builds of Python; use one with a GIL"
    assert result.returncode == 1 and result.stderr.splitlines()[-1] == expected
