"""Steps of tallow and of PyTorch on the CPU in turns, which other work on the machine disturbs alike."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter, process_time
from typing import NamedTuple

import tallow as tl
import torch

from benchmarks.gpu.machine import without_garbage_collection

from .measure import start_of, tallow_step
from .results import EAGER, NETWORKS, TALLOW
from .torch_networks import torch_step

_WARM_STEPS = 4


class Turns(NamedTuple):
    """A variant of a network: seconds of a step."""

    network: str
    variant: str
    min_wall: float
    median_wall: float
    min_processor: float
    """Of all threads."""


def measured(model: str, batch: int, length: int, threads: int, rounds: int) -> list[Turns]:
    """Time so many steps of each network and variant, one after the other."""
    tl.set_threads(threads)
    torch.set_num_threads(threads)
    results = []
    for network in NETWORKS:
        start = start_of(network, model, batch, length)
        steps = {
            TALLOW: tallow_step(start, "f32", tl.Device.cpu()),
            EAGER: torch_step(EAGER, start, "f32", "cpu"),
        }
        for step in [*steps.values()] * _WARM_STEPS:
            step()
        with without_garbage_collection():
            times = [[_time(step) for step in steps.values()] for _ in range(rounds)]
        for variant, each in zip(steps, zip(*times, strict=True), strict=True):
            walls, processors = zip(*each, strict=True)
            results.append(Turns(network, variant, min(walls), median(walls), min(processors)))
    return results


def _time(step: Callable[[], object]) -> tuple[float, float]:
    wall, processor = perf_counter(), process_time()
    step()
    return perf_counter() - wall, process_time() - processor
