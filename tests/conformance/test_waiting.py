"""What the host waits for: nothing, unless a call gives it something of the device or brings data of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import own_spec
import pytest
import tallow
from hip_runtime import Host
from tallow import Device, Tensor
from tallow.kernels.constants import JOIN_MANY_SOURCES
from tallow.runtime.backends.gpu_backend.device import GpuDevice

from . import calls, hostile, matrix
from .bench import cell_label
from .oracle.formats import NUMPY

# Calls that give elements to the host, or wait by their name.
GIVING = {
    # The host rounds weights to blocks.
    *("QStorage.quantize", "Device.synchronize", "Storage.to_numpy", "Storage.__reduce__", "save_safetensors"),
    *(f"Tensor.{name}" for name in ("numpy", "tolist", "item", "__array__", "__repr__", "__format__")),
    *(
        f"Tensor.{name}"
        for name in ("__bool__", "__complex__", "__float__", "__index__", "__int__", "__reduce__", "allclose", "equal")
    ),
    *("Tensor.cpu", "Tensor.cuda", "Tensor.to_device"),
    # A rank gives itself elements by way of the host.
    *("Storage.send", "Storage.recv"),
    # Whether there is a result depends on elements.
    *(f"Storage.{name}" for name in matrix.DECOMPOSITIONS),
    # Weights that are no probabilities are refused.
    "Tensor.multinomial",
    # Shapes depend on elements.
    *("Tensor.unique", "Tensor.bincount", "Tensor.nonzero", "Tensor.masked_select"),
}
# Calls that bring elements of the host to the device.
TAKING = {
    *(
        "Device.quantized_from_data",
        "Device.storage",
        "Device.storage_owned",
        "Device.storage_from_slice",
        "Tensor",
        "Tensor.from_numpy",
    ),
    *("Tensor.from_dlpack", "Tensor.to", "load_safetensors"),
    # What the ops of users do is theirs.
    *(f"{owner}.{kind}_op{n}" for owner in ("Tensor", "Storage") for kind in ("apply", "inplace") for n in (1, 2, 3)),
}
# Without these libraries the host computes what they do.
LIBRARIES = ("nccl", "rccl", "cufft", "hipfft")
SURFACE = [
    name for name in hostile.surface() if name.partition(".")[0] in ("Tensor", "Storage", "Device", "cat", "stack")
]
LEFT_OUT = GIVING | TAKING | {"Device", "Device.parse", "Device.default", "Device.of_dlpack", "Storage"}

X = np.arange(1.0, 31.0, dtype=np.float32).reshape(5, 6)
# What takes one launch, or as many as it says.
LAUNCHES: dict[str, tuple[int, Callable[[Tensor], object]]] = {
    "x + 3": (1, lambda x: x + 3),
    "3 - x": (1, lambda x: 3 - x),
    "x / 3": (1, lambda x: x / 3),
    "3 / x": (1, lambda x: 3 / x),
    "2 ** x": (1, lambda x: 2**x),
    "x.maximum(3)": (1, lambda x: x.maximum(3)),
    "x.fmod(3)": (1, lambda x: x.fmod(3)),
    "x > 3": (1, lambda x: x > 3),
    "3 == x": (1, lambda x: x == 3),
    "a view / 3": (1, lambda x: x[:, 1::2] / 3),
    "a transposed view / 3": (1, lambda x: x.T / 3),
    "x.mean()": (1, lambda x: x.mean()),
    "a cast and its mean": (2, lambda x: x.to_dtype("f16").mean(1)),
    "x.norm(1)": (1, lambda x: x.norm(1)),
    "x.roll(2, 0)": (1, lambda x: x.roll(2, 0)),
    "x.roll(2, 1)": (1, lambda x: x.roll(2, 1)),
    "x.unfold(1, 3, 1)": (0, lambda x: x.unfold(1, 3, 1)),
    "x.diff()": (1, lambda x: x.diff()),
    "x.group_norm(2)": (3, lambda x: x.group_norm(2)),
    "x.pad_with_same(1, 1, 2)": (1, lambda x: x.pad_with_same(1, 1, 2)),
    "x.pad([(1, 0), (2, 1)])": (1, lambda x: x.pad([(1, 0), (2, 1)])),
    "x.pad([(0, 1)], 'circular')": (1, lambda x: x.pad([(0, 1)], "circular")),
    "x.pad([(1, 1)], 'reflect')": (1, lambda x: x.pad([(1, 1)], "reflect")),
    "x.pad_with_zeros(1, 1, 2)": (1, lambda x: x.pad_with_zeros(1, 1, 2)),
    "x.tril()": (1, lambda x: x.tril()),
    "x.T.triu(-2)": (1, lambda x: x.T.triu(-2)),
    "the mean of nothing": (1, lambda x: x[:0].mean(0)),
    "arange": (1, lambda x: Tensor.arange(7, device=x.device)),
    "arange of floats": (1, lambda x: Tensor.arange(0, 1, 0.1, dtype="f16", device=x.device)),
    "a slice with a negative step": (1, lambda x: x[::-1]),
    "cat of rows": (1, lambda x: tallow.cat([x, x, x])),
    "cat of columns": (1, lambda x: tallow.cat([x] * 16, 1)),
    "cat of many": (1, lambda x: tallow.cat([x] * 17, 1)),
    "cat of more than one launch joins": (2, lambda x: tallow.cat([x] * (JOIN_MANY_SOURCES + 1), 1)),
    "cat of 90 slices": (1, lambda x: tallow.cat([x[:, 1:], x[:, :2], x[:, 1:3]] * 30, 1)),
    "stack of 90 columns": (1, lambda x: tallow.stack([*x.unbind(1)] * 15)),
    "cat with a view": (2, lambda x: tallow.cat([x, x[:, ::2], x], 1)),
    "stack": (1, lambda x: tallow.stack([x, x], -1)),
    "arange, a product, and index_copy_ of one row": (
        3,
        lambda x: x.index_copy_(Tensor.arange(2, 3, device=x.device), x[:1] * 2, 0),
    ),
    "where with a number": (2, lambda x: (x > 3).where(x, 0)),
    # Two that fill, one that puts channels last, and nothing for the order of the result.
    "a depthwise convolution with channels last": (
        4,
        lambda x: (
            Tensor.ones((2, 8, 5, 6), device=x.device)
            .contiguous(memory_format="channels_last")
            .conv2d(Tensor.ones((8, 1, 3, 3), device=x.device), padding=1, groups=8)
        ),
    ),
    "full": (1, lambda x: Tensor.full((5, 6), 2.5, device=x.device)),
    "fill_": (1, lambda x: x.fill_(3)),
    "a number in a tensor": (2, lambda x: Tensor.from_storage(x.device.storage_from_slice([2.5], "f32"), ()).exp()),
}
# Calls of storage methods that take more than one launch, at most.
LAUNCHES_OF_CELLS = {
    # Indexes are looked at before anything is written.
    "scatter_set": 3,
    # The sums over rows of weights' gradients, and what queries and keys take.
    **dict.fromkeys(("layer_norm_gradient", "rms_norm_gradient", "scaled_dot_product_attention_gradient"), 3),
    # Floats of 8 bits are converted to f32, and back.
    **dict.fromkeys(("conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d"), 4),
    **dict.fromkeys(("convolution", "convolution_gradient_input"), 4),
    # Where channels are few, those of both operands get zeros behind them first.
    "convolution_gradient_weight": 9,
    "fused_convolution": 9,
    # Sums of parts, what they come to, and the elements.
    **dict.fromkeys(("normalize_groups", "normalize_groups_gradient"), 3),
    **dict.fromkeys(("adam_step", "sort", "max_pool_gradient"), 2),
}
# The modules of ops composed of others, and the methods that the spec composes of others.
COMPOSED = ("attention_by_scores.",)
COMPOSED_METHODS = {method.name for method in own_spec.read().storage_methods() if method.body is not None}


class Watch:
    """What the host asked of a GPU."""

    def __init__(self, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waits: list[str] = []
        self.launches: list[str] = []
        driver = device.inner.driver
        for name in ("synchronize", "synchronize_device", "copy_to_device", "copy_to_host"):
            self._note(driver, name, self.waits, lambda *_, name=name: name, monkeypatch)
        for name in ("copy", "fill_bytes"):
            self._note(driver, name, self.launches, lambda *_, name=name: name, monkeypatch)
        # The first run of a program asks for the kernel of each launch.
        self._note(device.inner.kernels, "function", self.launches, lambda _, name, *__: name, monkeypatch)

    @staticmethod
    def _note(
        owner: object, name: str, seen: list[str], named: Callable[..., str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        call = getattr(owner, name)

        def noting(*arguments: Any, **options: Any) -> Any:
            seen.append(named(*arguments))
            return call(*arguments, **options)

        # Set on the object, it would stay there as an attribute that hides what other tests put in the class.
        monkeypatch.setitem(vars(owner), name, noting)


@pytest.fixture
def watched(device: Device, monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(device, monkeypatch)


@pytest.fixture
def host() -> Iterator[Host | None]:
    result = Host.found()
    if result is not None:
        result.keep_log(True)
    yield result
    if result is not None:
        result.keep_log(False)


def waits_in(log: list[dict[str, Any]]) -> list[str]:
    """The calls of HIP's log that wait: memory goes back to the driver, which waits, where no cache keeps it."""
    waiting = {"hipMemcpy"} if os.environ.get("TALLOW_MEMORY_CACHE") == "0" else {"hipMemcpy", "hipFree"}
    return [entry["call"] for entry in log if "Synchronize" in entry["call"] or entry["call"] in waiting]


