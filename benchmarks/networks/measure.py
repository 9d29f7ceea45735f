"""Runs tasks in all variants: what gives wrong results is not timed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
import tallow as tl
from threadpoolctl import threadpool_limits

from benchmarks.gpu.machine import summary
from benchmarks.training.measure import Machine

from .layers import Array, Declaration
from .networks import NETWORKS, Network
from .results import CPU_VARIANTS, EAGER, GPU_VARIANTS, INFERENCE, ONNX, TRAINING, Row, Task
from .tallow_variants import Step, tallow_step
from .timing import time_in_turns

# Errors of a result relative to its norm, or twice PyTorch's own. Gradients jump where a relu is near 0.
_TOLERANCES = {
    (INFERENCE, "f32"): 1e-4,
    (INFERENCE, "bf16"): 1e-1,
    (TRAINING, "f32"): 1e-2,
    (TRAINING, "bf16"): 2e-1,
}
# Of the norm of the largest result: smaller ones are compared with so much.
_MIN_SHARE = 1e-2


def variants_of(device: tl.Device) -> tuple[str, ...]:
    """The variants that a device has."""
    return CPU_VARIANTS if device.backend == "cpu" else GPU_VARIANTS


def weights_of(network: Network) -> dict[str, Array]:
    """Random weights, the same in every run."""
    declaration = Declaration()
    network.apply(declaration, None)
    return declaration.weights


def set_threads(threads: int) -> None:
    """Give each library so many threads."""
    tl.set_threads(threads)
    # NumPy's products have threads of their own.
    threadpool_limits(threads, "blas")
    if find_spec("torch"):
        import torch

        torch.set_num_threads(threads)


def measure(
    machine: Machine, tasks: Iterable[Task], variants: Iterable[str], is_small: bool = False
) -> Iterator[list[Row]]:
    """Check and time tasks, those of one network, phase and batch one after the other; yield the rows of each."""
    # PyTorch's own error is known first, and its captures begin before tallow has memory to release.
    variants = sorted(variants, key=lambda variant: (variant != EAGER, variant.startswith("tallow")))
    known: tuple[object, ...] = ()
    for task in tasks:
        if task.threads is not None:
            set_threads(task.threads)
        if known != task[:3]:
            network = NETWORKS[task.network]
            weights, x = weights_of(network), network.inputs(task.batch, is_small)
            expected = _reference(machine, task, network, weights, x)
            known = task[:3]
        yield _Cell(machine, task, network, weights, x, expected).measure(variants)
        machine.forget()


def _reference(
    machine: Machine, task: Task, network: Network, weights: dict[str, Array], x: Array
) -> list[Array] | None:
    if not machine.torch_device:
        return None
    from .torch_variants import reference

    return reference(task, network, weights, x, machine.torch_device)


class _Cell:
    """A task, and the variants whose results are right."""

    def __init__(
        self,
        machine: Machine,
        task: Task,
        network: Network,
        weights: dict[str, Array],
        x: Array,
        expected: list[Array] | None,
    ) -> None:
        self._machine = machine
        self._task = task
        self._network = network
        self._weights = weights
        self._x = x
        self._wanted = expected
        self._tolerance = _TOLERANCES[task.phase, task.dtype]
        self._calls: dict[str, Callable[[], object]] = {}

    def measure(self, variants: Iterable[str]) -> list[Row]:
        """Check all variants, and time those that are right."""
        if (self._task.phase, self._task.dtype) != (INFERENCE, "f32"):
            variants = [variant for variant in variants if variant != ONNX]
        rows = {variant: self._prepare(variant) for variant in variants}
        for variant, times in time_in_turns(self._calls, self._synchronize).items():
            rows[variant].wall_seconds, rows[variant].processor_seconds = times
        return list(rows.values())

    def _prepare(self, variant: str) -> Row:
        row = Row(*self._task, variant)
        row.reason = self._missing(variant)
        if row.reason:
            return row
        try:
            step, results = self._step(variant)
            # Without PyTorch the variants are compared with the first of them.
            self._wanted = self._wanted or results
            row.error = _error(results, self._wanted)
        except Exception as error:
            row.reason, row.failed = summary(error), True
            return row
        if variant == EAGER:
            self._tolerance = max(self._tolerance, 2 * row.error)
        if not row.error <= self._tolerance:
            row.reason = f"the results are off by {row.error:.1e} of their norm, and {self._tolerance:.1e} are allowed"
            row.failed = True
        else:
            self._calls[variant] = step
        return row

    def _synchronize(self) -> None:
        self._machine.synchronize("")
        if self._machine.torch_device:
            self._machine.synchronize(EAGER)

    def _missing(self, variant: str) -> str:
        if variant == ONNX and not find_spec("onnxruntime"):
            return "onnxruntime is not installed"
        return "" if variant.startswith("tallow") else self._machine.without_torch

    def _step(self, variant: str) -> tuple[Callable[[], object], list[Array]]:
        arguments: Any = self._task, self._network, self._weights, self._x
        if variant.startswith("tallow"):
            step: Step = tallow_step(variant, *arguments, self._machine.device)
            return step, [x.to_dtype("f64").numpy() for x in step()]
        from .torch_variants import arrays, onnx_step, torch_step

        if variant == ONNX:
            run = onnx_step(*arguments)
            return run, [x.astype(np.float64) for x in run()]
        torch_call = torch_step(variant, *arguments, self._machine.torch_device)
        return torch_call, arrays(torch_call())


def _error(actual: list[Array], expected: list[Array]) -> float:
    """The largest distance of a result from what is right, relative to it; NaN if a number is NaN."""
    if [x.shape for x in actual] != [x.shape for x in expected]:
        return float("nan")
    norms = [float(np.linalg.norm(x)) for x in expected]
    # Of gradients that are small beside others little is known.
    least = _MIN_SHARE * max(norms)
    distances = [float(np.linalg.norm(x - y)) for x, y in zip(actual, expected, strict=True)]
    return float(np.max([distance / max(norm, least) for distance, norm in zip(distances, norms, strict=True)]))
