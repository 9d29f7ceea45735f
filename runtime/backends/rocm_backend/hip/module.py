"""Modules and kernels: code objects loaded on a device, and launches checked before the runtime sees them."""

from __future__ import annotations

import struct
import threading
from functools import partial
from pathlib import Path
from typing import Any, Final

from rocm.bindings import _hip_helpers
from rocm.bindings.util.types import ListOfPointer

from ....base.error import DeviceMismatch, InvalidArgument
from ...gpu_backend.driver.elf import elf_size, require_complete
from ...gpu_backend.driver.error import InvalidKernel
from ...gpu_backend.driver.gpu_driver import Function
from ...gpu_backend.driver.launch import Dim3, Launcher
from .device import HipDevice
from .error import HipError, check, failure, hip
from .resource import HipResource
from .stream import HipStream

_BUNDLE_MAGIC: Final = b"__CLANG_OFFLOAD_BUNDLE__"
_BUNDLE_ENTRY: Final = struct.Struct("<QQQ")

_launch: Final[Any] = hip.hipModuleLaunchKernel
# "No extra arguments", wrapped once: hip-python takes a microsecond to convert None at every call.
_NO_EXTRA: Final[Any] = _hip_helpers.HipModuleLaunchKernel_extra(None)


class HipModule(HipResource):
    """A code object, loaded on a device.

    `image` is an ELF or a bundle of them, as hipcc and hiprtc make it. `name` is how errors call it. Raises
    `InvalidArgument` for an image that is empty or cut short, `HipError` for one that the device can't run.
    """

    __slots__ = ("_handle", "_image", "_kernels", "_lock", "device", "name")

    def __init__(self, device: HipDevice, image: bytes, name: str = "module") -> None:
        require_complete("HipModule", name, image, elf_size(image) or _bundle_size(image))
        about = f"{name} on {device.label}, a {device.properties.gcn_arch_name}"
        with device.activated():
            self._handle: Any = check("hipModuleLoadData", hip.hipModuleLoadData(image), about)
            self._own(_unload, self._handle)
        self.device = device
        self.name = name
        # The runtime is given no size and may read on from the image when a kernel is first asked for.
        self._image = image
        self._kernels: dict[str, HipKernel] = {}
        self._lock = threading.Lock()

    @classmethod
    def from_file(cls, device: HipDevice, path: Path | str) -> HipModule:
        """Load a file, whose name becomes the module's; `OSError` when it can't be read."""
        path = Path(path)
        return cls(device, path.read_bytes(), path.name)

    def kernel(self, name: str, argument_size: int | None) -> HipKernel:
        """The kernel of this name, looked up once; its arguments are one struct of `argument_size` bytes.

        None for a kernel of other parameters, which its `launcher` launches.

        Raises `HipError` (hipErrorNotFound) when there is none, `InvalidArgument` when it was asked for before with
        another size.
        """
        self.require_open()
        with self._lock:
            kernel = self._kernels.get(name)
            if kernel is None:
                # A kernel's attributes are those for the current device.
                with self.device.activated():
                    found = hip.hipModuleGetFunction(self._handle, name)
                    function = check("hipModuleGetFunction", found, f"{name} of {self.name} on {self.device.label}")
                    kernel = self._kernels[name] = HipKernel(self, name, argument_size, function)
        if kernel.argument_size != argument_size:
            reason = f"{name} takes {kernel.argument_size} bytes of arguments, not {argument_size}"
            raise InvalidArgument("HipModule.kernel", reason)
        return kernel

    def function(
        self,
        name: str,
        queue: HipStream,
        block: int,
        argument_size: int,
        shared_bytes: int = 0,  # noqa: ARG002 - kernels of AMD declare all that they need
    ) -> Function:
        """Return a function that enqueues a kernel: see `LoadedModule.function`."""
        # Python's own partial, since it calls faster than a method does.
        return partial(self._required(name, argument_size).enqueue, queue, block)

    def cooperative_function(
        self,
        name: str,
        queue: HipStream,
        block: int,
        argument_size: int,
        shared_bytes: int = 0,  # noqa: ARG002 - as in `function`
    ) -> Function:
        """Return such a function for blocks that wait for each other."""
        return partial(self._required(name, argument_size).enqueue_together, queue, block)

    def launcher(self, name: str, queue: HipStream) -> Launcher:
        """Return the launcher of a kernel of any parameters in a stream."""
        return self._required(name, None).launcher(queue)

    def _required(self, name: str, argument_size: int | None) -> HipKernel:
        """The kernel of this name; InvalidKernel where the module does not have it."""
        try:
            return self.kernel(name, argument_size)
        except HipError as error:
            if error.name == "hipErrorNotFound":
                raise InvalidKernel(name, f"{self.name} does not have it; build that again") from error
            raise

    def __repr__(self) -> str:
        return f"<HipModule {self.name} on {self.device.label}>"


