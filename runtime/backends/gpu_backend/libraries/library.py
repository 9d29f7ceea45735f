"""Interfaces of the vendors' libraries that a GPU backend calls if they are installed."""

import threading
from enum import Enum
from typing import Any, ClassVar, NamedTuple, Protocol

from .....dtype import DType
from ....core.conv import ParamsConvolution
from ....program.program import LibraryCall
from ....program.values import Address
from ..driver.device import Device
from ..driver.stream import Stream
from .matrices import Matrices

Dims = tuple[int, ...]


class Library:
    """A library at work on a device.

    What it does for ops it describes as steps of their programs, in which all is worked out but the addresses.
    """

    needs: ClassVar[str]
    """The package to install for it."""
    without: ClassVar[str] = "tallow's own kernels do its work"
    """The consequence if it is missing."""
    parts: ClassVar[tuple[str, ...]] = ()
    """The names of libraries that it loads besides and hands its work to."""

    def leave(self) -> None:
        """Drop, at the end of the interpreter, objects whose binding reports as leaked what it finds after that.

        Threads may still call the library, which then refuses.
        """


class StreamLibrary(Library):
    """A handle of a library, on one device and stream. It serves one thread at a time, and raises LibraryError."""

    def __init__(self, device: Device, queue: Stream) -> None:
        self._device: Any = device
        self._queue = queue
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {self._device.label}>"


class Blas(Protocol):
    """Matrix products."""

    def multiply(
        self,
        dtype: DType,
        bmnk: tuple[int, int, int, int],
        lhs: Matrices,
        rhs: Matrices,
        result: Address,
        is_added: bool = False,
        result_dtype: DType | None = None,
    ) -> LibraryCall:
        """The products of b matrices (m, k) with b matrices (k, n), to be written to `result`, contiguous.

        There is something to multiply: b, m, n and k are above 0. f16 and bf16 accumulate in f32, which is their result
        where `result_dtype` says so. What `is_added` is added to what is at `result`, and rounded once. The call raises
        LibraryError.
        """


class BiasedBlas(Protocol):
    """Matrix products to which a row is added."""

    def multiply_and_add(
        self, dtype: DType, mnk: tuple[int, int, int], lhs: Matrices, rhs: Matrices, bias: Address, result: Address
    ) -> LibraryCall | None:
        """The product of matrices (m, k) and (k, n), plus a row of n, all contiguous: see `Blas.multiply`.

        None of what the library refuses.
        """


class ConvolutionKind(Enum):
    """The result of a convolution op: that of a convolution, or the gradient of its input or its kernel.

    Each is computed from the two others of input, kernel and result, in this order.
    """

    FORWARD = "forward"
    INPUT = "input"
    WEIGHT = "weight"

    def result_dims(self, params: ParamsConvolution) -> Dims:
        """The shape of the result."""
        match self:
            case ConvolutionKind.FORWARD:
                return params.out_dims
            case ConvolutionKind.INPUT:
                return params.input_dims
            case ConvolutionKind.WEIGHT:
                return params.kernel_dims


class Convolution(Protocol):
    """Convolutions of lines, images and volumes, with operands and result in the order of the parameters."""

    def convolution(
        self,
        kind: ConvolutionKind,
        dtype: DType,
        params: ParamsConvolution,
        first: Address,
        second: Address,
        result: Address,
    ) -> LibraryCall | None:
        """A convolution or a gradient of it, of operands that are not empty. None of what the library refuses.

        The operands are input and kernel, for the gradient of the input that of the result and the kernel, for that of
        the kernel the input and the gradient of the result. The call raises LibraryError. It may refuse too: then it
        returns False and writes nothing.
        """


class EpilogueParams(NamedTuple):
    """The epilogue of a convolution: activation(x * scale + bias + residual), each of which may be absent."""

    scale: DType | None
    """The dtype of the scale; None without one."""
    bias: DType | None
    has_residual: bool
    activation: str | None
    """The name of an op of one float."""
    result: DType


class FusedConvolution(Convolution, Protocol):
    """Convolutions with an epilogue, and without."""

    def fused_convolution(
        self, dtype: DType, params: ParamsConvolution, epilogue: EpilogueParams, *addresses: Address
    ) -> LibraryCall | None:
        """As `Convolution.convolution`, of input, kernel, the operands of the epilogue, and the result.

        Scale and bias are contiguous, of the operands' dtype or the compute dtype. It is computed in the latter and
        rounded once.
        """


class AttentionParams(NamedTuple):
    """Scaled dot product attention: dims and strides of query, keys and values, as (b, heads, n, size)."""

    query: tuple[Dims, Dims]
    keys: tuple[Dims, Dims]
    values: tuple[Dims, Dims]
    is_causal: bool
    """Whether query i of n sees key j of m only where j <= i + m - n."""
    scale: float


class AttentionGradientParams(NamedTuple):
    """The gradients of an attention: also dims and strides of its result and of the gradient of that."""

    attention: AttentionParams
    result: tuple[Dims, Dims]
    gradient: tuple[Dims, Dims]
    nondeterministic: bool
    """Whether sums may be added up in any order."""


class Attention(Protocol):
    """Attention without the scores in memory. Calls refuse as those of `Convolution` do."""

    def attention(
        self, dtype: DType, params: AttentionParams, query: Address, keys: Address, values: Address, result: Address
    ) -> LibraryCall | None:
        """softmax(query keys^T * scale) values, to be written to `result`, contiguous."""

    def attention_with_logsumexp(
        self,
        dtype: DType,
        params: AttentionParams,
        query: Address,
        keys: Address,
        values: Address,
        result: Address,
        logsumexp: Address,
    ) -> LibraryCall | None:
        """The attention, and log(sum(exp(query keys^T * scale))), an f32 for each query of each head."""

    def attention_gradient(
        self,
        dtype: DType,
        params: AttentionGradientParams,
        query: Address,
        keys: Address,
        values: Address,
        result: Address,
        gradient: Address,
        logsumexp: Address,
        of_query: Address,
        of_keys: Address,
        of_values: Address,
    ) -> LibraryCall | None:
        """The gradients of query, keys and values, which are contiguous."""


class Pooling(Protocol):
    """Pooling of images in NCHW. Calls refuse as those of `Convolution` do."""

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
        """The means of the windows of a contiguous operand of `dims`, of which there are `result_dims`."""


class Transform(Enum):
    """The discrete Fourier transforms that libraries have; none divides by the number of points."""

    FORWARD = "forward"
    INVERSE = "inverse"
    REAL = "real"
    """Of real numbers; the first half of the results is computed."""
    INVERSE_REAL = "inverse real"


class Transforms(Protocol):
    """Discrete Fourier transforms."""

    def transform(
        self, dtype: DType, form: Transform, count: int, lines: int, source: Address, result: Address
    ) -> LibraryCall:  # fmt: skip
        """The transforms of contiguous lines of `count` points, whose parts have a dtype of real numbers.

        Lines are not empty; what is read may be written to. The call raises LibraryError.
        """
