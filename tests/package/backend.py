"""The GPU backend that the tests run on: that of --device, and rocm where that is no GPU."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

import pytest

# What the backends stand on.
PACKAGES = {"rocm": "hip", "cuda": "cuda.bindings"}


class _Chosen:
    name = "rocm"


def choose(device: str) -> None:
    """Take the backend of a device's label, before tests are imported."""
    name = device.partition(":")[0]
    if name in PACKAGES:
        _Chosen.name = name


def backend_name() -> str:
    return _Chosen.name


def require_package() -> None:
    """Skip the module that calls this where the backend's package is not installed."""
    pytest.importorskip(PACKAGES[_Chosen.name])


def part(name: str = "") -> ModuleType:
    """The backend's subpackage, or a module of it."""
    return import_module(f"tallow.{_Chosen.name}_backend{'.' if name else ''}{name}")
