"""The ops of convolutional networks; inputs are (b, c, l), (b, c, h, w) or (b, c, d, h, w)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, Self, TypeAlias

from .... import results
from ....op import BinaryOp
from ....storage import Storage
from ...base.bounded_cache import BoundedCache
from ...base.error import InvalidArgument, ShapeMismatch, TallowError
from ...core.argument import integer, integers
from ...core.conv import LONGEST_STEP, ParamsConvolution, convolved_size, transposed_size
from ...core.extensions import extensions
from ...core.layout import Layout, channels_last_order, inverse, layout_of
from ...core.shape import Shape
from ...core.tensor_type import TensorType
from ...storage.calls import live_autocasts
from ..base import TensorBase, require_tensors
from ..create import CreationMethods
from ..math.linear import LinearMethods
from ..promotion import DTYPE_ERRORS, common_dtype, promote

# One number, or one for each dim, each of which may be a pair of those before and after; or "same" or "valid".
Padding: TypeAlias = int | str | Sequence[Any]

# No scale, no residual and no activation.
_NOTHING: Final = None, None, None
# The arguments other than operands, as errors name them.
_STEPS: Final = "padding", "stride", "dilation", "the number of groups", "output_padding"


class ConvolutionMethods(CreationMethods, LinearMethods):
    """Convolutions and upsampling."""

    __slots__ = ()

    def conv1d(
        self,
        kernel: Self,
        padding: Padding = 0,
        stride: int | Sequence[int] = 1,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        bias: Self | None = None,
        *,
        scale: Self | None = None,
        residual: Self | None = None,
        activation: str | None = None,
    ) -> Self:
        """Convolve (b, c_in, l) with a kernel (c_out, c_in / groups, k), zero padded, and add a bias (c_out).

        The result is (b, c_out, (l + left + right - dilation * (k - 1) - 1) // stride + 1). Padding is one number for
        both ends, or (left, right), or "valid" for none, or "same" for a result as long as the input, which needs a
        stride of 1. With groups, each part of the input channels is convolved with its part of the kernels.

        The result is activation(convolution * scale + bias + residual), of those that are passed. `scale` (c_out) and
        `bias` are the affine of an inference batch norm, which may be f32 for short floats. `residual` has the shape of
        the result, and `activation` is the name of an op such as "relu". It is one op, in f32 and rounded once.

        >>> x, kernel = tl.Tensor([[[1.0, 2.0, 3.0, 4.0]]]), tl.Tensor([[[1.0, -1.0]]])
        >>> x.conv1d(kernel)
        Tensor([[[-1., -1., -1.]]], dtype=f32)
        >>> x.conv1d(kernel, padding=1, stride=2)
        Tensor([[[-1., -1.,  4.]]], dtype=f32)
        >>> x.conv1d(kernel, padding="same")
        Tensor([[[-1., -1., -1.,  4.]]], dtype=f32)
        >>> x = tl.ones((1, 2, 4))
        >>> x.conv1d(tl.ones((2, 1, 2)), padding=(1, 0), stride=2, groups=2, bias=tl.Tensor([0.0, 5.0]))
        Tensor([[[1., 2.],
                 [6., 7.]]], dtype=f32)
        """
        epilogue = scale, residual, activation
        if type(padding) is not int and isinstance(padding, Iterable) and not isinstance(padding, str):
            sides = tuple(padding)
            padding = sides if len(sides) == 1 else (sides,)
        return self._convolved("conv1d", kernel, padding, stride, dilation, groups, bias, epilogue)

    def conv2d(
        self,
        kernel: Self,
        padding: Padding = 0,
        stride: int | Sequence[int] = 1,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        bias: Self | None = None,
        *,
        scale: Self | None = None,
        residual: Self | None = None,
        activation: str | None = None,
    ) -> Self:
        """Convolve (b, c_in, h, w) with a kernel (c_out, c_in / groups, kh, kw), zero padded, and add a bias (c_out).

        The sizes of the result follow as in `conv1d`, along both dims. Padding, stride and dilation are one number for
        both, or one for each; a padding may be a pair of those before and after, and "same" or "valid".

        >>> tl.ones((1, 3, 8, 8)).conv2d(tl.ones((4, 3, 3, 3)), padding=1, stride=2).shape
        (1, 4, 4, 4)
        >>> x = tl.ones((1, 2, 4, 4))
        >>> x.conv2d(tl.ones((6, 1, 2, 2)), padding=(1, 0), stride=2, groups=2, bias=tl.zeros(6)).shape
        (1, 6, 3, 2)
        >>> kernel, scale, bias = tl.ones((1, 2, 4, 4)), tl.Tensor([0.5]), tl.Tensor([-20.0])
        >>> x.conv2d(kernel, scale=scale, bias=bias, activation="relu").item()
        0.0
        """
        epilogue = scale, residual, activation
        return self._convolved("conv2d", kernel, padding, stride, dilation, groups, bias, epilogue)

    def conv3d(
        self,
        kernel: Self,
        padding: Padding = 0,
        stride: int | Sequence[int] = 1,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        bias: Self | None = None,
        *,
        scale: Self | None = None,
        residual: Self | None = None,
        activation: str | None = None,
    ) -> Self:
        """Convolve (b, c_in, d, h, w) with a kernel (c_out, c_in / groups, kd, kh, kw), as `conv2d` does.

        >>> tl.ones((1, 2, 4, 8, 8)).conv3d(tl.ones((4, 2, 1, 3, 3)), padding=(0, 1, 1), stride=(1, 2, 2)).shape
        (1, 4, 4, 4, 4)
        """
        epilogue = scale, residual, activation
        return self._convolved("conv3d", kernel, padding, stride, dilation, groups, bias, epilogue)

    def conv_transpose1d(
        self,
        kernel: Self,
        padding: int | Sequence[int] = 0,
        output_padding: int | Sequence[int] = 0,
        stride: int | Sequence[int] = 1,
        dilation: int | Sequence[int] = 1,
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
        return self._convolved(
            "conv_transpose1d", kernel, padding, stride, dilation, groups, bias, _NOTHING, output_padding
        )

    def conv_transpose2d(
        self,
        kernel: Self,
        padding: int | Sequence[int] = 0,
        output_padding: int | Sequence[int] = 0,
        stride: int | Sequence[int] = 1,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        bias: Self | None = None,
    ) -> Self:
        """Apply the transpose (the gradient) of `conv2d`: (b, c_in, h, w) with a kernel (c_in, c_out / groups, kh, kw).

        A bias (c_out) is added. The sizes of the result follow as in `conv_transpose1d`, along both dims, for which
        padding, output_padding, stride and dilation are one number, or one each.

        >>> tl.ones((1, 4, 4, 4)).conv_transpose2d(tl.ones((4, 3, 2, 2)), stride=2).shape
        (1, 3, 8, 8)
        >>> x = tl.ones((1, 2, 4, 4))
        >>> x.conv_transpose2d(tl.ones((2, 3, 2, 2)), padding=1, stride=2, groups=2, bias=tl.zeros(6)).shape
        (1, 6, 6, 6)
        """
        return self._convolved(
            "conv_transpose2d", kernel, padding, stride, dilation, groups, bias, _NOTHING, output_padding
        )

    def conv_transpose3d(
        self,
        kernel: Self,
        padding: int | Sequence[int] = 0,
        output_padding: int | Sequence[int] = 0,
        stride: int | Sequence[int] = 1,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        bias: Self | None = None,
    ) -> Self:
        """Apply the transpose of `conv3d`: (b, c_in, d, h, w) with a kernel (c_in, c_out / groups, kd, kh, kw).

        >>> tl.ones((1, 4, 2, 4, 4)).conv_transpose3d(tl.ones((4, 3, 1, 2, 2)), stride=(1, 2, 2)).shape
        (1, 3, 2, 8, 8)
        """
        return self._convolved(
            "conv_transpose3d", kernel, padding, stride, dilation, groups, bias, _NOTHING, output_padding
        )

    def _convolved(
        self,
        op: str,
        kernel: Self,
        padding: Padding,
        stride: int | Sequence[int],
        dilation: int | Sequence[int],
        groups: int,
        bias: Self | None,
        epilogue: tuple[Self | None, Self | None, str | None],
        output_padding: int | Sequence[int] | None = None,
    ) -> Self:
        """A convolution, or with an output padding a transposed one, and a bias for each channel of the result."""
        if not isinstance(kernel, TensorBase):
            require_tensors(op, kernel=kernel)
        scale, residual, activation = epilogue
        if live_autocasts:
            self, kernel, bias, residual = extensions.narrowed(self, kernel, bias, residual)
        steps = padding, stride, dilation, groups, output_padding
        # What is known by the integer 1 is not for 1.0.
        are_plain = type(padding) is type(stride) is type(dilation) is type(groups) is int
        if not are_plain or (output_padding is not None and type(output_padding) is not int):
            steps = _plain_steps(op, steps)
        key = op, self._layout.number, kernel._layout.number, *steps
        known = _convolutions.get(key)
        if known is None:
            is_channels_last = self._layout.is_channels_last
            known = _convolutions.put(key, _convolution(op, self.shape, kernel.shape, is_channels_last, *steps))
        params, layout = known
        if bias is None and scale is None and residual is None and activation is None:
            try:
                return self._convolved_alone(kernel, params, layout, output_padding)
            except DTYPE_ERRORS as error:
                error.rename(op)
                x, kernel = promote(error, self, kernel)
            return x._convolved_alone(kernel, params, layout, output_padding)
        try:
            return self._convolved_with_epilogue(
                op, kernel, bias, scale, residual, activation, params, layout, output_padding
            )
        except TallowError as error:
            error.rename(op)
            raise

    def _convolved_with_epilogue(
        self,
        op: str,
        kernel: Self,
        bias: Self | None,
        scale: Self | None,
        residual: Self | None,
        activation: str | None,
        params: ParamsConvolution,
        layout: Layout,
        output_padding: int | Sequence[int] | None,
    ) -> Self:
        """activation(convolution * scale + bias + residual), rounded once."""
        operands = ("scale", scale), ("bias", bias), ("residual", residual)
        dtype, channels = self.dtype, layout.shape[1]
        if kernel.dtype is not dtype:
            dtype = common_dtype(op, dtype, kernel.dtype)
        for name, operand in operands:
            if operand is None:
                continue
            if not isinstance(operand, TensorBase):
                require_tensors(op, **{name: operand})
            own = operand.dtype
            # Like weights of norms, the affine of short floats may be of f32.
            if own is not dtype and (name == "residual" or scale is None or own is not dtype.compute):
                dtype = common_dtype(op, dtype, own)
            if name != "residual" and operand.shape != (channels,):
                reason = f"the {name} is a vector of {channels} elements, one for each channel of the result"
                raise ShapeMismatch(op, (self.shape, operand.shape), reason)
        wide = dtype.compute
        has_only_bias = scale is None and residual is None and activation is None
        if output_padding is None and (dtype.is_float or not has_only_bias):
            tail: list[Any] = []
            for name, operand in operands:
                if operand is not None and operand.dtype is not dtype:
                    operand = operand.to_dtype(dtype if name == "residual" else wide)
                tail += (None, None) if operand is None else (operand._storage, operand._layout)
            self, kernel = self.to_dtype(dtype), kernel.to_dtype(dtype)
            fuse: Any = self._storage.fused_convolution
            return self._new(fuse(self._layout, kernel._storage, kernel._layout, *tail, activation, params), layout)
        assert bias is not None, "integers and transposed convolutions have no other epilogue"
        if dtype is not wide and dtype.is_float and _is_linear(params):
            return self.to_dtype(dtype)._transposed_linear(kernel.to_dtype(dtype), bias.to_dtype(dtype), params)
        # Rounded once, with the bias in it.
        result = self.to_dtype(wide)._convolved_alone(kernel.to_dtype(wide), params, layout, output_padding)
        biased = result._binary(BinaryOp.ADD, bias.to_dtype(wide).reshape(-1, *[1] * (self.rank - 2)))
        return biased.to_dtype(dtype)

    def _transposed_linear(self, kernel: Self, bias: Self, params: ParamsConvolution) -> Self:
        """A transposed convolution whose windows do not overlap: a linear layer of each element makes one window."""
        c_in, c_out, *taps = kernel.shape
        batch, dims, columns = self.shape[0], len(taps), c_out * params.taps
        biases = bias.reshape(c_out, 1).broadcast_as((c_out, params.taps)).reshape(columns)
        pixels = self.permute(channels_last_order(self.rank)).reshape(batch * math.prod(params.result_sizes), c_in)
        rows = pixels.linear(kernel.reshape(c_in, columns).T, biases)
        windows = rows.reshape(batch, *self.shape[2:], c_out, *taps)
        spatial = [dim for axis in range(1, dims + 1) for dim in (axis, axis + dims + 1)]
        sizes = params.input_dims[2:]
        if params.channels_last:
            last = windows.permute(0, *spatial, dims + 1).reshape(batch, *sizes, c_out)
            return last.permute(inverse(channels_last_order(self.rank)))
        return windows.permute(0, dims + 1, *spatial).reshape(batch, c_out, *sizes)

    def _convolved_alone(
        self, kernel: Self, params: ParamsConvolution, layout: Layout, output_padding: int | Sequence[int] | None
    ) -> Self:
        storage = self._storage
        convolve = storage.convolution if output_padding is None else storage.convolution_gradient_input
        return self._new(convolve(self._layout, kernel._storage, kernel._layout, params), layout)

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

    def upsample_bicubic2d(
        self,
        height: int,
        width: int,
        align_corners: bool = False,
        scale_h: float | None = None,
        scale_w: float | None = None,
    ) -> Self:
        """Interpolate (b, c, h, w) to (b, c, height, width) as PyTorch's interpolate(mode="bicubic") does.

        The arguments are those of `upsample_bilinear2d`. Each element is computed from the sixteen nearest; results
        may lie outside the range of the source. Floating-point dtypes only.

        >>> tl.Tensor([[[[0.0, 1.0]]]]).upsample_bicubic2d(1, 4)
        Tensor([[[[-0.1055,  0.2266,  0.7734,  1.1055]]]], dtype=f32)
        """
        storage = self._storage.upsample_bicubic2d(self._layout, height, width, align_corners, scale_h, scale_w)
        return self._given(storage, results.upsample_bicubic2d, height, width)

    def _given(self, storage: Storage, find: Callable[..., TensorType], *sizes: object) -> Self:
        key = find, self._layout.number, *sizes
        layout = _layouts.get(key)
        if layout is None:
            layout = _layouts.put(key, Layout.contiguous(find(self, *sizes).shape))
        return self._new(storage, layout)


# Of results: by what finds their types, the number of the operand's layout, and other arguments.
_layouts: BoundedCache[tuple[object, ...], Layout] = BoundedCache(1 << 12)
# Of convolutions: by the method, the numbers of the operands' layouts, and the other arguments.
_convolutions: BoundedCache[tuple[object, ...], tuple[ParamsConvolution, Layout]] = BoundedCache(1 << 12)


def _plain(op: str, name: str, value: Any) -> Any:
    """An argument as Python's integers, in tuples where it has several: what is cached by them is not for 1.0."""
    if isinstance(value, str):
        return value
    if isinstance(value, Iterable):
        # An array without dims has a method for its elements, which raises an error.
        with suppress(TypeError):
            return tuple([each if type(each) is int else _plain(op, name, each) for each in value])
    return integer(op, name, value)


def _plain_steps(op: str, steps: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(
        [None if value is None else _plain(op, name, value) for name, value in zip(_STEPS, steps, strict=True)]
    )


def _convolution(
    op: str,
    shape: Shape,
    kernel: Shape,
    channels_last: bool,
    padding: Any,
    stride: Any,
    dilation: Any,
    groups: Any,
    output_padding: Any,
) -> tuple[ParamsConvolution, Layout]:
    """The parameters of a convolution, or of the one whose transpose is meant, and the layout of the result."""
    dims, is_transposed = int(op[-2]), output_padding is not None
    groups = integer(op, "the number of groups", groups)
    _check_channels(op, shape, kernel, groups, is_transposed)
    sizes, taps = shape[2:], kernel[2:]
    strides, dilations = _steps(op, "stride", stride, dims, 1), _steps(op, "dilation", dilation, dims, 1)
    for size in taps:
        if size < 1:
            raise InvalidArgument(op, f"a kernel has 1 or more elements along each dim, not {tuple(taps)}")
    pads = _pads(op, padding, taps, strides, dilations)
    each = zip(sizes, taps, pads, strides, dilations, strict=True)
    front = tuple(before for before, _ in pads)
    if is_transposed:
        more = _steps(op, "output_padding", output_padding, dims, 0)
        spatial = [transposed_size(op, *numbers, extra) for numbers, extra in zip(each, more, strict=True)]
        result = (shape[0], kernel[1] * groups, *spatial)
        params = ParamsConvolution(result, kernel, sizes, front, strides, dilations, groups, channels_last)
        return params, layout_of(result, params.channels_last)
    spatial = [convolved_size(op, *numbers) for numbers in each]
    params = ParamsConvolution(shape, kernel, spatial, front, strides, dilations, groups, channels_last)
    return params, layout_of(params.out_dims, params.channels_last)


def _is_linear(params: ParamsConvolution) -> bool:
    """Return True for a transposed convolution whose windows tile the result."""
    tiles = [count * step for count, step in zip(params.result_sizes, params.stride, strict=True)]
    is_tiled = params.kernel == params.stride and [*params.sizes] == tiles
    return is_tiled and params.groups == 1 and {*params.padding} == {0} and {*params.dilation} == {1}


def _steps(op: str, name: str, value: Any, dims: int, least: int) -> tuple[int, ...]:
    """The numbers along each dim that one number for all, or one for each, means."""
    values = value if isinstance(value, tuple) else (value,) * dims
    plural = "an integer" if dims == 1 else f"an integer, or {dims} of them"
    numbers = tuple(integer(op, name, each) for each in integers(op, name, values, dims, plural))
    if min(numbers) < least:
        raise InvalidArgument(op, f"{name} is {least} or more, not {min(numbers)}")
    if max(numbers) > LONGEST_STEP:
        raise InvalidArgument(op, f"{name} is {LONGEST_STEP} or less, not {max(numbers)}")
    return numbers


def _pads(
    op: str, padding: Any, taps: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> list[tuple[int, int]]:
    """The zeros before and after each dim."""
    dims = len(taps)
    if padding == "valid":
        return [(0, 0)] * dims
    if padding == "same":
        if any(step != 1 for step in strides):
            raise InvalidArgument(op, f"padding 'same' goes with a stride of 1, not {tuple(strides)}; pad by numbers")
        totals = [dilation * (size - 1) for size, dilation in zip(taps, dilations, strict=True)]
        return [(total // 2, total - total // 2) for total in totals]
    if isinstance(padding, str):
        raise InvalidArgument(op, f"padding is 'same', 'valid' or numbers, not {padding!r}")
    values = padding if isinstance(padding, tuple) else (padding,) * dims
    if len(values) != dims:
        raise InvalidArgument(op, f"padding has {dims} dims, not {len(values)}; write one number for all")
    pairs = [pair if isinstance(pair, tuple) else (pair, pair) for pair in values]
    before, after = [
        _steps(op, "padding", tuple(side), dims, 0)
        for side in zip(
            *(integers(op, "padding", pair, 2, "an integer, or a pair of integers for a dim") for pair in pairs),
            strict=True,
        )
    ]
    return list(zip(before, after, strict=True))


def _check_channels(op: str, shape: Shape, kernel: Shape, groups: int, is_transposed: bool) -> None:
    shapes, rank = (shape, kernel), int(op[-2]) + 2
    if len(shape) != rank or len(kernel) != rank:
        raise ShapeMismatch(op, shapes, f"input and kernel have {rank} dims; reshape or unsqueeze them first")
    if groups < 1:
        raise InvalidArgument(op, f"the number of groups is 1 or more, not {groups}")
    c_in, (kernels, channels) = shape[1], kernel[:2]
    if is_transposed:
        if kernels != c_in or c_in % groups:
            reason = f"an input of {c_in} channels in {groups} groups needs {c_in} kernels, a multiple of the groups"
            raise ShapeMismatch(op, shapes, reason)
    elif channels * groups != c_in or kernels % groups:
        reason = f"in {groups} groups, the kernels need {c_in} / {groups} channels and a multiple of {groups} in number"
        raise ShapeMismatch(op, shapes, reason)
