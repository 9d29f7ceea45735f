"""The networks, each one function of a library's layers and an input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .layers import Array, Layers

# Kernel size, channels inside, channels after, whether channels are weighted, activation, stride.
_MOBILENET = (
    (3, 16, 16, False, "relu", 1),
    (3, 64, 24, False, "relu", 2),
    (3, 72, 24, False, "relu", 1),
    (5, 72, 40, True, "relu", 2),
    (5, 120, 40, True, "relu", 1),
    (5, 120, 40, True, "relu", 1),
    (3, 240, 80, False, "hardswish", 2),
    (3, 200, 80, False, "hardswish", 1),
    (3, 184, 80, False, "hardswish", 1),
    (3, 184, 80, False, "hardswish", 1),
    (3, 480, 112, True, "hardswish", 1),
    (3, 672, 112, True, "hardswish", 1),
    (5, 672, 160, True, "hardswish", 2),
    (5, 960, 160, True, "hardswish", 1),
    (5, 960, 160, True, "hardswish", 1),
)
_CHARACTERS = 97
_STEPS = 100


def resnet18(net: Layers[Any], x: Any) -> Any:
    """He et al. 2016, table 1, the column of 18 layers."""
    x = net.max_pool(net.conv(x, "stem", 3, 64, 7, 2), 3, 2, 1)
    channels = 64
    for block, width in enumerate([64, 64, 128, 128, 256, 256, 512, 512]):
        stride = 1 if width == channels else 2
        y = net.conv(x, f"{block}.conv1", channels, width, 3, stride)
        if width != channels:
            x = net.conv(x, f"{block}.shortcut", channels, width, 1, stride, activation="")
        x = net.conv(y, f"{block}.conv2", width, width, 3, residual=x)
        channels = width
    return net.linear(net.mean(x), "head", 512, 1000)


def mobilenet_v3_large(net: Layers[Any], x: Any) -> Any:
    """Howard et al. 2019, table 1."""
    x = net.conv(x, "stem", 3, 16, 3, 2, activation="hardswish")
    channels = 16
    for block, (size, inner, outer, is_weighted, activation, stride) in enumerate(_MOBILENET):
        y = x
        if inner != channels:
            y = net.conv(y, f"{block}.expand", channels, inner, 1, activation=activation)
        y = net.conv(y, f"{block}.depthwise", inner, inner, size, stride, groups=inner, activation=activation)
        if is_weighted:
            y = _weighted_channels(net, y, f"{block}.squeeze", inner)
        residual = x if stride == 1 and outer == channels else None
        x = net.conv(y, f"{block}.project", inner, outer, 1, activation="", residual=residual)
        channels = outer
    x = net.mean(net.conv(x, "last", channels, 960, 1, activation="hardswish"))
    return net.linear(net.linear(x, "hidden", 960, 1280, activation="hardswish"), "head", 1280, 1000)


def _weighted_channels(net: Layers[Any], x: Any, name: str, channels: int) -> Any:
    # A quarter of the channels, rounded to a multiple of 8.
    squeezed = max(8, (channels + 16) // 32 * 8)
    weights = net.mean(x, keepdim=True)
    weights = net.conv(weights, f"{name}1", channels, squeezed, 1, norm=False)
    weights = net.conv(weights, f"{name}2", squeezed, channels, 1, norm=False, activation="")
    return net.multiply(x, weights, "hardsigmoid")


def unet(net: Layers[Any], x: Any) -> Any:
    """Ronneberger et al. 2015 with half the channels, padding and batch norms."""
    widths = [32, 64, 128, 256, 512]
    channels, skipped = 3, []
    for level, width in enumerate(widths):
        x = net.conv(net.conv(x, f"down{level}.1", channels, width, 3), f"down{level}.2", width, width, 3)
        channels = width
        if width != widths[-1]:
            skipped.append(x)
            x = net.max_pool(x, 2, 2)
    for level, width in reversed(list(enumerate(widths[:-1]))):
        x = net.cat([net.transposed_conv(x, f"up{level}", channels, width), skipped[level]])
        x = net.conv(net.conv(x, f"up{level}.1", 2 * width, width, 3), f"up{level}.2", width, width, 3)
        channels = width
    return net.conv(x, "head", channels, 2, 1, norm=False, activation="")


def detector(net: Layers[Any], x: Any) -> Any:
    """Text detection as Liao et al. 2020 (DB): depthwise separable convolutions, a feature pyramid, a map of text."""
    x = net.conv(x, "stem", 3, 16, 3, 2, activation="hardswish")
    channels, features = 16, []
    for level, width in enumerate([32, 64, 128, 256]):
        for layer in range(2):
            name, stride = f"{level}.{layer}", 2 - layer if level else 1
            x = net.conv(x, f"{name}.depthwise", channels, channels, 3, stride, channels, activation="hardswish")
            x = net.conv(x, f"{name}.pointwise", channels, width, 1, activation="hardswish")
            channels = width
        features.append(net.conv(x, f"{level}.lateral", width, 96, 1, activation=""))
    for level in (2, 1, 0):
        features[level] = net.add(features[level], net.upsample(features[level + 1], 2))
    smooth = [net.conv(x, f"{level}.smooth", 96, 24, 3) for level, x in enumerate(features)]
    x = net.cat([net.upsample(x, 2**level) if level else x for level, x in enumerate(smooth)])
    x = net.conv(x, "head", 96, 24, 3)
    x = net.transposed_conv(x, "up", 24, 24, activation="relu")
    return net.transposed_conv(x, "map", 24, 1, activation="sigmoid")


def recogniser(net: Layers[Any], x: Any) -> Any:
    """Text recognition as Shi et al. 2015 (CRNN): convolutions, and two layers of LSTM in both directions."""
    channels = 3
    for layer, (width, pool) in enumerate(
        [(64, (2, 2)), (128, (2, 2)), (256, None), (256, (2, 1)), (512, None), (512, (2, 1))]
    ):
        x = net.conv(x, f"conv{layer}", channels, width, 3)
        x = net.max_pool(x, pool, pool) if pool else x
        channels = width
    x = net.conv(x, "last", 512, 512, (2, 1), padding=0)
    x = net.lstm(net.sequence(x), "lstm", 512, 256, layers=2, directions=2)
    return net.linear(x, "head", 512, _CHARACTERS)


def lstm(net: Layers[Any], x: Any) -> Any:
    """Two layers of LSTM; the output of every step goes through a linear layer."""
    return net.linear(net.lstm(x, "lstm", 64, 256, layers=2), "head", 256, _CHARACTERS)


class Network(NamedTuple):
    """A network and the shapes of its inputs; the results are logits of so many classes, or maps if there are none."""

    apply: Callable[[Layers[Any], Any], Any]
    shape: tuple[int, ...]
    # Of an input for a test.
    small: tuple[int, ...]
    classes: int
    # Which dim is the batch.
    batch_dim: int = 0

    def inputs(self, batch: int, is_small: bool = False) -> Array:
        """Random inputs, the same in every run."""
        shape = list(self.small if is_small else self.shape)
        shape.insert(self.batch_dim, batch)
        return np.random.default_rng(1).standard_normal(shape, np.float32)

    def targets(self, shape: tuple[int, ...]) -> Array:
        """Random targets of results of a shape: classes, or numbers of a map."""
        generator = np.random.default_rng(2)
        if self.classes:
            return generator.integers(0, self.classes, shape[:-1])
        return generator.random(shape, np.float32)


NETWORKS = {
    "resnet18": Network(resnet18, (3, 224, 224), (3, 32, 32), 1000),
    "mobilenet-v3-large": Network(mobilenet_v3_large, (3, 224, 224), (3, 96, 96), 1000),
    "unet": Network(unet, (3, 128, 128), (3, 16, 16), 0),
    "detector": Network(detector, (3, 320, 320), (3, 32, 32), 0),
    "recogniser": Network(recogniser, (3, 32, 320), (3, 32, 16), _CHARACTERS),
    "lstm": Network(lstm, (_STEPS, 64), (5, 64), _CHARACTERS, batch_dim=1),
}
