"""Pooling of lines (b, c, l), images (b, c, h, w) and volumes (b, c, d, h, w)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Self

from ...base.error import InvalidArgument, ShapeMismatch, TallowError
from ...core.argument import boolean, integer, integers
from ...core.conv import LONGEST_STEP
from ...core.layout import Layout, channels_last_order, inverse
from ...core.pool import ParamsPool, longest_adaptive, pooled_size
from ...core.shape import Shape
from ..create import CreationMethods

_INPUTS = {
    1: "lines have 3 dims, (b, c, l)",
    2: "images have 4 dims, (b, c, h, w)",
    3: "volumes have 5 dims, (b, c, d, h, w)",
}
_MAX_RANK = max(_INPUTS) + 2
_KINDS = {1: "an integer", 2: "an integer or a pair of integers", 3: "an integer or three integers"}


class PoolingMethods(CreationMethods):
    """Pooling."""

    __slots__ = ()

    def avg_pool1d(
        self,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> Self:
        """Average windows of lines (b, c, l); the stride is by default the size of the window.

        The result is (b, c, (l + 2 * padding - kernel_size) // stride + 1). With `ceil_mode` the division rounds up, so
        that a last window may reach beyond the padding, if it begins within the line or the padding before it. The
        zeros of the padding count unless `count_include_pad` is false; what lies beyond them never does. There is at
        most half a window of padding on each side. Floating-point dtypes only.

        >>> tl.arange(5.0).reshape(1, 1, 5).avg_pool1d(2)
        Tensor([[[0.5, 2.5]]], dtype=f32)
        >>> tl.arange(5.0).reshape(1, 1, 5).avg_pool1d(2, ceil_mode=True)
        Tensor([[[0.5, 2.5, 4. ]]], dtype=f32)
        >>> tl.ones((1, 1, 4)).avg_pool1d(3, stride=1, padding=1, count_include_pad=False)
        Tensor([[[1., 1., 1., 1.]]], dtype=f32)
        """
        return self._pooled("avg_pool1d", kernel_size, stride, padding, 1, ceil_mode, count_include_pad)

    def max_pool1d(
        self,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        ceil_mode: bool = False,
    ) -> Self:
        """Take the largest element of windows of lines (b, c, l); NaN wins.

        The elements of a window are at steps of `dilation`. The sizes are those of `avg_pool1d` with windows of
        dilation * (kernel_size - 1) + 1 elements. The padding is below all elements and takes no gradient; elements
        that are equal share theirs.

        >>> tl.arange(5.0).reshape(1, 1, 5).max_pool1d(2)
        Tensor([[[1., 3.]]], dtype=f32)
        >>> tl.arange(5.0).reshape(1, 1, 5).max_pool1d(2, stride=1, padding=1, dilation=3)
        Tensor([[[2., 3., 4., 2.]]], dtype=f32)
        """
        return self._pooled("max_pool1d", kernel_size, stride, padding, dilation, ceil_mode, True)

    def adaptive_avg_pool1d(self, output_size: int | Sequence[int]) -> Self:
        """Average (b, c, l) to (b, c, output_size): window i is elements floor(i * l / output_size) up to
        ceil((i + 1) * l / output_size).

        >>> tl.arange(5.0).reshape(1, 1, 5).adaptive_avg_pool1d(2)
        Tensor([[[1., 3.]]], dtype=f32)
        """
        return self._adapted("adaptive_avg_pool1d", output_size)

    def adaptive_max_pool1d(self, output_size: int | Sequence[int]) -> Self:
        """Take the largest elements of the windows of `adaptive_avg_pool1d`; NaN wins.

        >>> tl.arange(5.0).reshape(1, 1, 5).adaptive_max_pool1d(2)
        Tensor([[[2., 4.]]], dtype=f32)
        """
        return self._adapted("adaptive_max_pool1d", output_size)

    def avg_pool2d(
        self,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> Self:
        """Average windows (kh, kw) of images (b, c, h, w), along both dims as `avg_pool1d` does.

        >>> tl.arange(16.0).reshape(1, 1, 4, 4).avg_pool2d(2)
        Tensor([[[[ 2.5,  4.5],
                  [10.5, 12.5]]]], dtype=f32)
        >>> tl.arange(16.0).reshape(1, 1, 4, 4).avg_pool2d((2, 3), stride=(1, 2), padding=(0, 1)).shape
        (1, 1, 3, 2)
        """
        return self._pooled("avg_pool2d", kernel_size, stride, padding, 1, ceil_mode, count_include_pad)

    def max_pool2d(
        self,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        ceil_mode: bool = False,
    ) -> Self:
        """Take the largest element of windows (kh, kw) of images (b, c, h, w), as `max_pool1d` does; NaN wins.

        >>> tl.arange(16.0).reshape(1, 1, 4, 4).max_pool2d(2)
        Tensor([[[[ 5.,  7.],
                  [13., 15.]]]], dtype=f32)
        >>> tl.arange(16.0).reshape(1, 1, 4, 4).max_pool2d((2, 3), stride=(1, 2), padding=(0, 1)).shape
        (1, 1, 3, 2)
        """
        return self._pooled("max_pool2d", kernel_size, stride, padding, dilation, ceil_mode, True)

    def adaptive_avg_pool2d(self, output_size: int | Sequence[int]) -> Self:
        """Average images (b, c, h, w) to (b, c, *output_size), along both dims as `adaptive_avg_pool1d` does.

        >>> tl.arange(16.0).reshape(1, 1, 4, 4).adaptive_avg_pool2d((1, 3))
        Tensor([[[[6.5, 7.5, 8.5]]]], dtype=f32)
        """
        return self._adapted("adaptive_avg_pool2d", output_size)

    def adaptive_max_pool2d(self, output_size: int | Sequence[int]) -> Self:
        """Take the largest elements of the windows of `adaptive_avg_pool2d`; NaN wins.

        >>> tl.arange(16.0).reshape(1, 1, 4, 4).adaptive_max_pool2d((1, 3))
        Tensor([[[[13., 14., 15.]]]], dtype=f32)
        """
        return self._adapted("adaptive_max_pool2d", output_size)

    def avg_pool3d(
        self,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> Self:
        """Average windows (kd, kh, kw) of volumes (b, c, d, h, w), along each dim as `avg_pool1d` does.

        >>> tl.ones((1, 2, 4, 6, 8)).avg_pool3d((1, 2, 2)).shape
        (1, 2, 4, 3, 4)
        """
        return self._pooled("avg_pool3d", kernel_size, stride, padding, 1, ceil_mode, count_include_pad)

    def max_pool3d(
        self,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        ceil_mode: bool = False,
    ) -> Self:
        """Take the largest element of windows (kd, kh, kw) of volumes (b, c, d, h, w), as `max_pool1d` does.

        >>> tl.ones((1, 2, 4, 6, 8)).max_pool3d(3, stride=2, padding=1).shape
        (1, 2, 2, 3, 4)
        """
        return self._pooled("max_pool3d", kernel_size, stride, padding, dilation, ceil_mode, True)

    def adaptive_avg_pool3d(self, output_size: int | Sequence[int]) -> Self:
        """Average volumes (b, c, d, h, w) to (b, c, *output_size), along each dim as `adaptive_avg_pool1d` does.

        >>> tl.ones((1, 2, 4, 6, 8)).adaptive_avg_pool3d((1, 4, 4)).shape
        (1, 2, 1, 4, 4)
        """
        return self._adapted("adaptive_avg_pool3d", output_size)

    def adaptive_max_pool3d(self, output_size: int | Sequence[int]) -> Self:
        """Take the largest elements of the windows of `adaptive_avg_pool3d`; NaN wins.

        >>> tl.ones((1, 2, 4, 6, 8)).adaptive_max_pool3d(3).shape
        (1, 2, 3, 3, 3)
        """
        return self._adapted("adaptive_max_pool3d", output_size)

    def _pooled(
        self,
        op: str,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None,
        padding: int | Sequence[int],
        dilation: int | Sequence[int],
        ceil_mode: bool,
        count_include_pad: bool,
    ) -> Self:
        window = _along_dims(op, "kernel_size", kernel_size)
        step = window if stride is None else _along_dims(op, "stride", stride)
        pads, spread = _along_dims(op, "padding", padding), _along_dims(op, "dilation", dilation)
        rounds_up, includes = boolean(op, "ceil_mode", ceil_mode), boolean(op, "count_include_pad", count_include_pad)
        return self._pooled_by(op, *_pool(op, self.shape, window, step, pads, spread, rounds_up, includes))

    def _adapted(self, op: str, output_size: int | Sequence[int]) -> Self:
        sizes = _along_dims(op, "output_size", output_size)
        params, layout = _adaptive_pool(op, self.shape, sizes)
        if params.result_sizes.count(1) == len(sizes) and self.dtype.is_float:
            dims = tuple(range(2, self.rank))
            return self.mean(dims, keepdim=True) if "avg" in op else self.max(dims, keepdim=True)
        return self._pooled_by(op, params, layout)

    def _pooled_by(self, op: str, params: ParamsPool, layout: Layout) -> Self:
        if self._layout.is_channels_last:
            return self._pooled_channels_last(op, params)
        storage = self._storage
        try:
            pool = storage.avg_pool if "avg" in op else storage.max_pool
            return self._new(pool(self._layout, params), layout)
        except TallowError as error:
            error.rename(op)
            raise

    def _pooled_channels_last(self, op: str, params: ParamsPool) -> Self:
        """Pool (b, .., c) in the order of memory: channels are one more spatial dim, of windows of one element."""
        order = channels_last_order(self.rank)
        if self.rank == _MAX_RANK:
            return (
                self.contiguous()._pooled_by(op, params, Layout.contiguous(params.out_dims)).contiguous("channels_last")
            )
        last = self.permute(order).unsqueeze(1)
        widened = _with_channels(params)
        pooled = last._pooled_by(op, widened, Layout.contiguous(widened.out_dims))
        return pooled.squeeze(1).permute(inverse(order))


def _dims_of(op: str) -> int:
    return int(op[-2])


def _along_dims(op: str, name: str, value: int | Iterable[int]) -> tuple[int, ...]:
    """The integers along each dim that one integer for all, or one for each, means."""
    dims = _dims_of(op)
    if type(value) is int:
        # Most are small, and others are checked.
        return (value if 0 <= value <= LONGEST_STEP else integer(op, name, value),) * dims
    values = value if isinstance(value, Iterable) else (value,) * dims
    return tuple(integers(op, name, values, dims, _KINDS[dims]))


def _require_rank(op: str, shape: Shape) -> None:
    dims = _dims_of(op)
    if len(shape) != dims + 2:
        raise ShapeMismatch(op, (shape,), f"{_INPUTS[dims]}; unsqueeze or reshape them first")


def _require_range(op: str, least: int, **values: tuple[int, ...]) -> None:
    every = sum(values.values(), ())
    if least <= min(every) and max(every) <= LONGEST_STEP:
        return
    for name, numbers in values.items():
        if min(numbers) < least:
            raise InvalidArgument(op, f"{name} is {least} or more, not {min(numbers)}")
        if max(numbers) > LONGEST_STEP:
            raise InvalidArgument(op, f"{name} is {LONGEST_STEP} or less, not {max(numbers)}")


@lru_cache(maxsize=1024)
def _pool(
    op: str,
    shape: Shape,
    window: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    ceil_mode: bool,
    count_include_pad: bool,
) -> tuple[ParamsPool, Layout]:
    """The parameters of a pool, and the layout of its result."""
    _require_rank(op, shape)
    _require_range(op, 1, kernel_size=window, stride=stride, dilation=dilation)
    steps = zip(shape[2:], window, padding, stride, dilation, strict=True)
    counts = [pooled_size(op, *each, ceil_mode=ceil_mode) for each in steps]
    if max(shape) > LONGEST_STEP:
        params = ParamsPool(shape, counts, window, padding, stride, dilation, count_include_pad)
    else:
        # All else is checked. The step after a single window may have any length.
        paces = tuple([step if count > 1 else 1 for step, count in zip(stride, counts, strict=True)])
        params = ParamsPool._make(
            (tuple(shape), tuple(counts), window, padding, paces, dilation, count_include_pad, False)
        )
    return params, Layout.contiguous(params.out_dims)


@lru_cache(maxsize=1024)
def _with_channels(params: ParamsPool) -> ParamsPool:
    """The pool of (b, 1, .., c) that is one of (b, c, ..)."""
    batch, channels, *sizes = params.input_dims
    return params._replace(
        input_dims=(batch, 1, *sizes, channels), result_sizes=(*params.result_sizes, channels),
        window=(*params.window, 1), padding=(*params.padding, 0), stride=(*params.stride, 1),
        dilation=(*params.dilation, 1),
    )  # fmt: skip


@lru_cache(maxsize=1024)
def _adaptive_pool(op: str, shape: Shape, counts: tuple[int, ...]) -> tuple[ParamsPool, Layout]:
    """The parameters of an adaptive pool, and the layout of its result."""
    _require_rank(op, shape)
    _require_range(op, 0, output_size=counts)
    sizes = shape[2:]
    if 0 in sizes and 0 not in counts:
        raise ShapeMismatch(op, (shape,), f"no elements make no {counts} windows; use an input with elements")
    zeros, ones = (0,) * len(sizes), (1,) * len(sizes)
    if all(count and size % count == 0 for size, count in zip(sizes, counts, strict=True)):
        window = [size // count for size, count in zip(sizes, counts, strict=True)]
        params = ParamsPool(shape, counts, window, zeros, window, ones)
    else:
        window = [longest_adaptive(size, count) for size, count in zip(sizes, counts, strict=True)]
        params = ParamsPool(shape, counts, window, zeros, ones, ones, adaptive=True)
    return params, Layout.contiguous(params.out_dims)
