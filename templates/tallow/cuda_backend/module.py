"""Code objects that are loaded on a device, and the launches of their kernels."""

from __future__ import annotations

from ctypes import c_char_p
from typing import Any, Final

from ..error import InvalidArgument
from ..gpu_backend import fork
from .context import Context
from ..gpu_backend.elf import elf_size, require_complete
from ..gpu_backend.error import InvalidKernel
from ..gpu_backend.resource import Resource
from .error import CudaError
from .result import check, cuda

_launch: Final[Any] = cuda.cuLaunchKernel


class CudaModule(Resource):
    """A cubin, loaded on a device; `name` is how errors call it.

    Raises InvalidArgument for one that is cut short, CudaError for one that the device cannot run.
    """

    def __init__(self, context: Context, code: bytes, name: str) -> None:
        require_complete("CudaModule", name, code, elf_size(code))
        self.context = context
        self.name = name
        with context.activated():
            loaded = cuda.cuModuleLoadData(code)
            self._handle = check("cuModuleLoadData", loaded, f"{name} on {context.label}")
            self._own(_unload, context, self._handle, name)

    def function(self, name: str) -> Any:
        """The function of a kernel; InvalidKernel where the module does not have it."""
        with self.context.activated():
            found = cuda.cuModuleGetFunction(self._handle, name.encode())
        try:
            return check("cuModuleGetFunction", found, f"{name} of {self.name} on {self.context.label}")
        except CudaError as error:
            if error.name == "CUDA_ERROR_NOT_FOUND":
                raise InvalidKernel(name, f"{self.name} does not have it; build that again") from error
            raise

    def __repr__(self) -> str:
        return f"<CudaModule {self.name} on {self.context.label}>"


class CudaKernel:
    """A kernel that is launched in one dim, in one stream, in blocks of one size."""

    __slots__ = ("_argument_size", "_block", "_function", "_name", "_stream", "module")

    def __init__(self, module: CudaModule, name: str, stream: Any, block: int, argument_size: int) -> None:
        self.module = module
        self._function = module.function(name)
        self._name = name
        self._stream = stream
        self._block = block
        self._argument_size = argument_size

    def enqueue(self, blocks: int, arguments: bytes) -> None:
        """Launch `blocks` > 0 blocks with the packed bytes of the kernel's struct; they are copied before it returns.

        Raises InvalidArgument for bytes of another number than the struct has, CudaError where CUDA refuses.
        """
        if len(arguments) != self._argument_size:
            reason = f"its arguments are {self._argument_size} bytes, not {len(arguments)}"
            raise InvalidArgument(f"launch of {self._name}", reason)
        if fork.lost:
            fork.require_own()
        # CUDA wants an array with the address of each parameter. There is one, and this object is that array.
        parameters = c_char_p(arguments)
        (status,) = _launch(self._function, blocks, 1, 1, self._block, 1, 1, 0, self._stream, parameters, 0)
        # Trying first costs nothing where the context is current; asking before every launch would cost a third of it.
        if status and not self.module.context.is_current():
            with self.module.context.activated():
                (status,) = _launch(self._function, blocks, 1, 1, self._block, 1, 1, 0, self._stream, parameters, 0)
        if status:
            check("cuLaunchKernel", (status,), f"{self._name} on {self.module.context.label}")


def _unload(context: Context, handle: Any, name: str) -> None:
    with context.activated():
        check("cuModuleUnload", cuda.cuModuleUnload(handle), name)
