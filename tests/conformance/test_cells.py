"""One test for every cell: a supported one agrees with the oracle, any other one refuses by name."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
import pytest
import tallow
from tallow import backends
from tallow.runtime.base.error import BackendUnavailable, UnsupportedDevice, UnsupportedDType
from tallow.runtime.doctor.support import SupportCell

from . import calls, declared, matrix
from .bench import Bench, cell_label
from .handlers import HANDLERS
from .oracle.formats import EXTENDED_IS_WIDE, NUMPY


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    chosen = metafunc.config.getoption("--device").partition(":")[0]
    absent = [backend for backend in matrix.BACKENDS if backend != chosen and not is_installed(backend)]
    if "backend" in metafunc.fixturenames:
        metafunc.parametrize("backend", absent)
    elif metafunc.function is test_kernels_convolve_without_a_library:
        cases = [cell for cell in tallow.support() if cell.backend == chosen and ": conv." in (cell.via or "")]
        metafunc.parametrize(
            "cell", [pytest.param(cell, marks=marks_without_library(cell)) for cell in cases], ids=cell_label
        )
    elif metafunc.function is test_cell:
        cases = [cell for cell in tallow.support() if cell.backend == chosen]
        metafunc.parametrize("cell", cases, ids=cell_label)
    else:
        unsupported = [cell for cell in tallow.support() if cell.status == "unsupported"]
        # Of a dtype that a backend lacks altogether there is no storage, and the device is what refuses it.
        lacking = {(cell.backend, cell.dtype) for cell in unsupported if cell.method == "zeros"}
        lacking -= {(backend, None) for backend in matrix.BACKENDS}
        cases = [
            cell
            for cell in unsupported
            if cell.backend in absent
            and (cell.method in matrix.DEVICE_METHODS or (cell.backend, cell.dtype) not in lacking)
        ]
        metafunc.parametrize("cell", cases, ids=cell_label)


@pytest.fixture(autouse=True)
def replayed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With --replay each program runs on copies first, and what is compiled of it then works on the operands."""
    if not request.config.getoption("--replay"):
        return
    from tallow.runtime.backends.gpu_backend.driver import slow_path
    from tallow.runtime.backends.gpu_backend.execute import program as executor
    from tallow.runtime.backends.gpu_backend.memory.storage import GpuStorage

    def run(plan: executor.GpuPlan, *operands: Any) -> Any:
        if operands and not slow_path.required:
            copies = {
                id(operand): plan.device.copy_of(operand)
                for operand in operands
                if isinstance(operand, GpuStorage) and operand.number is None
            }
            first = interpret(plan, *[copies.get(id(operand), operand) for operand in operands])
            if first is None:
                return None
        return interpret(plan, *operands)

    interpret = executor.GpuPlan.__call__
    monkeypatch.setattr(executor.GpuPlan, "__call__", run)


