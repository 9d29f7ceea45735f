"""The matrix is what ran: each supported cell is called, and its `via` compared with what that called."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tallow
from hip_runtime import Host
from tallow import backends
from tallow.op import MethodOp
from tallow.runtime.backends.gpu_backend.device import GpuDevice
from tallow.runtime.backends.plan import Key, Plan
from tallow.runtime.doctor.support import SupportCell
from tallow.runtime.program.builder import OpCall, builds
from tallow.runtime.program.program import Launch, LibraryCall, Step

from . import calls, matrix
from .bench import cell_label
from .oracle.formats import NUMPY

# By which kernels of the host are called or found, and a library on the CPU takes a problem.
HOST_WAYS = ("call", "kernel", "primitive")
LETTERS = "SDCZ"
SOLVERS = (
    *(f"{letter}{name}{many}" for letter in LETTERS for name in ("potrf", "gesvdj") for many in ("", "Batched")),
    *(f"{letter}{name}" for letter in LETTERS for name in ("getrf", "geqrf", "XsyevBatched")),
    *("Ssyevd", "Dsyevd", "Cheevd", "Zheevd", "Sorgqr", "Dorgqr", "Cungqr", "Zungqr"),
)
# What the log of the HIP runtime for the CPU has of libraries that take work.
WORK = {
    "hipblasGemmStridedBatchedEx": "hipblas",
    **{f"hipfftExec{kind}": "hipfft" for kind in ("C2C", "R2C", "C2R", "Z2Z", "D2Z", "Z2D")},
    **{f"hipsolverDn{kind}": "hipsolver" for kind in SOLVERS},
    **{f"hipblas{letter}{name}Batched": "hipsolver" for letter in LETTERS for name in ("getrf", "geqrf")},
    **{f"miopenConvolution{kind}": "miopen" for kind in ("Forward", "BackwardData", "BackwardWeights")},
    "miopenPoolingForward": "miopen",
    **dict.fromkeys(("ncclAllReduce", "ncclAllGather", "ncclReduceScatter", "ncclBroadcast", "ncclReduce"), "rccl"),
    "ncclSend": "rccl",
}
FUNCTORS = {member.value for member in MethodOp}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    chosen = metafunc.config.getoption("--device").partition(":")[0]
    cells = [cell for cell in tallow.support() if cell.backend == chosen and cell.status == "supported"]
    metafunc.parametrize("cell", cells, ids=cell_label)


def ways_of(cell: SupportCell) -> dict[str, str]:
    """Return the functions of a cell in order of preference, each with its library and `nondeterministic`, if any."""
    assert cell.via is not None, f"{cell_label(cell)} is supported"
    variants = (variant.rpartition(": ") for variant in cell.via.split(" or "))
    return {function: library for library, _, function in variants}


def kernel_of(cell: SupportCell) -> str:
    """How the names of a functor's kernels begin in the smallest call of a cell."""
    assert cell.dtype is not None, f"{cell_label(cell)} has a dtype"
    name = cell.dtype.value
    pairs = {
        "to_dtype": f"{calls.another_dtype(name)}_{name}",
        **dict.fromkeys(("where_cond", "where_cond_gradients"), f"b8_b{8 * cell.dtype.itemsize}"),
    }
    return f"{cell.op or cell.method}_{pairs.get(cell.method, name)}_"


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Callable[[object, str, Callable[..., None]], None]:
    """Lets `note(result, *arguments)` follow each call of an object's method or a module's function."""

    def watch(owner: object, name: str, note: Callable[..., None]) -> None:
        call = getattr(owner, name)

        def noting(*arguments: Any, **options: Any) -> Any:
            result = call(*arguments, **options)
            note(result, *arguments)
            return result

        monkeypatch.setattr(owner, name, noting)

    return watch


@pytest.fixture(scope="module")
def dispatched(device: tallow.Device) -> Iterator[list[str]]:
    """The functions that the dispatch of the device's backend calls."""
    called: list[str] = []
    ops = getattr(backends, device.backend)
    modules = {name: getattr(ops, name) for name in ops.__all__}

    def noting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            result = function(*arguments, **options)
            # An op whose program is built twice is called once.
            if name not in called:
                called.append(name)
            return result

        # What an op's first parameter is called says that it builds a program.
        @wraps(function)
        def op(build: Any, *arguments: Any, **options: Any) -> Any:
            return call(build, *arguments, **options)

        return op if builds(function) else call

    with pytest.MonkeyPatch.context() as patch:
        for name, module in modules.items():
            if isinstance(module, ModuleType):
                # A copy for the dispatch alone: what the ops call of each other they find in the module itself.
                functions = {key: each for key, each in vars(module).items() if isinstance(each, FunctionType)}
                watched = {key: noting(f"{name}.{key}", each) for key, each in functions.items()}
                patch.setattr(ops, name, SimpleNamespace(**{**vars(module), **watched}))
        yield called


@pytest.fixture
def made(cell: SupportCell, dispatched: list[str], watch: Any) -> list[str]:
    """The functions that the dispatch called for a cell."""
    dispatched.clear()
    if "op.fwd" in ways_of(cell):
        watch(type(calls.custom_op(cell.method)), f"{cell.backend}_fwd", lambda *_: dispatched.append("op.fwd"))
    return dispatched


