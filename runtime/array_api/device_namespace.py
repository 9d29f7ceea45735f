"""The namespaces of devices: new tensors are on the device of the tensor that returned the namespace."""

from __future__ import annotations

import inspect
from functools import cache, partial, wraps
from types import ModuleType
from typing import Any

from ...device import Device
from ..core.extensions import extensions
from ..tensor import Tensor
from .info import Info


@cache
def namespace(device: Device) -> ModuleType:
    """Return the namespace of a device; that of the CPU is `tallow.array_api` itself."""
    standard = extensions.array_namespace()
    return standard if device == Device.cpu() else _placed(standard, device)


def _placed(module: ModuleType, device: Device) -> ModuleType:
    """Copy a module of functions for a device."""
    copied = ModuleType(module.__name__, module.__doc__)
    for name in module.__all__:
        value = getattr(module, name)
        if isinstance(value, ModuleType):
            value = _placed(value, device)
        elif name == "__array_namespace_info__":
            value = partial(Info, device)
        elif inspect.isfunction(value) and _makes(value):
            value = _there(value, device)
        setattr(copied, name, value)
    copied.__dict__["__all__"] = module.__all__
    return copied


def _makes(function: Any) -> bool:
    """Tell whether a function makes a tensor of what need not be one."""
    parameters = inspect.signature(function).parameters
    return "device" in parameters and "x" not in parameters


def _there(function: Any, device: Device) -> Any:
    """Have a function make tensors on a device, unless a call states another, or converts what is a tensor already."""
    is_conversion = "obj" in inspect.signature(function).parameters

    @wraps(function)
    def make(*arguments: Any, **options: Any) -> Any:
        if options.get("device") is None and not (is_conversion and isinstance(arguments[0], Tensor)):
            options["device"] = device
        return function(*arguments, **options)

    return make
