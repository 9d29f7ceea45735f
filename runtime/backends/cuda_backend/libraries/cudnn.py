"""Convolution and attention by cuDNN, through nvidia-cudnn-frontend."""

from __future__ import annotations

import ctypes
import sysconfig
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from .....dtype import DType
from .....kernels.constants import ACCESS_BYTES
from ....base.error import OutOfMemory
from ....core.conv import ParamsConvolution
from ....program.program import LibraryCall
from ....program.values import Address, alignment_of
from ...gpu_backend.driver import capture
from ...gpu_backend.driver.device import Device, destroy_handle
from ...gpu_backend.driver.error import LibraryError
from ...gpu_backend.driver.resource import release_with
from ...gpu_backend.libraries.library import (
    AttentionGradientParams,
    AttentionParams,
    ConvolutionKind,
    EpilogueParams,
    StreamLibrary,
)
from ...gpu_backend.memory.allocator import Slice
from . import cudnn_graphs
from .cudnn_graphs import Plan

if TYPE_CHECKING:
    from ...gpu_backend.driver.gpu_driver import GpuDriver
    from ...gpu_backend.driver.stream import Stream
    from ...gpu_backend.memory.allocator import CachingAllocator

_ADVICE: Final = (
    "tallow needs cuDNN 9 of the CUDA that cuda-python is for; without it, it uses cuBLAS and its own kernels"
)

Params = ParamsConvolution | tuple[ParamsConvolution, EpilogueParams] | AttentionParams | AttentionGradientParams
_GRAPHS: Final[dict[str | ConvolutionKind, Callable[..., Plan | None]]] = {
    **{kind: partial(cudnn_graphs.convolution, kind) for kind in ConvolutionKind},
    "fused_convolution": cudnn_graphs.fused_convolution,
    "attention": cudnn_graphs.attention,
    "attention_with_logsumexp": cudnn_graphs.attention_with_logsumexp,
    "attention_gradient": cudnn_graphs.attention_gradient,
}
_FILE: Final = "libcudnn.so.9"
# A plan takes milliseconds to make, and memory to keep.
_MAX_PLANS: Final = 256


