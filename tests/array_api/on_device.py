"""tallow.array_api with another default device than the CPU: by `on(device)`, or as this module by DEVICE."""

from __future__ import annotations

import inspect
import os
from functools import wraps
from types import SimpleNamespace
from typing import Any

from tallow import Device, array_api


def on(device: Device) -> SimpleNamespace:
    """The namespace, whose arrays are made on a device unless a call states one."""
    found = {name: getattr(array_api, name) for name in ("__name__", *array_api.__all__)}
    return SimpleNamespace(**{name: _there(value, device) if _makes(value) else value for name, value in found.items()})


def _makes(function: Any) -> bool:
    """Whether a function makes an array of what is none."""
    parameters = inspect.signature(function).parameters if inspect.isfunction(function) else {}
    return "device" in parameters and "x" not in parameters


def _there(function: Any, device: Device) -> Any:
    @wraps(function)
    def make(*arguments: Any, **options: Any) -> Any:
        return function(*arguments, **{"device": device} | options)

    return make


if "DEVICE" in os.environ:
    globals().update(vars(on(Device.parse(os.environ["DEVICE"]))))
