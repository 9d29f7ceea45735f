"""The sizes that describe a convolution, in Candle's names, checked once when they are put together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from ..base.error import InvalidArgument
from .argument import integer

_AT_LEAST_1 = frozenset({"k_size", "k_h", "k_w", "stride", "dilation"})
# Libraries and kernels take these in 32 bits.
_STEPS = frozenset({"padding", "output_padding", "stride", "dilation"})
_LONGEST_STEP = 2**31 - 1


class Window(NamedTuple):
    """The sizes and steps of a convolution along h and w."""

    kernel: tuple[int, int]
    padding: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    result: tuple[int, int]


class Params:
    """What the parameters of all convolutions share. Not a dataclass: each one more would slow the import down."""

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
            given, least = getattr(self, name), 1 if name in _AT_LEAST_1 else 0
            size = integer(self.op, name, given)
            if size is not given:
                object.__setattr__(self, name, size)
            if size < least:
                raise InvalidArgument(self.op, f"{name} is {least} or more, not {size}")
            if size > _LONGEST_STEP and name in _STEPS:
                raise InvalidArgument(self.op, f"{name} is {_LONGEST_STEP} or less, not {size}")
        for size, kernel in self._windows():
            self._check_result(size, kernel)

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
    def window(self) -> Window:
        """The sizes and steps along h and w. A line is an image of height 1."""
        (*_, height, width), (*_, down, across) = (1, *self.kernel_dims[2:]), (1, *self.out_dims[2:])
        steps = self.padding, self.stride, self.dilation
        padding, stride, dilation = zip((0, 1, 1) if len(self.kernel_names) == 3 else steps, steps, strict=True)
        return Window((height, width), padding, stride, dilation, (down, across))

    def _windows(self) -> Iterable[tuple[int, int]]:
        return zip(self.input_dims[2:], self.kernel_dims[2:], strict=True)

    def _check_result(self, size: int, kernel: int) -> None:
        raise NotImplementedError

    def _out(self, size: int, kernel: int) -> int:
        raise NotImplementedError


class _ParamsConv(Params):
    __slots__ = ()

    def _free(self, size: int, kernel: int) -> int:
        return size + 2 * self.padding - self.dilation * (kernel - 1) - 1

    def _check_result(self, size: int, kernel: int) -> None:
        # A dim with no elements has no room for any kernel, and convolves to one with no elements.
        if self._free(size, kernel) < 0 < size:
            reason = f"a kernel of size {kernel} with dilation {self.dilation} is longer than the {size} elements"
            raise InvalidArgument(self.op, f"{reason} with padding {self.padding}; pad more or use a shorter kernel")

    def _out(self, size: int, kernel: int) -> int:
        return max(self._free(size, kernel) // self.stride + 1, 0)


class _ParamsConvTranspose(Params):
    __slots__ = ()

    output_padding: int

    def _full(self, size: int, kernel: int) -> int:
        return (size - 1) * self.stride - 2 * self.padding + self.dilation * (kernel - 1) + self.output_padding + 1

    def _check_result(self, size: int, kernel: int) -> None:
        if self._full(size, kernel) < 0 < size:
            reason = f"the result would have a dim of size {self._full(size, kernel)}"
            raise InvalidArgument(self.op, f"{reason}; use a padding below {self.padding}")

    def _out(self, size: int, kernel: int) -> int:
        return max(self._full(size, kernel), 0)


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
