"""Kernels that users write: compiled, loaded and launched."""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import index
from sys import byteorder
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from ....dtype import DType
from ...base.error import CompilationFailed, DeviceMismatch, GradientError, InvalidArgument, describe
from ...core import argument
from ...core.extensions import extensions
from ...custom.kernel_signature import Parameter, parameters
from ...custom.user_kernel import Kernel, KernelOperand, Size
from ...host.numbers import numbers
from ..backend import BackendStorage
from .driver import capture, fork, slow_path
from .driver.error import InvalidKernel
from .driver.launch import Dim3, Launcher
from .execute.includes import Files, files_of
from .execute.kernels import compiled, headers

if TYPE_CHECKING:
    from ...kernels.code_cache import CodeCache
    from .driver.gpu_driver import GpuDriver
    from .gpu_base import GpuBase

_FIX: Final = "fix the source or the options"
# Name, module, source, options and signature.
_Key: TypeAlias = tuple[str, str, str, tuple[str, ...], str | None]
# So many bytes of parameters every device takes.
_MAX_PARAMETER_BYTES: Final = 4096


# The function that packs the arguments of a launch, and its lines for an argument.
_PACK: Final = """
def pack(buffer, arguments):
    ({arguments}) = arguments{lines}
    pack_into(buffer, 0, {arguments})
"""
_CONVERT_TENSOR: Final = """
    try:
        storage, layout = a{position}._storage.inner, a{position}._layout
    except AttributeError:
        a{position} = convert{position}(a{position})
    else:
        if (
            type(storage) is storage_class
            and storage.dtype is dtype{position}
            and storage.device.driver is driver
            and layout._is_contiguous
            and not layout.start_offset
        ):
            a{position} = storage.memory.address
        else:
            a{position} = convert{position}(a{position})"""
_CONVERT_FLOAT: Final = """
    if type(a{position}) is not float:
        a{position} = convert{position}(a{position})"""
_CONVERT: Final = """
    a{position} = convert{position}(a{position})"""


class UserKernels:
    """The kernels of one device that users wrote. They stay loaded for as long as the device is in use."""

    def __init__(self, driver: GpuDriver, cache: CodeCache) -> None:
        self._driver = driver
        self._cache = cache
        self._modules: dict[object, Any] = {}
        # By their keys, and by the files that their sources include, where they do.
        self._kernels: dict[object, GpuKernel] = {}
        self._lock = threading.Lock()

    def get(
        self, device: GpuBase, name: str, module: str, source: str, options: Sequence[str], signature: str | None
    ) -> GpuKernel:
        """The kernel `name` of a module's source; it is compiled and loaded at the first call only.

        What includes files is so again when one of them has changed.
        """
        try:
            return self._kernels[name, module, source, tuple(options), signature]
        except (KeyError, TypeError):
            key = self._checked(name, module, source, options, signature)
        fork.require_own()
        with self._lock:
            files = files_of(source, key[3], headers())
            # Without files it is cached by its key alone; with unknown files it never matches again.
            cache_key: object = key if files == () else (key, files) if files else object()
            kernel = self._kernels.get(cache_key)
            if kernel is None:
                kernel = self._kernels[cache_key] = self._found(device, files, *key)
        return kernel

    def _checked(self, name: str, module: str, source: str, options: Sequence[str], signature: str | None) -> _Key:
        if not (name := argument.text("compile", "name", name)).isidentifier():
            raise InvalidArgument("compile", f"name must be that of a function, not {describe(name)}")
        return (
            name,
            argument.text("compile", "module", module),
            argument.text("compile", "source", source),
            argument.texts("compile", "options", options),
            None if signature is None else argument.text("compile", "signature", signature),
        )

    def _found(
        self,
        device: GpuBase,
        files: Files | None,
        name: str,
        module: str,
        source: str,
        options: tuple[str, ...],
        signature: str | None,
    ) -> GpuKernel:
        declared = None if signature is None else parameters("compile", signature)
        cache_key: object = object() if files is None else (module, source, options, files)
        loaded = self._modules.get(cache_key)
        if loaded is None:
            loaded = self._modules[cache_key] = self._loaded(module, source, options, files)
        try:
            launcher = loaded.launcher(name, self._driver.queue)
        except InvalidKernel:
            written = f'write it there as extern "C" __global__ void {name}(...)'
            raise InvalidArgument("compile", f"name: the source has no kernel {name}; {written}") from None
        return GpuKernel(device, name, signature, declared, launcher)

    def _loaded(self, module: str, source: str, options: tuple[str, ...], files: Files | None) -> Any:
        def load(code: bytes) -> Any:
            return self._driver.load(code, module)

        try:
            return compiled(self._cache, self._driver, source, module, load, options, files)
        except CompilationFailed as error:
            raise CompilationFailed(error.kernel, error.target, error.compiler, error.log, _FIX) from None


