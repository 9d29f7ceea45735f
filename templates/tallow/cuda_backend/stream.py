"""The queue in which a device does its work in order."""

from __future__ import annotations

import contextlib
from typing import Any

from .context import Context
from .error import Closed
from .result import check, cuda


class CudaStream:
    """A stream that runs beside the default streams of its device, until `destroy`."""

    __slots__ = ("_context", "_handle", "open_handle")

    open_handle: Any
    """`handle` for those who launch often: gone after `stop`, which costs nothing where asking would."""

    def __init__(self, context: Context) -> None:
        self._context = context
        with context.activated():
            created = cuda.cuStreamCreate(cuda.CUstream_flags.CU_STREAM_NON_BLOCKING)
            self.open_handle = self._handle = check("cuStreamCreate", created, context.label)

    @property
    def handle(self) -> Any:
        """cuda-python's stream; Closed after `stop`."""
        self.require_open()
        return self._handle

    def require_open(self) -> None:
        """Raise Closed after `stop`."""
        if not hasattr(self, "open_handle"):
            raise Closed(repr(self))

    def synchronize(self) -> None:
        """Wait until everything enqueued is done; errors of kernels come up here."""
        with self._context.activated():
            check("cuStreamSynchronize", cuda.cuStreamSynchronize(self.handle), self._context.label)

    def stop(self) -> None:
        """Let nobody enqueue anything from now on."""
        with contextlib.suppress(AttributeError):
            del self.open_handle

    def drain(self) -> None:
        """Stop, and wait until what was enqueued is done."""
        self.stop()
        check("cuStreamSynchronize", cuda.cuStreamSynchronize(self._handle))

    def destroy(self) -> None:
        """Give the stream back."""
        check("cuStreamDestroy", cuda.cuStreamDestroy(self._handle))

    def __repr__(self) -> str:
        return f"<CudaStream on {self._context.label}>"
