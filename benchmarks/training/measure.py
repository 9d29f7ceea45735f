"""Runs the variants one after another, each with the memory to itself."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import tallow as tl

from benchmarks.gpu.machine import summary, without_garbage_collection

from .networks import decoder_loss, perceptron_loss
from .results import ANY_ORDER, DECODER, GRAPHS, TORCH_VARIANTS, Row
from .sizes import CONFIGS, Start, decoder_start, perceptron_start

Step = Callable[[], Any]

# By calls, before a step is captured or timed: kernels are compiled, plans recorded and libraries opened.
_WARM_STEPS = 3
_MAX_ROUNDS, _MIN_ROUNDS = 200, 5
_BUDGET = 3.0


class Machine:
    """A device, and PyTorch's name of it; None where PyTorch cannot use it."""

    def __init__(self, label: str) -> None:
        self.device = tl.Device.parse(label)
        self.torch_device, self.without_torch = self._torch()

    def _torch(self) -> tuple[str, str]:
        try:
            import torch
        except ImportError:
            return "", "PyTorch is not installed"
        if self.device.backend == "cpu":
            torch.set_num_threads(tl.get_threads())
            return "cpu", ""
        if not torch.cuda.is_available() or self.device.backend not in ("cuda", "rocm"):
            return "", f"PyTorch {torch.__version__} does not find the GPU"
        return f"cuda:{self.device.ordinal}", ""

    def facts(self) -> dict[str, str]:
        """The facts of the device."""
        if not self.torch_device.startswith("cuda"):
            return {"device": self.device.label}
        import torch

        from benchmarks.gpu.measure import gpu

        return gpu(torch.device(self.torch_device))

    def synchronize(self, variant: str) -> None:
        """Wait for what a variant has begun."""
        if variant in TORCH_VARIANTS and self.torch_device.startswith("cuda"):
            import torch

            torch.cuda.synchronize()
        elif variant not in TORCH_VARIANTS:
            self.device.synchronize()

    def forget(self) -> None:
        """Give back the memory of the variant before, and count the peak anew."""
        gc.collect()
        if self.torch_device.startswith("cuda"):
            import torch

            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        if allocator := getattr(self.device.inner, "allocator", None):
            self.device.synchronize()
            allocator.empty_cache()
            allocator.peak = allocator.statistics().allocated

    def peak(self, variant: str) -> int | None:
        """The most bytes that tensors of a variant held at once; None where nobody counts them."""
        if variant in TORCH_VARIANTS and self.torch_device.startswith("cuda"):
            import torch

            return int(torch.cuda.max_memory_allocated())
        allocator = getattr(self.device.inner, "allocator", None)
        return None if allocator is None or variant in TORCH_VARIANTS else int(allocator.statistics().peak)


def start_of(network: str, model: str, batch: int, length: int) -> Start:
    """The initial weights and data of a network."""
    return decoder_start(CONFIGS[model], batch, length) if network == DECODER else perceptron_start()


def measure(machine: Machine, network: str, variant: str, start: Start, dtype: str, steps: int) -> Row:
    """Take steps and time more of them; whatever goes wrong is noted in the row."""
    row = Row(network, variant)
    row.reason = _missing(machine, variant)
    if row.reason:
        return row
    machine.forget()
    try:
        with tl.deterministic(variant != ANY_ORDER):
            _run(machine, row, _step(machine, variant, start, dtype), steps)
    except Exception as error:
        row.reason, row.failed = summary(error), True
    return row


def _missing(machine: Machine, variant: str) -> str:
    if variant in TORCH_VARIANTS:
        return machine.without_torch
    return "a graph is a GPU's" if variant in GRAPHS and machine.device.backend == "cpu" else ""


def _step(machine: Machine, variant: str, start: Start, dtype: str) -> Step:
    if variant in TORCH_VARIANTS:
        from .torch_networks import torch_step

        return torch_step(variant, start, dtype, machine.torch_device)
    step = tallow_step(start, dtype, machine.device)
    return Captured(step, machine.device) if variant in GRAPHS else step


def tallow_network(
    start: Start, dtype: str, device: tl.Device
) -> tuple[Callable[[], tl.Tensor], tl.optim.Optimizer, list[tl.Var]]:
    """Return a function of a network's loss, its optimiser, and its weights in the order in which it uses them."""
    weights = {name: tl.Var(tl.Tensor(array, dtype=dtype, device=device)) for name, array in start.weights.items()}
    targets = tl.Tensor(start.targets, device=device)
    if start.config is None:
        inputs = tl.Tensor(start.inputs, dtype=dtype, device=device)
        loss_of = partial(perceptron_loss, weights, inputs, targets)
        return loss_of, tl.optim.SGD(weights, 0.1, momentum=0.9), [*weights.values()]
    loss_of = partial(decoder_loss, start.config, weights, tl.Tensor(start.inputs, device=device), targets)
    return loss_of, tl.optim.AdamW(weights, 1e-4), [*weights.values()]


def tallow_step(start: Start, dtype: str, device: tl.Device) -> Callable[[], tl.Tensor]:
    """Return a function that takes a step and returns its loss."""
    loss_of, optimizer, _ = tallow_network(start, dtype, device)

    def step() -> tl.Tensor:
        loss = loss_of()
        optimizer.step(loss.backward())
        return loss.detach()

    return step


class Captured:
    """A step that is captured once it was taken a few times, and then replayed."""

    def __init__(self, step: Callable[[], tl.Tensor], device: tl.Device) -> None:
        self._step = step
        self._device = device
        self._taken = 0

    @property
    def is_captured(self) -> bool:
        """Whether the next step is a replay."""
        return self._taken > _WARM_STEPS

    def __call__(self) -> tl.Tensor:
        """Take a step and return its loss."""
        self._taken += 1
        if self._taken <= _WARM_STEPS:
            return self._step()
        if self._taken == _WARM_STEPS + 1:
            self._device.synchronize()
            self._graph = tl.Graph(self._device)
            with self._graph.capture():
                self._loss = self._step()
        self._graph.replay()
        return self._loss


def _run(machine: Machine, row: Row, step: Step, steps: int) -> None:
    row.first_loss = float(step().item())
    for _ in range(max(steps, _WARM_STEPS + 2) - 1):
        loss = step()
    row.last_loss = float(loss.item())
    walls: list[float] = []
    hosts: list[float] = []
    deadline = perf_counter() + _BUDGET
    with without_garbage_collection():
        for number in range(_MAX_ROUNDS):
            if number >= _MIN_ROUNDS and perf_counter() > deadline:
                break
            machine.synchronize(row.variant)
            begin = perf_counter()
            step()
            returned = perf_counter()
            machine.synchronize(row.variant)
            walls.append(perf_counter() - begin)
            hosts.append(returned - begin)
    row.wall_seconds, row.host_seconds = median(walls), median(hosts)
    row.peak_bytes = machine.peak(row.variant)
