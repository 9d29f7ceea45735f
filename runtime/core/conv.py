"""The sizes that describe a convolution, checked once when they are put together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

from ..base.error import InvalidArgument
from .argument import boolean, integer, integers

_AT_LEAST_1 = frozenset({"k_size", "k_h", "k_w", "stride", "dilation"})
# Libraries and kernels take these in 32 bits.
_STEPS = frozenset({"padding", "output_padding", "stride", "dilation"})
LONGEST_STEP = 2**31 - 1
# Spatial dims.
_MAX_DIMS = 3


def convolved_size(op: str, size: int, kernel: int, padding: tuple[int, int], stride: int, dilation: int) -> int:
    """The size of a dim of a convolution. Raises InvalidArgument where a kernel is longer than the padded elements."""
    free = size + sum(padding) - dilation * (kernel - 1) - 1
    # No kernel fits in a dim without elements, which convolves to one without elements.
    if free < 0 < size:
        reason = f"a kernel of size {kernel} with dilation {dilation} is longer than the {size} elements"
        around = padding[0] if padding[0] == padding[1] else padding
        raise InvalidArgument(op, f"{reason} with padding {around}; pad more or use a shorter kernel")
    return max(free // stride + 1, 0)


def transposed_size(
    op: str, size: int, kernel: int, padding: tuple[int, int], stride: int, dilation: int, output_padding: int
) -> int:
    """The size of a dim of a transposed convolution. Raises InvalidArgument where the padding cuts off too much."""
    full = (size - 1) * stride - sum(padding) + dilation * (kernel - 1) + output_padding + 1
    if full < 0 < size:
        raise InvalidArgument(op, f"the result would have a dim of size {full}; use a padding below {max(padding)}")
    return max(full, 0)


class _Convolution(NamedTuple):
    input_dims: tuple[int, ...]
    kernel_dims: tuple[int, ...]
    result_sizes: tuple[int, ...]
    padding: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    channels_last: bool


class ParamsConvolution(_Convolution):
    """A convolution of (b, c_in, *sizes) with a kernel (c_out, c_in / groups, *kernel), along 1 to 3 dims.

    Element i of the result along a dim is a sum over the kernel's elements t, of kernel[t] and the input at
    i * stride + t * dilation - padding. Before and after the input are zeros, as many as `result_sizes` needs.

    With `channels_last` a method gives its result in the order (b, .., c) of memory, else in (b, c, ..).
    """

    __slots__ = ()

    def __new__(
        cls,
        input_dims: Sequence[int],
        kernel_dims: Sequence[int],
        result_sizes: Sequence[int],
        padding: Sequence[int],
        stride: Sequence[int],
        dilation: Sequence[int],
        groups: int = 1,
        channels_last: bool = False,
    ) -> Self:
        """Check the numbers, of which there is one for each dim."""
        op, dims = "convolution", len(result_sizes) if isinstance(result_sizes, Sequence) else 1
        if not 1 <= dims <= _MAX_DIMS:
            raise InvalidArgument(op, f"result_sizes has 1 to {_MAX_DIMS} dims, not {dims}")

        def read(name: str, values: Sequence[int], count: int, least: int, most: int | None = None) -> tuple[int, ...]:
            numbers = integers(op, name, values, count, f"{count} integers")
            if numbers and (min(numbers) < least or (most is not None and max(numbers) > most)):
                limits = f"{least} or more" if min(numbers) < least else f"{most} or less"
                raise InvalidArgument(op, f"{name} is {limits} along each dim, not {numbers}")
            return numbers

        inputs = read("input_dims", input_dims, dims + 2, 0)
        kernels = read("kernel_dims", kernel_dims, dims + 2, 0)
        sizes = read("result_sizes", result_sizes, dims, 0)
        read("the kernel's sizes", kernels[2:], dims, 1)
        pads = read("padding", padding, dims, 0, LONGEST_STEP)
        steps = [
            read(name, values, dims, 1, LONGEST_STEP) for name, values in (("stride", stride), ("dilation", dilation))
        ]
        count = integer(op, "the number of groups", groups)
        if count < 1:
            raise InvalidArgument(op, f"the number of groups is 1 or more, not {count}")
        if kernels[1] * count != inputs[1] or kernels[0] % count:
            reason = f"a kernel of {kernels[:2]} channels does not fit {inputs[1]} channels in {count} groups"
            raise InvalidArgument(op, f"{reason}; it is (c_out, c_in / groups, ..), c_out a multiple of the groups")
        last = boolean(op, "channels_last", channels_last)
        return super().__new__(cls, inputs, kernels, sizes, pads, steps[0], steps[1], count, last)

    @property
    def general(self) -> Self:
        """The parameters themselves."""
        return self

    @property
    def out_dims(self) -> tuple[int, ...]:
        """The shape of the result."""
        return (self.input_dims[0], self.kernel_dims[0], *self.result_sizes)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of the input."""
        return self.input_dims[2:]

    @property
    def kernel(self) -> tuple[int, ...]:
        """The sizes of the kernel."""
        return self.kernel_dims[2:]

    @property
    def taps(self) -> int:
        """The elements of the kernel for a pair of channels."""
        return math.prod(self.kernel)

    @property
    def channels(self) -> tuple[int, int]:
        """The channels of the input and of the result in a group."""
        return self.kernel_dims[1], self.kernel_dims[0] // self.groups

    @property
    def periods(self) -> tuple[int, ...]:
        """Along each dim, after how many taps input elements have the same residue modulo the stride again."""
        steps = zip(self.stride, self.dilation, strict=True)
        return tuple([stride // math.gcd(stride, dilation) for stride, dilation in steps])

    @property
    def padding_after(self) -> tuple[int, ...]:
        """The zeros after the input along each dim that the last window reaches; below 0, what no window reaches."""
        return tuple(
            (count - 1) * stride + dilation * (taps - 1) + 1 - size - before
            for count, taps, size, before, stride, dilation in zip(
                self.result_sizes, self.kernel, self.sizes, self.padding, self.stride, self.dilation, strict=True
            )
        )

    @property
    def is_padded(self) -> bool:
        """Whether some window reaches beyond the input."""
        return max(*self.padding, *self.padding_after) > 0

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to multiply."""
        return 0 in (*self.input_dims, *self.kernel_dims, *self.result_sizes)

    @property
    def as_images(self) -> Self:
        """These parameters along two dims at least: a line is an image of height 1."""
        return self._along(max(len(self.result_sizes), 2))

    @property
    def as_volumes(self) -> Self:
        """These parameters along three dims: an image is a volume of depth 1."""
        return self._along(_MAX_DIMS)

    def _along(self, count: int) -> Self:
        more = count - len(self.result_sizes)
        ones, zeros = (1,) * more, (0,) * more
        return self._replace(
            input_dims=(*self.input_dims[:2], *ones, *self.sizes),
            kernel_dims=(*self.kernel_dims[:2], *ones, *self.kernel),
            result_sizes=ones + self.result_sizes,
            padding=zeros + self.padding,
            stride=ones + self.stride,
            dilation=ones + self.dilation,
        )


class Params:
    """Parameters that all convolutions share. Not a dataclass: each one more would slow the import down."""

    __slots__: tuple[str, ...] = ()

    op: ClassVar[str]
    # What the dims of the input are called, and those of the kernel.
    input_names: ClassVar[tuple[str, ...]]
    kernel_names: ClassVar[tuple[str, ...]]

    b_size: int
    c_out: int
    padding: int
    stride: int
    dilation: int

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value, least = getattr(self, name), 1 if name in _AT_LEAST_1 else 0
            size = integer(self.op, name, value)
            if size is not value:
                object.__setattr__(self, name, size)
            if size < least:
                raise InvalidArgument(self.op, f"{name} is {least} or more, not {size}")
            if size > LONGEST_STEP and name in _STEPS:
                raise InvalidArgument(self.op, f"{name} is {LONGEST_STEP} or less, not {size}")
        for size, kernel in self._windows():
            self._out(size, kernel)

    @property
    def input_dims(self) -> tuple[int, ...]:
        """The shape of the input."""
        return tuple(getattr(self, name) for name in self.input_names)

    @property
    def kernel_dims(self) -> tuple[int, ...]:
        """The shape of the kernel."""
        return tuple(getattr(self, name) for name in self.kernel_names)

    @property
    def out_dims(self) -> tuple[int, ...]:
        """The shape of the result."""
        return (self.b_size, self.c_out, *(self._out(size, kernel) for size, kernel in self._windows()))

    @property
    def general(self) -> ParamsConvolution:
        """The convolution that these parameters describe, or that they describe the transpose of."""
        dims = len(self.kernel_names) - 2
        padding, stride, dilation = [(step,) * dims for step in (self.padding, self.stride, self.dilation)]
        inner, outer = self._sides()
        return ParamsConvolution(inner, self.kernel_dims, outer[2:], padding, stride, dilation)

    def _windows(self) -> Iterable[tuple[int, int]]:
        return zip(self.input_dims[2:], self.kernel_dims[2:], strict=True)

    def _out(self, size: int, kernel: int) -> int:
        raise NotImplementedError

    def _sides(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The shapes of the convolution's input and result."""
        raise NotImplementedError


class _ParamsConv(Params):
    __slots__ = ()

    def _out(self, size: int, kernel: int) -> int:
        return convolved_size(self.op, size, kernel, (self.padding, self.padding), self.stride, self.dilation)

    def _sides(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return self.input_dims, self.out_dims


class _ParamsConvTranspose(Params):
    __slots__ = ()

    output_padding: int

    def _out(self, size: int, kernel: int) -> int:
        steps = (self.padding, self.padding), self.stride, self.dilation, self.output_padding
        return transposed_size(self.op, size, kernel, *steps)

    def _sides(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return self.out_dims, self.input_dims


@dataclass(frozen=True, slots=True, kw_only=True)
class ParamsConv1D(_ParamsConv):
    """The convolution of (b_size, c_in, l_in) with a kernel (c_out, c_in, k_size): (b_size, c_out, l_out)."""

    op: ClassVar[str] = "conv1d"
    input_names: ClassVar[tuple[str, ...]] = ("b_size", "c_in", "l_in")
    kernel_names: ClassVar[tuple[str, ...]] = ("c_out", "c_in", "k_size")

    b_size: int
    l_in: int
    c_out: int
    c_in: int
    k_size: int
    padding: int
    stride: int
    dilation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ParamsConvTranspose1D(_ParamsConvTranspose):
    """The transposed convolution of (b_size, c_in, l_in) with a kernel (c_in, c_out, k_size)."""

    op: ClassVar[str] = "conv_transpose1d"
    input_names: ClassVar[tuple[str, ...]] = ("b_size", "c_in", "l_in")
    kernel_names: ClassVar[tuple[str, ...]] = ("c_in", "c_out", "k_size")

    b_size: int
    l_in: int
    c_out: int
    c_in: int
    k_size: int
    padding: int
    output_padding: int
    stride: int
    dilation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ParamsConv2D(_ParamsConv):
    """The convolution of (b_size, c_in, i_h, i_w) with a kernel (c_out, c_in, k_h, k_w)."""

    op: ClassVar[str] = "conv2d"
    input_names: ClassVar[tuple[str, ...]] = ("b_size", "c_in", "i_h", "i_w")
    kernel_names: ClassVar[tuple[str, ...]] = ("c_out", "c_in", "k_h", "k_w")

    b_size: int
    i_h: int
    i_w: int
    k_h: int
    k_w: int
    c_out: int
    c_in: int
    padding: int
    stride: int
    dilation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ParamsConvTranspose2D(_ParamsConvTranspose):
    """The transposed convolution of (b_size, c_in, i_h, i_w) with a kernel (c_in, c_out, k_h, k_w)."""

    op: ClassVar[str] = "conv_transpose2d"
    input_names: ClassVar[tuple[str, ...]] = ("b_size", "c_in", "i_h", "i_w")
    kernel_names: ClassVar[tuple[str, ...]] = ("c_in", "c_out", "k_h", "k_w")

    b_size: int
    i_h: int
    i_w: int
    k_h: int
    k_w: int
    c_out: int
    c_in: int
    padding: int
    output_padding: int
    stride: int
    dilation: int
