"""What the methods of weights in blocks share: the blocks of one backend, and the storages that they make."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec

from .. import argument
from ..backend import BackendBlocks, BackendStorage
from ..backends import AnyQStorage
from ..ggml_dtype import GgmlDType
from .base import StorageBase
from .planned import Key, Plans

if TYPE_CHECKING:
    from ..device import Device
    from . import Storage

P = ParamSpec("P")


class QStorageBase(Plans):
    """Weights in blocks on a device: `inner` is what the device's backend has for them."""

    __slots__ = ("inner",)

    inner: AnyQStorage

    def __init__(self, inner: BackendBlocks) -> None:
        if not isinstance(inner, BackendBlocks):
            raise argument.wrong_type("QStorage", "inner", inner, "BackendBlocks")
        # The functions of each backend make blocks of its own class.
        self.inner = inner  # type: ignore[assignment]

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
        device: Device = StorageBase.device_class(self.inner.device)
        return device

    def _new(self, inner: Any) -> Storage:
        storage: Storage = StorageBase.device_class._new(inner)
        return storage

    def _planned(
        self, key: Key, function: Callable[P, BackendStorage], *arguments: P.args, **options: P.kwargs
    ) -> Storage:
        """What a function of a backend makes: see `BackendDevice.planned`."""
        return self._new(self._plan(key, function, arguments, options))

    def _attempt_planned(
        self, key: Key, function: Callable[P, BackendStorage | None], *arguments: P.args, **options: P.kwargs
    ) -> Storage | None:
        inner = self._plan(key, function, arguments, options)
        return None if inner is None else self._new(inner)
