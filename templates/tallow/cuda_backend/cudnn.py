"""Convolution by cuDNN, through nvidia-cudnn-frontend."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from ..conv import ParamsConv2D
from ..dtype import DType
from ..error import OutOfMemory
from ..gpu_backend import capture
from ..gpu_backend.error import LibraryError
from ..gpu_backend.libraries import Library
from ..gpu_backend.release import release_with
from ..gpu_backend.storage.slice import Slice
from ..kernels.constants import ACCESS_BYTES
from ..shape import Shape
from .context import Context

if TYPE_CHECKING:
    from ..gpu_backend.allocator import CachingAllocator
    from .driver import Driver
    from .stream import CudaStream

_ADVICE: Final = (
    "tallow needs cuDNN 9 of the CUDA that cuda-python is for; without it, it uses cuBLAS and its own kernels"
)

# cuDNN's names of the dtypes.
_NAMES: Final = {DType.BF16: "BFLOAT16", DType.F16: "HALF", DType.F32: "FLOAT"}
# What marks an algorithm whose result is none of ours: its bits vary from run to run, it spreads an infinity to where
# none is, or it rounds what it is given or adds up.
_REFUSED: Final = ("NONDETERMINISTIC", "WINOGRAD", "FFT", "DOWN_CONVERT_INPUTS", "REDUCED_PRECISION_REDUCTION")
# Tensor cores multiply an f32 as a TF32.
_REFUSED_OF_F32: Final = (*_REFUSED, "TENSOR_CORE")
# The engines of cuDNN 9 that were seen to multiply the zeros of the padding too, at steps of 1: infinity times zero is
# NaN. Others leave them out.
_PADDED: Final = ("eng22", "eng62", "eng70")
# The tensors of a plan.
_SOURCE, _KERNEL, _RESULT = 1, 2, 3
# A plan takes milliseconds to make, and memory to keep.
_MOST_PLANS: Final = 256


class _Plan(NamedTuple):
    """How cuDNN does a convolution, and the bytes of workspace that this takes."""

    graph: Any
    nbytes: int


class CuDnn(Library):
    """A handle of cuDNN, of one device and stream: see `libraries.Convolution`. Raises LibraryError."""

    @classmethod
    def open(cls, driver: Driver, allocator: CachingAllocator) -> Self | None:
        """CuDNN on the stream of a driver; None where its frontend or the library is missing."""
        try:
            import cudnn

            cudnn.backend_version()
        # The frontend raises a RuntimeError where it does not find the library.
        except (ImportError, OSError, RuntimeError):
            return None
        return cls(cudnn, driver.device, driver.queue, allocator)

    def __init__(self, library: Any, context: Context, stream: CudaStream, allocator: CachingAllocator) -> None:
        self._library = library
        self._context = context
        self._queue = stream
        self._allocator = allocator
        # A handle serves one thread at a time.
        self._lock = threading.Lock()
        # None of those that cuDNN does not take, or only in a way that is refused.
        self._plans: dict[tuple[DType, ParamsConv2D], _Plan | None] = {}
        with context.activated():
            handle = self._handle = self._call("create_handle", library.create_handle)
            release_with(self, _destroy, library, context, handle)
            self._set_stream(stream.handle)

    def conv2d(self, dtype: DType, params: ParamsConv2D, source: int, kernel: int, result: int) -> bool:
        """Enqueue a convolution. Which algorithm serves it cuDNN knows without trying: it is the same on every run."""
        if (source | kernel | result) % ACCESS_BYTES:
            return False
        with self._lock, self._context.activated():
            plan = self._plan(dtype, params)
            if plan is None:
                return False
            try:
                # The next owner of the workspace works after this in the stream.
                workspace = Slice(self._allocator, plan.nbytes)
            except OutOfMemory:
                return False
            # The frontend takes no other integers for addresses.
            addresses = {_SOURCE: int(source), _KERNEL: int(kernel), _RESULT: int(result)}
            given = "execute", plan.graph.execute, addresses, workspace.address, self._handle
            capture.enqueue(self._queue, self._set_stream, self._call, *given)
        return True

    def _set_stream(self, stream: Any) -> None:
        self._call("set_stream", self._library.set_stream, handle=self._handle, stream=int(stream))

    def _plan(self, dtype: DType, params: ParamsConv2D) -> _Plan | None:
        key = dtype, params
        if key not in self._plans:
            if len(self._plans) == _MOST_PLANS:
                del self._plans[next(iter(self._plans))]
            self._plans[key] = self._call("graph", self._new_plan, dtype, params)
        return self._plans[key]

    def _new_plan(self, dtype: DType, params: ParamsConv2D) -> _Plan | None:
        library = self._library
        kind, sums = getattr(library.data_type, _NAMES[dtype]), library.data_type.FLOAT
        try:
            graph = library.pygraph(
                io_data_type=kind, intermediate_data_type=sums, compute_data_type=sums, handle=self._handle
            )
            source, kernel = [
                graph.tensor(name=str(uid), dim=[*dims], stride=_strides(dims), data_type=kind, uid=uid)
                for uid, dims in ((_SOURCE, params.input_dims), (_KERNEL, params.kernel_dims))
            ]
            steps = {name: [getattr(params, name)] * 2 for name in ("padding", "stride", "dilation")}
            result = graph.conv_fprop(image=source, weight=kernel, **steps)
            result.set_output(True).set_data_type(kind).set_uid(_RESULT)
            result.set_dim([*params.out_dims]).set_stride(_strides(params.out_dims))
            graph.validate()
            graph.build_operation_graph()
            graph.create_execution_plans([library.heur_mode.A, library.heur_mode.FALLBACK])
            refused = _REFUSED_OF_F32 if dtype is DType.F32 else _REFUSED
            graph.deselect_numeric_notes([getattr(library.numerical_note, name) for name in refused])
            if params.padding and not _leave_padded(graph, params):
                return None
            graph.check_support()
            graph.build_plans()
            if params.padding and _engine(graph.get_plan_name_at_index(graph._plan_index)) not in _PADDED:
                return None
            return _Plan(graph, graph.get_workspace_size())
        # A frontend that lacks one of these calls is of another kind than this one.
        except (library.cudnnGraphNotSupportedError, AttributeError):
            return None

    def _call(self, name: str, function: Any, *arguments: Any, **options: Any) -> Any:
        try:
            return function(*arguments, **options)
        # What the frontend raises of its own are these.
        except (RuntimeError, ValueError) as error:
            raise LibraryError(f"cudnn {name}", str(error), _ADVICE) from error

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {self._context.label}>"


def _leave_padded(graph: Any, params: ParamsConv2D) -> bool:
    """Whether engines are left that multiply the zeros of the padding; the others are deselected."""
    if (params.stride, params.dilation) != (1, 1):
        return False
    names = [graph.get_plan_name_at_index(index) for index in range(graph.get_execution_plan_count())]
    # Engines are known by a part of a plan's name: eng2 would be eng22 too.
    graph.deselect_engines(sorted({f"{_engine(name)}_" for name in names if _engine(name) not in _PADDED}))
    return any(_engine(name) in _PADDED for name in names)


def _engine(name: str) -> str:
    return name.partition("_")[0]


def _strides(dims: tuple[int, ...]) -> list[int]:
    return [*Shape._trusted(dims).contiguous_strides()]


def _destroy(library: Any, context: Context, handle: Any) -> None:
    with context.activated():
        library.destroy_handle(handle)
