"""Modules and kernels: code objects loaded on a device, and launches checked before the runtime sees them."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import ClassVar

from .....drivers import rocm as calls
from ....base.error import DeviceMismatch, InvalidArgument
from ...gpu_backend.driver.device import Device
from ...gpu_backend.driver.launch import Dim3
from ...gpu_backend.driver.module import Module, launch_again
from ...gpu_backend.driver.stream import Stream
from .error import HipClosed


class HipModule(Module):
    """A code object, loaded on a device.

    `image` is an ELF or a bundle of them, as hipcc and hiprtc make it. `name` is how errors call it. Raises
    `InvalidArgument` for an image that is empty or cut short, `HipError` for one that the device can't run.
    """

    __slots__ = ("_kernels", "_lock")

    closed_error: ClassVar = HipClosed

    def __init__(self, device: Device, image: bytes, name: str = "module") -> None:
        super().__init__(device, image, name)
        self._kernels: dict[str, HipKernel] = {}
        self._lock = threading.Lock()

    @classmethod
    def from_file(cls, device: Device, path: Path | str) -> HipModule:
        """Load a file, whose name becomes the module's; `OSError` when it can't be read."""
        path = Path(path)
        return cls(device, path.read_bytes(), path.name)

    def kernel(self, name: str, argument_size: int | None) -> HipKernel:
        """The kernel of this name, looked up once; its arguments are one struct of `argument_size` bytes.

        None for a kernel of other parameters, which are passed one by one.

        Raises `InvalidKernel` when there is none, `InvalidArgument` if it was looked up before with another size.
        """
        self.require_open()
        with self._lock:
            kernel = self._kernels.get(name)
            if kernel is None:
                kernel = self._kernels[name] = HipKernel(self, name, argument_size)
        if kernel.argument_size != argument_size:
            reason = f"{name} takes {kernel.argument_size} bytes of arguments, not {argument_size}"
            raise InvalidArgument("HipModule.kernel", reason)
        return kernel


class HipKernel:
    """A kernel of a loaded module, which it keeps loaded; `HipModule.kernel` makes it.

    `limits` are those of a launch: of the largest block that it was compiled for, and of the bytes of shared memory
    that each block can have on top of what the kernel declares.
    """

    __slots__ = ("_function", "argument_size", "limits", "module", "name")

    def __init__(self, module: HipModule, name: str, argument_size: int | None) -> None:
        self.module = module
        self.name = name
        self.argument_size = argument_size
        self._function = module.handle_of(name)
        self.limits = module.limits_of(self._function, name)

    def launch(
        self, grid: Dim3, block: Dim3, arguments: bytes | tuple[bytes, ...], stream: Stream, shared_memory: int = 0
    ) -> None:
        """Enqueue `grid` blocks of `block` threads in `stream`.

        `arguments` is the packed struct that the kernel takes, or the bytes of each parameter of one that was looked up
        without a size, which is not checked; the call copies them. `shared_memory` is in bytes, for
        each block on top of what the kernel declares. What the struct points to must live until the stream has passed.
        Raises `InvalidArgument` for a launch that the device can't do, `DeviceMismatch` for a stream of another one.
        """
        device = self.module.device
        if stream.device != device:
            raise DeviceMismatch(f"launch of {self.name}", (device.label, stream.device.label))
        reason = self.limits.refusal(grid, block, shared_memory)
        is_struct = isinstance(arguments, bytes)
        if reason or (len(arguments) if is_struct else None) != self.argument_size:
            raise self._refusal(reason, arguments)
        self.module.require_open()
        parameters = calls.parameters(arguments) if is_struct else arguments
        launch = self._function, *grid, *block, shared_memory, stream.handle, parameters, calls.launch_extra
        with stream.in_context():
            (status,) = calls.launch(*launch)
        if status:
            launch_again(status, self.module, self.name, launch)

    def _refusal(self, reason: str, arguments: bytes | tuple[bytes, ...]) -> InvalidArgument:
        """Why a launch is refused, where the limits have no `reason`: for the size of its arguments."""
        if not reason and self.argument_size is None:
            reason = "it was looked up without a size of arguments; give its parameters one by one"
        elif not reason:
            actual = len(arguments) if isinstance(arguments, bytes) else f"{len(arguments)} parameters"
            reason = f"its arguments are {self.argument_size} bytes, not {actual}"
        return InvalidArgument(f"launch of {self.name}", reason)

    def __repr__(self) -> str:
        return f"<HipKernel {self.name} of {self.module.name} on {self.module.device.label}>"
