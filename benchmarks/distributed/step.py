"""The training step of a decoder whose batch the ranks share, compared with PyTorch's DistributedDataParallel.

Each rank has the same weights and a part of the texts. Losses are the means over all ranks, so that they are those of
one rank with all texts.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import tallow as tl
from tallow import TallowError, Tensor
from tallow import distributed as dist

from benchmarks.training.measure import Captured, tallow_network
from benchmarks.training.sizes import CONFIGS, Start, decoder_start

from .ranks import join_torch, slowest_seconds, torch_synchronize

ROUNDS, STEPS_IN_ROUND = 7, 5


def report(backend: str, model: str, batch: int, length: int, dtype: str, steps: int) -> Iterator[str]:
    """All lines, for the ranks of this process's group."""
    group, device = dist.init(), dist.device(backend)
    if batch % group.size:
        raise TallowError(f"{group.size} ranks cannot share a batch of {batch}: give a multiple with --batch")
    start = _part(decoder_start(CONFIGS[model], batch, length), group.rank, batch // group.size)
    variants: dict[str, Callable[[], tuple[Callable[[], Any], Callable[[], None]]]] = {
        "tallow": lambda: (_tallow_step(start, dtype, device), device.synchronize),
    }
    if backend != "cpu":
        variants["tallow, in a graph"] = lambda: (
            Captured(_tallow_step(start, dtype, device), device),
            device.synchronize,
        )
    try:
        torch_device = join_torch(device)
        variants["PyTorch"] = lambda: (_torch_step(start, dtype, torch_device), lambda: torch_synchronize(torch_device))
    except ImportError:
        yield "PyTorch is not installed, so tallow is measured alone"
    yield f"{group.size} ranks, {backend}, {model}, batch {batch} x {length:,}, {dtype}, tallow {tl.__version__}"
    yield ""
    yield f"| variant | ms | tokens/s | first loss | loss {steps} |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for name, prepare in variants.items():
        step, synchronize = prepare()
        losses = [float(step().item()) for _ in range(steps)]
        times = [slowest_seconds(step, STEPS_IN_ROUND, synchronize) for _ in range(ROUNDS)]
        seconds = statistics.median(times)
        speed = batch * length / seconds
        yield f"| {name} | {1e3 * seconds:.2f} | {speed:,.0f} | {losses[0]:.4f} | {losses[-1]:.4f} |"


def _part(start: Start, rank: int, texts: int) -> Start:
    """The initial weights and data of one rank."""
    mine = slice(rank * texts, (rank + 1) * texts)
    inputs, targets = (np.ascontiguousarray(array[mine]) for array in (start.inputs, start.targets))
    return replace(start, inputs=inputs, targets=targets)


def _tallow_step(start: Start, dtype: str, device: tl.Device) -> Callable[[], Tensor]:
    loss_of, optimizer, weights = tallow_network(start, dtype, device)

    def step() -> Tensor:
        loss = loss_of()
        optimizer.step(dist.average_gradients(loss, weights))
        return dist.all_reduce(loss.detach(), "mean")

    return step


def _torch_step(start: Start, dtype: str, torch_device: Any) -> Callable[[], Any]:
    import torch

    from benchmarks.training.torch_networks import torch_network

    loss_of, optimizer, weights = torch_network(start, dtype, torch_device)

    class Network(torch.nn.Module):
        """The weights and their loss, as DistributedDataParallel takes them."""

        def __init__(self) -> None:
            super().__init__()
            self.weights = torch.nn.ParameterList(weights)

        def forward(self) -> Any:
            return loss_of()

    # NCCL joins bf16 as it is; a bucket's view saves a copy of all gradients.
    network = torch.nn.parallel.DistributedDataParallel(Network(), gradient_as_bucket_view=True)

    def step() -> Any:
        optimizer.zero_grad()
        loss = network()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        torch.distributed.all_reduce(mean)
        return mean / dist.init().size

    return step
