"""The GPU backend that the tests run on: that of --device, and rocm where that is no GPU."""

from __future__ import annotations

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
    name = f"tallow.runtime.backends.{_Chosen.name}_backend"
    if _Chosen.name == "rocm":
        hip = import_module(f"{name}.hip")
        kinds = {kind: getattr(hip, f"Hip{kind}") for kind in ("Device", "Stream", "Event", "Buffer", "HostBuffer")}
        return SimpleNamespace(**kinds, AsyncLoader=hip.AsyncLoader)
    modules = {"Stream": "stream", "Event": "event", "Buffer": "memory", "HostBuffer": "memory"}
    kinds = {kind: getattr(import_module(f"{name}.{module}"), f"Cuda{kind}") for kind, module in modules.items()}
    loader = import_module(f"{name}.loader").AsyncLoader
    return SimpleNamespace(**kinds, Device=import_module(f"{name}.context").Context, AsyncLoader=loader)


def own(kind: str) -> Any:
    """The backend's class of that kind: Device, Storage or StorageSlice."""
    module = package() if kind == "Device" else import_module(f"{package().__name__}.storage")
    return getattr(module, _Chosen.name.capitalize() + kind)
