"""The same networks written with PyTorch's own ops, and variants of their training step. Imports torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812 -- as PyTorch's own documentation has it
from torch import Tensor

from benchmarks.model.decoder import EPSILON
from benchmarks.model.weights import Config

from .results import COMPILED
from .sizes import Start


def perceptron_loss(weights: Mapping[str, Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
    """See `networks.perceptron_loss`."""
    hidden = F.linear(inputs, weights["0.weight"], weights["0.bias"]).relu()
    return F.cross_entropy(F.linear(hidden, weights["1.weight"], weights["1.bias"]), targets)


def decoder_loss(config: Config, weights: Mapping[str, Tensor], tokens: Tensor, targets: Tensor) -> Tensor:
    """See `networks.decoder_loss`."""
    x = F.embedding(tokens, weights["tokens"]) + weights["positions"]
    for layer in range(config.layers):
        name = f"{layer}."
        x = x + _linear(
            _attended(config, _linear(_norm(x, weights, f"{name}norm1"), weights, f"{name}qkv")), weights, f"{name}out"
        )
        hidden = F.gelu(_linear(_norm(x, weights, f"{name}norm2"), weights, f"{name}up"), approximate="tanh")
        x = x + _linear(hidden, weights, f"{name}down")
    logits = F.linear(_norm(x, weights, "norm"), weights["tokens"])
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def _attended(config: Config, joined: Tensor) -> Tensor:
    batch, n, _ = joined.shape
    parts = joined.reshape(batch, n, 3, config.heads, config.depth).permute(2, 0, 3, 1, 4)
    attended = F.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
    return attended.transpose(1, 2).reshape(batch, n, config.width)


def _linear(x: Tensor, weights: Mapping[str, Tensor], name: str) -> Tensor:
    return F.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])


def _norm(x: Tensor, weights: Mapping[str, Tensor], name: str) -> Tensor:
    weight, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
    return F.layer_norm(x, weight.shape, weight, bias, EPSILON)


def torch_network(
    start: Start, dtype: str, device: torch.device | str
) -> tuple[Callable[[], Tensor], torch.optim.Optimizer, list[Tensor]]:
    """See `measure.tallow_network`."""
    kind = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[dtype]
    weights = {
        name: torch.nn.Parameter(torch.from_numpy(array).to(device, kind)) for name, array in start.weights.items()
    }
    inputs, targets = torch.from_numpy(start.inputs).to(device), torch.from_numpy(start.targets).to(device)
    if start.config is None:
        loss_of: Callable[[], Tensor] = partial(perceptron_loss, weights, inputs.to(kind), targets)
        return loss_of, torch.optim.SGD(weights.values(), lr=0.1, momentum=0.9), [*weights.values()]
    loss_of = partial(decoder_loss, start.config, weights, inputs, targets)
    is_fused = torch.device(device).type != "cpu"
    return loss_of, torch.optim.AdamW(weights.values(), lr=1e-4, fused=is_fused), [*weights.values()]


def torch_step(variant: str, start: Start, dtype: str, device: str) -> Callable[[], Tensor]:
    """Return a function that takes a step and returns its loss."""
    loss_of, optimizer, _ = torch_network(start, dtype, device)
    if variant == COMPILED:
        loss_of = torch.compile(loss_of, dynamic=False)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step