@pytest.fixture(autouse=True)
def check_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that each call gives what `result` of the spec says."""
    declared.check_calls(monkeypatch)


def is_installed(backend: str) -> bool:
    """Whether the backend has a runtime here rather than its dummy."""
    return not storage_class(backend).to_numpy.__module__.endswith(f"dummy_{backend}_backend")


def storage_class(backend: str) -> type:
    return matrix.class_of(backend, "Storage")


def test_cell(cell: SupportCell, device: tallow.Device, full: bool) -> None:
    if cell.status == "supported":
        if not EXTENDED_IS_WIDE:
            pytest.skip("the oracle needs a long double with a significand of 64 bits")
        HANDLERS[cell.method](Bench.of(cell, device, full))
        return

    def make(name: str, length: int) -> tallow.Storage:
        return device.storage(np.zeros(length, NUMPY[name]))

    check_refused(cell, device, make)


def marks_without_library(cell: SupportCell) -> list[pytest.MarkDecorator]:
    """Each kind of convolution and each kernel once by default."""
    kinds = {"convolution": "bf16", "convolution_gradient_input": "f32", "convolution_gradient_weight": "f32"}
    return [] if cell.dtype is not None and kinds.get(cell.method) == cell.dtype.value else [pytest.mark.full]


def test_kernels_convolve_without_a_library(
    cell: SupportCell, device: tallow.Device, full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = (cell.via or "").partition(":")[0]
    monkeypatch.setattr(type(device.inner), library, None)
    device.inner.plans.clear()
    HANDLERS[cell.method](Bench.of(cell, device, full))
    device.inner.plans.clear()


def test_a_backend_that_is_not_here_opens_no_device(backend: str) -> None:
    with pytest.raises(BackendUnavailable) as caught:
        tallow.Device.parse(backend)
    assert caught.value.backend == backend
    assert caught.value.reason
    assert caught.value.reason in str(caught.value)


def test_unsupported_cell_of_a_backend_that_is_not_here(cell: SupportCell) -> None:
    # No device can be opened, so that the branch is reached by a forged one alone.
    its_class = matrix.class_of(cell.backend, "Device")
    # The class that replaces that of a missing library has no name of a backend.
    name = {} if hasattr(its_class, "backend") else {"backend": cell.backend}
    inner = forged(its_class, ordinal=0, plans={}, **name)

    def make(name: str, length: int) -> tallow.Storage:
        dtype = tallow.DType(name)
        return tallow.Storage(forged(storage_class(cell.backend), device=inner, dtype=dtype, length=length, kind=0))

    check_refused(cell, tallow.Device(inner), make)


def forged(its_class: type, **attributes: object) -> object:
    """An object of a class that makes none."""
    result = object.__new__(its_class)
    for name, value in attributes.items():
        setattr(result, name, value)
    return result


def make_blocks(cell: SupportCell, device: tallow.Device) -> tallow.QStorage:
    """Weights in blocks on a device that has none."""
    its_class = getattr(backends, f"Q{storage_class(cell.backend).__name__}")
    return tallow.QStorage(forged(its_class, device=device.inner, dtype=cell.dtype, length=512, kind=0))


def check_refused(cell: SupportCell, device: tallow.Device, make: calls.Make) -> None:
    """An unsupported cell names op, dtype, backend and the reason."""
    # Without a dtype it is the devices of the backend that lack a method.
    with pytest.raises(UnsupportedDevice if cell.dtype is None else UnsupportedDType) as caught:
        if cell.method in matrix.DEVICE_METHODS:
            calls.call_device(cell, device)
        elif cell.method in matrix.BLOCK_METHODS:
            calls.call_blocks(cell, make_blocks(cell, device), make)
        else:
            calls.call_storage(cell, make)
    refusal = caught.value
    # Of a dtype that the backend lacks altogether there is no storage to call the method on.
    op = "storage" if refusal.op == "storage" else calls.error_op(cell)
    assert refusal.backend == cell.backend
    assert refusal.reason
    assert refusal.reason in str(refusal)
    assert (refusal.op, getattr(refusal, "dtype", None)) == (op, cell.dtype)
    assert refusal.reason == cell.reason, "the matrix and the branch tell one story"
    assert op in str(refusal)
    if isinstance(cell.dtype, tallow.DType) and ";" not in refusal.reason:
        check_advice(cell, str(refusal))


@cache
def supported() -> set[tuple[str, object, str]]:
    """The methods, ops and dtypes that some backend has."""
    return {(it.method, it.op, str(it.dtype)) for it in tallow.support() if it.status == "supported"}


def check_advice(cell: SupportCell, message: str) -> None:
    """What the error says to convert to is a dtype that the op has."""
    is_of_parts = re.search(r"; take real\(\)", message) is not None
    converted = re.search(r"; (?:convert|take real\(\) first, and convert it) with to_dtype\(\"(\w+)\"\)", message)
    assert is_of_parts or converted, message
    advised = converted[1] if converted else str(cell.dtype.real)
    assert (cell.method, cell.op, advised) in supported(), message
