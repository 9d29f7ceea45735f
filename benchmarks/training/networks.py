"""The networks written with tallow's tensors: each function gives the loss."""

from __future__ import annotations

from collections.abc import Mapping

from tallow import Tensor

from benchmarks.model.decoder import EPSILON
from benchmarks.model.weights import Config


def perceptron_loss(weights: Mapping[str, Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy of two layers with a relu between them."""
    hidden = inputs.linear(weights["0.weight"], weights["0.bias"]).relu()
    return hidden.linear(weights["1.weight"], weights["1.bias"]).cross_entropy(targets)


def decoder_loss(config: Config, weights: Mapping[str, Tensor], tokens: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy of a decoder as GPT-2's, whose embedding gives the logits too."""
    embedding = weights["tokens"]
    x = embedding[tokens]
    added = weights["positions"].broadcast_as(x.shape)
    for layer in range(config.layers):
        name = f"{layer}."
        normed, x = _norm(x, weights, f"{name}norm1", added)
        added = _linear(_attended(config, _linear(normed, weights, f"{name}qkv")), weights, f"{name}out")
        normed, x = _norm(x, weights, f"{name}norm2", added)
        added = _linear(_linear(normed, weights, f"{name}up").gelu(), weights, f"{name}down")
    normed, _ = _norm(x, weights, "norm", added)
    return normed.flatten(0, 1).linear(embedding).cross_entropy(targets.flatten())


def _attended(config: Config, joined: Tensor) -> Tensor:
    """Causal attention of queries, keys and values side by side, (batch, n, 3 * width)."""
    batch, n, _ = joined.shape
    parts = joined.reshape(batch, n, 3, config.heads, config.depth).permute(2, 0, 3, 1, 4)
    attended = parts[0].scaled_dot_product_attention(parts[1], parts[2], causal=True)
    return attended.transpose(1, 2).reshape(batch, n, config.width)


def _linear(x: Tensor, weights: Mapping[str, Tensor], name: str) -> Tensor:
    return x.linear(weights[f"{name}.weight"], weights[f"{name}.bias"])


def _norm(x: Tensor, weights: Mapping[str, Tensor], name: str, added: Tensor) -> tuple[Tensor, Tensor]:
    """The norm of a sum, and the sum."""
    return x.layer_norm(weights[f"{name}.weight"], weights[f"{name}.bias"], EPSILON, added)
