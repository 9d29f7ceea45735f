"""Protocols of devices and storages, whose classes are in layers above."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ...dtype import DType
    from ...ggml_dtype import GgmlDType


class DeviceLike(Protocol):
    """A device, of one backend or of any."""

    @property
    def backend(self) -> str:
        """The name of its backend."""
        ...


class Sized(Protocol):
    """A storage as the copies see it."""

    @property
    def length(self) -> int:
        """The number of its elements."""
        ...


class HasDType(Protocol):
    """A storage of elements."""

    @property
    def dtype(self) -> DType:
        """The dtype of the elements."""
        ...


class HasInner(Protocol):
    """A storage of the package, with that of the backend in it."""

    @property
    def inner(self) -> HasDType:
        """The storage of the backend."""
        ...


class HasShape(Protocol):
    """A tensor, an operand or a layout."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the dims."""
        ...


class Shaped(HasDType, HasShape, Protocol):
    """A tensor or an operand."""


class Typed(Sized, HasDType, Protocol):
    """A storage of a known number of elements."""


class OnDevice(HasDType, Protocol):
    """A storage of elements on a device."""

    @property
    def device(self) -> DeviceLike:
        """The device."""
        ...


class Ranks(Protocol):
    """A group of ranks: see `tallow.distributed.Group`."""

    @property
    def size(self) -> int:
        """How many ranks there are."""
        ...


class Blocks(Sized, Protocol):
    """Block-quantized weights."""

    @property
    def dtype(self) -> GgmlDType:
        """Their format."""
        ...
