"""Facts that devices of all backends have."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import cache
from typing import NamedTuple, Self

from ..base.error import BackendUnavailable, InvalidArgument, describe
from ..core import argument
from ..core.argument import DTypeLike
from .backend import BackendDevice


class DeviceLocation(NamedTuple):
    """The location of a device."""

    backend: str
    ordinal: int


class DeviceFacts:
    """Facts of a device, and when two are one."""

    __slots__ = ()

    inner: BackendDevice

    @property
    @abstractmethod
    def backend(self) -> str:
        """The name of the backend."""

    @property
    @abstractmethod
    def label(self) -> str:
        """The text that `parse` takes."""

    @classmethod
    @abstractmethod
    def parse(cls, label: str) -> Self:
        """The device that a label names."""

    @classmethod
    @abstractmethod
    def cpu(cls) -> Self:
        """The CPU."""

    @classmethod
    @cache
    def _cpu(cls) -> Self:
        return cls.cpu()

    @classmethod
    def _of(cls, device: object) -> Self:
        """Return the device that an argument means: a device, its label as in `parse`, or None for the CPU."""
        if device is None:
            return cls._cpu()
        if isinstance(device, str):
            return cls.parse(device)
        if not isinstance(device, cls):
            raise InvalidArgument(
                "device", f"{describe(device)} is no device; use Device.parse or a label such as 'cpu'"
            )
        return device

    @abstractmethod
    def supports(self, dtype: DTypeLike) -> bool:
        """Tell whether the device has tensors of a dtype."""

    @property
    def ordinal(self) -> int:
        """The number of the device among those of its backend."""
        return self.inner.ordinal

    def location(self) -> DeviceLocation:
        """Return the name of the backend and the number of the device."""
        return DeviceLocation(self.backend, self.ordinal)

    def same_device(self, other: Self) -> bool:
        """Tell whether two devices are one: `==`."""
        if not isinstance(other, DeviceFacts):
            raise argument.wrong_type("same_device", "other", other, "Device")
        return self == other

    def supports_bf16(self) -> bool:
        """Tell whether the device has tensors of bf16."""
        return self.supports("bf16")

    def __eq__(self, other: object) -> bool:
        """Compare with a device, or with a label as `parse` reads it: without a number it is that of the first one."""
        if isinstance(other, DeviceFacts):
            return self.inner == other.inner
        if not isinstance(other, str):
            return NotImplemented
        name, colon, number = other.partition(":")
        is_number = number.isascii() and number.isdecimal() if colon else True
        return name == self.backend and is_number and int(number or 0) == self.ordinal

    def __hash__(self) -> int:
        return hash(self.inner)

    def __repr__(self) -> str:
        return f"Device({self.label})"

    def __reduce__(self) -> tuple[Callable[[str], Self], tuple[str]]:
        return type(self)._unpickle, (self.label,)

    @classmethod
    def _unpickle(cls, label: str) -> Self:
        """The device that a pickle names, and to which what was on it returns."""
        try:
            return cls.parse(label)
        except (BackendUnavailable, InvalidArgument) as error:
            fix = f"unpickle where {label} is, or move what is pickled to the CPU first"
            raise BackendUnavailable(label.partition(":")[0], f"{error.reason}; {fix}") from None
