"""Methods shared by block-quantized weights: the blocks of one backend, and the storages that they return."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, ParamSpec, Self, TypeVar, overload

import numpy as np

from ...dtype import Array
from ...ggml_dtype import GgmlDType
from ..backends.backend import BackendBlocks, BackendStorage
from ..backends.plan import Key
from ..base.error import TallowError
from ..core import argument
from ..core.extensions import extensions
from ..program.builder import Op
from ..program.program import HostCall
from ..program.values import Buffer
from .calls import Calls, live_batches

P = ParamSpec("P")
Blocks = TypeVar("Blocks", bound=BackendBlocks)
Elements = TypeVar("Elements")
Device = TypeVar("Device")


class QStorageBase(Calls, Generic[Blocks, Elements, Device]):
    """Block-quantized weights on a `Device`: `inner` is the backend's storage, `Elements` what methods return."""

    __slots__ = ("inner",)

    inner: Blocks

    def __init__(self, inner: BackendBlocks) -> None:
        if not isinstance(inner, BackendBlocks):
            raise argument.wrong_type("QStorage", "inner", inner, "BackendBlocks")
        # The functions of each backend make blocks of its own class.
        self.inner = inner  # type: ignore[assignment]

    @property
    def recorded(self) -> type[Self]:
        """Return the class that takes over a call if an operand is recorded or batched."""
        recorded: type[Self] = extensions.batched_calls if live_batches else extensions.recorded_blocks
        return recorded

    @classmethod
    def zeros(cls, device: Device, elem_count: int, dtype: GgmlDType | str) -> Self:
        """Blocks of zero bytes, of `elem_count` weights. Raises InvalidArgument, OutOfMemory."""
        return cls._on("zeros", device, "quantized_zeros", elem_count, dtype)

    @classmethod
    def from_data(cls, data: bytes | bytearray | memoryview | Array, device: Device, dtype: GgmlDType | str) -> Self:
        """Copy blocks from their bytes, in the layout of files. Raises InvalidArgument, OutOfMemory."""
        try:
            blocks = data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
        except (TypeError, ValueError):
            raise argument.wrong_type("from_data", "data", data, "bytes") from None
        return cls._on("from_data", device, "quantized_from_data", blocks, dtype)

    @classmethod
    def _on(cls, op: str, device: object, method: str, *arguments: Any) -> Self:
        """Return the result of a device's method; errors name `op`."""
        if not isinstance(device, extensions.device_class):
            raise argument.wrong_type(op, "device", device, "Device")
        try:
            storage: Self = getattr(device, method)(*arguments)
        except TallowError as error:
            error.rename(op)
            raise
        return storage

    def __reduce__(self) -> tuple[Callable[..., Self], tuple[Any, ...]]:
        """Copy or pickle the blocks and the device, to which they return."""
        return type(self).from_data, (np.array(self.inner.data), self.device, self.dtype)

    def __repr__(self) -> str:
        return f"QStorage({self.length}, {self.dtype}, {extensions.device_class(self.inner.device).label})"

    @property
    def dtype(self) -> GgmlDType:
        """The format of the blocks."""
        return self.inner.dtype

    @property
    def length(self) -> int:
        """How many weights there are."""
        return self.inner.length

    @property
    def device(self) -> Device:
        """The device that holds the blocks."""
        device: Device = extensions.device_class(self.inner.device)
        return device

    def _new(self, inner: BackendStorage) -> Elements:
        storage: Elements = extensions.device_class._new(inner)
        return storage

    def _new_each(self, inners: Iterable[BackendStorage]) -> tuple[Elements, ...]:
        return tuple([self._new(inner) for inner in inners])

    @overload
    def _new_planned(
        self, key: Key, function: Op[P, Buffer | HostCall], *arguments: P.args, **options: P.kwargs
    ) -> Elements: ...

    @overload
    def _new_planned(
        self, key: Key, function: Callable[P, BackendStorage], *arguments: P.args, **options: P.kwargs
    ) -> Elements: ...

    def _new_planned(self, key: Key, function: Callable[..., Any], *arguments: Any, **options: Any) -> Elements:
        return self._new(self._planned(key, function, *arguments, **options))

    @overload
    def _new_each_planned(
        self, key: Key, function: Op[P, Sequence[Buffer] | HostCall], *arguments: P.args, **options: P.kwargs
    ) -> tuple[Elements, ...]: ...

    @overload
    def _new_each_planned(
        self, key: Key, function: Callable[P, Iterable[BackendStorage]], *arguments: P.args, **options: P.kwargs
    ) -> tuple[Elements, ...]: ...

    def _new_each_planned(
        self, key: Key, function: Callable[..., Any], *arguments: Any, **options: Any
    ) -> tuple[Elements, ...]:
        return self._new_each(self._planned(key, function, *arguments, **options))
