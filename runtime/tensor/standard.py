"""The array API standard's requirements on arrays, beyond the methods that tensors have anyway."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any, Final, NoReturn, Self

import numpy as np

from ...device import Device
from ..base.error import InvalidArgument, UnsupportedDType, UnsupportedOperand, describe
from ..core.extensions import extensions
from .interop import InteropMethods

_VERSIONS: Final = (None, "2021.12", "2022.12", "2023.12", "2024.12", "2025.12")


class _Count(int):
    """A number of elements: to call it, as PyTorch's method `size` is, is an error that says so."""

    __slots__ = ()

    def __call__(self, *_: object) -> NoReturn:
        raise UnsupportedOperand("size", "it is the number of elements, and no method; use x.shape, or x.shape[dim]")

    def __reduce__(self) -> tuple[type, tuple[int]]:
        # A pickle of it is read where this package is not.
        return int, (int(self),)


class StandardMethods(InteropMethods):
    """Attributes and methods by the standard's names. https://data-apis.org/array-api/2025.12"""

    __slots__ = ()

    @property
    def size(self) -> int:
        """The number of elements: `elem_count`.

        >>> tl.zeros((2, 3)).size
        6
        """
        return _Count(self._layout.elem_count)

    def to_device(self, device: Device | str, /, *, stream: int | None = None) -> Self:
        """Copy the tensor to another device, as `to` does: the method of the array API standard.

        Each device has its own stream, so `stream` must be None.

        >>> tl.ones(2).to_device("cpu")
        Tensor([1., 1.], dtype=f32)
        """
        if stream is not None:
            raise InvalidArgument("to_device", "tensors wait for each other's streams by themselves; leave out stream")
        return self.to(device)

    def __array_namespace__(self, /, *, api_version: str | None = None) -> ModuleType:
        """Return the module with the standard's functions; every version up to 2025.12 is in it.

        What it makes of no tensor is on this tensor's device, unless a call states another.
        """
        # Arrays are equal to nothing.
        if not isinstance(api_version, str | None) or api_version not in _VERSIONS:
            versions = ", ".join(version for version in _VERSIONS if version)
            reason = f"there is no api_version {describe(api_version)}; the versions are {versions}"
            raise InvalidArgument("array_namespace", reason)
        namespace: ModuleType = extensions.array_api("device_namespace").namespace(self.device)
        return namespace

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """Serve `numpy.sin(x)`, `numpy.add.reduce(x)` and `array * x`: the op of that name, on this device.

        `UnsupportedOperand`, a TypeError, says what to call where there is none.
        """
        return extensions.array_api("numpy.protocol").call_ufunc(ufunc, method, inputs, options)

    def __array_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        """Serve `numpy.sum(x, axis=0)` and all functions of NumPy's that have an op here, as `__array_ufunc__` does."""
        return extensions.array_api("numpy.protocol").call_function(func, types, args, kwargs)

    def __index__(self) -> int:
        if not self.dtype.is_integer:
            # As NumPy has it, whatever the value is.
            raise UnsupportedDType("index", self.dtype, self.device.backend, "an index is an integer; use int(x)")
        return int(self._number_for("index"))

    def __complex__(self) -> complex:
        return complex(self._number_for("complex"))
