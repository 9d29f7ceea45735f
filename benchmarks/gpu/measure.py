"""Runs cases: each result is checked first, and what is wrong is not timed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from . import machine, timing
from .libraries import Data, Libraries
from .machine import summary
from .results import COMPILED, LIBRARIES, Measurement, Row
from .work import Op, Work

# The size whose calls are small enough that enqueueing them is all that counts.
HOST_ELEMENTS = 1 << 10
# The size at which PyTorch's ops are also compiled, which takes seconds for each.
_COMPILED_ELEMENTS = 1 << 28


def measure(op: Op, data: Data) -> Row:
    """Check and time one op; whatever goes wrong is noted in the row, and the run goes on."""
    libraries = {name: Measurement() for name in LIBRARIES}
    row = Row(op.family, op.name, data.dtype, data.elements, "", 0, 0, libraries)
    try:
        work = op.build(data)
        row.shape, row.nbytes, row.flops = work.shape, work.nbytes, work.flops
        _fill(row, work, data.libraries)
    except Exception as error:
        row.failure = summary(error)
    if row.failure:
        # A row with a wrong result has no times, not even those of the libraries that are right.
        row.libraries = {name: Measurement(reason="not timed") for name in LIBRARIES}
    return row


def _fill(row: Row, work: Work, libraries: Libraries) -> None:
    calls, ours = _right_calls(row, work, libraries)
    if row.failure:
        return
    for name, seconds in timing.device_seconds(calls).items():
        row.libraries[name].seconds = seconds
    if row.elements == HOST_ELEMENTS:
        for name, seconds in timing.host_seconds(calls).items():
            row.libraries[name].host_seconds = seconds
    again = libraries.as_torch(_result(work, calls["tallow"]))
    libraries.device.synchronize()
    # As bits: NaN is not equal to itself.
    if work.repeats and not torch.equal(_bytes(ours), _bytes(again)):
        row.failure = "tallow's result changed while it was timed"


def _right_calls(row: Row, work: Work, libraries: Libraries) -> tuple[dict[str, Callable[[], Any]], torch.Tensor]:
    """The calls of the libraries whose results are right, and tallow's result."""
    calls: dict[str, Callable[[], Any]] = {}
    without_cupy = libraries.why_without_cupy(row.dtype) or (work.cupy if isinstance(work.cupy, str) else "")
    ours = torch.empty(0)
    candidates: dict[str, Callable[[], Any] | str] = {"tallow": work.tallow, "torch": work.torch, "cupy": work.cupy}
    if work.compiles and row.elements == _COMPILED_ELEMENTS:
        # What was compiled before counts, since ops that are built alike have one code: of that PyTorch compiles few.
        torch.compiler.reset()
        # Where it is not supported, already this raises.
        compiled = cache(lambda: torch.compile(work.torch, dynamic=False))
        candidates[COMPILED] = lambda: compiled()()
        row.libraries[COMPILED] = Measurement()
    for name, call in candidates.items():
        problem = without_cupy if name == "cupy" else ""
        if not problem and not isinstance(call, str):
            try:
                result = libraries.as_torch(_result(work, call))
                libraries.device.synchronize()
                problem = work.check(result, name != "tallow")
                if name == "tallow":
                    ours = result.clone() if work.output is not None else result
                calls[name] = call
            except Exception as error:
                problem = summary(error)
        row.libraries[name].reason = problem
        if problem:
            calls.pop(name, None)
            # The others are not needed to know what is right.
            if name in ("tallow", "torch"):
                row.failure = f"{LIBRARIES[name]}: {problem}"
                break
    return calls, ours


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    # A tensor of rank 0 cannot be seen as bytes.
    return tensor.reshape(-1).view(torch.uint8)


def _result(work: Work, call: Callable[[], Any]) -> Any:
    if work.output is None:
        return call()
    # What was there before must not pass for a result.
    work.output.fill_(float("nan"))
    call()
    return work.output


def environment(libraries: Libraries, command: str) -> dict[str, str]:
    """Return the facts that a reader needs to repeat the run."""
    packages = ("tallow", "torch", "cupy", "numpy", "cuda.bindings")
    return machine.described(command, gpu(libraries.torch_device), packages)


def gpu(device: torch.device) -> dict[str, str]:
    """Return the facts that PyTorch and the driver report of a GPU."""
    properties = torch.cuda.get_device_properties(device)
    return {
        "GPU": f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB",
        "driver": machine.driver(),
        "CUDA of PyTorch": str(torch.version.cuda),
    }
