"""The GPU backend that the tests run on: that of --device, and rocm where that is no GPU."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

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


def package() -> ModuleType:
    """The backend's subpackage."""
    return import_module(f"tallow.{_Chosen.name}_backend")


def objects() -> SimpleNamespace:
    """The backend's classes of handles: Device, Stream, Event, Buffer, HostBuffer and AsyncLoader."""
    from tallow.runtime.backends.gpu_backend.driver import buffer, device, loader, stream

    calls = import_module(f"tallow.drivers.{_Chosen.name}")
    return SimpleNamespace(
        Device=partial(device.Device, calls),
        Stream=stream.Stream,
        Event=stream.Event,
        Buffer=buffer.DeviceBuffer,
        HostBuffer=buffer.HostBuffer,
        AsyncLoader=loader.AsyncLoader,
    )


def own(kind: str) -> Any:
    """The backend's class of that kind: Device, Storage or StorageSlice."""
    module = package() if kind == "Device" else import_module(f"{package().__name__}.storage")
    return getattr(module, _Chosen.name.capitalize() + kind)