def test_what_is_left_out_is_there() -> None:
    assert not LEFT_OUT - {*hostile.surface()}


@cache
def libraries_of(backend: str) -> dict[str, set[str]]:
    """Those of `LIBRARIES` that a backend's methods use."""
    results: dict[str, set[str]] = {}
    for cell in tallow.support():
        library = (cell.via or "").partition(":")[0]
        if cell.backend == backend and library in LIBRARIES:
            results.setdefault(cell.method, set()).add(library)
    return results


def require_library(device: Device, method: str) -> None:
    """Skip what the host does because a library is missing."""
    for library in libraries_of(device.backend).get(method, ()):
        if getattr(device.inner, library) is None:
            pytest.skip(f"the host does it without {library}")


@pytest.mark.whole
def test_no_call_waits(device: Device, watched: Watch, host: Host | None, name: str) -> None:
    require_library(device, name.partition(".")[2])
    example = hostile.base_of(hostile.surface()[name])
    function = example.call.find(None if example.of is None else example.of.make(device))
    arguments = [value.make(device) for value in example.arguments]
    keywords = {name: value.make(device) for name, value in example.keywords.items()}
    device.synchronize()
    watched.waits.clear()
    if host is not None:
        host.take_log()
    try:
        function(*arguments, **keywords)
    except tallow.TallowError:
        assert not watched.waits
    assert watched.waits == []
    if host is not None and device.backend == "rocm":
        assert waits_in(host.take_log()) == []


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each of the tests on a GPU whose kernels are ours alone: a CPU does all at once, libraries wait as they like."""
    chosen = metafunc.config.getoption("--device").partition(":")[0]
    is_ours = issubclass(matrix.class_of(chosen, "Device"), GpuDevice)
    cells = [cell for cell in tallow.support() if cell.backend == chosen and cell.status == "supported"]
    values: dict[str, dict[str, list[Any]]] = {
        "test_no_call_waits": {"name": [name for name in SURFACE if name not in LEFT_OUT]},
        "test_a_number_costs_no_launch_of_its_own": {"name": [*LAUNCHES]},
        "test_no_cell_waits": {
            # The bytes of blocks are an attribute.
            "cell": [
                cell
                for cell in cells
                if cell.method != "data"
                and not {f"Device.{cell.method}", f"Storage.{cell.method}", f"QStorage.{cell.method}"} & LEFT_OUT
            ]
        },
    }
    for name, items in values.get(metafunc.function.__name__, {}).items():
        metafunc.parametrize(name, items if is_ours else [], ids=cell_label if name == "cell" else None)


def test_no_cell_waits(device: Device, watched: Watch, cell: Any) -> None:
    require_library(device, cell.method)

    def make(name: str, length: int) -> tallow.Storage:
        storage = device.storage(np.ones(length, NUMPY[name]))
        watched.waits.clear()
        watched.launches.clear()
        return storage

    if cell.method in matrix.DEVICE_METHODS:
        calls.call_device(cell, device)
    elif cell.method in matrix.BLOCK_METHODS:
        blocks = device.quantized_zeros(512, cell.dtype)
        watched.waits.clear()
        calls.call_blocks(cell, blocks, make)
    else:
        for number in calls.small_examples(cell):
            calls.call_storage(cell, make, number)
            # Libraries, and ops composed of others, launch as many as they take.
            is_composed = cell.method in COMPOSED_METHODS or cell.via.startswith(COMPOSED)
            is_own = ": " not in cell.via and not is_composed
            most = LAUNCHES_OF_CELLS.get(cell.method, 1)
            assert number or not is_own or len(watched.launches) <= most, watched.launches
    assert watched.waits == []


def test_a_number_costs_no_launch_of_its_own(device: Device, watched: Watch, name: str) -> None:
    x = Tensor(X, device=device)
    # Compiled programs launch functions, which nobody watches.
    device.inner.plans.clear()
    watched.waits.clear()
    watched.launches.clear()
    count, call = LAUNCHES[name]
    call(x)
    assert watched.waits == []
    assert len(watched.launches) == count, watched.launches
