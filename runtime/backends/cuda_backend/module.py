"""Code objects that are loaded on a device, and the launches of their kernels."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_char_p
from functools import partial
from typing import Any, Final
from weakref import WeakValueDictionary

from ...base.error import InvalidArgument
from ..gpu_backend.driver import slow_path
from ..gpu_backend.driver.elf import elf_size, require_complete
from ..gpu_backend.driver.error import InvalidKernel
from ..gpu_backend.driver.gpu_driver import Function
from ..gpu_backend.driver.launch import Dim3, Launcher, LaunchLimits
from ..gpu_backend.driver.protocols import StreamHandle
from ..gpu_backend.driver.resource import Resource
from .context import Context
from .error import CudaError
from .result import check, cuda

_launch: Final[Any] = cuda.cuLaunchKernel


waiting_kernels: Final[WeakValueDictionary[int, CudaKernel]] = WeakValueDictionary()
"""By the address of its function each kernel that waits for the one in front of it: see kernels/platform.hpp."""


class CudaModule(Resource):
    """A cubin, loaded on a device; `name` is how errors call it.

    Raises InvalidArgument for one that is cut short, CudaError for one that the device cannot run.
    """

    def __init__(self, context: Context, code: bytes, name: str) -> None:
        require_complete("CudaModule", name, code, elf_size(code))
        self.context = context
        self.name = name
        self._handle = context.call("cuModuleLoadData", code, about=f"{name} on {context.label}")
        self._own(partial(context.call, about=name), "cuModuleUnload", self._handle)

    def function(
        self, name: str, queue: StreamHandle, block: int, argument_size: int, shared_bytes: int = 0
    ) -> Function:
        """Return a function that enqueues a kernel: see `LoadedModule.function`."""
        return CudaKernel(self, name, queue, block, argument_size, shared_bytes).enqueue

    def cooperative_function(
        self, name: str, queue: StreamHandle, block: int, argument_size: int, shared_bytes: int = 0
    ) -> Function:
        """Return such a function for blocks that wait for each other."""
        return CudaKernel(self, name, queue, block, argument_size, shared_bytes, is_cooperative=True).enqueue_together

    def launcher(self, name: str, queue: StreamHandle) -> Launcher:
        """Return the launcher of a kernel of any parameters in a stream.

        It may have as much dynamic shared memory as the device lets a kernel ask for, which is more than the 48 KiB
        that a kernel has without asking.
        """
        function = self.handle_of(name)
        of_device, attributes = self.context.attribute, cuda.CUfunction_attribute
        with self.context.activated():

            def of_kernel(attribute: Any) -> int:
                found = cuda.cuFuncGetAttribute(attribute, function)
                return int(check("cuFuncGetAttribute", found, f"{attribute.name} of {name}"))

            declared = of_kernel(attributes.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)
            shared_bytes = _let_have(self, function, name, max(_max_shared(self) - declared, 0))
            limits = LaunchLimits(
                threads=of_kernel(attributes.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
                block=_along_axes(of_device, "MAX_BLOCK_DIM"),
                grid=_along_axes(of_device, "MAX_GRID_DIM"),
                shared_bytes=shared_bytes,
            )
            sizes = _parameter_sizes(function)

        def call_again(status: Any, grid: Dim3, block: Dim3, shared_bytes: int, parameters: int) -> None:
            _launch_again(status, self, name, (function, *grid, *block, shared_bytes, queue.handle, parameters, 0))

        return Launcher(limits, sizes, _launch, function, queue.own_handle, 0, int, call_again)

    def handle_of(self, name: str) -> Any:
        """The driver's function of a kernel; InvalidKernel where the module does not have it."""
        about = f"{name} of {self.name} on {self.context.label}"
        try:
            return self.context.call("cuModuleGetFunction", self._handle, name.encode(), about=about)
        except CudaError as error:
            if error.name == "CUDA_ERROR_NOT_FOUND":
                raise InvalidKernel(name, f"{self.name} does not have it; build that again") from error
            raise

    def __repr__(self) -> str:
        return f"<CudaModule {self.name} on {self.context.label}>"


