"""The program of every op of a backend: it is well formed, however operands lie and whatever the device is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import tallow
from tallow import CaptureError, Device, GgmlDType, Graph, Layout, Storage, Tensor, fuse
from tallow.kernels.constants import ELEMENTWISE_METHODS
from tallow.runtime.backends.gpu_backend.device import GpuDevice
from tallow.runtime.backends.plan import Key, Plan
from tallow.runtime.base.error import TallowError
from tallow.runtime.doctor.support import SupportCell
from tallow.runtime.program.builder import OpCall
from tallow.runtime.program.program import HostCall, Program
from tallow.runtime.program.values import Parameter
from tallow.runtime.selftest import examples, trial

from .programs import checked, fallbacks

GENERATOR = np.random.default_rng(0)


def repeated(sizes: Sequence[int]) -> Layout:
    """A layout whose first dim has one element alone."""
    inner = Layout.contiguous(tuple(sizes[1:]))
    return Layout(tuple(sizes), (0, *inner.strides)[: len(sizes)], 1)


def padded(sizes: Sequence[int]) -> Layout:
    """A layout of dense rows that are apart."""
    outer = Layout.contiguous((*sizes[:-1], sizes[-1] + 3)) if sizes else Layout.contiguous(())
    return Layout(tuple(sizes), outer.strides)


LAYOUTS: dict[str, Callable[[Sequence[int]], Layout]] = {
    "contiguous": examples.contiguous,
    "strided": trial.strided,
    "repeated": repeated,
    "padded": padded,
    "broadcast": lambda sizes: Layout(tuple(sizes), (0,) * len(sizes)),
    "sliding": lambda sizes: Layout(tuple(sizes), (1,) * len(sizes)),
    "unaligned": lambda sizes: Layout.contiguous(tuple(sizes), 1),
}
# Strided elements have gaps too, and broadcast ones repeat.
ALIKE = ("padded", "repeated")


class Checker:
    """Checks the program of each call, for a small device and a large one that has waves and kernels of another kind.

    On a GPU it gives results that are not initialised instead of running kernels, and libraries refuse.
    """

    def __init__(self, device: Any) -> None:
        self.device = device
        facts = device.facts
        self.facts = (
            facts._replace(multiprocessors=4, wave_size=32, has_kernels=lambda _: True),
            facts._replace(multiprocessors=304, wave_size=64, has_kernels=lambda _: False),
        )
        self.programs = 0

    def observed(self, key: Key, call: OpCall, plan: Plan, is_known: bool) -> Plan:
        def run(*operands: Any) -> Any:
            program = self.check(call, plan, operands)
            if not isinstance(self.device, GpuDevice):
                return plan(*operands)
            if fallbacks(program):
                return None
            results = tuple([self.device.empty(each.dtype, each.length) for each in program.buffers])
            return results if isinstance(program.result, tuple) else results[0] if results else True

        return run

    def check(self, call: OpCall, plan: Plan, operands: Sequence[Any]) -> Program:
        """Check the program of a call, and return it."""
        program, *_ = [checked(call, facts) for facts in self.facts]
        self.programs += 1
        return program


class Capturer(Checker):
    """Requires also that a program which calls the host is refused while a graph is captured."""

    captures = 0

    def check(self, call: OpCall, plan: Plan, operands: Sequence[Any]) -> Program:
        program = super().check(call, plan, operands)
        if any(isinstance(step, HostCall) for step in program.steps):
            graph = Graph(Device(self.device))
            with pytest.raises(CaptureError), graph.capture():
                plan(*operands)
            graph.close()
            self.captures += 1
        return program


class FusedChecker(Checker):
    """Requires also that there is one program of a fused function, and notes how many numbers it takes."""

    numbers: int | None = None

    def check(self, call: OpCall, plan: Plan, operands: Sequence[Any]) -> Program:
        program = super().check(call, plan, operands)
        # Others are of ops that are called without elements.
        if call.name == "fused":
            assert self.numbers is None
            self.numbers = sum(isinstance(argument, Parameter) for argument in program.arguments)
        return program


def cells(backend: str, full: bool) -> Iterator[SupportCell]:
    """The cells of a backend: of each op and each way in which it is done one dtype, or all of them."""
    ops: dict[object, list[SupportCell]] = defaultdict(list)
    for cell in tallow.support():
        # Ops of one's own build no programs.
        is_own = cell.method.startswith(("apply_op", "inplace_op"))
        if cell.backend == backend and cell.status == "supported" and not is_own:
            ops[cell.method, cell.op, cell.via].append(cell)
    for number, each in enumerate(ops.values()):
        yield from each if full else [each[number % len(each)]]


def example(
    device: Device, cell: SupportCell, number: int, layout: Callable[[Sequence[int]], Layout]
) -> examples.Example:
    """A call of a cell."""

    def make(dtype: str, length: int, numbers: examples.Numbers = examples.ANY) -> Storage:
        return device.storage(trial.array(GENERATOR, dtype, length, numbers))

    if hasattr(Device, cell.method):
        return examples.Example(device, cell.method, examples.device_arguments(cell, number))
    if isinstance(cell.dtype, GgmlDType):
        blocks = device.quantized_zeros(examples.block_count(cell, number), cell.dtype)
        return examples.Example(blocks, cell.method, examples.block_arguments(cell, make, number))
    return examples.storage_example(cell, make, number, layout)


@pytest.fixture(params=["device", "gpu"])
def any_device(request: pytest.FixtureRequest, device: Device) -> Iterator[Device]:
    """The device that the tests run on, and a GPU."""
    if request.param == "device":
        yield device
    elif isinstance(device.inner, GpuDevice):
        pytest.skip("the device is a GPU")
    else:
        yield Device(request.getfixturevalue("gpu"))


@pytest.mark.parametrize(
    ("name", "number"),
    [
        *[pytest.param(name, examples.SMALLEST, id=f"{name}-small") for name in ("contiguous", "strided")],
        *[
            pytest.param(name, examples.LARGEST, id=f"{name}-large", marks=[pytest.mark.full] if name in ALIKE else [])
            for name in LAYOUTS
        ],
    ],
)
def test_programs_of_every_op(any_device: Device, full: bool, name: str, number: int) -> None:
    checker, faults = Checker(any_device.inner), []
    with any_device.inner.plans.observed_by(checker):
        for cell in cells(any_device.backend, full):
            call = example(any_device, cell, number, LAYOUTS[name])
            try:
                call.call()
            except TallowError as error:
                # What is written to has no element twice, and so on.
                if name == "contiguous":
                    faults.append(f"{trial.name_of(cell)}: {error}")
            except AssertionError as error:
                faults.append(f"{trial.name_of(cell)}: {error}")
    # Those of calls that never ran.
    any_device.inner.plans.clear()
    assert not faults
    assert checker.programs > 100


def test_programs_of_fused_functions(any_device: Device, full: bool) -> None:
    """Each elementwise op is a step of one program, with numbers as its parameters, and gives the same bits."""
    checker = FusedChecker(any_device.inner)
    methods = set[str]()
    for cell in cells(any_device.backend, full):
        if cell.method not in ELEMENTWISE_METHODS:
            continue
        call = example(any_device, cell, examples.SMALLEST, trial.strided)
        fused, tensors, numbers = as_fused(call)
        with any_device.inner.plans.observed_by(checker):
            result = fused(*tensors, *numbers)
        assert checker.numbers == len(numbers), trial.name_of(cell)
        checker.numbers = None
        if not isinstance(any_device.inner, GpuDevice):
            expected = call.call().to_numpy()
            assert result.numpy().tobytes() == expected.tobytes(), trial.name_of(cell)
        methods.add(cell.method)
    assert methods == set(ELEMENTWISE_METHODS)


def as_fused(call: examples.Example) -> tuple[Callable[..., Tensor], list[Tensor], list[float]]:
    """A fused function that calls a storage method of its tensors, and what it is called with."""
    arguments = call.arguments
    storages = [call.owner, *[value for value in arguments.values() if isinstance(value, Storage)]]
    layouts = [value for value in arguments.values() if isinstance(value, Layout)]
    numbers = [value for value in arguments.values() if type(value) in (int, float)]

    def function(*given: Any) -> Any:
        tensors, remaining = [tensor.storage for tensor in given[: len(storages)]], iter(given[len(storages) :])
        others, lies = iter(tensors[1:]), iter([tensor.layout for tensor in given[: len(storages)]])
        called = [
            next(others) if isinstance(value, Storage)
            else next(lies) if isinstance(value, Layout)
            else next(remaining) if type(value) in (int, float)
            else value
            for value in arguments.values()
        ]  # fmt: skip
        return given[0]._new(getattr(tensors[0], call.method)(*called), layouts[0].dense)

    return fuse(function), [Tensor.from_storage(*pair) for pair in zip(storages, layouts, strict=True)], numbers


def test_graphs_capture_no_calls_of_the_host(gpu: Any, full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without libraries, for which the host does the work of some."""
    for name in gpu.library_classes():
        monkeypatch.setattr(type(gpu), name, None)
    gpu.plans.clear()
    capturer, device = Capturer(gpu), Device(gpu)
    with gpu.plans.observed_by(capturer):
        for cell in cells(device.backend, full):
            example(device, cell, examples.SMALLEST, examples.contiguous).call()
    gpu.plans.clear()
    assert capturer.captures > 10
