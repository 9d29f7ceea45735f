"""Code objects that are loaded on a device, and the launches of their kernels."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any, Final
from weakref import WeakValueDictionary

from ....base.error import InvalidArgument
from . import slow_path
from .device import Device
from .elf import require_complete
from .error import InvalidKernel
from .launch import Dim3, Function, Launcher, LaunchLimits
from .protocols import StreamHandle
from .resource import Resource

waiting_kernels: Final[WeakValueDictionary[int, Kernel]] = WeakValueDictionary()
"""By the address of its function each kernel that waits for the one in front of it: see kernels/platform.hpp."""


class Module(Resource):
    """A code object, loaded on a device; `name` is how errors call it.

    Raises InvalidArgument for one that is cut short, DriverError for one that the device cannot run.
    """

    __slots__ = ("_code", "_handle", "device", "name")

    def __init__(self, device: Device, code: bytes, name: str = "module") -> None:
        require_complete(type(self).__name__, name, code)
        self.device = device
        self.name = name
        # Drivers take no size and may read on from it when a kernel is first looked up.
        self._code = code
        with device.activated():
            self._handle = device.calls.load(code, f"{name} on {device.label}")
            self._own(partial(device.call_in_context, about=name), device.calls.unload, self._handle)

    def function(
        self, name: str, queue: StreamHandle, block: int, argument_size: int, shared_bytes: int = 0
    ) -> Function:
        """Return a function that enqueues a kernel with `block` threads a block; its struct has `argument_size` bytes.

        NVIDIA gives a block more than 48 KiB of shared memory only at a launch: there, the kernel gets `shared_bytes`,
        or as many as the device has. Elsewhere kernels declare all that they need.

        Raises InvalidKernel where the module does not have it. What is returned raises InvalidArgument for a struct of
        another size.
        """
        return Kernel(self, name, queue, block, argument_size, shared_bytes).enqueue

    def cooperative_function(
        self, name: str, queue: StreamHandle, block: int, argument_size: int, shared_bytes: int = 0
    ) -> Function:
        """Return such a function for blocks that wait for each other, at most `concurrent_blocks` in a launch."""
        return Kernel(self, name, queue, block, argument_size, shared_bytes, is_cooperative=True).enqueue_together

    def launcher(self, name: str, queue: StreamHandle) -> Launcher:
        """Return the launcher of a kernel of any parameters in a stream; InvalidKernel where there is none.

        The kernel may have as much dynamic shared memory as the device lets it ask for.
        """
        calls, function = self.device.calls, self.handle_of(name)
        limits = self.limits_of(function, name)

        def call_again(status: Any, grid: Dim3, block: Dim3, shared_bytes: int, parameters: Any) -> None:
            launch = function, *grid, *block, shared_bytes, queue.handle, parameters, calls.launch_extra
            launch_again(status, self, name, launch)

        return Launcher(
            limits=limits,
            parameter_sizes=self._parameter_sizes(function),
            call=calls.launch,
            function=function,
            stream=queue.own_handle,
            extra=calls.launch_extra,
            parameters=calls.parameters_at,
            call_again=call_again,
        )

    def limits_of(self, function: Any, name: str) -> LaunchLimits:
        """The most that launches of a kernel may have."""
        calls, device = self.device.calls, self.device
        with device.activated():
            shared_bytes = max(calls.dynamic_shared(function, device.fact("max_shared"), name), 0)
            return LaunchLimits(
                threads=int(calls.max_threads(function, name)),
                block=device.fact("max_block"),
                grid=device.fact("max_grid"),
                shared_bytes=self._allow_shared(function, name, shared_bytes),
                along_dim=calls.MAX_THREADS_ALONG_DIM or sys.maxsize,
            )

    def _allow_shared(self, function: Any, name: str, shared_bytes: int) -> int:
        """Let launches of a kernel have so much dynamic shared memory, or what the device has; return the bytes."""
        allow = self.device.calls.allow_shared
        if shared_bytes and allow is not None:
            shared_bytes = min(shared_bytes, self.device.fact("max_shared"))
            self.device.call(allow, function, shared_bytes, about=name)
        return shared_bytes

    def handle_of(self, name: str) -> Any:
        """The driver's function of a kernel; InvalidKernel where the module does not have it."""
        if not self._handles:
            self.require_open()
        about = f"{name} of {self.name} on {self.device.label}"
        function = self.device.call(self.device.calls.function, self._handle, name, about=about)
        if function is None:
            raise InvalidKernel(name, f"{self.name} does not have it; build that again")
        return function

    def _parameter_sizes(self, function: Any) -> tuple[int, ...] | None:
        """Return the bytes of each parameter; None where the driver does not report them."""
        sizes: list[int] = []
        parameter = self.device.calls.parameter
        while parameter is not None:
            try:
                layout = parameter(function, len(sizes))
            # The error of bindings where a driver is too old to have the function.
            except RuntimeError:
                return None
            if layout is None:
                return tuple(sizes)
            sizes.append(int(layout[1]))
        return None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} on {self.device.label}>"