class HipKernel:
    """A kernel of a loaded module, which it keeps loaded; `HipModule.kernel` makes it.

    `limits` are those of a launch: of the largest block that it was compiled for, and of the bytes of shared memory
    that each block can be given on top of what the kernel declares.
    """

    __slots__ = ("_function", "_ordinal", "argument_size", "limits", "module", "name")

    def __init__(self, module: HipModule, name: str, argument_size: int | None, function: Any) -> None:
        properties = module.device.properties
        attributes = hip.hipFunction_attribute
        self.module = module
        self.name = name
        self.argument_size = argument_size
        compiled_for = _attribute(function, attributes.HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)
        shared_left = _attribute(function, attributes.HIP_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
        limits = properties.limits
        self.limits = limits._replace(
            threads=min(compiled_for, limits.threads), shared_bytes=min(shared_left, limits.shared_bytes)
        )
        self._function = function
        self._ordinal = module.device.ordinal

    def launch(
        self,
        grid: Dim3,
        block: Dim3,
        arguments: bytes | tuple[bytes, ...],
        stream: HipStream,
        shared_memory: int = 0,
    ) -> None:
        """Enqueue `grid` blocks of `block` threads in `stream`.

        `arguments` is the packed struct that the kernel takes, or the bytes of each parameter of one that was looked up
        without a size, which nobody checks; the call copies them. `shared_memory` is in bytes, for
        each block on top of what the kernel declares. What the struct points to must live until the stream has passed.
        Raises `InvalidArgument` for a launch that the device can't do, `DeviceMismatch` for a stream of another one.
        """
        if stream.device.ordinal != self._ordinal:
            raise DeviceMismatch(f"launch of {self.name}", (self.module.device.label, stream.device.label))
        reason = self.limits.refusal(grid, block, shared_memory)
        is_struct = isinstance(arguments, bytes)
        if reason or (len(arguments) if is_struct else None) != self.argument_size:
            raise self._refusal(reason, arguments)
        parameters = (arguments,) if is_struct else arguments
        self.module.require_open()
        # Each goes by address, as an entry of kernelParams.
        if stream.is_null:
            status = self._launch_activated(stream, grid, block, shared_memory, parameters)
            if status:
                raise failure("hipModuleLaunchKernel", status, f"{self.name} on {self.module.device.label}")
        else:
            (status,) = _launch(self._function, *grid, *block, shared_memory, stream.handle, parameters, _NO_EXTRA)
            if status:
                self._launch_again(stream, status, grid, block, shared_memory, parameters)

    def enqueue(self, stream: HipStream, block: int, blocks: int, arguments: bytes) -> None:
        """`launch` in one dim and in a stream of one's own, for those who launch often.

        Only the size of the arguments is checked here; a launch that HIP refuses raises `HipError`.
        """
        if len(arguments) != self.argument_size:
            raise self._refusal("", arguments)
        (status,) = _launch(self._function, blocks, 1, 1, block, 1, 1, 0, stream.handle, (arguments,), _NO_EXTRA)
        if status:
            self._launch_again(stream, status, (blocks, 1, 1), (block, 1, 1), 0, (arguments,))

    def enqueue_together(self, stream: HipStream, block: int, blocks: int, arguments: bytes) -> None:
        """The same for blocks that wait for each other: HIP refuses a launch if not all of them can run at once."""
        if len(arguments) != self.argument_size:
            raise self._refusal("", arguments)
        with stream.device.activated():
            launch = self._function, blocks, 1, 1, block, 1, 1, 0, stream.handle, (arguments,)
            (status,) = hip.hipModuleLaunchCooperativeKernel(*launch)
        if status:
            raise failure("hipModuleLaunchCooperativeKernel", status, f"{self.name} on {self.module.device.label}")

    def launcher(self, stream: HipStream) -> Launcher:
        """What launches the kernel with any parameters, in a stream of one's own that stays open."""
        return Launcher(
            limits=self.limits,
            parameter_sizes=None,  # HIP does not tell
            call=_launch,
            function=self._function,
            stream=stream.own_handle,
            extra=_NO_EXTRA,
            parameters=ListOfPointer,
            call_again=partial(self._launch_again, stream),
        )

    def _launch_again(
        self, stream: HipStream, status: Any, grid: Dim3, block: Dim3, shared_memory: int, parameters: Any
    ) -> None:
        """Launch once more after `status`, if what failed can be mended; else raise it."""
        # HIP 7 refuses a stream that isn't of the current device. Trying first costs nothing where it is; making the
        # device current for every launch would cost as much as the launch.
        if check("hipGetDevice", hip.hipGetDevice()) != self._ordinal:
            hip.hipGetLastError()
            status = self._launch_activated(stream, grid, block, shared_memory, parameters)
        if status:
            raise failure("hipModuleLaunchKernel", status, f"{self.name} on {self.module.device.label}")

    def _launch_activated(self, stream: HipStream, grid: Dim3, block: Dim3, shared_memory: int, parameters: Any) -> Any:
        with stream.device.activated():
            return _launch(self._function, *grid, *block, shared_memory, stream.handle, parameters, _NO_EXTRA)[0]

    def _refusal(self, reason: str, arguments: bytes | tuple[bytes, ...]) -> InvalidArgument:
        """Why a launch is refused, where the limits have no `reason`: for the size of its arguments."""
        if not reason and self.argument_size is None:
            reason = "it was looked up without a size of arguments; give its parameters one by one"
        elif not reason:
            given = len(arguments) if isinstance(arguments, bytes) else f"{len(arguments)} parameters"
            reason = f"its arguments are {self.argument_size} bytes, not {given}"
        return InvalidArgument(f"launch of {self.name}", reason)

    def __repr__(self) -> str:
        return f"<HipKernel {self.name} of {self.module.name} on {self.module.device.label}>"


def _attribute(function: Any, attribute: Any) -> int:
    return int(check("hipFuncGetAttribute", hip.hipFuncGetAttribute(attribute, function), attribute.name))


def _unload(handle: Any) -> None:
    check("hipModuleUnload", hip.hipModuleUnload(handle))


def _bundle_size(image: bytes) -> int:
    """The size that a bundle's table claims, 0 for anything else."""
    if not image.startswith(_BUNDLE_MAGIC):
        return 0
    start = len(_BUNDLE_MAGIC) + 8
    if len(image) < start:
        return start
    needed = start
    for _ in range(int.from_bytes(image[start - 8 : start], "little")):
        if len(image) < start + _BUNDLE_ENTRY.size:
            return start + _BUNDLE_ENTRY.size
        offset, size, name_size = _BUNDLE_ENTRY.unpack_from(image, start)
        start += _BUNDLE_ENTRY.size + name_size
        needed = max(needed, start, offset + size)
    return needed
