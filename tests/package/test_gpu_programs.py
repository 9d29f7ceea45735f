"""The program of every op of a GPU: it is well formed, however its operands lie and whatever the device is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import tallow
from tallow import CaptureError, Device, GgmlDType, Graph, Layout, Storage
from tallow.runtime.backends.plan import Key, Plan
from tallow.runtime.base.error import TallowError
from tallow.runtime.doctor.support import SupportCell
from tallow.runtime.program.op_call import OpCall
from tallow.runtime.program.program import Program, results_of
from tallow.runtime.program.steps import HostCall
from tallow.runtime.selftest import examples, trial

from . import backend
from .programs import FACTS, checked, fallbacks

backend.require_package()

# Small and large, with waves of either size, with all kernels and without those that some targets lack.
DEVICES = FACTS, FACTS._replace(multiprocessors=304, wave_size=64, has_kernels=lambda _: False)


def repeated(sizes: Sequence[int]) -> Layout:
    """A layout whose first dim has one element alone."""
    inner = Layout.contiguous(tuple(sizes[1:]))
    return Layout(tuple(sizes), (0, *inner.strides)[: len(sizes)], 1)


LAYOUTS: dict[str, Callable[[Sequence[int]], Layout]] = {
    "contiguous": examples.contiguous,
    "strided": trial.strided,
    "repeated": repeated,
    "unaligned": lambda sizes: Layout.contiguous(tuple(sizes), 1),
}


class Checker:
    """Checks the program of each call in the place of running it. Libraries refuse what they may refuse."""

    def __init__(self, gpu: Any) -> None:
        self.gpu = gpu
        self.programs = 0

    def observed(self, key: Key, call: OpCall, plan: Plan, is_known: bool) -> Plan:
        """What gives results that are not initialised."""

        def run(*operands: Any) -> Any:
            program = self.check(call, plan, operands)
            if fallbacks(program):
                return None
            results = tuple([self.gpu.empty(each.dtype, each.length) for each in results_of(program.result)])
            return results if isinstance(program.result, tuple) else results[0] if results else True

        return run

    def check(self, call: OpCall, plan: Plan, operands: Sequence[Any]) -> Program:
        """Check the program of a call, and return it."""
        program, *_ = [checked(call, facts) for facts in DEVICES]
        self.programs += 1
        return program


class Capturer(Checker):
    """Requires that a program which calls the host is refused while a graph is captured."""

    def check(self, call: OpCall, plan: Plan, operands: Sequence[Any]) -> Program:
        program = call.program(self.gpu.facts)
        assert program is not None, "there is no library"
        if any(isinstance(step, HostCall) for step in program.steps):
            graph = Graph(Device(self.gpu))
            with pytest.raises(CaptureError), graph.capture():
                plan(*operands)
            graph.close()
            self.programs += 1
        return program


def cells(full: bool) -> Iterator[SupportCell]:
    """The cells of the backend: of each op and each way in which it is done one dtype, or all of them."""
    ops: dict[object, list[SupportCell]] = defaultdict(list)
    for cell in tallow.support():
        is_own = cell.method.startswith(("apply_op", "inplace_op"))
        if cell.backend == backend.backend_name() and cell.status == "supported" and not is_own:
            ops[cell.method, cell.op, cell.via].append(cell)
    for number, each in enumerate(ops.values()):
        yield from each if full else [each[number % len(each)]]


def example(
    gpu: Any, cell: SupportCell, sizes: examples.Sizes, layout: Callable[[Sequence[int]], Layout]
) -> examples.Example:
    """A call of a cell with operands that are not initialised."""
    device = Device(gpu)

    def make(name: str, length: int, numbers: examples.Numbers = examples.ANY) -> Storage:
        return Storage(gpu.empty(tallow.DType(name), length))

    if hasattr(Device, cell.method):
        return examples.Example(device, cell.method, examples.device_arguments(cell, sizes))
    if isinstance(cell.dtype, GgmlDType):
        blocks = device.quantized_zeros(sizes.block_rows * sizes.hidden, cell.dtype)
        return examples.Example(blocks, cell.method, examples.block_arguments(cell, make, sizes))
    return examples.storage_example(cell, make, sizes, layout)


@pytest.mark.parametrize("sizes", [examples.SMALLEST, examples.TILED], ids=["small", "large"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_programs_of_every_op(gpu: Any, full: bool, name: str, sizes: examples.Sizes) -> None:
    checker = Checker(gpu)
    faults = []
    with gpu.plans.observed_by(checker):
        for cell in cells(full):
            call = example(gpu, cell, sizes, LAYOUTS[name])
            try:
                call.call()
            except TallowError:
                # A layout that is written to has no element twice, and so on.
                assert name != "contiguous", cell
            except AssertionError as error:
                faults.append(f"{trial.name_of(cell)}: {error}")
    assert not faults
    assert checker.programs > 100


def test_graphs_capture_no_calls_of_the_host(gpu: Any, full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without libraries, for which the host does the work of some."""
    for name in gpu.library_classes():
        monkeypatch.setattr(type(gpu), name, None)
    gpu.plans.clear()
    capturer = Capturer(gpu)
    with gpu.plans.observed_by(capturer):
        for cell in cells(full):
            example(gpu, cell, examples.SMALLEST, examples.contiguous).call()
    gpu.plans.clear()
    assert capturer.programs > 10
