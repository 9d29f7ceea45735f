"""Convolution and pooling by MIOpen, through ctypes: hip-python has no binding for it."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Hashable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Final, Self

from rocm.bindings.util.paths import get_library_path

from .....dtype import DType
from .....libraries.miopen import FUNCTIONS
from ....base.error import OutOfMemory
from ....core.conv import ParamsConvolution
from ....helpers.c_library import load
from ....program.program import LibraryCall
from ....program.values import Address
from ...gpu_backend.driver import capture
from ...gpu_backend.driver.device import Device
from ...gpu_backend.driver.error import LibraryError
from ...gpu_backend.driver.resource import Resource
from ...gpu_backend.driver.stream import Stream
from ...gpu_backend.libraries.library import ConvolutionKind, StreamLibrary
from ...gpu_backend.memory.allocator import Slice

if TYPE_CHECKING:
    from ...gpu_backend.driver.gpu_driver import GpuDriver
    from ...gpu_backend.memory.allocator import CachingAllocator

# MIOpen's own numbers.
_DTYPES: Final = DType.known({"f16": 0, "f32": 1, "bf16": 5})
_CONVOLUTION: Final = 0
_AVERAGE: Final = 1
_DETERMINISTIC: Final = 1
# Its algorithms that add up the products themselves; others spread an infinity to where none is. Those by a matrix
# product multiply the zeros of the padding too, which the direct ones leave out: infinity times zero is NaN.
_PRODUCTS: Final = frozenset((0, 5))
_DIRECT: Final = 1
# The number of its algorithms.
_ALGORITHMS: Final = 6
_NAMES: Final = {
    ConvolutionKind.FORWARD: "Forward",
    ConvolutionKind.INPUT: "BackwardData",
    ConvolutionKind.WEIGHT: "BackwardWeights",
}
# What MIOpen answers where it has nothing for a problem.
_REFUSALS: Final = ("miopenStatusNotImplemented", "miopenStatusUnsupportedOp")
_ADVICE: Final = "tallow needs a MIOpen 3 of the ROCm that is installed; without its library it uses its own kernels"
_LARGEST: Final = (1 << 31) - 1

_ONE: Final = ctypes.c_float(1)
_ZERO: Final = ctypes.c_float(0)


class _Performance(ctypes.Structure):
    """miopenConvAlgoPerf_t: an algorithm, its time in milliseconds and the bytes of workspace that it needs."""

    _fields_ = (("algorithm", ctypes.c_int), ("time", ctypes.c_float), ("memory", ctypes.c_size_t))


def available() -> bool:
    """Whether MIOpen's library is there, with all functions that are called."""
    return _load() is not None


def _load() -> ctypes.CDLL | None:
    # Where hip-python finds ROCm, under both of the names that it may know; then where the loader looks, under the
    # name that an installation without headers has.
    return load((get_library_path("miopen"), get_library_path("MIOpen"), b"libMIOpen.so.1"), FUNCTIONS)