class Kernel:
    """A kernel that is launched in one dim and one stream, with one block size."""

    __slots__ = (
        "__weakref__",
        "_argument_size",
        "_block",
        "_extra",
        "_function",
        "_launch",
        "_name",
        "_parameters",
        "_queue",
        "_shared_bytes",
        "_stream",
        "module",
    )

    def __init__(
        self,
        module: Module,
        name: str,
        queue: StreamHandle,
        block: int,
        argument_size: int,
        shared_bytes: int,
        is_cooperative: bool = False,
    ) -> None:
        calls = module.device.calls
        self.module = module
        self._function = module.handle_of(name)
        # The blocks of a cooperative launch begin together.
        if calls.prepare is not None and not is_cooperative:
            waiting_kernels[int(self._function)] = self
        self._name = name
        self._queue = queue
        self._stream = queue.own_handle
        self._block = block
        self._argument_size = argument_size
        self._shared_bytes = (
            0 if calls.allow_shared is None else module._allow_shared(self._function, name, shared_bytes)
        )
        self._launch = calls.launch_cooperative if is_cooperative else calls.launch
        self._parameters = calls.parameters
        self._extra = calls.launch_extra

    def enqueue(self, blocks: int, arguments: bytes) -> None:
        """Launch `blocks` > 0 blocks with the packed bytes of the kernel's struct; they are copied before it returns.

        Raises InvalidArgument for bytes of another number than the struct has, DriverError where the driver refuses.
        """
        if len(arguments) != self._argument_size:
            raise self._wrong_size(arguments)
        stream = self._queue.handle if slow_path.required else self._stream
        (status,) = self._launch(
            self._function, blocks, 1, 1, self._block, 1, 1, self._shared_bytes, stream, self._parameters(arguments),
            self._extra,
        )  # fmt: skip
        if status:
            self._again(status, blocks, arguments, self._extra)

    def enqueue_together(self, blocks: int, arguments: bytes) -> None:
        """Enqueue blocks that wait for each other: a launch is refused if not all of them can run at once."""
        if len(arguments) != self._argument_size:
            raise self._wrong_size(arguments)
        self._again(*self._launch(*self._launch_of(blocks, arguments)), blocks, arguments)

    def _launch_of(self, blocks: int, arguments: bytes) -> tuple[Any, ...]:
        parameters = self._parameters(arguments)
        grid, block = (blocks, 1, 1), (self._block, 1, 1)
        return self._function, *grid, *block, self._shared_bytes, self._queue.handle, parameters

    def _again(self, status: Any, blocks: int, arguments: bytes, *extra: Any) -> None:
        if status:
            launch = (*self._launch_of(blocks, arguments), *extra)
            launch_again(status, self.module, self._name, launch, is_cooperative=not extra)

    def _wrong_size(self, arguments: bytes) -> InvalidArgument:
        reason = f"its arguments are {self._argument_size} bytes, not {len(arguments)}"
        return InvalidArgument(f"launch of {self._name}", reason)


def launch_again(
    status: Any, module: Module, name: str, launch: tuple[Any, ...], *, is_cooperative: bool = False
) -> None:
    """Launch once more after `status` where the device was not current; else raise DriverError."""
    # Trying first costs nothing where it is; asking before every launch would cost a third of it.
    device, calls = module.device, module.device.calls
    call, function = calls.LAUNCH, calls.launch
    if is_cooperative:
        call, function = calls.LAUNCH_COOPERATIVE, calls.launch_cooperative
    if not device.is_current():
        calls.forget_error()
        with device.activated():
            (status,) = function(*launch)
    calls.checked(call, (status,), f"{name} on {device.label}")
