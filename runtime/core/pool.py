"""The sizes that describe a pool, checked once when they are put together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import NamedTuple, Self, TypeAlias

from ..base.error import InvalidArgument
from .argument import boolean, integers
from .conv import LONGEST_STEP

# Spatial dims.
_MAX_DIMS = 3


class Window(NamedTuple):
    """The positions along a dim that one window covers within the input, and by how many an average divides."""

    positions: range
    divisor: int


class PoolAxis(NamedTuple):
    """One dim of a pool: see ParamsPool."""

    size: int
    windows: int
    window: int
    padding: int
    stride: int
    dilation: int


class _Pool(NamedTuple):
    input_dims: tuple[int, ...]
    result_sizes: tuple[int, ...]
    window: tuple[int, ...]
    padding: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    count_include_pad: bool
    adaptive: bool


class ParamsPool(_Pool):
    """A pool of (b, c, *sizes), whose windows become the elements of (b, c, *result_sizes), along 1 to 3 dims.

    Window i along a dim covers i * stride + t * dilation - padding for t below `window`. What lies before and after the
    input is padding, which no maximum sees. It counts in the divisor of an average if `count_include_pad` is true, up
    to `padding` elements after the input. The last window begins within the input or the padding before it.

    An adaptive pool divides the input evenly: window i of `count` covers elements floor(i * size / count) up to
    ceil((i + 1) * size / count). Its `window` is the longest, and the other steps say nothing.
    """

    __slots__ = ()

    def __new__(
        cls,
        input_dims: Sequence[int],
        result_sizes: Sequence[int],
        window: Sequence[int],
        padding: Sequence[int],
        stride: Sequence[int],
        dilation: Sequence[int],
        count_include_pad: bool = True,
        adaptive: bool = False,
    ) -> Self:
        """Check the numbers, of which there is one for each dim."""
        op, dims = "pool", len(result_sizes) if isinstance(result_sizes, Sequence) else 1
        if not 1 <= dims <= _MAX_DIMS:
            raise InvalidArgument(op, f"result_sizes has 1 to {_MAX_DIMS} dims, not {dims}")

        def read(name: str, values: Sequence[int], count: int, least: int) -> tuple[int, ...]:
            numbers = integers(op, name, values, count, f"{count} integers")
            if min(numbers) < least or max(numbers) > LONGEST_STEP:
                raise InvalidArgument(op, f"{name} is {least} to {LONGEST_STEP} along each dim, not {numbers}")
            return numbers

        inputs, counts = read("input_dims", input_dims, dims + 2, 0), read("result_sizes", result_sizes, dims, 0)
        steps = read("window", window, dims, 1), read("padding", padding, dims, 0)
        paces = read("stride", stride, dims, 1), read("dilation", dilation, dims, 1)
        padded, is_adaptive = boolean(op, "count_include_pad", count_include_pad), boolean(op, "adaptive", adaptive)
        if is_adaptive:
            steps, paces = (steps[0], (0,) * dims), ((1,) * dims,) * 2
        # The step after a single window may be of any length.
        paces = tuple([step if count > 1 else 1 for step, count in zip(paces[0], counts, strict=True)]), paces[1]
        params = super().__new__(cls, inputs, counts, *steps, *paces, padded, is_adaptive)
        for axis in params.axes:
            if axis.windows and not axis.size:
                raise InvalidArgument(op, f"a window needs elements, and dim sizes are {params.sizes}")
            if is_adaptive:
                if axis.window != longest_adaptive(axis.size, axis.windows):
                    reason = f"windows of an adaptive pool of {params.sizes} have other sizes than {params.window}"
                    raise InvalidArgument(op, reason)
                continue
            _check_padding(op, axis.window, axis.padding, axis.dilation)
            if (axis.windows - 1) * axis.stride >= axis.size + axis.padding and axis.windows:
                raise InvalidArgument(op, f"the last of {axis.windows} windows begins after the {axis.size} elements")
        return params

    @property
    def out_dims(self) -> tuple[int, ...]:
        """The shape of the result."""
        return (*self.input_dims[:2], *self.result_sizes)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of the input."""
        return self.input_dims[2:]

    @property
    def axes(self) -> tuple[PoolAxis, ...]:
        """The dims."""
        return tuple(map(PoolAxis, self.sizes, *self[1:6]))

    @property
    def is_empty(self) -> bool:
        """Whether there are no windows."""
        return 0 in self.out_dims

    @property
    def windows(self) -> tuple[tuple[Window, ...], ...]:
        """The windows along each dim."""
        return tuple(_windows(axis, self.count_include_pad, self.adaptive) for axis in self.axes)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of each kind along the dims, whether the pool is adaptive, and whether averages count padding."""
        return (*self.sizes, *chain.from_iterable(self[1:6]), self.adaptive, self.count_include_pad)

    @property
    def farthest(self) -> int:
        """No position that a window begins or ends at is above this number."""
        each = zip(self.sizes, self.window, self.padding, self.dilation, strict=True)
        return max([size + padding + dilation * window for size, window, padding, dilation in each])

    @property
    def as_volumes(self) -> Self:
        """These parameters along three dims: an image is a volume of depth 1."""
        more = _MAX_DIMS - len(self.result_sizes)
        ones, zeros = (1,) * more, (0,) * more
        return self._replace(
            input_dims=(*self.input_dims[:2], *ones, *self.sizes),
            result_sizes=ones + self.result_sizes,
            window=ones + self.window,
            padding=zeros + self.padding,
            stride=ones + self.stride,
            dilation=ones + self.dilation,
        )


PoolParams: TypeAlias = ParamsPool | tuple[int, int]
"""The parameters of a pool, or the size of its window."""


def pool_of(shape: Sequence[int], params: PoolParams, stride: tuple[int, int] | None = None) -> ParamsPool:
    """The parameters of a pool; those of (b, c, h, w) without padding and partial windows are a window and a stride."""
    if isinstance(params, ParamsPool) or stride is None:
        assert isinstance(params, ParamsPool), "a window has a stride"
        return params
    counts = [(size - window) // step + 1 for size, window, step in zip(shape[2:], params, stride, strict=True)]
    steps = [min(step, LONGEST_STEP) for step in stride]
    return ParamsPool(shape, counts, params, (0, 0), steps, (1, 1))


def volumes_of(
    shape: Sequence[int], params: ParamsPool | None, window: tuple[int, int] | None, stride: tuple[int, int] | None
) -> ParamsPool:
    """The parameters, or those of images in windows, along three dims."""
    assert params is not None or window is not None, "a pool has windows"
    return pool_of(shape, params or window, stride).as_volumes  # type: ignore[arg-type]


def pooled_size(op: str, size: int, window: int, padding: int, stride: int, dilation: int, *, ceil_mode: bool) -> int:
    """The number of windows along a dim. Raises InvalidArgument where not one fits."""
    _check_padding(op, window, padding, dilation)
    span = dilation * (window - 1) + 1
    free = size + 2 * padding - span
    count = (free + (stride - 1 if ceil_mode else 0)) // stride + 1
    if ceil_mode and (count - 1) * stride >= size + padding:
        count -= 1
    if count < 1 or size < 1:
        reason = f"a window of {span} elements does not fit into {size} with padding {padding}"
        raise InvalidArgument(op, f"{reason}; use a smaller one, or pad more")
    return count


def longest_adaptive(size: int, windows: int) -> int:
    """The length of the longest of the `windows` that divide a dim; 1 if there are none."""
    if not size or not windows:
        return 1
    length, remainder = divmod(size, windows)
    # Windows begin at all multiples of gcd(remainder, windows) / windows within an element.
    return length + (2 if remainder > math.gcd(remainder, windows) else int(remainder > 0))


def _check_padding(op: str, window: int, padding: int, dilation: int) -> None:
    span = dilation * (window - 1) + 1
    if not 0 <= 2 * padding <= span:
        raise InvalidArgument(op, f"padding is from 0 to half of a window of {span} elements, not {padding}")


@lru_cache(maxsize=1024)
def _windows(axis: PoolAxis, count_include_pad: bool, adaptive: bool) -> tuple[Window, ...]:
    if adaptive:
        bounds = [
            range(i * axis.size // axis.windows, -(-(i + 1) * axis.size // axis.windows)) for i in range(axis.windows)
        ]
        return tuple(Window(covered, len(covered)) for covered in bounds)
    windows = []
    for i in range(axis.windows):
        begin = i * axis.stride - axis.padding
        end = begin + axis.dilation * (axis.window - 1) + 1
        inside = range(begin % axis.dilation if begin < 0 else begin, min(end, axis.size), axis.dilation)
        counted = range(begin, min(end, axis.size + axis.padding), axis.dilation) if count_include_pad else inside
        windows.append(Window(inside, len(counted)))
    return tuple(windows)
