"""The backend object: a device as tensors use it, with modules of one's own, memory with a reserve, and launches."""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from ..backends.gpu_backend.driver.launch import Dim3, LaunchLimits
from ..backends.rocm_backend.hip.device import HipDevice, HipMemory
from ..backends.rocm_backend.hip.error import HipClosed, HipError
from ..backends.rocm_backend.hip.module import HipKernel, HipModule
from ..backends.rocm_backend.hip.objects import HipBuffer, HipEvent, HipStream
from ..base.error import InvalidArgument, OutOfMemory, ShapeMismatch, describe
from ..core.argument import integer, integers, real
from ..helpers.closing import Closing
from .tensor import DeviceTensor, require_device, rocm_device

Result = TypeVar("Result")

# What a single allocation may take of the memory that is free, in percent.
_SAFE_SHARE: Final = 70
# What a model leaves free of it, in percent and at least in bytes, for what its layers compute.
_RESERVED_SHARE: Final = 10
_MIN_RESERVED: Final = 100 << 20
# How long to wait before an operation is tried again, in seconds.
_FIRST_DELAY: Final = 0.010
_LONGEST_DELAY: Final = 1.0


class HipStatus(NamedTuple):
    """The properties and the state of a GPU; sizes are in bytes."""

    name: str
    target: str
    free: int
    total: int
    allocated: int
    """The bytes that tensors use."""
    cached: int
    """The bytes that are cached for the next tensors; they are freed if memory runs out."""
    busy: bool
    """Whether work of the stream is still to be done."""


