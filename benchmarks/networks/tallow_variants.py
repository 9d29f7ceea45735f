"""Variants of running a task by tallow."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import tallow as tl

from benchmarks.training.measure import Captured

from .layers import STATISTICS, Array
from .networks import Network
from .results import ANY_ORDER, FUSED, FUSED_GRAPH, GRAPHS, TRAINING, Task
from .tallow_layers import TallowLayers, loss

Step = Callable[[], list[tl.Tensor]]


def tallow_step(
    variant: str, task: Task, network: Network, weights: dict[str, Array], x: Array, device: tl.Device
) -> Step:
    """Return a function of the outputs, or of the loss and all parameters' gradients in the order of their names."""
    is_training = task.phase == TRAINING
    is_fused = variant in (FUSED, FUSED_GRAPH)
    # As compiled PyTorch has it. In f32 GPUs have no quick convolutions of it.
    is_channels_last = is_fused and device.backend != "cpu" and task.dtype != "f32"

    def tensor(array: Array) -> tl.Tensor:
        copy = tl.Tensor(array, dtype=task.dtype, device=device)
        return copy.contiguous(memory_format="channels_last") if is_channels_last and array.ndim == 4 else copy

    own = {name: tensor(array) for name, array in weights.items()}
    if is_training:
        own |= {name: tl.Var(copy) for name, copy in own.items() if not name.endswith(STATISTICS)}
    net = TallowLayers(own, training=is_training, is_fused=is_fused)
    inputs = tensor(x)
    step = _training_step(net, network, own, inputs) if is_training else lambda: [network.apply(net, inputs)]
    if variant not in GRAPHS:
        return step
    captured = Captured(step, device)  # type: ignore[arg-type]
    with tl.deterministic(variant != ANY_ORDER):
        while not captured.is_captured:
            captured()
    return captured  # type: ignore[return-value]


def _training_step(net: TallowLayers, network: Network, weights: dict[str, tl.Tensor], inputs: tl.Tensor) -> Step:
    parameters = {name: x for name, x in sorted(weights.items()) if isinstance(x, tl.Var)}
    # A rate of 0, so that each step has the same results.
    optimizer = tl.optim.SGD(parameters, 0.0, momentum=0.9)

    @cache
    def targets(shape: tuple[int, ...]) -> tl.Tensor:
        array = network.targets(shape)
        return tl.Tensor(array, dtype=inputs.dtype if array.dtype.kind == "f" else "i64", device=inputs.device)

    def step() -> list[tl.Tensor]:
        y = network.apply(net, inputs)
        result = loss(y, targets(y.shape))
        gradients = result.backward()
        optimizer.step(gradients)
        return [result.detach(), *[gradients[x] for x in parameters.values()]]

    return step
