"""The sizes of a decoder, and random weights for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Weights = dict[str, NDArray[np.float32]]


@dataclass(frozen=True)
class Config:
    """GPT-2's sizes; its context is longer here, so that tokens follow a prompt of 1,024."""

    layers: int = 12
    width: int = 768
    heads: int = 12
    vocabulary: int = 50257
    context: int = 1152

    @property
    def depth(self) -> int:
        """The width of a head."""
        return self.width // self.heads


CONFIGS = {"gpt2": Config(), "tiny": Config(layers=2, width=32, heads=4, vocabulary=97, context=24)}


def random_weights(config: Config, seed: int = 0) -> Weights:
    """Weights by name. Matrices keep the size of what they multiply, so that no logit drowns in rounding."""
    generator = np.random.default_rng(seed)

    def normal(*shape: int, std: float, mean: float = 0.0) -> NDArray[np.float32]:
        return generator.standard_normal(shape, np.float32) * np.float32(std) + np.float32(mean)

    width = config.width
    small = width**-0.5
    weights = {
        "tokens": normal(config.vocabulary, width, std=small),
        "positions": normal(config.context, width, std=small),
    }
    norms = ["norm", *(f"{layer}.{name}" for layer in range(config.layers) for name in ("norm1", "norm2"))]
    for name in norms:
        weights[f"{name}.weight"] = normal(width, std=0.1, mean=1.0)
        weights[f"{name}.bias"] = normal(width, std=0.1)
    for layer in range(config.layers):
        sizes = {"qkv": (width, 3 * width), "out": (width, width), "up": (width, 4 * width), "down": (4 * width, width)}
        for name, (inputs, outputs) in sizes.items():
            weights[f"{layer}.{name}.weight"] = normal(inputs, outputs, std=inputs**-0.5)
            weights[f"{layer}.{name}.bias"] = normal(outputs, std=0.1)
    return weights


def random_tokens(config: Config, batch: int, count: int, seed: int = 0) -> NDArray[np.int64]:
    """(batch, count) tokens."""
    return np.random.default_rng(seed).integers(0, config.vocabulary, (batch, count))