class CudaKernel:
    """A kernel that is launched in one dim, in one stream, in blocks of one size."""

    __slots__ = (
        "__weakref__",
        "_argument_size",
        "_block",
        "_function",
        "_name",
        "_queue",
        "_shared_bytes",
        "_stream",
        "module",
    )

    def __init__(
        self,
        module: CudaModule,
        name: str,
        queue: StreamHandle,
        block: int,
        argument_size: int,
        shared_bytes: int,
        is_cooperative: bool = False,
    ) -> None:
        self.module = module
        self._function = module.handle_of(name)
        # The blocks of a cooperative launch begin together.
        if not is_cooperative:
            waiting_kernels[int(self._function)] = self
        self._name = name
        self._queue = queue
        self._stream = queue.own_handle
        self._block = block
        self._argument_size = argument_size
        self._shared_bytes = _let_have(module, self._function, name, shared_bytes)

    def enqueue(self, blocks: int, arguments: bytes) -> None:
        """Launch `blocks` > 0 blocks with the packed bytes of the kernel's struct; they are copied before it returns.

        Raises InvalidArgument for bytes of another number than the struct has, CudaError where CUDA refuses.
        """
        if len(arguments) != self._argument_size:
            reason = f"its arguments are {self._argument_size} bytes, not {len(arguments)}"
            raise InvalidArgument(f"launch of {self._name}", reason)
        stream = self._queue.handle if slow_path.required else self._stream
        # CUDA wants an array with the address of each parameter. There is one, and this object is that array.
        parameters = c_char_p(arguments)
        (status,) = _launch(self._function, blocks, 1, 1, self._block, 1, 1, self._shared_bytes, stream, parameters, 0)
        if status:
            launch = self._function, blocks, 1, 1, self._block, 1, 1, self._shared_bytes, stream, parameters, 0
            _launch_again(status, self.module, self._name, launch)

    def enqueue_together(self, blocks: int, arguments: bytes) -> None:
        """The same for blocks that wait for each other: CUDA refuses a launch if not all of them can run at once."""
        if len(arguments) != self._argument_size:
            reason = f"its arguments are {self._argument_size} bytes, not {len(arguments)}"
            raise InvalidArgument(f"launch of {self._name}", reason)
        # CUDA wants an array with the address of each parameter. There is one, and this object is that array.
        launch = (
            self._function,
            blocks,
            1,
            1,
            self._block,
            1,
            1,
            self._shared_bytes,
            self._queue.handle,
            c_char_p(arguments),
        )
        (status,) = cuda.cuLaunchCooperativeKernel(*launch)
        if status:
            _launch_again(status, self.module, self._name, launch, cuda.cuLaunchCooperativeKernel)


def _max_shared(module: CudaModule) -> int:
    """The bytes of shared memory that the device gives a block which asks for them."""
    return module.context.attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")


def _let_have(module: CudaModule, function: Any, name: str, shared_bytes: int) -> int:
    """Let launches of a kernel have so many bytes of dynamic shared memory, or what the device has; returns these."""
    if shared_bytes:
        shared_bytes = min(shared_bytes, _max_shared(module))
        max_dynamic = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        module.context.call("cuFuncSetAttribute", function, max_dynamic, shared_bytes, about=name)
    return shared_bytes


def _parameter_sizes(function: Any) -> tuple[int, ...] | None:
    """The bytes of each parameter; None where the driver does not tell."""
    sizes: list[int] = []
    while True:
        try:
            status, _, size = cuda.cuFuncGetParamInfo(function, len(sizes))
        # What cuda-python raises where a driver is too old to have the function.
        except RuntimeError:
            return None
        if status:
            return tuple(sizes) if status == cuda.CUresult.CUDA_ERROR_INVALID_VALUE else None
        sizes.append(int(size))


def _launch_again(
    status: Any, module: CudaModule, name: str, launch: tuple[Any, ...], function: Callable[..., tuple[Any]] = _launch
) -> None:
    """Launch once more after `status` where the context was not current; else raise CudaError."""
    # Trying first costs nothing where the context is current; asking before every launch would cost a third of it.
    if not module.context.is_current():
        with module.context.activated():
            (status,) = function(*launch)
    check(function.__name__, (status,), f"{name} on {module.context.label}")


def _along_axes(attribute: Callable[[str], int], name: str) -> Dim3:
    return attribute(f"{name}_X"), attribute(f"{name}_Y"), attribute(f"{name}_Z")