class HipBackend(Closing):
    """A device as tensors use it: its stream, its memory, its kernels, and modules of one's own.

    All backends of one ordinal share the stream with the tensors of that device, so what they enqueue is in order.
    Closing waits for the stream, then unloads the backend's modules. Buffers, events and tensors belong to whoever
    created them. Raises what `HipDevice` raises, and `HipError` where the runtime refuses a call.
    """

    __slots__ = ("__weakref__", "_lock", "_modules", "_rocm", "closed", "device", "stream")

    def __init__(self, ordinal: int = 0) -> None:
        self._rocm = rocm_device(ordinal)
        driver = self._rocm.driver
        self.device = HipDevice(ordinal)
        self.stream = HipStream.wrap(self.device, int(driver.queue.own_handle))
        self.closed = False
        self._modules: dict[str, tuple[bytes, HipModule]] = {}
        self._lock = threading.Lock()

    def load_module(self, name: str | Path, image: bytes | None = None) -> HipModule:
        """Load a code object; the second call for the same one returns the loaded module.

        Without an image `name` is the path of a file, whose last part becomes the module's name. Raises what
        `HipModule` raises, `InvalidArgument` where the name is another code object's, `OSError` where a file can't be
        read.
        """
        if image is None:
            path = Path(name)
            name, image = path.name, path.read_bytes()
        name = str(name)
        with self._lock:
            self.require_open()
            if name not in self._modules:
                self._modules[name] = image, HipModule(self.device, image, name)
            loaded, module = self._modules[name]
            if loaded != image:
                raise InvalidArgument("HipBackend.load_module", f"another module is called {name!r}; use another name")
            return module

    def get_kernel(self, module: str, name: str, argument_size: int | None = None) -> HipKernel:
        """The kernel `name` of a module that was loaded, whose arguments are one struct of `argument_size` bytes.

        Without a size its parameters are passed one by one.
        Raises `InvalidArgument` where no module has that name, and what `HipModule.kernel` raises.
        """
        with self._lock:
            self.require_open()
            entry = self._modules.get(module)
        if entry is None:
            raise InvalidArgument("HipBackend.get_kernel", f"no module is called {module!r}; load it with load_module")
        return entry[1].kernel(name, argument_size)

    def launch(
        self,
        kernel: HipKernel,
        grid: Dim3,
        block: Dim3,
        arguments: bytes | Sequence[HipBuffer | DeviceTensor | ctypes._SimpleCData[Any]],
        shared_bytes: int = 0,
    ) -> None:
        """Enqueue a kernel in the backend's stream: see `HipKernel.launch`.

        `arguments` are the bytes of one struct, or one value for each parameter: numbers of ctypes, which have the type
        of the parameter, and buffers and tensors, whose addresses are taken. `InvalidArgument` for others.
        """
        packed = arguments if isinstance(arguments, bytes) else tuple([_parameter(value) for value in arguments])
        kernel.launch(grid, block, packed, self.stream, shared_bytes)

    def copy_to_device(self, buffer: HipBuffer, source: Any) -> None:
        """Copy all bytes of a buffer or array of the host, which is C-contiguous, in the backend's stream; it waits."""
        buffer.copy_from_host(source, stream=self.stream)

    def copy_from_device(self, buffer: HipBuffer, destination: Any) -> None:
        """Fill a writable buffer or array of the host, after what is in the backend's stream; it waits."""
        buffer.copy_to_host(destination, stream=self.stream)

    @property
    def limits(self) -> LaunchLimits:
        """The most that launches on the device may have."""
        return self.device.properties.limits

    def validate_launch_config(self, grid: Dim3, block: Dim3, shared_bytes: int = 0) -> None:
        """Raise `InvalidArgument` for a launch that is more than the device's limits; a kernel may allow less."""
        operation = "HipBackend.validate_launch_config"
        grid, block = integers(operation, "grid", grid, 3), integers(operation, "block", block, 3)
        reason = self.limits.refusal(grid, block, integer(operation, "shared_bytes", shared_bytes))
        if reason:
            raise InvalidArgument(operation, reason)

    def buffer(self, nbytes: int) -> HipBuffer:
        """A new allocation of uninitialised bytes."""
        return HipBuffer(self.device, nbytes)

    def event(self, *, timing: bool = True) -> HipEvent:
        """A new event; it marks nothing until it is recorded."""
        return HipEvent(self.device, timing=timing)

    def memory_info(self) -> HipMemory:
        """The device's free and total memory at this moment, in bytes; what tallow has cached is not free."""
        return self.device.memory()

    def safe_alloc_size(self) -> int:
        """How many bytes a single allocation may take at this moment: 70 % of those that are free."""
        return self.memory_info().free * _SAFE_SHARE // 100

    def can_allocate(self, nbytes: int) -> bool:
        """Whether an allocation takes at most 70 % of the memory that is free."""
        return _size("HipBackend.can_allocate", nbytes) <= self.safe_alloc_size()

    def allocate_buffer_safe(self, nbytes: int) -> HipBuffer:
        """A new allocation of uninitialised bytes, of at most 70 % of the free memory; else `OutOfMemory`."""
        size = _size("HipBackend.allocate_buffer_safe", nbytes)
        self._require_memory(size, self.safe_alloc_size, "at most 70 % of the free memory at once")
        try:
            return self.buffer(size)
        except HipError as error:
            if error.out_of_memory:
                raise OutOfMemory(self.device.label, size) from error
            raise

    def check_memory_for_model(self, nbytes: int) -> None:
        """Raise `OutOfMemory` where `nbytes` would leave less than 10 % of the free memory, or than 100 MiB."""
        size = _size("HipBackend.check_memory_for_model", nbytes)
        self._require_memory(size, self._room_for_model, "with 10 % of the free memory, at least 100 MiB, in reserve")

    def _room_for_model(self) -> int:
        free = self.memory_info().free
        return max(0, free - max(free * _RESERVED_SHARE // 100, _MIN_RESERVED))

    def _require_memory(self, nbytes: int, available: Callable[[], int], condition: str) -> None:
        if nbytes <= available():
            return
        # What tensors no longer need.
        self._rocm.allocator.empty_cache()
        available_bytes = available()
        if nbytes > available_bytes:
            raise OutOfMemory(self.device.label, nbytes, f"there are {available_bytes}, {condition}")

    def gpu_status(self) -> HipStatus:
        """The properties of the device, its memory at this moment, and whether it is busy."""
        memory, statistics, properties = self.memory_info(), self._rocm.allocator.statistics(), self.device.properties
        busy = not self.stream.query()
        return HipStatus(properties.name, properties.target, *memory, statistics.allocated, statistics.cached, busy)

    def retry_operation(self, operation: Callable[[], Result], retries: int = 3) -> Result:
        """Return `operation()`; after a `HipError` call it again, up to `retries` times.

        Before that it waits 10 ms, then twice as long each time, up to 1 s. A permanent error is raised at once, as is
        any other; the last one is raised where all calls fail.
        """
        delay = _FIRST_DELAY
        for _ in range(_size("HipBackend.retry_operation", retries, "retries")):
            try:
                return operation()
            except HipError as error:
                if error.permanent:
                    raise
            time.sleep(delay)
            delay = min(2 * delay, _LONGEST_DELAY)
        return operation()

    def add_inplace(self, x: DeviceTensor, y: DeviceTensor) -> None:
        """Add `y`, of the same shape (`ShapeMismatch`), to `x`."""
        require_device("HipBackend.add_inplace", self.device, x, y)
        if x.shape != y.shape:
            raise ShapeMismatch("HipBackend.add_inplace", (x.shape, y.shape), "give tensors of one shape")
        x.to_tensor().add_(y.to_tensor())

    def scale_inplace(self, x: DeviceTensor, factor: float) -> None:
        """Multiply `x` by a number, rounded to f32 first."""
        require_device("HipBackend.scale_inplace", self.device, x)
        x.to_tensor().mul_(real("HipBackend.scale_inplace", "factor", factor))

    def add_row_bias(self, x: DeviceTensor, bias: DeviceTensor) -> None:
        """Add `bias`, of shape (cols) or (1, cols), to each row of `x`, of shape (rows, cols); else `ShapeMismatch`."""
        operation = "HipBackend.add_row_bias"
        require_device(operation, self.device, x, bias)
        if len(x.shape) != 2 or bias.shape not in ((x.shape[1],), (1, x.shape[1])):
            raise ShapeMismatch(operation, (x.shape, bias.shape), "give (rows, cols), and (cols) or (1, cols)")
        x.to_tensor().add_(bias.to_tensor())

    def layernorm(
        self, x: DeviceTensor, weight: DeviceTensor, bias: DeviceTensor | None = None, eps: float = 1e-5
    ) -> DeviceTensor:
        """Rows of `x`, (..., cols), less their mean, over their standard deviation, times `weight` plus `bias`, (cols).

        `eps` is added to the variance. A new tensor, composed of tallow's ops, several launches; `ShapeMismatch` for
        other shapes.
        """
        operation, factors = "HipBackend.layernorm", (weight,) if bias is None else (weight, bias)
        require_device(operation, self.device, x, *factors)
        for factor in factors:
            if factor.shape != x.shape[-1:] or not x.shape:
                raise ShapeMismatch(
                    operation, (x.shape, factor.shape), "weight and bias have one number for each column"
                )
        epsilon = real(operation, "eps", eps)
        rows = x.to_tensor()
        centered = rows.sub(rows.mean(-1, keepdim=True))
        variance = centered.sqr().mean(-1, keepdim=True)
        result = centered.div(variance.add(epsilon).sqrt()).mul(weight.to_tensor())
        return DeviceTensor.from_tensor(result if bias is None else result.add(bias.to_tensor()))

    def mlp_swiglu(self, x: DeviceTensor, gate: DeviceTensor, up: DeviceTensor, down: DeviceTensor) -> DeviceTensor:
        """(silu(x @ gate.T) * (x @ up.T)) @ down.T, the feed-forward block of Llama.

        Weights are as files have them, a row for each output: `x` is (rows, cols), `gate` and `up` are (inner, cols),
        `down` is (cols out, inner). Products are hipBLAS's where it is there. A new tensor; `ShapeMismatch` for other
        shapes.
        """
        operation = "HipBackend.mlp_swiglu"
        require_device(operation, self.device, x, gate, up, down)
        shapes = x.shape, gate.shape, up.shape, down.shape
        if not (all(len(shape) == 2 for shape in shapes) and gate.shape == up.shape == (down.shape[1], x.shape[1])):
            raise ShapeMismatch(operation, shapes, "give (rows, cols), twice (inner, cols), and (cols out, inner)")
        rows = x.to_tensor()
        inner = rows.matmul(gate.to_tensor().t()).silu().mul(rows.matmul(up.to_tensor().t()))
        return DeviceTensor.from_tensor(inner.matmul(down.to_tensor().t()))

    def synchronize(self) -> None:
        """Wait until everything enqueued in the backend's stream is done; errors of kernels come up here."""
        self.stream.synchronize()

    def close(self) -> None:
        """Wait for the stream and unload the modules; nothing happens to what is closed already.

        Raises `HipError` when the runtime does; the next call tries what is left.
        """
        with self._lock, contextlib.ExitStack() as cleanup:
            self.closed = True
            cleanup.callback(self.stream.close)
            for _, module in self._modules.values():
                cleanup.callback(module.close)
            if not self.stream.closed:
                self.stream.synchronize()

    def require_open(self) -> None:
        """Raise `HipClosed` after `close`."""
        if self.closed:
            raise HipClosed(repr(self))

    def __repr__(self) -> str:
        return f"<HipBackend on {self.device.label}>"


def synchronize_device(device: HipDevice | int = 0) -> None:
    """Wait until everything enqueued on a device, in any stream and by any library, is done."""
    (device if isinstance(device, HipDevice) else HipDevice(device)).synchronize()


def _size(operation: str, value: int, name: str = "nbytes") -> int:
    size = integer(operation, name, value)
    if size < 0:
        raise InvalidArgument(operation, f"{name} must be 0 or more, not {size}")
    return size


def _parameter(value: object) -> bytes:
    """The bytes of a parameter of a kernel."""
    if isinstance(value, HipBuffer | DeviceTensor):
        return value.address.to_bytes(ctypes.sizeof(ctypes.c_void_p), sys.byteorder)
    if isinstance(value, ctypes._SimpleCData):
        return bytes(value)
    reason = f"{describe(value)} has no type of C; give numbers of ctypes, such as c_float(2), buffers and tensors"
    raise InvalidArgument("HipBackend.launch", reason)
