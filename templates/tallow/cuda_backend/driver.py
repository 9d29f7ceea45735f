"""What the backend needs of a device, over the CUDA driver. Imports cuda-python."""

from __future__ import annotations

import contextlib
from typing import Any, Final, TypeAlias

from ..error import TallowError
from .kernels import Nvrtc
from .context import Context
from ..gpu_backend.gpu_driver import Direction, Function, GpuDriver
from .module import CudaKernel, CudaModule
from ..gpu_backend.release import release_with
from .result import check, cuda, start_driver

Module: TypeAlias = CudaModule

# Handles that stand for no object: the default stream of all threads, which others also write as 0.
_LEGACY_STREAM: Final = 1


def device_count() -> int:
    """How many devices there are; 0 where the driver or devices are missing."""
    try:
        start_driver()
        return int(check("cuDeviceGetCount", cuda.cuDeviceGetCount()))
    except TallowError:
        return 0


def runtime_version() -> str:
    """The newest CUDA that the driver serves, such as 13.0; BackendUnavailable where there is no driver."""
    start_driver()
    version = int(check("cuDriverGetVersion", cuda.cuDriverGetVersion()))
    return f"{version // 1000}.{version % 1000 // 10}"


class Driver(GpuDriver[Module]):
    """A device over the CUDA driver, in its primary context. What CUDA refuses raises CudaError.

    The stream is one of its own, made with CU_STREAM_NON_BLOCKING. In `wait_for` and `let_wait`, 0 and 1 are CUDA's
    legacy default stream and 2 is the default stream of the calling thread.
    """

    def __init__(self, ordinal: int) -> None:
        super().__init__()
        context = Context(ordinal)
        held = _Held(context)
        release_with(self, held.release)
        self.context = context
        self._held = held
        self._stream = held.stream
        self.label = context.label
        self.name = context.name
        major, minor = (context.attribute(f"COMPUTE_CAPABILITY_{part}") for part in ("MAJOR", "MINOR"))
        self.target = f"sm_{major}{minor}"
        self.wave_size = context.attribute("WARP_SIZE")
        self.multiprocessors = context.attribute("MULTIPROCESSOR_COUNT")
        self.stream = int(held.stream)
        self.compiler = Nvrtc()

    def _allocate(self, nbytes: int) -> int:
        with self.context.activated():
            address = int(check("cuMemAlloc", cuda.cuMemAlloc(nbytes), f"{nbytes} bytes on {self.label}"))
        self._held.addresses.add(address)
        return address

    def free(self, address: int) -> None:
        with self.context.activated():
            check("cuMemFree", cuda.cuMemFree(address), self.label)
        self._held.addresses.remove(address)

    def memory_info(self) -> tuple[int, int]:
        with self.context.activated():
            free, total = check("cuMemGetInfo", cuda.cuMemGetInfo(), self.label)
        return int(free), int(total)

    def _copy(self, target: int, origin: int, nbytes: int, direction: Direction) -> None:
        with self.context.activated():
            if direction is Direction.TO_DEVICE:
                copied = cuda.cuMemcpyHtoDAsync(target, origin, nbytes, self._stream)
            elif direction is Direction.TO_HOST:
                copied = cuda.cuMemcpyDtoHAsync(target, origin, nbytes, self._stream)
            else:
                copied = cuda.cuMemcpyDtoDAsync(target, origin, nbytes, self._stream)
        check("cuMemcpyAsync", copied, f"{direction.name.lower().replace('_', ' ')} of {self.label}")

    def fill_bytes(self, address: int, value: int, nbytes: int) -> None:
        if nbytes:
            with self.context.activated():
                filled = cuda.cuMemsetD8Async(address, value, nbytes, self._stream)
            check("cuMemsetD8Async", filled, self.label)

    def load(self, code: bytes, name: str) -> Module:
        module = CudaModule(self.context, code, name)
        self._held.modules.append(module)
        return module

    def function(self, module: Module, name: str, block: int, argument_size: int) -> Function:
        return CudaKernel(module, name, self._stream, block, argument_size).enqueue

    def synchronize(self) -> None:
        with self.context.activated():
            check("cuStreamSynchronize", cuda.cuStreamSynchronize(self._stream), self.label)

    def synchronize_device(self) -> None:
        with self.context.activated():
            check("cuCtxSynchronize", cuda.cuCtxSynchronize(), self.label)

    def _new_event(self) -> Any:
        with self.context.activated():
            event = check("cuEventCreate", cuda.cuEventCreate(cuda.CUevent_flags.CU_EVENT_DISABLE_TIMING), self.label)
        self._held.events.append(event)
        return event

    def _order_by(self, event: Any, first: int, second: int) -> None:
        waiting = cuda.CUstream(second or _LEGACY_STREAM)
        with self.context.activated():
            check("cuEventRecord", cuda.cuEventRecord(event, cuda.CUstream(first or _LEGACY_STREAM)), self.label)
            check("cuStreamWaitEvent", cuda.cuStreamWaitEvent(waiting, event, 0), self.label)


class _Held:
    """What a driver has of its device."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.addresses: set[int] = set()
        self.modules: list[CudaModule] = []
        self.events: list[Any] = []
        try:
            with context.activated():
                created = cuda.cuStreamCreate(cuda.CUstream_flags.CU_STREAM_NON_BLOCKING)
            self.stream = check("cuStreamCreate", created, context.label)
        except BaseException:
            context.release()
            raise

    def release(self) -> None:
        """Wait for the stream and give everything back, all of it even where the device is lost."""
        with contextlib.ExitStack() as cleanup:
            cleanup.callback(self.context.release)
            cleanup.enter_context(self.context.activated())
            cleanup.callback(_give_back, "cuStreamDestroy", self.stream)
            for event in self.events:
                cleanup.callback(_give_back, "cuEventDestroy", event)
            for module in self.modules:
                cleanup.callback(module.unload)
            for address in self.addresses:
                cleanup.callback(_give_back, "cuMemFree", address)
            check("cuStreamSynchronize", cuda.cuStreamSynchronize(self.stream))


def _give_back(call: str, handle: Any) -> None:
    check(call, getattr(cuda, call)(handle))
