"""The ops of convolutional networks; inputs are (b, c, l) or (b, c, h, w)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Final, Self

import numpy as np

from .... import results
from ....dtype import DType
from ....op import BinaryOp
from ....storage import Storage
from ...base.bounded_cache import BoundedCache
from ...base.error import InvalidArgument, ShapeMismatch, TallowError
from ...core.argument import integer, integers
from ...core.conv import Params, ParamsConv1D, ParamsConv2D, ParamsConvTranspose1D, ParamsConvTranspose2D
from ...core.extensions import extensions
from ...core.layout import Layout
from ...core.result_shapes import pooled
from ...core.shape import Shape
from ...core.tensor_type import TensorType
from ..base import require_tensors
from ..create import CreationMethods
from ..promotion import DTYPE_ERRORS, common_dtype, promote
from ..shape.joining import cat

_PARAMS: Final[Mapping[str, type[Params]]] = {
    params.op: params for params in (ParamsConv1D, ParamsConv2D, ParamsConvTranspose1D, ParamsConvTranspose2D)
}


class ConvolutionMethods(CreationMethods):
    """Convolutions, pooling and upsampling."""

    __slots__ = ()

    def conv1d(
        self,
        kernel: Self,
        padding: int | tuple[int, int] = 0,
        stride: int = 1,
        dilation: int = 1,
        groups: int = 1,
        bias: Self | None = None,
    ) -> Self:
        """Convolve (b, c_in, l) with a kernel (c_out, c_in / groups, k), zero padded, and add a bias (c_out).

        The result is (b, c_out, (l + 2 * padding - dilation * (k - 1) - 1) // stride + 1); padding is one for both
        ends, or (left, right). With groups, each part of the input channels is convolved with its part of the kernels.

        >>> x, kernel = tl.Tensor([[[1.0, 2.0, 3.0, 4.0]]]), tl.Tensor([[[1.0, -1.0]]])
        >>> x.conv1d(kernel)
        Tensor([[[-1., -1., -1.]]], dtype=f32)
        >>> x.conv1d(kernel, padding=1, stride=2)
        Tensor([[[-1., -1.,  4.]]], dtype=f32)
        >>> x = tl.ones((1, 2, 4))
        >>> x.conv1d(tl.ones((2, 1, 2)), padding=(1, 0), stride=2, groups=2, bias=tl.Tensor([0.0, 5.0]))
        Tensor([[[1., 2.],
                 [6., 7.]]], dtype=f32)
        """
        padded, least = self._padded_unevenly("conv1d", [_ends(padding)])
        steps = {"padding": least, "stride": stride, "dilation": dilation}
        return padded._convolved("conv1d", kernel, groups, steps, bias)

    def conv_transpose1d(
        self,
        kernel: Self,
        padding: int = 0,
        output_padding: int = 0,
        stride: int = 1,
        dilation: int = 1,
        groups: int = 1,
        bias: Self | None = None,
    ) -> Self:
        """Apply the transpose (the gradient) of `conv1d`: (b, c_in, l) with a kernel (c_in, c_out / groups, k).

        A bias (c_out) is added. The result is (b, c_out, (l - 1) * stride - 2 * padding + dilation * (k - 1) +
        output_padding + 1).

        >>> tl.Tensor([[[1.0, 2.0]]]).conv_transpose1d(tl.Tensor([[[1.0, 1.0]]]), stride=2)
        Tensor([[[1., 1., 2., 2.]]], dtype=f32)
        >>> x = tl.ones((1, 2, 2))
        >>> x.conv_transpose1d(tl.ones((2, 1, 2)), padding=1, stride=2, groups=2, bias=tl.Tensor([0.0, 5.0]))
        Tensor([[[1., 1.],
                 [6., 6.]]], dtype=f32)
        """
        steps = {"padding": padding, "output_padding": output_padding, "stride": stride, "dilation": dilation}
        return self._convolved("conv_transpose1d", kernel, groups, steps, bias)

    def conv2d(
        self,
        kernel: Self,
        padding: int | tuple[int, int] | tuple[tuple[int, int], tuple[int, int]] = 0,
        stride: int = 1,
        dilation: int = 1,
        groups: int = 1,
        bias: Self | None = None,
    ) -> Self:
        """Convolve (b, c_in, h, w) with a kernel (c_out, c_in / groups, kh, kw), zero padded, and add a bias (c_out).

        The sizes of the result follow as in `conv1d`, along both dims. Padding is one for both, or one for each, of
        which each may be a pair of those in front and behind.

        >>> tl.ones((1, 3, 8, 8)).conv2d(tl.ones((4, 3, 3, 3)), padding=1, stride=2).shape
        (1, 4, 4, 4)
        >>> x = tl.ones((1, 2, 4, 4))
        >>> x.conv2d(tl.ones((6, 1, 2, 2)), padding=(1, 0), stride=2, groups=2, bias=tl.zeros(6)).shape
        (1, 6, 3, 2)
        """
        pads = padding if isinstance(padding, tuple | list) else (padding, padding)
        padded, least = self._padded_unevenly("conv2d", [_ends(pad) for pad in pads])
        steps = {"padding": least, "stride": stride, "dilation": dilation}
        return padded._convolved("conv2d", kernel, groups, steps, bias)

    def conv_transpose2d(
        self,
        kernel: Self,
        padding: int = 0,
        output_padding: int = 0,
        stride: int = 1,
        dilation: int = 1,
        groups: int = 1,
        bias: Self | None = None,
    ) -> Self:
        """Apply the transpose (the gradient) of `conv2d`: (b, c_in, h, w) with a kernel (c_in, c_out / groups, kh, kw).

        A bias (c_out) is added. The sizes of the result follow as in `conv_transpose1d`, along both dims.

        >>> tl.ones((1, 4, 4, 4)).conv_transpose2d(tl.ones((4, 3, 2, 2)), stride=2).shape
        (1, 3, 8, 8)
        >>> x = tl.ones((1, 2, 4, 4))
        >>> x.conv_transpose2d(tl.ones((2, 3, 2, 2)), padding=1, stride=2, groups=2, bias=tl.zeros(6)).shape
        (1, 6, 6, 6)
        """
        steps = {"padding": padding, "output_padding": output_padding, "stride": stride, "dilation": dilation}
        return self._convolved("conv_transpose2d", kernel, groups, steps, bias)

    def _padded_unevenly(self, op: str, pads: Sequence[Sequence[int]]) -> tuple[Self, int]:
        """Add the zeros that a convolution does not, which adds as many on all sides, and say how many it adds."""
        dims = len(_PARAMS[op].input_names) - 2
        ends = [integers(op, "padding", pair, 2, "an integer, or a pair of integers for a dim") for pair in pads]
        if len(ends) != dims:
            raise InvalidArgument(op, f"padding has {dims} dims, not {len(ends)}; write one number for all")
        least = min(map(min, ends))
        if least < 0 or all(pair == (least, least) for pair in ends) or self.rank != dims + 2:
            return self, least
        return self._padded([(first - least, last - least) for first, last in ends]), least

    def _convolved(self, op: str, kernel: Self, groups: int, steps: Mapping[str, int], bias: Self | None) -> Self:
        """The convolution of each group of channels, one after another, with a bias for each channel of the result."""
        require_tensors(op, kernel=kernel)
        if bias is None:
            try:
                return self._convolved_alone(op, kernel, groups, steps)
            except DTYPE_ERRORS as error:
                x, kernel = promote(error, self, kernel)
            return x._convolved_alone(op, kernel, groups, steps)
        require_tensors(op, bias=bias)
        dtype = common_dtype(op, self.dtype, kernel.dtype, bias.dtype)
        self, kernel, bias = self.to_dtype(dtype), kernel.to_dtype(dtype), bias.to_dtype(dtype)
        params, layout = self._convolution(op, kernel, groups, steps)
        channels = layout.shape[1] * groups
        if bias.shape != (channels,):
            reason = f"the bias is a vector of {channels} elements, one for each channel of the result"
            raise ShapeMismatch(op, (self.shape, bias.shape), reason)
        is_short = dtype.compute is not dtype and 0 not in (*self.shape, *layout.shape)
        try:
            if is_short and params.kernel_names[0] != "c_in":
                return self._convolved_with_ones(op, kernel, bias, groups, steps)
            # Rounded once, with the bias in it.
            wide = dtype.compute if is_short else dtype
            result = self.to_dtype(wide)._convolved_alone(op, kernel.to_dtype(wide), groups, steps)
            biased = result._binary(BinaryOp.ADD, bias.reshape(-1, *[1] * (self.rank - 2)))
            return biased.to_dtype(dtype)
        except TallowError as error:
            error.rename(op)
            raise

    def _convolved_with_ones(self, op: str, kernel: Self, bias: Self, groups: int, steps: Mapping[str, int]) -> Self:
        """The convolution and a bias, rounded once: the bias is the weight of further channels, which are ones.

        The padding of these is of ones too. A multiple of 8 channels remains one, which matrix cores need.
        """
        batch, channels, *sizes = self.shape
        width, padding = kernel.shape[1], steps["padding"]
        more = 8 if width % 8 == 0 else 1
        source = self.reshape(batch, groups, channels // groups, *sizes)
        source = source._padded([(0, 0), *[(padding, padding)] * len(sizes)]) if padding else source
        ones = self.ones((batch, groups, more, *source.shape[3:]), dtype=self.dtype, device=self.device)
        weights = bias.reshape(-1, *[1] * (self.rank - 1))
        weights = weights._padded([(0, more - 1), *[(0, size - 1) for size in kernel.shape[2:]]])
        joined = cat([source, ones], 2).flatten(1, 2)
        return joined._convolved_alone(op, cat([kernel, weights], 1), groups, {**steps, "padding": 0})

    def _convolution(self, op: str, kernel: Self, groups: int, steps: Mapping[str, int]) -> tuple[Params, Layout]:
        numbers = tuple([(name, integer(op, name, step)) for name, step in steps.items()])
        return _convolution(op, self.shape, kernel.shape, integer(op, "the number of groups", groups), numbers)

    def _convolved_alone(self, op: str, kernel: Self, groups: int, steps: Mapping[str, int]) -> Self:
        params, layout = self._convolution(op, kernel, groups, steps)
        if groups == 1:
            convolve = getattr(self._storage, op)
            return self._new(convolve(self._layout, kernel._storage, kernel._layout, params), layout)
        width, depth, parts = self.shape[1] // groups, kernel.shape[0] // groups, []
        for group in range(groups):
            source, weights = self.narrow(1, group * width, width), kernel.narrow(0, group * depth, depth)
            convolve = getattr(source._storage, op)
            parts.append(self._new(convolve(source._layout, weights._storage, weights._layout, params), layout))
            if not kernel.elem_count or not layout.elem_count:
                # Groups are alike where nothing is added up, or nothing results.
                batch, channels, *sizes = layout.shape
                every = batch, groups if channels else 1, channels, *sizes
                return parts[0].unsqueeze(1).broadcast_as(every).flatten(1, 2).contiguous()
        return cat(parts, 1)

    def avg_pool2d(
        self,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] | None = None,
        padding: int | tuple[int, int] = 0,
    ) -> Self:
        """Average the windows (kh, kw) of images (b, c, h, w); the stride is by default the size of the window.

        The result is (b, c, (h + 2 * padding - kh) // sh + 1, (w + 2 * padding - kw) // sw + 1). The zeros of the
        padding count; there are at most half a window of them on each side. Floating-point dtypes only.

        >>> tl.arange(16.0).reshape(1, 1, 4, 4).avg_pool2d(2)
        Tensor([[[[ 2.5,  4.5],
                  [10.5, 12.5]]]], dtype=f32)
        >>> tl.arange(16.0).reshape(1, 1, 4, 4).avg_pool2d((2, 3), stride=(1, 2), padding=(0, 1)).shape
        (1, 1, 3, 2)
        """
        return self._pooled("avg_pool2d", kernel_size, stride, padding, 0)

    def max_pool2d(
        self,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] | None = None,
        padding: int | tuple[int, int] = 0,
    ) -> Self:
        """Take the largest element of the windows of images (b, c, h, w); NaN wins. The sizes are those of
        `avg_pool2d`.

        The padding is below all elements.

        >>> tl.arange(16.0).reshape(1, 1, 4, 4).max_pool2d(2)
        Tensor([[[[ 5.,  7.],
                  [13., 15.]]]], dtype=f32)
        >>> tl.arange(16.0).reshape(1, 1, 4, 4).max_pool2d((2, 3), stride=(1, 2), padding=(0, 1)).shape
        (1, 1, 3, 2)
        """
        return self._pooled("max_pool2d", kernel_size, stride, padding, _lowest(self.dtype))

    def _pooled(
        self,
        op: str,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] | None,
        padding: int | tuple[int, int],
        around: float,
    ) -> Self:
        window = _pair(op, "kernel_size", kernel_size)
        step = window if stride is None else _pair(op, "stride", stride)
        pads = _pair(op, "padding", padding)
        source = self
        if pads != (0, 0):
            if any(not 0 <= 2 * pad <= size for pad, size in zip(pads, window, strict=True)):
                raise InvalidArgument(op, f"padding is from 0 to half of the window {window}, not {pads}")
            if self.rank != 4:
                raise ShapeMismatch(op, (self.shape,), "images are (b, c, h, w); unsqueeze or reshape them first")
            if around and self._storage.is_recorded:
                # Elements that are as low as the padding do not share their gradient with it.
                recorded: Self = extensions.padded_max_pool(self, window, step, pads)
                return recorded
            source = self._padded([(pad, pad) for pad in pads], around)
        storage = getattr(source._storage, op)(source._layout, window, step)
        return self._new(storage, _pooled(source._layout.shape, window, step))

    def upsample_nearest1d(self, size: int) -> Self:
        """Upsample (b, c, l) to (b, c, size) by the nearest element: element i is element floor(i * l / size).

        >>> tl.Tensor([[[1.0, 2.0]]]).upsample_nearest1d(4)
        Tensor([[[1., 1., 2., 2.]]], dtype=f32)
        """
        storage = self._storage.upsample_nearest1d(self._layout, size)
        return self._given(storage, results.upsample_nearest1d, size)

    def upsample_nearest2d(self, height: int, width: int) -> Self:
        """Upsample images (b, c, h, w) to (b, c, height, width), along each dim as `upsample_nearest1d` does.

        >>> tl.Tensor([[[[1.0, 2.0]]]]).upsample_nearest2d(2, 4)
        Tensor([[[[1., 1., 2., 2.],
                  [1., 1., 2., 2.]]]], dtype=f32)
        """
        storage = self._storage.upsample_nearest2d(self._layout, height, width)
        return self._given(storage, results.upsample_nearest2d, height, width)

    def upsample_bilinear2d(
        self,
        height: int,
        width: int,
        align_corners: bool = False,
        scale_h: float | None = None,
        scale_w: float | None = None,
    ) -> Self:
        """Interpolate (b, c, h, w) to (b, c, height, width) as PyTorch's interpolate(mode="bilinear") does.

        scale_h and scale_w are its scale factors, used where align_corners is false; without them the ratios of the
        sizes count. A dim that keeps its size is copied. Floating-point dtypes only.

        >>> tl.Tensor([[[[0.0, 1.0]]]]).upsample_bilinear2d(1, 4)
        Tensor([[[[0.00, 0.25, 0.75, 1.00]]]], dtype=f32)
        """
        storage = self._storage.upsample_bilinear2d(self._layout, height, width, align_corners, scale_h, scale_w)
        return self._given(storage, results.upsample_bilinear2d, height, width)

    def _given(self, storage: Storage, find: Callable[..., TensorType], *sizes: object) -> Self:
        key = find, self._layout.number, *sizes
        layout = _layouts.get(key)
        if layout is None:
            layout = _layouts.keep(key, Layout.contiguous(find(self, *sizes).shape))
        return self._new(storage, layout)


# Of results: by what finds their types, the number of the operand's layout, and other arguments.
_layouts: BoundedCache[tuple[object, ...], Layout] = BoundedCache(1 << 12)


def _ends(pad: int | Sequence[int]) -> Sequence[int]:
    """The zeros in front of a dim and behind it."""
    return pad if isinstance(pad, Sequence) else (pad, pad)


@cache
def _lowest(dtype: DType) -> float:
    """The number of a dtype that none is below."""
    if dtype.is_integer:
        return int(np.iinfo(dtype.numpy).min)
    return -math.inf


@lru_cache(maxsize=1024)
def _pooled(shape: Shape, window: tuple[int, int], step: tuple[int, int]) -> Layout:
    return Layout.contiguous(pooled(shape, window, step))


def _pair(op: str, name: str, size: int | Iterable[int]) -> tuple[int, int]:
    """Return the integers for (h, w) that one integer for both, or a pair of them, means."""
    if type(size) is int:
        return (integer(op, name, size),) * 2
    given = size if isinstance(size, Iterable) else (size, size)
    height, width = integers(op, name, given, 2, "an integer or a pair of integers")
    return height, width


@lru_cache(maxsize=1024)
def _convolution(
    op: str, shape: Shape, kernel: Shape, groups: int, steps: tuple[tuple[str, int], ...]
) -> tuple[Params, Layout]:
    """The parameters of the convolution of each group, and the layout of its result."""
    params_type = _PARAMS[op]
    _check_channels(params_type, shape, kernel, groups)
    batch, channels, *sizes = shape
    names = params_type.input_names + params_type.kernel_names
    dims = batch, channels // groups, *sizes, kernel[0] // groups, *kernel[1:]
    params = params_type(**dict(zip(names, dims, strict=True)), **dict(steps))
    return params, Layout.contiguous(params.out_dims)


def _check_channels(params_type: type[Params], shape: Shape, kernel: Shape, groups: int) -> None:
    op, shapes, rank = params_type.op, (shape, kernel), len(params_type.input_names)
    if len(shape) != rank or len(kernel) != rank:
        raise ShapeMismatch(op, shapes, f"input and kernel have {rank} dims; reshape or unsqueeze them first")
    if groups < 1:
        raise InvalidArgument(op, f"the number of groups is 1 or more, not {groups}")
    c_in, (kernels, channels) = shape[1], kernel[:2]
    if params_type.kernel_names[0] == "c_in":
        if kernels != c_in or c_in % groups:
            reason = f"an input of {c_in} channels in {groups} groups needs {c_in} kernels, a multiple of the groups"
            raise ShapeMismatch(op, shapes, reason)
    elif channels * groups != c_in or kernels % groups:
        reason = f"in {groups} groups, the kernels need {c_in} / {groups} channels and a multiple of {groups} in number"
        raise ShapeMismatch(op, shapes, reason)