class CuDnn(StreamLibrary):
    """A handle of cuDNN: see `library.Convolution` and `Attention`."""

    needs = "libcudnn 9 and the module cudnn: pip install nvidia-cudnn-frontend nvidia-cudnn-cu13"

    @classmethod
    def open(cls, driver: GpuDriver, allocator: CachingAllocator) -> Self | None:
        """CuDNN on the stream of a driver; None where its frontend or the library is missing."""
        try:
            _load_library()
            import cudnn

            cudnn.backend_version()
        # The frontend raises a RuntimeError where it does not find the library.
        except (ImportError, OSError, RuntimeError):
            return None
        return cls(cudnn, driver.device, driver.queue, allocator)

    def __init__(self, library: Any, device: Device, stream: Stream, allocator: CachingAllocator) -> None:
        super().__init__(device, stream)
        self._library = library
        self._allocator = allocator
        # None of those that cuDNN does not take, or only with an algorithm that is refused.
        self._plans: dict[tuple[str | ConvolutionKind, DType, Params], Plan | None] = {}
        with device.activated():
            handle = self._handle = self._call("create_handle", library.create_handle)
            release_with(self, destroy_handle, library.destroy_handle, device, handle)
            self._set_stream(stream.handle)

    def convolution(
        self, kind: ConvolutionKind, dtype: DType, params: ParamsConvolution, *addresses: Address
    ) -> LibraryCall | None:  # fmt: skip
        """A convolution or a gradient of it. cuDNN chooses an algorithm without trying: the same one on every run."""
        return self._library_call(kind, dtype, params, *addresses)

    def fused_convolution(
        self, dtype: DType, params: ParamsConvolution, epilogue: EpilogueParams, *addresses: Address
    ) -> LibraryCall | None:
        """A convolution with its epilogue."""
        return self._library_call(
            "fused_convolution", dtype, (params, epilogue), *addresses, enqueue=self._enqueue_apart
        )

    def attention(self, dtype: DType, params: AttentionParams, *addresses: Address) -> LibraryCall | None:
        """Scaled dot product attention."""
        return self._library_call("attention", dtype, params, *addresses)

    def attention_with_logsumexp(
        self, dtype: DType, params: AttentionParams, *addresses: Address
    ) -> LibraryCall | None:
        """The attention, and the logarithms of the sums that weights are divided by."""
        return self._library_call("attention_with_logsumexp", dtype, params, *addresses)

    def attention_gradient(
        self, dtype: DType, params: AttentionGradientParams, *addresses: Address
    ) -> LibraryCall | None:
        """The gradients of scaled dot product attention."""
        return self._library_call("attention_gradient", dtype, params, *addresses)

    def leave(self) -> None:
        # nanobind, which binds the frontend, writes pages about objects that it finds at the end.
        with self._lock:
            self._plans.clear()
            self._library = None

    def _library_call(
        self,
        name: str | ConvolutionKind,
        dtype: DType,
        params: Params,
        *addresses: Address,
        enqueue: Callable[..., bool] | None = None,
    ) -> LibraryCall | None:
        if alignment_of(*addresses) < ACCESS_BYTES:
            return None
        with self._lock, self._device.activated():
            plan = self._plan(name, dtype, params)
        return None if plan is None else LibraryCall(enqueue or self._enqueue, (plan, *addresses))

    def _enqueue(self, plan: Plan, *addresses: int) -> bool:
        try:
            # The next owner of the workspace works after this in the stream.
            workspace = Slice(self._allocator, plan.nbytes) if plan.nbytes else None
        except OutOfMemory:
            return False
        with self._lock, self._device.activated():
            call = "execute", plan.enqueue, addresses, 0 if workspace is None else workspace.address
            capture.enqueue(self._queue, self._set_stream, self._call, *call)
        return True

    def _enqueue_apart(self, plan: Plan, *addresses: int) -> bool:
        """Enqueue a kernel that may begin before the one in front of it has ended, and reads before it waits.

        Kernels of this package let the next one begin early. In a stream a memset, here of the first byte of the
        result, comes between; graphs have other dependencies: see `graph._set_dependencies`.
        """
        if self._queue.handle is self._queue.own_handle:
            self._queue.fill(addresses[-1], 0, 1)
        return self._enqueue(plan, *addresses)

    def _set_stream(self, stream: Any) -> None:
        self._call("set_stream", self._library.set_stream, handle=self._handle, stream=int(stream))

    def _plan(self, name: str | ConvolutionKind, dtype: DType, params: Params) -> Plan | None:
        if self._library is None:
            return None
        key = name, dtype, params
        if key not in self._plans:
            if len(self._plans) == _MAX_PLANS:
                del self._plans[next(iter(self._plans))]
            self._plans[key] = self._call("graph", self._new_plan, _GRAPHS[name], dtype, params)
        return self._plans[key]

    def _new_plan(self, graph: Callable[..., Plan | None], dtype: DType, params: Params) -> Plan | None:
        try:
            return graph(self._library, self._handle, dtype, params)
        # A frontend that lacks one of these calls is of another kind than this one.
        except (self._library.cudnnGraphNotSupportedError, AttributeError):
            return None

    def _call(self, name: str, function: Any, *arguments: Any, **options: Any) -> Any:
        try:
            return function(*arguments, **options)
        # What the frontend raises of its own are these.
        except (RuntimeError, ValueError) as error:
            raise LibraryError(f"cudnn {name}", str(error), _ADVICE) from error


def _load_library() -> None:
    """Load cuDNN from where the frontend does not look: another folder of packages than the interpreter's own."""
    if Path(sysconfig.get_path("purelib"), "nvidia", "cudnn", "lib", _FILE).exists():
        return
    try:
        ctypes.CDLL(_FILE)
    except OSError:
        # A RuntimeError says that there is none.
        with suppress(ImportError, RuntimeError):
            from cuda.pathfinder import load_nvidia_dynamic_lib

            load_nvidia_dynamic_lib("cudnn")