class Miopen(StreamLibrary, Resource):
    """A handle of MIOpen: see `library.Convolution` and `Pooling`."""

    needs = "libMIOpen.so of ROCm, in its package miopen-hip"

    @classmethod
    def open(cls, driver: GpuDriver, allocator: CachingAllocator) -> Self | None:
        """MIOpen on the stream of a driver; None where the library or a function of it is missing."""
        library = _load()
        return None if library is None else cls(library, driver.device, driver.queue, allocator)

    def __init__(self, library: ctypes.CDLL, device: Device, stream: Stream, allocator: CachingAllocator) -> None:
        super().__init__(device, stream)
        self._library = library
        self._allocator = allocator
        # The best algorithm and its bytes of workspace, and the problems that MIOpen does not take.
        self._best: dict[tuple[ConvolutionKind, DType, ParamsConvolution], tuple[int, int]] = {}
        self._refused: set[Hashable] = set()
        # Descriptors that MIOpen did not take back, with what each is.
        self._left: list[tuple[str, ctypes.c_void_p]] = []
        self._handle = ctypes.c_void_p()
        with device.activated():
            self._call("miopenCreateWithStream", ctypes.byref(self._handle), stream.address)
            self._own(_destroy, library, self._handle, self._left)

    def convolution(
        self,
        kind: ConvolutionKind,
        dtype: DType,
        params: ParamsConvolution,
        first: Address,
        second: Address,
        result: Address,
    ) -> LibraryCall | None:
        """A convolution of images; the first of its dtype and shape tries MIOpen's algorithms, which takes a while.

        The fastest serves all that follow in this process, which so give the same bits. Another process may find
        another one.
        """
        is_even = all(
            after <= before < after + stride
            for before, after, stride in zip(params.padding, params.padding_after, params.stride, strict=True)
        )
        if len(params.sizes) != 2 or params.groups != 1 or not is_even or params.channels_last:
            return None
        dims = params.input_dims, params.kernel_dims, params.out_dims
        # MIOpen takes the gradient of the result in front of the input.
        operands = (second, first) if kind is ConvolutionKind.WEIGHT else (first, second)
        return self._library_call(self._convolve, (kind, dtype, params), dims, *operands, result)

    def avg_pool2d(
        self,
        dtype: DType,
        dims: tuple[int, ...],
        result_dims: tuple[int, ...],
        kernel_size: tuple[int, int],
        stride: tuple[int, int],
        source: Address,
        result: Address,
    ) -> LibraryCall | None:
        """The means of windows. Only those of f32: MIOpen has no pooling of bf16, and adds up f16 in f16."""
        if dtype is not DType.F32:
            return None
        problem = dims, result_dims, kernel_size, stride
        return self._library_call(self._pool, problem, (dims, result_dims), source, result)

    def _library_call(
        self,
        enqueue: Callable[..., None],
        problem: tuple[Hashable, ...],
        dims: tuple[tuple[int, ...], ...],
        *addresses: Address,
    ) -> LibraryCall | None:
        """The call that enqueues a problem of operands of these dims; None of what MIOpen does not take."""
        if problem in self._refused or not all(map(_is_countable, dims)):
            return None
        return LibraryCall(self._attempt, (enqueue, problem, *addresses))

    def _attempt(self, enqueue: Callable[..., None], problem: tuple[Hashable, ...], *addresses: int) -> bool:
        """Whether MIOpen took the problem; a problem that it does not take is not tried again."""
        with self._lock, self._device.activated(), ExitStack() as opened:
            self.require_open()
            _destroy_descriptors(self._library, self._left)
            try:
                enqueue(opened, *problem, *addresses)
            except OutOfMemory:  # of the workspace
                return False
            except LibraryError as error:
                if error.status not in _REFUSALS:
                    raise
                self._refused.add(problem)
                return False
        return True

    def _pool(
        self,
        opened: ExitStack,
        dims: tuple[int, ...],
        result_dims: tuple[int, ...],
        kernel_size: tuple[int, int],
        stride: tuple[int, int],
        source: int,
        result: int,
    ) -> None:
        x, y = self._tensor(opened, DType.F32, dims), self._tensor(opened, DType.F32, result_dims)
        pooling = self._create(opened, "PoolingDescriptor")
        self._call("miopenSet2dPoolingDescriptor", pooling, _AVERAGE, *kernel_size, 0, 0, *stride)
        operands = (*_scaled(x, source), *_unscaled(y, result))
        self._enqueue("miopenPoolingForward", self._handle, pooling, *operands, False, None, 0)

    def _convolve(
        self,
        opened: ExitStack,
        kind: ConvolutionKind,
        dtype: DType,
        params: ParamsConvolution,
        first: int,
        second: int,
        result: int,
    ) -> None:
        x, w, y = params.input_dims, params.kernel_dims, params.out_dims
        dims = {
            ConvolutionKind.FORWARD: (x, w, y),
            ConvolutionKind.INPUT: (y, w, x),
            ConvolutionKind.WEIGHT: (y, x, w),
        }[kind]
        of_first, of_second, of_result = [self._tensor(opened, dtype, each) for each in dims]
        convolution = self._create(opened, "ConvolutionDescriptor")
        steps = (*params.padding, *params.stride, *params.dilation)
        self._call("miopenInitConvolutionDescriptor", convolution, _CONVOLUTION, *steps)
        # The same bits at every call, of each algorithm that may be chosen.
        self._call("miopenSetConvolutionAttribute", convolution, _DETERMINISTIC, True)
        best = self._best.get((kind, dtype, params))
        if best is None:
            # Gradients meet the padding only as infinities and NaN.
            is_padded = kind is ConvolutionKind.FORWARD and any(params.padding)
            problem = (of_first, first, of_second, second, convolution, of_result, result)
            best = self._find(_NAMES[kind], problem, _PRODUCTS if is_padded else _PRODUCTS | {_DIRECT})
            self._best[kind, dtype, params] = best
        algorithm, nbytes = best
        # The next owner of the workspace works after this in the stream.
        workspace = Slice(self._allocator, nbytes)
        self._enqueue(
            f"miopenConvolution{_NAMES[kind]}",
            self._handle,
            *_scaled(of_first, first),
            of_second,
            second,
            convolution,
            algorithm,
            *_unscaled(of_result, result),
            workspace.address,
            nbytes,
        )

    def _find(self, name: str, problem: tuple[Any, ...], allowed: frozenset[int]) -> tuple[int, int]:
        """The fastest allowed algorithm and the workspace that it needs; the result is overwritten by the attempts."""
        first, _, second, _, convolution, result, _ = problem
        nbytes = ctypes.c_size_t()
        # That of a convolution takes the kernel in front of the input.
        operands = (second, first) if name == _NAMES[ConvolutionKind.FORWARD] else (first, second)
        get_size = f"miopenConvolution{name}GetWorkSpaceSize"
        self._call(get_size, self._handle, *operands, convolution, result, ctypes.byref(nbytes))
        workspace = Slice(self._allocator, nbytes.value)
        returned, performances = ctypes.c_int(), (_Performance * _ALGORITHMS)()
        find = f"miopenFindConvolution{name}Algorithm"
        self._call(
            find,
            self._handle,
            *problem,
            _ALGORITHMS,
            ctypes.byref(returned),
            performances,
            workspace.address,
            workspace.nbytes,
            False,
        )
        # The fastest comes first.
        for performance in performances[: returned.value]:
            if performance.algorithm in allowed:
                return performance.algorithm, performance.memory
        raise LibraryError(find, _REFUSALS[0], _ADVICE)

    def _tensor(self, opened: ExitStack, dtype: DType, dims: tuple[int, ...]) -> ctypes.c_void_p:
        tensor = self._create(opened, "TensorDescriptor")
        self._call("miopenSet4dTensorDescriptor", tensor, _DTYPES[dtype], *dims)
        return tensor

    def _create(self, opened: ExitStack, kind: str) -> ctypes.c_void_p:
        descriptor = ctypes.c_void_p()
        self._call(f"miopenCreate{kind}", ctypes.byref(descriptor))
        opened.callback(self._give_back, kind, descriptor)
        return descriptor

    def _give_back(self, kind: str, descriptor: ctypes.c_void_p) -> None:
        """Destroy a descriptor. What was enqueued with it stays right where that fails: it is tried once more later."""
        self._left.append((kind, descriptor))
        with suppress(LibraryError):
            _destroy_descriptors(self._library, self._left)

    def _enqueue(self, name: str, *arguments: Any) -> None:
        """Call what can be captured, as finding an algorithm cannot."""
        capture.enqueue(self._queue, self._set_stream, self._call, name, *arguments)

    def _set_stream(self, stream: Any) -> None:
        self._call("miopenSetStream", self._handle, int(stream))

    def _call(self, name: str, *arguments: Any) -> None:
        _call(self._library, name, *arguments)