class Ran:
    """Notes the kernels that a GPU is given, and the libraries that take work."""

    def __init__(self, device: GpuDevice, ran: list[str]) -> None:
        self.device = device
        self.ran = ran
        self.libraries = {id(library): name for name in device.library_classes() if (library := getattr(device, name))}

    def observed(self, key: Key, call: OpCall, plan: Plan, is_known: bool) -> Plan:
        def run(*operands: Any) -> Any:
            result = plan(*operands)
            # None is a refusal.
            if result is not None:
                program = call.program(self.device.facts)
                assert program is not None, "it has run"
                self.ran += filter(None, map(self.name_of, program.steps))
            return result

        return run

    def name_of(self, step: Step) -> str | None:
        """The kernel or the library of a step."""
        if isinstance(step, LibraryCall):
            return self.libraries[id(getattr(step.function, "func", step.function).__self__)]
        return step.kernel if isinstance(step, Launch) else None


@pytest.fixture
def ran(cell: SupportCell, device: tallow.Device, watch: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The kernels that ran, and the libraries that took work."""
    ran: list[str] = []
    if isinstance(device.inner, GpuDevice):
        # The smallest call is enough for a product of columns.
        monkeypatch.setattr("tallow.runtime.backends.gpu_backend.ops.conv._MIN_CHANNELS", 1)
        with device.inner.plans.observed_by(Ran(device.inner, ran)):
            yield ran
        return
    for library in {*ways_of(cell).values()} - {""}:
        opened = getattr(device.inner, library)
        for method in [name for name in HOST_WAYS if hasattr(opened, name)]:
            # None is a refusal.
            watch(opened, method, lambda found, *_, name=library: ran.extend([name] * (found is not None)))
    yield ran


@pytest.fixture
def take_log(cell: SupportCell, device: tallow.Device) -> Iterator[Callable[[], list[str]] | None]:
    """The same as `ran` from the log of the HIP runtime for the CPU; None elsewhere."""
    host = Host.found() if cell.backend == "rocm" else None
    if host is None:
        yield None
        return

    def take_log() -> list[str]:
        return [name for entry in host.take_log() if (name := entry.get("kernel", WORK.get(entry["call"])))]

    host.keep_log(True)
    yield take_log
    host.keep_log(False)


@pytest.fixture
def call(
    cell: SupportCell, device: tallow.Device, made: list[str], ran: list[str], take_log: Callable[[], list[str]] | None
) -> Callable[[], None]:
    """Makes the smallest call of the cell, after which `made` and `ran` are what it did."""

    def forget() -> None:
        made.clear()
        ran.clear()
        # A plan would do without the functions.
        device.inner.plans.clear()
        if take_log is not None:
            take_log()

    def make(name: str, length: int) -> tallow.Storage:
        storage = device.storage(np.ones(length, NUMPY[name]))
        forget()
        return storage

    def call() -> None:
        forget()
        if cell.method in matrix.DEVICE_METHODS:
            calls.call_device(cell, device)
        elif cell.method in matrix.BLOCK_METHODS:
            assert isinstance(cell.dtype, tallow.GgmlDType)
            blocks = device.quantized_zeros(512, cell.dtype)
            forget()
            calls.call_blocks(cell, blocks, make)
        else:
            calls.call_storage(cell, make)
        if take_log is not None:
            assert take_log() == ran

    return call


def test_a_cell_calls_what_it_says(
    cell: SupportCell,
    device: tallow.Device,
    call: Callable[[], None],
    made: list[str],
    ran: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    variants = ways_of(cell)
    if cell.via is not None and cell.via.startswith("attribute "):
        call()
        assert made == ran == []
        return
    if cell.via is not None and cell.via.startswith("methods "):
        call()
        assert made, "the methods that it is composed of call ops"
        return
    if "op.fwd" in variants:
        call()
        assert "op.fwd" in made, "the op uses other methods besides"
        return
    nondeterministic = {name: library for name, library in variants.items() if library.endswith("nondeterministic")}
    if nondeterministic:
        with tallow.deterministic(False):
            call()
        assert made[0] in nondeterministic
        # A library may refuse.
        assert len(made) == 1 or nondeterministic[made[0]] != "nondeterministic"
        variants = {name: library for name, library in variants.items() if name not in nondeterministic}
    left = [name for name, library in variants.items() if not library or getattr(device.inner, library) is not None]
    while left:
        call()
        assert made
        assert made == left[: len(made)]
        # The last one took the work, so it alone used its library.
        library = variants[made[-1]]
        assert set(variants.values()) & set(ran) == {library} - {""}, f"{made[-1]} ran {ran}"
        if isinstance(device.inner, GpuDevice) and (cell.op is not None or cell.method in FUNCTORS):
            assert ran, f"{made[-1]} launched nothing"
            # One kernel joins the sums over rows of all ops.
            own = [name for name in ran if not name.startswith("totals_")]
            assert all(name.startswith(kernel_of(cell)) for name in own), f"{made[-1]} ran {ran}"
        # Where a library is missing, what follows takes the work.
        for name in made:
            if variants[name]:
                owner = device.inner if variants[name] in vars(device.inner) else type(device.inner)
                monkeypatch.setattr(owner, variants[name], None)
        left = [
            name
            for name in left[len(made) :]
            if not variants[name] or getattr(device.inner, variants[name]) is not None
        ]