class _Packed:
    """Memory for the parameters of one launch, and the array of their addresses."""

    __slots__ = ("_addresses", "buffer", "parameters")

    def __init__(self, size: int, offsets: Sequence[int], wrap: Callable[[int], Any]) -> None:
        self.buffer = ctypes.create_string_buffer(size)
        start = ctypes.addressof(self.buffer)
        self._addresses = (ctypes.c_void_p * max(len(offsets), 1))(*[start + offset for offset in offsets])
        self.parameters = wrap(ctypes.addressof(self._addresses))


@final
class GpuKernel(Kernel):
    """A kernel on a GPU: see `Kernel`."""

    __slots__ = (
        *(
            "_call",
            "_conversions",
            "_count",
            "_declared",
            "_driver",
            "_extra",
            "_free",
            "_function",
            "_launcher",
            "_limits",
        ),
        *("_max_blocks", "_max_shared", "_max_threads", "_offsets", "_op", "_pack", "_packer", "_storage_class"),
        "_stream",
    )

    def __init__(
        self,
        device: GpuBase,
        name: str,
        signature: str | None,
        declared: tuple[Parameter, ...] | None,
        launcher: Launcher,
    ) -> None:
        self.name = name
        self.signature = signature
        self.device = device.driver.label
        self._op = f"launch of {name}"
        self._driver = device.driver
        self._storage_class = device.storage_class
        self._declared = declared
        self._limits = launcher.limits
        # What a launch in one dim may always have.
        self._max_threads = min(launcher.limits.threads, launcher.limits.block[0])
        self._max_blocks = min(launcher.limits.grid[0], launcher.limits.along_dim // self._max_threads)
        self._max_shared = launcher.limits.shared_bytes
        self._launcher = launcher
        self._call = launcher.call
        self._function = launcher.function
        self._stream = launcher.stream
        self._extra = launcher.extra
        if declared is None:
            sizes: tuple[int, ...] = (_struct_size(name, launcher.parameter_sizes),)
            codes = [f"{sizes[0]}s"]
            conversions = [self._struct_conversion(sizes[0], is_exact=launcher.parameter_sizes is not None)]
        else:
            sizes = tuple([parameter.size for parameter in declared])
            codes = [parameter.code for parameter in declared]
            conversions = [self._conversion(*item) for item in enumerate(declared)]
            _require_sizes(name, sizes, launcher.parameter_sizes)
        self._count = len(codes)
        self._offsets, self._packer = _packing(codes, sizes)
        self._conversions = conversions
        self._pack = self._packing_function()
        # A launch takes one and puts it back, so that threads do not share it: either is a single step.
        self._free: list[_Packed] = []

    def launch(self, grid: Size, block: Size, *arguments: Any, shared_bytes: int = 0) -> None:
        stream, call = self._stream, self._call
        if slow_path.required:
            call = self._call_watched
            stream = self._driver.queue.handle
            if (captured := capture.of(self._driver)) is not None:
                captured.hold(map(_storage_of, arguments))
        if len(arguments) != self._count:
            raise self._miscounted(arguments)
        y = z = block_y = block_z = 1
        if (
            type(grid) is int
            and type(block) is int
            and 0 < grid <= self._max_blocks
            and 0 < block <= self._max_threads
            and type(shared_bytes) is int
            and 0 <= shared_bytes <= self._max_shared
        ):
            x, block_x = grid, block
        else:
            (x, y, z), (block_x, block_y, block_z), shared_bytes = self._shape(grid, block, shared_bytes)
            if 0 in (x, y, z):
                return
        try:
            packed = self._free.pop()
        except IndexError:
            packed = _Packed(max(self._packer.size, 1), self._offsets, self._launcher.parameters)
        try:
            self._pack(packed.buffer, arguments)
        except (struct.error, OverflowError):
            raise self._refusal(arguments) from None
        (status,) = call(
            self._function,
            x,
            y,
            z,
            block_x,
            block_y,
            block_z,
            shared_bytes,
            stream,
            packed.parameters,
            self._extra,
        )
        if status:
            self._launcher.call_again(status, (x, y, z), (block_x, block_y, block_z), shared_bytes, packed.parameters)
        self._free.append(packed)

    def _call_watched(self, function: Any, x: int, y: int, z: int, *arguments: Any) -> Any:
        call = partial(self._call, function, x, y, z, *arguments)
        return capture.tracked(self._driver, call, self.name, "kernel", grid=x * y * z)

    def _packing_function(self) -> Callable[[Any, Any], None]:
        """The function that packs the arguments of a launch into a buffer, generated for these parameters.

        Loops over them and calls for each would take a launch half as long again. What most arguments are is converted
        in place: tensors of the pointer's dtype that begin where their storage does, and floats of Python's own.
        """
        names: dict[str, Any] = {
            "driver": self._driver,
            "storage_class": self._storage_class,
            "pack_into": self._packer.pack_into,
        }
        lines = []
        for position, convert in enumerate(self._conversions):
            names[f"convert{position}"] = convert
            usual = None if self._declared is None else _usual(self._declared[position])
            if isinstance(usual, DType):
                names[f"dtype{position}"] = usual
                lines.append(_CONVERT_TENSOR.format(position=position))
            elif usual is not None:
                lines.append(_CONVERT_FLOAT.format(position=position))
            elif convert is not None:
                lines.append(_CONVERT.format(position=position))
        exec(
            _PACK.format(arguments="".join(f"a{position}, " for position in range(self._count)), lines="".join(lines)),
            names,
        )
        packing: Callable[[Any, Any], None] = names["pack"]
        return packing

    def _conversion(self, position: int, parameter: Parameter) -> Callable[[Any], Any] | None:
        """The function that converts an argument for `struct`; None if none is needed."""
        op, name = self._op, self._named(position)
        if parameter.is_pointer or parameter.type is None:
            return self._address_conversion(position, parameter)
        code, dtype = parameter.type
        if dtype is not None and dtype.is_float:
            if code in "efd":
                return lambda value: value if type(value) is float else argument.real(op, name, value)
            return lambda value: int.from_bytes(numbers([argument.real(op, name, value)], dtype).tobytes(), byteorder)
        # Of integers, `struct` takes what is one and the type holds.
        return (lambda value: argument.boolean(op, name, value)) if code == "?" else None

    def _address_conversion(self, position: int, parameter: Parameter) -> Callable[[Any], int]:
        op, name, driver, storage_class = self._op, self._named(position), self._driver, self._storage_class
        expected = f"a Tensor, a Storage or an address, for {parameter.takes}"
        own = None if parameter.type is None else parameter.type.dtype

        def address(value: Any) -> int:
            offset = 0
            if isinstance(value, KernelOperand):
                storage, layout = value._kernel_operand()
                if layout is not None:
                    if not layout.is_contiguous:
                        raise InvalidArgument(op, f"{name} has strides {layout.strides}; call contiguous() on it first")
                    offset = layout.start_offset
            elif isinstance(value, BackendStorage):
                storage = value
            elif value is None:
                return 0
            else:
                try:
                    return index(value)
                except TypeError:
                    raise InvalidArgument(op, f"{name} must be {expected}, not {describe(value)}") from None
            if getattr(value, "is_recorded", False):
                reason = f"{name} is recorded, and what a kernel does with it is not; give it x.detach()"
                raise GradientError(op, reason)
            if type(storage) is not storage_class or storage.device.driver is not driver:
                raise DeviceMismatch(op, (self.device, extensions.device_class(storage.device).label))
            dtype: DType = storage.dtype
            if dtype is not own and not parameter.points_to(dtype):
                raise InvalidArgument(
                    op, f"{name} points to {parameter.takes}, not {dtype.value}; convert with to_dtype first"
                )
            start: int = storage.memory.address
            return start + offset * dtype.itemsize

        return address

    def _struct_conversion(self, size: int, *, is_exact: bool) -> Callable[[Any], Any] | None:
        def packed(value: Any) -> bytes:
            if not isinstance(value, bytes | bytearray):
                reason = f"the struct must be bytes, not {describe(value)}"
                raise InvalidArgument(self._op, f"{reason}; a kernel of other parameters needs a signature")
            if len(value) > size or (is_exact and len(value) != size):
                raise InvalidArgument(
                    self._op, f"the struct has {'' if is_exact else 'at most '}{size} bytes, not {len(value)}"
                )
            return bytes(value)

        return packed

    def _shape(self, grid: Size, block: Size, shared_bytes: int) -> tuple[Dim3, Dim3, int]:
        """Any launch within the limits, or one of no blocks."""
        blocks, threads = self._three("grid", grid), self._three("block", block)
        shared_bytes = argument.integer(self._op, "shared_bytes", shared_bytes)
        # No blocks are no error: there may be no elements.
        checked = blocks if min(blocks) != 0 else (1, 1, 1)
        reason = self._limits.refusal(checked, threads, shared_bytes)
        if reason:
            raise InvalidArgument(self._op, reason)
        return blocks, threads, shared_bytes

    def _three(self, name: str, sizes: Size) -> Dim3:
        integers = argument.integers(self._op, name, sizes if isinstance(sizes, Iterable) else (sizes,))
        if not 1 <= len(integers) <= 3:
            raise InvalidArgument(self._op, f"{name} must be one to three integers, not {describe(sizes)}")
        x, y, z = (*integers, 1, 1)[:3]
        return x, y, z

    def _named(self, position: int) -> str:
        """The name of the argument for a parameter in errors."""
        declared = "" if self._declared is None else f" ({self._declared[position].text})"
        return f"argument {position + 1}{declared}"

    def _miscounted(self, arguments: Sequence[Any]) -> InvalidArgument:
        expected = "one struct, packed to bytes" if self._declared is None else f"({self.signature})"
        return InvalidArgument(self._op, f"its arguments are {expected}, and {len(arguments)} were given")

    def _refusal(self, arguments: Sequence[Any]) -> InvalidArgument:
        """Which of the arguments `struct` cannot pack, and why."""
        for position, parameter in enumerate(self._declared or ()):
            name, code, convert = self._named(position), parameter.code, self._conversions[position]
            value = arguments[position] if convert is None else convert(arguments[position])
            try:
                struct.pack(f"={code}", value)
            except OverflowError:
                return InvalidArgument(self._op, f"{name} holds no number as large as {describe(value)}")
            except struct.error:
                number, bits = argument.integer(self._op, name, value), 8 * parameter.size
                least, end = (-(1 << bits - 1), 1 << bits - 1) if code.islower() else (0, 1 << bits)
                return InvalidArgument(self._op, f"{name} must be from {least} to {end - 1}, not {describe(number)}")
        raise AssertionError("struct packs each of the arguments")


def _packing(codes: Sequence[str], sizes: Sequence[int]) -> tuple[list[int], struct.Struct]:
    """Where each parameter is, each at a multiple of its size as in C, and what packs them all."""
    # Not with the padding that `struct` has itself: with that it would take floats that are too large for infinite.
    text, offsets = "=", []
    for code, size in zip(codes, sizes, strict=True):
        text += "x" * (-struct.calcsize(text) % (1 if code.endswith("s") else size)) + code
        offsets.append(struct.calcsize(text) - size)
    return offsets, struct.Struct(text)


def _struct_size(name: str, known: tuple[int, ...] | None) -> int:
    """The bytes of the one parameter of a kernel without a signature, or how many there may be."""
    if known is None:
        return _MAX_PARAMETER_BYTES
    if len(known) != 1:
        raise InvalidArgument("compile", f"signature: kernel {name} has {len(known)} parameters; write them as in C")
    return known[0]


def _require_sizes(name: str, declared: tuple[int, ...], known: tuple[int, ...] | None) -> None:
    if known is not None and declared != known:
        there, here = (", ".join(map(str, sizes)) or "no" for sizes in (known, declared))
        reason = f"signature: it has parameters of {here} bytes, and kernel {name} has some of {there} bytes"
        raise InvalidArgument("compile", f"{reason}; write the kernel's own")


def _storage_of(value: object) -> object:
    """The storage of a backend that an argument is or has; the argument itself if it is a number or an address."""
    return value._kernel_operand()[0] if isinstance(value, KernelOperand) else value


def _usual(parameter: Parameter) -> DType | type[float] | None:
    """The usual kind of argument for a parameter: a tensor of a dtype, or a float of Python."""
    dtype = None if parameter.type is None else parameter.type.dtype
    return dtype if parameter.is_pointer else float if parameter.code in "fd" else None