def _call(library: ctypes.CDLL, name: str, *arguments: Any) -> None:
    status = getattr(library, name)(*arguments)
    if status:
        text = library.miopenGetErrorString(status)
        raise LibraryError(name, text.decode() if text else f"status {status}", _ADVICE)


def _destroy_descriptors(library: ctypes.CDLL, left: list[tuple[str, ctypes.c_void_p]]) -> None:
    while left:
        kind, descriptor = left[-1]
        _call(library, f"miopenDestroy{kind}", descriptor)
        left.pop()


def _destroy(library: ctypes.CDLL, handle: ctypes.c_void_p, left: list[tuple[str, ctypes.c_void_p]]) -> None:
    _destroy_descriptors(library, left)
    _call(library, "miopenDestroy", handle)


def _scaled(tensor: ctypes.c_void_p, address: int) -> tuple[Any, ...]:
    """An operand, times 1."""
    return ctypes.addressof(_ONE), tensor, address


def _unscaled(tensor: ctypes.c_void_p, address: int) -> tuple[Any, ...]:
    """A result, to which 0 of what was there is added."""
    return ctypes.addressof(_ZERO), tensor, address


def _is_countable(dims: tuple[int, ...]) -> bool:
    """Whether there are elements, no more than MIOpen counts in 32 bits."""
    return 0 < math.prod(dims) <= _LARGEST
