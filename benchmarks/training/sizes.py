"""The sizes of the networks, and the numbers that both libraries begin with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from benchmarks.model.weights import Config, Weights, random_tokens, random_weights

# A vocabulary that is a multiple of 64, as training code for GPT-2 has it.
CONFIGS = {
    "gpt2": Config(vocabulary=50304, context=1024),
    # That of examples/gpt.py.
    "example": Config(layers=3, width=128, heads=4, vocabulary=97, context=64),
    "small": Config(layers=4, width=256, heads=4, vocabulary=4096, context=256),
    "tiny": Config(layers=2, width=32, heads=4, vocabulary=97, context=24),
}
PERCEPTRON = (64, 128, 10)
PERCEPTRON_BATCH = 64


@dataclass(frozen=True)
class Start:
    """Weights by name, inputs, and the target of each."""

    config: Config | None
    weights: Weights
    inputs: NDArray[np.generic]
    targets: NDArray[np.int64]


def decoder_start(config: Config, batch: int, length: int) -> Start:
    """Weights of a decoder, each matrix (outputs, inputs), and tokens (batch, length) with those that follow them."""
    weights = random_weights(replace(config, context=length))
    matrices = [name for name, array in weights.items() if array.ndim == 2 and "." in name]
    weights |= {name: np.ascontiguousarray(weights[name].T) for name in matrices}
    tokens = random_tokens(config, batch, length + 1)
    return Start(config, weights, np.ascontiguousarray(tokens[:, :-1]), np.ascontiguousarray(tokens[:, 1:]))


def perceptron_start() -> Start:
    """Weights of two layers, each (outputs, inputs), and a batch of inputs with their classes."""
    generator = np.random.default_rng(0)
    weights: Weights = {}
    for number, (inputs, outputs) in enumerate(pairwise(PERCEPTRON)):
        weights[f"{number}.weight"] = generator.standard_normal((outputs, inputs), np.float32) * np.float32(
            (2 / inputs) ** 0.5
        )
        weights[f"{number}.bias"] = np.zeros(outputs, np.float32)
    inputs = generator.standard_normal((PERCEPTRON_BATCH, PERCEPTRON[0]), np.float32)
    return Start(None, weights, inputs, generator.integers(0, PERCEPTRON[-1], PERCEPTRON_BATCH))
