"""Convolutions, their transposes and gradients."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from tallow.runtime.core.conv import (
    ParamsConv1D,
    ParamsConv2D,
    ParamsConvolution,
    ParamsConvTranspose1D,
    ParamsConvTranspose2D,
)

from .. import values
from ..bench import Bench
from ..layouts import Operand
from ..oracle import convolutions
from ..oracle import windows as oracle
from ..oracle.formats import EXTENDED, FLOATS, Array, decode, encode
from .reduction import check_sums


@dataclass(frozen=True)
class Convolution:
    """Sizes in the order batch, channels in and out, then image and kernel; a 1-d case uses the widths."""

    channels: tuple[int, int, int]
    image: tuple[int, int]
    kernel: tuple[int, int]
    padding: int = 0
    stride: int = 1
    dilation: int = 1
    output_padding: int = 0
    image_placement: str = "contiguous"
    kernel_placement: str = "contiguous"


CONVOLUTIONS = (
    Convolution((1, 1, 1), (1, 1), (1, 1)),
    Convolution((1, 1, 1), (3, 5), (2, 3)),
    Convolution((2, 3, 4), (5, 7), (3, 3), padding=1),
    Convolution((2, 3, 4), (6, 9), (3, 3), padding=1, stride=2),
    Convolution((1, 2, 3), (7, 8), (2, 3), dilation=2),
    Convolution((1, 2, 3), (7, 9), (3, 3), padding=2, stride=3, dilation=2, output_padding=1),
    Convolution((3, 4, 2), (4, 33), (1, 1)),
    Convolution((1, 17, 19), (5, 6), (3, 3), padding=1),
    Convolution((1, 1, 1), (2, 2), (4, 4), padding=2),
    Convolution((1, 2, 2), (4, 5), (2, 2), stride=4, output_padding=3),
    Convolution((2, 3, 4), (5, 7), (3, 3), padding=1, image_placement="offset", kernel_placement="offset"),
    Convolution((2, 3, 4), (5, 7), (3, 2), padding=1, image_placement="transposed", kernel_placement="rolled"),
    Convolution((2, 3, 4), (5, 7), (2, 2), image_placement="narrowed columns", kernel_placement="transposed"),
    Convolution((2, 3, 4), (5, 7), (2, 3), image_placement="broadcast rows", kernel_placement="broadcast columns"),
    Convolution((0, 2, 3), (4, 4), (2, 2)),
    Convolution((2, 0, 3), (4, 4), (2, 2)),
    Convolution((2, 2, 0), (4, 4), (2, 2)),
)
LARGE = Convolution((2, 32, 48), (20, 24), (3, 3), padding=1)


def conv1d(bench: Bench) -> None:
    _convolve(bench, rank=1, transposed=False)


def conv2d(bench: Bench) -> None:
    _convolve(bench, rank=2, transposed=False)


def conv_transpose1d(bench: Bench) -> None:
    _convolve(bench, rank=1, transposed=True)


def conv_transpose2d(bench: Bench) -> None:
    _convolve(bench, rank=2, transposed=True)


def _convolve(bench: Bench, rank: int, transposed: bool) -> None:
    for case in bench.some((*CONVOLUTIONS, LARGE) if bench.full else CONVOLUTIONS):
        check_convolution(bench, case, rank, transposed)
        # The zeros of the padding take part: an infinity in the kernel makes NaN of them.
        if case.padding and bench.name in FLOATS:
            for special in (np.inf, np.nan):
                check_convolution(bench, case, rank, transposed, special)


def check_convolution(
    bench: Bench, case: Convolution, rank: int, transposed: bool, special: float | None = None
) -> None:
    """With `special` among the numbers of the kernel, if it is given."""
    where = bench.where(case, f"{special} in the kernel")
    batch, c_in, c_out = case.channels
    outer = (c_in, c_out) if transposed else (c_out, c_in)
    image_sizes, kernel_sizes = case.image[2 - rank :], case.kernel[2 - rank :]
    image = bench.lay_out(values.modest(bench.generator, bench.name, (batch, c_in, *image_sizes)), case.image_placement)
    weights = values.modest(bench.generator, bench.name, (*outer, *kernel_sizes))
    if special is not None:
        weights.ravel()[bench.generator.integers(weights.size)] = encode(bench.name, np.array(special, EXTENDED))
    kernel = bench.lay_out(weights, case.kernel_placement)
    params = _params(case, rank, transposed)
    result = getattr(image.storage, bench.cell.method)(image.layout, kernel.storage, kernel.layout, params)
    window = _window(case, rank)
    convolve = oracle.convolve_transposed if transposed else oracle.convolve
    total, magnitude = convolve(bench.name, _as_image(image.values), _as_image(kernel.values), window)
    if rank == 1:
        total, magnitude = total[:, :, 0], magnitude[:, :, 0]
    assert tuple(params.out_dims) == total.shape, f"{where}: out_dims {params.out_dims}, expected {total.shape}"
    got = bench.read(result, bench.name, total.shape, where)
    if special is not None and transposed and bench.device.backend == "cuda":
        # cuDNN may multiply zeros beside the image by the kernel.
        beside, _ = convolve(bench.name, *_among_zeros(_as_image(image.values), _as_image(kernel.values), window))
        got = np.where(
            np.isnan(decode(bench.name, got)) & np.isnan(beside.reshape(total.shape)), encode(bench.name, total), got
        )
    terms = c_in * case.kernel[1] * (case.kernel[0] if rank == 2 else 1)
    check_sums(bench.name, got, total, magnitude, terms, where)


def _window(case: Convolution, rank: int) -> oracle.Window:
    if rank == 2:
        numbers = (case.padding, case.stride, case.dilation, case.output_padding)
        return oracle.Window(*((number, number) for number in numbers))
    return oracle.Window((0, case.padding), (1, case.stride), (1, case.dilation), (0, case.output_padding))


def _among_zeros(image: Array, kernel: Array, window: oracle.Window) -> tuple[Array, Array, oracle.Window]:
    """The same transposed convolution of an image with zeros around it, which change no finite result."""
    around = [
        -(-(size - 1) * dilation // step)
        for size, dilation, step in zip(kernel.shape[2:], window.dilation, window.stride, strict=True)
    ]
    wider = np.pad(image, [(0, 0), (0, 0), *[(zeros, zeros) for zeros in around]])
    padding = [pad + zeros * step for pad, zeros, step in zip(window.padding, around, window.stride, strict=True)]
    return wider, kernel, replace(window, padding=tuple(padding))


def _as_image(array: Array) -> Array:
    return array if array.ndim == 4 else array[:, :, None, :]


def _params(
    case: Convolution, rank: int, transposed: bool
) -> ParamsConv1D | ParamsConv2D | ParamsConvTranspose1D | ParamsConvTranspose2D:
    batch, c_in, c_out = case.channels
    sizes = {
        "b_size": batch,
        "c_in": c_in,
        "c_out": c_out,
        "padding": case.padding,
        "stride": case.stride,
        "dilation": case.dilation,
    }
    if rank == 1:
        sizes |= {"l_in": case.image[1], "k_size": case.kernel[1]}
    else:
        sizes |= {"i_h": case.image[0], "i_w": case.image[1], "k_h": case.kernel[0], "k_w": case.kernel[1]}
    if transposed:
        sizes["output_padding"] = case.output_padding
        return (ParamsConvTranspose1D if rank == 1 else ParamsConvTranspose2D)(**sizes)
    return (ParamsConv1D if rank == 1 else ParamsConv2D)(**sizes)


@dataclass(frozen=True)
class Grouped:
    """Channels in and out of each group, and for each dim the size of the input, kernel, padding in front and behind,
    stride and dilation."""

    batch: int
    groups: int
    channels: tuple[int, int]
    dims: tuple[tuple[int, int, int, int, int, int], ...]
    placements: tuple[str, str] = ("contiguous", "contiguous")

    @property
    def params(self) -> ParamsConvolution:
        sizes, kernel, front, _, stride, dilation = zip(*self.dims, strict=True)
        result = [
            max((size + before + after - step * (taps - 1) - 1) // pace + 1, 0)
            for size, taps, before, after, pace, step in self.dims
        ]
        inner, outer = self.channels
        return ParamsConvolution(
            (self.batch, self.groups * inner, *sizes), (self.groups * outer, inner, *kernel), result, front, stride,
            dilation, self.groups,
        )  # fmt: skip


LAST = ("channels last", "channels last")
GROUPED = (
    Grouped(2, 1, (3, 4), ((9, 3, 1, 1, 2, 1),)),
    # A window that is the input: with nothing but a bias, a linear layer.
    Grouped(3, 1, (5, 7), ((2, 2, 0, 0, 1, 1), (3, 3, 0, 0, 1, 1)), ("channels last", "contiguous")),
    Grouped(2, 3, (2, 1), ((9, 3, 2, 0, 1, 2),)),
    # Depthwise, with more and less to do along rows.
    Grouped(2, 5, (1, 1), ((7, 3, 1, 1, 1, 1), (9, 3, 1, 1, 1, 1))),
    Grouped(1, 3, (1, 1), ((8, 5, 2, 2, 2, 1), (37, 5, 2, 2, 2, 1))),
    Grouped(1, 2, (1, 3), ((6, 3, 0, 2, 1, 2), (20, 2, 3, 1, 3, 1)), ("rolled", "contiguous")),
    Grouped(2, 3, (1, 2), ((4, 4, 4, 4, 1, 1), (5, 1, 0, 0, 1, 1)), ("narrowed columns", "transposed")),
    Grouped(2, 2, (9, 8), ((5, 3, 1, 1, 1, 1), (6, 3, 1, 1, 1, 1))),
    Grouped(1, 2, (8, 9), ((5, 1, 0, 0, 1, 1), (6, 1, 0, 0, 1, 1)), ("transposed", "offset")),
    Grouped(2, 1, (9, 8), ((5, 1, 0, 0, 2, 1), (6, 1, 0, 0, 3, 1)), ("broadcast rows", "contiguous")),
    # With channels last: in whole accesses or not, split between blocks or not, and more taps than threads.
    Grouped(2, 16, (1, 1), ((9, 3, 1, 1, 1, 1), (7, 3, 1, 1, 1, 1)), LAST),
    Grouped(1, 88, (1, 1), ((11, 5, 2, 2, 2, 1), (8, 6, 0, 3, 3, 1)), LAST),
    Grouped(1, 12, (1, 1), ((7, 3, 2, 1, 1, 2), (6, 2, 1, 0, 2, 3)), LAST),
    Grouped(1, 8, (1, 2), ((5, 3, 1, 1, 1, 1), (6, 3, 1, 1, 1, 1)), LAST),
    Grouped(2, 8, (1, 1), ((9, 3, 1, 1, 2, 1),), LAST),
    Grouped(1, 8, (1, 1), ((3, 17, 8, 8, 1, 1), (4, 17, 8, 8, 1, 1)), LAST),
    # Lines, with more taps than a block sums.
    Grouped(2, 4, (1, 2), ((11, 7, 3, 4, 2, 1),)),
    # Channels for matrix products, in whole chunks of four or eight or not, side by side or not, more than a tile has;
    # strides some residues of which no tap meets.
    Grouped(1, 1, (16, 24), ((6, 3, 1, 1, 2, 1), (7, 3, 1, 1, 1, 2)), ("channels last", "contiguous")),
    Grouped(2, 2, (18, 17), ((9, 2, 0, 1, 3, 2),)),
    Grouped(1, 1, (20, 130), ((2, 2, 1, 0, 2, 1), (3, 2, 1, 1, 1, 1), (5, 2, 0, 0, 4, 2)), ("offset", "channels last")),
    # Volumes.
    Grouped(1, 2, (2, 3), ((4, 2, 1, 0, 1, 1), (5, 3, 1, 1, 2, 1), (6, 2, 0, 1, 1, 2))),
    Grouped(2, 4, (1, 1), ((3, 3, 1, 1, 1, 1), (4, 2, 0, 0, 2, 1), (5, 3, 1, 1, 1, 1))),
    Grouped(1, 1, (8, 8), ((3, 2, 0, 0, 1, 1), (4, 3, 1, 1, 1, 1), (4, 3, 1, 1, 1, 1))),
    # A kernel longer than the input, and nothing to multiply.
    Grouped(1, 2, (1, 1), ((2, 5, 3, 3, 1, 1), (3, 5, 2, 2, 1, 1))),
    Grouped(0, 2, (1, 2), ((4, 2, 0, 0, 1, 1), (4, 2, 0, 0, 1, 1))),
    Grouped(2, 2, (0, 2), ((4, 2, 1, 1, 1, 1),)),
    Grouped(2, 2, (2, 0), ((4, 2, 0, 0, 1, 1),)),
    Grouped(1, 2, (1, 1), ((0, 2, 1, 1, 1, 1), (3, 2, 0, 0, 1, 1))),
)
# As many elements of a channel as several blocks sum, where each has channels of its own and where they are multiplied.
PARTS = (
    Grouped(1, 2, (1, 1), ((95, 3, 1, 1, 1, 1), (97, 3, 1, 1, 1, 1))),
    Grouped(2, 2, (2, 3), ((40, 3, 1, 1, 2, 1), (100, 3, 1, 1, 1, 1))),
    Grouped(1, 16, (1, 1), ((60, 3, 1, 1, 1, 1), (71, 3, 1, 1, 1, 1)), LAST),
)
LARGE_GROUPED = Grouped(2, 2, (16, 24), ((20, 3, 1, 1, 1, 1), (24, 3, 1, 1, 1, 1)))


def convolution(bench: Bench) -> None:
    """The general form, and its gradients."""
    cases = (*GROUPED, *PARTS) if bench.name in ("f32", "bf16") else GROUPED
    for case in bench.some((*cases, LARGE_GROUPED) if bench.full else cases):
        params, where = case.params, bench.where(case)
        geometry = convolutions.Geometry(params.sizes, params.kernel, *params[2:7])
        shapes, find, terms = {
            "convolution": (
                (params.input_dims, params.kernel_dims), convolutions.forward, params.channels[0] * params.taps,
            ),
            "convolution_gradient_input": (
                (params.out_dims, params.kernel_dims), convolutions.of_input, params.channels[1] * params.taps,
            ),
            "convolution_gradient_weight": (
                (params.input_dims, params.out_dims), convolutions.of_weight,
                math.prod((case.batch, *params.result_sizes)),
            ),
        }[bench.cell.method]  # fmt: skip
        first, second = (
            bench.lay_out(values.modest(bench.generator, bench.name, shape), placement)
            for shape, placement in zip(shapes, case.placements, strict=True)
        )
        total, magnitude = find(bench.name, first.values, second.values, geometry)
        call = getattr(first.storage, bench.cell.method)
        for channels_last in (False, True):
            output = params._replace(channels_last=channels_last)
            result = call(first.layout, second.storage, second.layout, output)
            shape = (total.shape[0], *total.shape[2:], total.shape[1]) if channels_last else total.shape
            got = bench.read(result, bench.name, shape, where)
            got = np.moveaxis(got, -1, 1) if channels_last else got
            check_sums(bench.name, got, total, magnitude, terms, where)


# By the names of operands those that are there, and the activation.
EPILOGUES = (
    (("scale", "bias", "residual"), "relu"),
    (("bias",), None),
    (("scale", "bias"), "sigmoid"),
    (("residual",), "relu"),
)
# Those that kernels compute with channels last, of each channel's own numbers.
LAST_EPILOGUES = (
    *EPILOGUES,
    (("scale", "bias"), "relu"),
    (("bias",), "relu6"),
    (("scale", "bias"), "hardswish"),
    (("scale",), "silu"),
)


def fused_convolution(bench: Bench) -> None:
    """Each case with one epilogue, the first of channels last with all of them, in both orders of memory."""
    first_last = next(case for case in GROUPED if case.placements == LAST)
    for number, case in bench.some([*enumerate((*GROUPED, LARGE_GROUPED) if bench.full else GROUPED)]):
        epilogues = LAST_EPILOGUES if case.placements == LAST else EPILOGUES
        is_narrow = number % 2 == 1
        for names, activation in epilogues if case is first_last else [epilogues[number % len(epilogues)]]:
            _check_fused(bench, case, names, activation, is_narrow)
            is_narrow = not is_narrow
    for case in (Grouped(1, 1, (3, 8), ((4, 3, 1, 1, 1, 1),)), Grouped(1, 8, (1, 1), ((4, 3, 1, 1, 1, 1),), LAST)):
        for activation in convolutions.ACTIVATIONS:
            _check_special(bench, case, activation)


def _check_fused(bench: Bench, case: Grouped, names: tuple[str, ...], activation: str | None, is_narrow: bool) -> None:
    """With vectors of the dtype itself, if that is narrow, or of the dtype in which it is computed."""
    params, where = case.params, bench.where(case, f"{names} {activation}")
    geometry = convolutions.Geometry(params.sizes, params.kernel, *params[2:7])
    wide = "f64" if bench.name == "f64" else "f32"
    x, kernel = (
        bench.lay_out(values.modest(bench.generator, bench.name, shape), placement)
        for shape, placement in zip((params.input_dims, params.kernel_dims), case.placements, strict=True)
    )
    vector = (bench.name if is_narrow else wide), (params.kernel_dims[0],)
    shapes = {"scale": vector, "bias": vector, "residual": (bench.name, params.out_dims)}
    operands = {
        name: bench.lay_out(values.modest(bench.generator, dtype, shape), name=dtype) if name in names else None
        for name, (dtype, shape) in shapes.items()
    }
    decoded = [None if it is None else decode(shapes[name][0], it.values) for name, it in operands.items()]
    sums = convolutions.forward(bench.name, x.values, kernel.values, geometry)
    total, magnitude = convolutions.epilogue(sums, *decoded, activation)
    for channels_last in (False, True):
        ordered = params._replace(channels_last=channels_last)
        got = _fused(bench, x, kernel, operands.values(), activation, ordered, where)
        check_sums(bench.name, got, total, magnitude, params.channels[0] * params.taps + 3, where)


def _check_special(bench: Bench, case: Grouped, activation: str | None) -> None:
    """NaN and infinities, which the bias brings into the first channels."""
    params, where = case.params, bench.where(case, f"NaN and infinities before {activation}")
    x, kernel = (
        bench.lay_out(values.modest(bench.generator, bench.name, shape), placement)
        for shape, placement in zip((params.input_dims, params.kernel_dims), case.placements, strict=True)
    )
    wide = "f64" if bench.name == "f64" else "f32"
    specials = np.zeros(params.kernel_dims[0], wide.replace("f", "float"))
    specials[:3] = np.nan, np.inf, -np.inf
    bias = bench.lay_out(encode(wide, specials.astype(EXTENDED)), name=wide)
    with np.errstate(invalid="ignore", over="ignore"):
        expected = convolutions.ACTIVATIONS[activation](specials[:3].astype(EXTENDED))
    expected = decode(bench.name, encode(bench.name, expected))
    for channels_last in (False, True):
        arguments = (None, bias, None), activation, params._replace(channels_last=channels_last), where
        got = decode(bench.name, _fused(bench, x, kernel, *arguments))
        for channel, value in enumerate(expected):
            np.testing.assert_array_equal(got[:, channel], np.broadcast_to(value, got[:, channel].shape), where)


def _fused(
    bench: Bench,
    x: Operand,
    kernel: Operand,
    operands: Iterable[Operand | None],
    activation: str | None,
    params: ParamsConvolution,
    where: str,
) -> Array:
    tail = [part for it in operands for part in ((None, None) if it is None else (it.storage, it.layout))]
    result = x.storage.fused_convolution(x.layout, kernel.storage, kernel.layout, *tail, activation, params)
    shape, last = params.out_dims, params.channels_last
    got = bench.read(result, bench.name, (shape[0], *shape[2:], shape[1]) if last else shape, where)
    return np.moveaxis(got, -1, 1) if last else got


HANDLERS = {
    "fused_convolution": fused_convolution,
    "convolution": convolution,
    "convolution_gradient_input": convolution,
    "convolution_gradient_weight": convolution,
    "conv1d": conv1d,
    "conv2d": conv2d,
    "conv_transpose1d": conv_transpose1d,
    "conv_transpose2d": conv_transpose2d,
}
