"""The namespace's devices, dtypes and capabilities."""

from __future__ import annotations

from typing import Any

from ...device import Device
from ...dtype import DType
from ...limits import MAX_RANK
from .data_types import STANDARD, isdtype


class Info:
    """Answers about devices and dtypes."""

    __slots__ = ("_device",)

    def __init__(self, device: Device | None = None) -> None:
        self._device = device or Device.cpu()

    def capabilities(self) -> dict[str, Any]:
        """Tell what there is: boolean indexes, shapes that depend on data, and the most axes."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": MAX_RANK}

    def default_device(self) -> Device:
        """Return the device of tensors that are created without one."""
        return self._device

    def devices(self) -> tuple[Device, ...]:
        """Return the devices that are there."""
        return tuple(Device.all())

    def default_dtypes(self, *, device: Device | None = None) -> dict[str, DType]:
        """Return the dtypes of tensors that are created without one, on any device."""
        return {
            "real floating": DType.F32,
            "complex floating": DType.COMPLEX64,
            "integral": DType.I64,
            "indexing": DType.I64,
        }

    def dtypes(self, *, device: Device | None = None, kind: str | tuple[str, ...] | None = None) -> dict[str, DType]:
        """Return the standard's dtypes of a kind, or of one of several, by name; they are those of every device."""
        return {name: dtype for name, dtype in STANDARD.items() if kind is None or isdtype(dtype, kind)}


def __array_namespace_info__() -> Info:  # noqa: N807 - the standard's name
    """Return what answers questions about devices and dtypes."""
    return Info()
