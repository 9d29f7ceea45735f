"""Graphs on the GPU of --device, and on the HIP runtime for the CPU."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tallow
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tallow import CaptureError, Device, Graph, InvalidArgument, InvalidIndex, Kernel, Tensor
from tallow.kernels.constants import COUNTERS
from tallow.runtime.backends.gpu_backend.driver.error import Closed
from tallow.runtime.base.error import TallowError

from . import backend

backend.require_package()

SEED = 7


@pytest.fixture
def device(gpu: Any) -> Device:
    return Device(gpu)


@pytest.fixture
def other_device(gpu: Any) -> Device:
    try:
        return Device(type(gpu)(1))
    except TallowError as error:
        pytest.skip(str(error))


def ramp(device: Device, *shape: int, dtype: str = "f32") -> Tensor:
    return Tensor(np.arange(np.prod(shape)).reshape(shape), dtype=dtype, device=device)


def address(tensor: Tensor) -> int:
    return int(tensor.storage.inner.memory.address)


def in_thread(work: Callable[[], object]) -> None:
    """Do something in another thread, and raise here what it raises."""
    raised: list[BaseException] = []

    def catch() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=catch)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]


class Step:
    """Calls that draw, choose rows by indexes, reduce and multiply, with and without a library, and change a tensor."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.x = ramp(device, 6, 8)
        self.weights = ramp(device, 8, 5) * 0.125
        self.integers = ramp(device, 4, 4, dtype="i32")
        self.chosen = Tensor([4, 0, 3], "u32", device)
        self.total = Tensor.zeros((3, 5), device=device)

    def __call__(self) -> list[Tensor]:
        noise = Tensor.rand((6, 8), device=self.device)
        rows = (self.x + noise).index_select(self.chosen, 0)
        product = rows @ self.weights
        self.total += product * 0.5
        added = Tensor.randn((3, 5), device=self.device).exp() + product.tanh() + product.mean(0)
        counts = Tensor.zeros((5, 5), device=self.device).index_add(self.chosen, product, 0)
        return [product.sum(0), added, self.integers @ self.integers, counts, self.total]


def bits(tensors: list[Tensor]) -> list[bytes]:
    return [tensor.numpy().tobytes() for tensor in tensors]


def test_replays_equal_the_calls(device: Device, full: bool) -> None:
    count = 1000 if full or device.backend == "cuda" else 30
    expected_step, step = Step(device), Step(device)
    device.set_seed(SEED)
    expected = []
    for iteration in range(count):
        expected_step.x.copy_(Tensor.full((6, 8), iteration * 0.5, device=device))
        expected.append(bits(expected_step()))
    device.set_seed(SEED)
    with Graph(device) as graph:
        with graph.capture():
            results = step()
        for iteration in range(count):
            step.x.copy_(Tensor.full((6, 8), iteration * 0.5, device=device))
            graph.replay()
            assert bits(results) == expected[iteration], iteration
    assert len(set(map(tuple, expected))) == count


def test_random_numbers_go_on_with_the_stream_of_the_device(device: Device) -> None:
    """Beside other draws and across seeds, in each dtype of which a block gives another number of elements."""

    def draw() -> list[Tensor]:
        return [Tensor.rand((3,), dtype="f64", device=device), Tensor.randn((5,), device=device)]

    def program(step: Callable[[], list[bytes]]) -> list[bytes]:
        device.set_seed(SEED)
        actual = step() + step()
        actual.append(Tensor.rand((7,), device=device).numpy().tobytes())
        actual += step()
        device.set_seed(SEED + 1)
        return actual + step() + step()

    expected = program(lambda: bits(draw()))
    graph = Graph(device)
    with graph.capture():
        drawn = draw()

    def step() -> list[bytes]:
        graph.replay()
        return bits(drawn)

    assert program(step) == expected
    other = Graph(device)
    with other.capture():
        others = draw()
    device.set_seed(SEED)
    graph.replay()
    other.replay()
    assert bits(drawn) + bits(others) == expected[:4]


def test_a_capture_draws_nothing(device: Device) -> None:
    device.set_seed(SEED)
    expected = Tensor.rand((4,), device=device).tolist()
    device.set_seed(SEED)
    with Graph(device).capture():
        Tensor.rand((4,), device=device)
    assert Tensor.rand((4,), device=device).tolist() == expected


def test_nothing_is_done_before_a_replay(device: Device) -> None:
    x = Tensor.zeros(4, device=device)
    graph = Graph(device)
    with graph.capture():
        x += 1
    assert x.tolist() == [0] * 4
    graph.replay()
    graph.replay()
    assert x.tolist() == [2] * 4


# ---- Memory


def test_other_tensors_never_get_the_memory_of_a_capture(device: Device) -> None:
    x = ramp(device, 1000)
    graph = Graph(device)
    seen = set()
    with graph.capture():
        for _ in range(5):
            y = x + 1
            seen.add(address(y))
            z = y * 2
            seen.add(address(z))
    assert len(seen) < 10, "what is freed in a capture serves again there"
    del y
    others = [Tensor.zeros(1000, device=device) for _ in range(20)]
    assert not seen & {address(other) for other in others}
    graph.replay()
    assert all(not other.numpy().any() for other in others)
    assert z.tolist() == [2 * (number + 1) for number in range(1000)]


def neighbours(device: Device) -> list[Tensor]:
    """Tensors in all memory that tensors of their size have given back."""
    return [Tensor.ones(1000, device=device) * 7 for _ in range(30)]


# What works on tensors of 1,000 elements that were made before a capture. Results are in memory of the graph.
WORK: dict[str, Callable[[Tensor, Tensor], object]] = {
    "an op": lambda x, y: x + y,
    "in place": lambda x, y: [x.add_(y)].clear(),
    "a copy": lambda x, y: [x.copy_(y)].clear(),
    "a view": lambda x, y: x[3:] * y[:-3],
    "an index": lambda x, y: x.gather(y.to_dtype("i64"), 0),
    "a sum": lambda x, y: x.sum() + y.max(),
    "many": lambda x, y: tallow.cat([x, y] * 40),
    "a product": lambda x, y: x.reshape(10, 100) @ y.reshape(100, 10),
    "fused": lambda x, y: tallow.fuse(lambda a, b: a * 2 + b.exp())(x, y),
    "a fill": lambda x, y: [x.fill_(3.0), y[::2].fill_(2.0)].clear(),
}


@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize("runs", [0, 1, 3])
def test_a_graph_holds_what_it_works_on(device: Device, work: str, runs: int) -> None:
    """Also where its plans are made, recorded, or run in the capture."""

    def operands() -> tuple[Tensor, Tensor]:
        return Tensor.ones(1000, device=device) * 1, Tensor.ones(1000, device=device) * 1

    expected = WORK[work](*operands())
    for _ in range(runs):
        WORK[work](*operands())
    x, y = operands()
    graph = Graph(device)
    with graph.capture():
        result = WORK[work](x, y)
    allocated = device.inner.allocator.statistics().allocated
    del x, y
    gc.collect()
    others = neighbours(device)
    for _ in range(3):
        graph.replay()
    assert all((other.numpy() == 7).all() for other in others)
    if isinstance(result, Tensor) and isinstance(expected, Tensor):
        assert np.array_equal(result.numpy(), expected.numpy())
    del others, result
    graph.close()
    gc.collect()
    assert device.inner.allocator.statistics().allocated < allocated


def test_a_graph_holds_what_kernels_of_a_user_work_on(device: Device) -> None:
    source = 'extern "C" __global__ void add_one(float* x) { x[threadIdx.x] += 1; }'
    add_one = Kernel.compile("add_one", source, device, signature="float*")
    x, y = (Tensor.ones(1000, device=device) * 1 for _ in range(2))
    graph = Graph(device)
    with graph.capture():
        add_one.launch(1, 256, x)
        add_one.launch(1, 256, y.storage)
    del x, y
    others = neighbours(device)
    graph.replay()
    assert all((other.numpy() == 7).all() for other in others)


def test_a_graph_of_a_training_step_holds_what_it_works_on(device: Device) -> None:
    def step(x: Tensor, w: tallow.Var, optimizer: Any) -> Tensor:
        loss = ((x.reshape(10, 100) @ w.reshape(100, 10)).tanh() ** 2).sum()
        optimizer.step(loss.backward())
        return loss

    def start() -> tuple[Tensor, tallow.Var, Any]:
        w = tallow.Var(Tensor.ones(1000, device=device) / 100)
        return Tensor.ones(1000, device=device) * 1, w, tallow.optim.Adam({"w": w}, 0.01)

    state = start()
    expected = [step(*state).item() for _ in range(6)][2:]
    state = start()
    for _ in range(2):
        step(*state)
    graph = Graph(device)
    with graph.capture():
        loss = step(*state)
    del state
    gc.collect()
    others = neighbours(device)
    losses = []
    for _ in range(4):
        graph.replay()
        losses.append(loss.item())
    assert losses == expected
    assert all((other.numpy() == 7).all() for other in others)


def test_a_tensor_of_a_capture_outlives_the_graph(device: Device) -> None:
    graph = Graph(device)
    x = ramp(device, 1000)
    with graph.capture():
        y = (x + 1) * 2
    graph.replay()
    graph.close()
    others = [Tensor.zeros(1000, device=device) for _ in range(20)]
    assert address(y) not in {address(other) for other in others}
    assert y.tolist() == [2 * (number + 1) for number in range(1000)]


@pytest.mark.parametrize("way", ["close", "with", "del", "an exception"])
def test_memory_of_a_graph_is_given_back(device: Device, way: str) -> None:
    x = ramp(device, 1000)
    allocator = device.inner.allocator
    Step(device)()  # what is opened at the first use
    gc.collect()
    before = allocator.statistics().allocated
    graph = Graph(device)
    try:
        with graph.capture():
            y = (x + 1) * Tensor.rand((1000,), device=device)
            if way == "an exception":
                raise ZeroDivisionError
        graph.replay()
    except ZeroDivisionError:
        pass
    assert allocator.statistics().allocated > before
    del y
    if way == "close":
        graph.close()
        graph.close()
    elif way == "with":
        with graph:
            pass
    if way == "an exception":
        graph.close()
    assert graph.closed == (way != "del")
    del graph
    gc.collect()
    assert allocator.statistics().allocated == before


def test_a_number_of_before_the_capture_is_in_memory_at_once(device: Device) -> None:
    number, first = Tensor(3.0, device=device), Tensor.zeros(1, dtype="u32", device=device)
    graph = Graph(device)
    with graph.capture():
        y = number.reshape(1).index_select(first, 0)
    assert number.tolist() == 3
    graph.replay()
    assert y.tolist() == [3]


def test_a_number_of_the_capture_is_made_by_each_replay(device: Device) -> None:
    x = ramp(device, 1)
    graph = Graph(device)
    with graph.capture():
        number = Tensor.from_storage(device.storage_from_slice([3.0], "f32"), (1,))
        number += x
    for _ in range(2):
        x += 1
        graph.replay()
    assert number.tolist() == [5]


def test_no_tensor_of_a_capture_had_the_memory_of_the_state(device: Device) -> None:
    """Else a replay writes its elements where the random stream, and addresses that kernels write to, are."""
    victim = Tensor.zeros(8, dtype="i64", device=device)
    x = Tensor([0, 0, address(victim), 0, 1, 42, 43, 0], "i64", device)
    indexes = Tensor([9], "u32", device)
    graph = Graph(device)
    with graph.capture():
        z = (x * 1) * 1 + x * 0
        y = x * 1
        del z, y
        drawn = Tensor.rand((3,), device=device)
        x.index_select(indexes, 0)
    device.set_seed(SEED)
    expected = [Tensor.rand((3,), device=device).tolist() for _ in range(3)]
    device.set_seed(SEED)
    actual = []
    for _ in range(3):
        graph.replay()
        with pytest.raises(InvalidIndex, match="index 9"):
            device.synchronize()
        actual.append(drawn.tolist())
    assert actual == expected
    assert victim.tolist() == [0] * 8


# What a program does with the tensors that it has, a and b among them, and with indexes of their elements.
PARTS: dict[str, Callable[[list[Tensor], int, int, Tensor], object]] = {
    "add": lambda own, a, b, indexes: own.append(own[a] + own[b]),
    "scale": lambda own, a, b, indexes: own.append(own[a] * 0.5 + 1),
    "sum": lambda own, a, b, indexes: own.append(own[a] - own[b].sum(0, keepdim=True)),
    "draw": lambda own, a, b, indexes: own.append(Tensor.rand((8,), device=own[a].device)),
    "choose": lambda own, a, b, indexes: own.append(own[a].index_select(indexes, 0)),
    "add in place": lambda own, a, b, indexes: own[a].add_(own[b]),
    "scatter": lambda own, a, b, indexes: own[a].scatter_(indexes, own[b], 0),
    "drop": lambda own, a, b, indexes: own.pop(a) if len(own) > 1 else None,
}
PROGRAMS = st.lists(st.tuples(st.sampled_from(list(PARTS)), st.integers(0, 7), st.integers(0, 7)), min_size=1)


@given(PROGRAMS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_replays_of_any_program_equal_its_calls(device: Device, program: list[tuple[str, int, int]]) -> None:
    """Tensors end in between, so that others have their memory, and the last turn has an index out of range."""

    def turns(start: Callable[[Callable[[], list[Tensor]]], Callable[[], list[Tensor]]]) -> list[object]:
        x, indexes = ramp(device, 8), Tensor(np.zeros(8), "u32", device)

        def calls() -> list[Tensor]:
            own = [x]
            for name, a, b in program:
                PARTS[name](own, a % len(own), b % len(own), indexes)
            return own

        run, actual = start(calls), []
        for chosen in ([3, 1, 0, 2, 5, 4, 7, 6], [0, 0, 1, 1, 7, 7, 6, 6], [0, 1, 2, 3, 4, 5, 6, 8]):
            indexes.copy_(Tensor(chosen, "u32", device))
            results = run()
            try:
                device.synchronize()
                actual.append(bits([x, *results]))
            except InvalidIndex as error:
                actual.append(str(error))
        return actual

    graph = Graph(device)

    def captured(calls: Callable[[], list[Tensor]]) -> Callable[[], list[Tensor]]:
        with graph.capture():
            results = calls()

        def run() -> list[Tensor]:
            graph.replay()
            return results

        return run

    device.set_seed(SEED)
    expected = turns(lambda calls: calls)
    device.set_seed(SEED)
    with graph:
        assert turns(captured) == expected


# ---- Indexes


def test_an_index_out_of_range_is_raised_by_the_next_call_that_waits(device: Device) -> None:
    x, indexes = ramp(device, 4), Tensor([0, 3], "u32", device)
    target = Tensor.zeros(4, device=device)
    graph = Graph(device)
    with graph.capture():
        chosen = x.index_select(indexes, 0)
        target.scatter_(indexes, chosen, 0)
    graph.replay()
    assert target.tolist() == [0, 0, 0, 3]
    target.copy_(Tensor.zeros(4, device=device))
    indexes.copy_(Tensor([1, 9], "u32", device))
    graph.replay()
    with pytest.raises(InvalidIndex, match="index_select: index 9 is out of range; use one from 0 to 3"):
        target.tolist()
    assert target.tolist() == [0] * 4, "a scatter with an index out of range writes nothing"
    device.synchronize()
    indexes.copy_(Tensor([1, 2], "u32", device))
    graph.replay()
    assert target.tolist() == [0, 1, 2, 0], "and the replay after it does"


def test_an_index_reaches_the_thread_of_the_replay(device: Device) -> None:
    x, indexes = ramp(device, 4), Tensor([9], "u32", device)
    graph = Graph(device)
    with graph.capture():
        x.index_select(indexes, 0)

    def replay() -> None:
        graph.replay()
        with pytest.raises(InvalidIndex, match="index 9"):
            device.synchronize()
        device.synchronize()

    in_thread(replay)
    device.synchronize()
    replay()
    graph.replay()

    def wait() -> None:
        device.synchronize()

    in_thread(wait)
    with pytest.raises(InvalidIndex, match="index 9"):
        device.synchronize()


# ---- Graphs that are closed, and captured by two threads


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_graph_that_is_closed_in_its_capture_never_replays(device: Device, is_elsewhere: bool) -> None:
    """The end of the capture says so, and gives back the memory that was taken after the end of the graph too."""
    x = ramp(device, 1000)
    allocator = device.inner.allocator
    Tensor.rand((3,), device=device)
    gc.collect()
    before = allocator.statistics().allocated
    graph = Graph(device)
    with pytest.raises(Closed, match=f"<Graph on {device.label}.* is closed"), graph.capture():
        y = x + 1
        if is_elsewhere:
            in_thread(graph.close)
        else:
            graph.close()
        z = Tensor.rand((3000,), device=device)
    for use in (graph.replay, graph.capture().__enter__):
        with pytest.raises(Closed):
            use()
    del y, z
    gc.collect()
    assert allocator.statistics().allocated == before


def test_an_error_in_a_capture_matters_more_than_the_end_of_the_graph(device: Device) -> None:
    graph = Graph(device)
    with pytest.raises(ZeroDivisionError), graph.capture():
        graph.close()
        raise ZeroDivisionError
    assert graph.closed


def test_one_thread_at_a_time_captures_a_graph(device: Device) -> None:
    """A second one hears of it at once, and what the first one captures stays."""
    x, graph = ramp(device, 4), Graph(device)

    def capture() -> None:
        with graph.capture():
            raise AssertionError("captured twice")

    with graph.capture():
        with pytest.raises(InvalidArgument, match=r"Graph.capture: another thread captures the graph now; make anothe"):
            in_thread(capture)
        y = x + 1
    with pytest.raises(InvalidArgument, match=r"Graph.capture: the graph has captured something already"):
        in_thread(capture)
    graph.replay()
    assert y.tolist() == [1, 2, 3, 4]


def test_threads_that_close_and_replay_a_graph(device: Device) -> None:
    """Each replay is done before the graph ends, or raises Closed."""
    for _ in range(5):
        x, graph = Tensor.zeros(4, device=device), Graph(device)
        with graph.capture():
            x += 1
        replays = []

        def replay(graph: Graph = graph, replays: list[int] = replays) -> None:
            with pytest.raises(Closed):
                while True:
                    graph.replay()
                    replays.append(1)

        thread = threading.Thread(target=replay)
        thread.start()
        while len(replays) < 3:
            thread.join(0.001)
        graph.close()
        thread.join()
        assert x.tolist() == [len(replays)] * 4


# ---- What cannot be captured


REFUSED: dict[str, Callable[[Device, Tensor], object]] = {
    "a read to the host": lambda device, x: x.numpy(),
    "a copy from the host": lambda device, x: Tensor(np.ones(3), device=device),
    "waiting for the device": lambda device, x: device.synchronize(),
    "loading": lambda device, x: tallow.load_safetensors(file_of(x), device=device),
    "sharing with another library": lambda device, x: x.__dlpack__(),
    "set_seed": lambda device, x: device.set_seed(1),
    "the replay of a graph": lambda device, x: replayed(device),
    "another capture": lambda device, x: Graph(device).capture().__enter__(),
}
ready: dict[str, Any] = {}


def file_of(x: Tensor) -> bytes:
    return bytes(ready["file"])


def replayed(device: Device) -> None:
    ready["graph"].replay()


@pytest.fixture
def prepared(device: Device) -> Tensor:
    header = b'{"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}'
    ready["file"] = len(header).to_bytes(8, "little") + header + bytes(8)
    ready["graph"] = Graph(device)
    with ready["graph"].capture():
        pass
    return ramp(device, 4)


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("is_caught", [True, False])
def test_what_cannot_be_captured(device: Device, prepared: Tensor, what: str, is_caught: bool) -> None:
    """It is named, with the mend; the device stays usable, and the capture too where the error is caught in it."""
    x, graph, message = prepared, Graph(device), f"{device.label}: a graph cannot capture {what}; "
    if is_caught:
        with graph.capture():
            y = x + 1
            with pytest.raises(CaptureError, match=message):
                REFUSED[what](device, x)
            y = y * 2
    else:
        with pytest.raises(CaptureError, match=message), graph.capture():
            REFUSED[what](device, x)
        assert (x + 1).tolist() == [1, 2, 3, 4]
        with graph.capture():
            y = (x + 1) * 2
    graph.replay()
    assert y.tolist() == [2, 4, 6, 8]


def test_other_streams_are_no_part_of_a_capture(device: Device) -> None:
    """Such as a library's, whose tensor would be shared."""
    shared = Tensor.from_dlpack(ramp(device, 4))
    with Graph(device).capture():
        with pytest.raises(CaptureError, match="sharing with another library"):
            Tensor.from_dlpack(shared)
        with pytest.raises(CaptureError, match="waiting for the device"):
            device.inner.driver.synchronize_device()


def test_a_graph_captures_once(device: Device) -> None:
    graph = Graph(device)
    with graph.capture():
        pass
    with pytest.raises(InvalidArgument, match=r"Graph.capture: the graph has captured something already"):
        graph.capture().__enter__()


def test_a_graph_that_has_captured_nothing(device: Device) -> None:
    graph = Graph(device)
    assert repr(graph) == f"<Graph on {device.label}, nothing captured>"
    with pytest.raises(InvalidArgument, match=r"Graph.replay: nothing was captured"):
        graph.replay()
    with graph.capture():
        pass
    graph.replay()
    assert repr(graph) == f"<Graph on {device.label}>"
    with graph:
        graph.replay()
    for use in (graph.replay, graph.capture().__enter__):
        with pytest.raises(Closed, match=f"<Graph on {device.label}.* is closed"):
            use()


def test_a_device_without_graphs() -> None:
    with pytest.raises(tallow.UnsupportedDevice, match=r"graph: devices of cpu do not have it: .*; repeat the calls"):
        Graph("cpu")


# ---- The first use in a capture


def test_a_kernel_is_compiled_in_a_capture(device: Device, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from tallow.runtime.backends.gpu_backend.execute import kernels

    monkeypatch.setenv("TALLOW_CACHE", str(tmp_path))
    monkeypatch.setattr(device.inner, "kernels", kernels.Kernels(device.inner.driver))
    source = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }'
    x = ramp(device, 4)
    graph = Graph(device)
    with graph.capture():
        y = x.sqr()
        Kernel.compile("twice", source, device, signature="float*").launch(1, 4, y)
    graph.replay()
    graph.replay()
    assert y.tolist() == [0, 2, 8, 18]


@pytest.mark.usefixtures("device")
def test_libraries_are_opened_in_a_capture(run_python: Callable[..., str]) -> None:
    run_python(
        f"""
        import numpy as np
        from tallow import Graph, Tensor
        from tallow.{backend.backend_name()}_backend import {backend.own("Device").__name__} as Own
        from tallow.device import Device

        device = Device(Own(0))
        x = Tensor(np.arange(16, dtype=np.float32).reshape(4, 4), device=device)
        image = x.reshape(1, 1, 4, 4)
        graph = Graph(device)
        with graph.capture():
            products = [x @ x, image.conv2d(image.narrow(2, 0, 2)), image.avg_pool2d(2)]
        graph.replay()
        expected = [x @ x, image.conv2d(image.narrow(2, 0, 2)), image.avg_pool2d(2)]
        for found, product in zip(products, expected):
            assert found.tolist() == product.tolist()
        """
    )


def test_a_library_that_does_not_open_is_missed_only_where_it_is_needed(rocm: Any, host: Any, monkeypatch: Any) -> None:
    device = Device(rocm)
    x = ramp(device, 4, 4)
    monkeypatch.setattr(rocm._runtime, "_libraries", {})
    host.fail("hipblasCreate", -1)
    with Graph(device) as graph:
        with graph.capture():
            y = x + 1
        graph.replay()
        assert y.tolist() == (x + 1).tolist()
    with pytest.raises(TallowError, match="hipblasCreate"), Graph(device).capture():
        x.matmul(x)


# ---- Threads


def test_other_threads_go_on_during_a_capture(device: Device) -> None:
    x = ramp(device, 4)
    graph = Graph(device)

    def work() -> None:
        y = x + 5
        y += Tensor([1.0, 2.0, 3.0, 4.0], device=device)
        assert (y @ y).tolist() == sum([(number + 5 + number + 1) ** 2 for number in range(4)])
        with pytest.raises(InvalidIndex):
            x.index_select(Tensor([7], "u32", device), 0).tolist()

    with graph.capture():
        y = x + 1
        in_thread(work)
        z = y * 2
    for number in range(3):
        graph.replay()
        assert z.tolist() == [2, 4, 6, 8], number


def test_captures_of_two_threads_take_turns(device: Device) -> None:
    x = ramp(device, 4)
    results: list[tuple[Graph, Tensor, int]] = []

    def work(number: int) -> None:
        for iteration in range(5):
            graph = Graph(device)
            with graph.capture():
                y = x * number + iteration
            graph.replay()
            results.append((graph, y, number * 3 + iteration))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 20
    for graph, y, last in results:
        graph.replay()
        assert y.tolist()[-1] == last


def test_threads_that_replay_draw_each_block_once(device: Device) -> None:
    device.set_seed(SEED)
    expected = {tuple(Tensor.rand((8,), device=device).tolist()) for _ in range(40)}
    device.set_seed(SEED)
    rows, index = Tensor.zeros((40, 8), device=device), Tensor.zeros(1, dtype="u32", device=device)
    graph = Graph(device)
    with graph.capture():
        rows.scatter_(index.reshape(1, 1).broadcast_as(1, 8), Tensor.rand((1, 8), device=device), 0)
        index += 1

    def work() -> None:
        for _ in range(10):
            graph.replay()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {tuple(row) for row in rows.tolist()} == expected


def test_graphs_of_two_devices(device: Device, other_device: Device) -> None:
    graphs, results = [], []
    for each in (device, other_device):
        x = ramp(each, 4)
        graph = Graph(each)
        with graph.capture():
            results.append(x @ x + Tensor.rand((4,), device=each) * 0)
        graphs.append(graph)
    x = ramp(device, 4)
    for graph, result in zip(graphs, results, strict=True):
        graph.replay()
        assert result.tolist() == [14] * 4
    with Graph(other_device).capture(), pytest.raises(CaptureError, match="a copy between devices"):
        x.to(other_device)
    with Graph(device).capture(), Graph(other_device).capture():
        pass


def test_captures_of_two_devices_go_on_side_by_side(device: Device, other_device: Device) -> None:
    """The end of one changes nothing for the other."""
    wrong: list[int] = []

    def work(each: Device) -> None:
        x = Tensor.zeros(4, device=each)
        for iteration in range(40):
            with Graph(each) as graph:
                with graph.capture():
                    for _ in range(iteration % 4 + 1):
                        x += 1
                before = x.tolist()
                graph.replay()
                if x.tolist() != [number + iteration % 4 + 1 for number in before]:
                    wrong.append(iteration)
        if x.tolist() != [100] * 4:
            wrong.append(-1)

    threads = [threading.Thread(target=work, args=(each,)) for each in (device, other_device)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# ---- The end of graphs


def test_a_graph_ends_while_its_replays_run(run_python: Callable[..., str], host: Any) -> None:
    """What is enqueued is done before the graph's handles and memory are given back."""
    run_python(
        """
        import gc
        import numpy as np
        from hip_runtime import Host
        from tallow import Device, Graph, Tensor
        from tallow.runtime.backends.gpu_backend.driver.stream import release_finished

        device, host = Device.rocm(0), Host()
        x = Tensor.zeros(1000, device=device)
        for way in ("close", "del"):
            graph = Graph(device)
            with graph.capture():
                x += 1
                y = x * 2
            for _ in range(3):
                graph.replay()
            del y
            if way == "close":
                graph.close()
            del graph
            others = [Tensor.full((1000,), 5.0, device=device) for _ in range(5)]
            assert all((other.numpy() == 5).all() for other in others)
        assert x.tolist()[:2] == [6, 6]
        device.synchronize()
        release_finished()
        gc.collect()
        assert (host.live("graph"), host.live("graph exec")) == (0, 0), host.live_all()
        """,
        HIP_HOST_LAZY="1",
    )


def test_what_is_dropped_in_a_capture_is_given_back_after_it(device: Device, objects: Any) -> None:
    """Giving back may wait for the device, which would end the capture."""
    driver = device.inner.driver
    x = ramp(device, 4)
    taken = np.asarray(0)
    with objects.Stream(driver.device) as stream:
        taken = x.__dlpack__(stream=stream.address)
        graph = Graph(device)
        with graph.capture():
            del taken
            gc.collect()
            y = x + 1
        graph.replay()
        assert y.tolist() == [1, 2, 3, 4]


def test_work_in_the_handle_of_the_stream_is_captured(device: Device, objects: Any) -> None:
    """By it libraries enqueue what they do; outside of the capture it is the device's stream."""
    driver = device.inner.driver
    x = ramp(device, 4)
    before = device.inner.stream
    graph = Graph(device)
    with graph.capture():
        assert device.inner.stream != before
        objects.Stream.wrap(driver.device, device.inner.stream).fill(address(x), 0, 8)
    assert device.inner.stream == before
    assert x.tolist() == [0, 1, 2, 3]
    graph.replay()
    assert x.tolist() == [0, 0, 2, 3]


@pytest.mark.parametrize("queries", [1, 40])
def test_a_replay_attends_to_as_many_keys_as_are_there_then(device: Device, queries: int) -> None:
    query, cache = ramp(device, 1, 2, queries, 8, dtype="f16") / 400, ramp(device, 1, 1, 90, 8, dtype="f16") / 400
    lengths = Tensor([50], dtype="i32", device=device)
    graph = Graph(device)
    with graph.capture():
        result = query.scaled_dot_product_attention(cache, cache, causal=True, lengths=lengths)
    for length in (64, 90):
        lengths.copy_(Tensor([length], dtype="i32", device=device))
        graph.replay()
        expected = query.scaled_dot_product_attention(cache[:, :, :length], cache[:, :, :length], causal=True)
        np.testing.assert_allclose(result.numpy(), expected.numpy(), rtol=2e-3)


def test_the_last_block_of_a_launch_leaves_its_counter_at_0(device: Device) -> None:
    """All launches count from 0: the first one, later ones, those of other threads, and those of replays."""
    query, cache = ramp(device, 1, 4, 1, 8) / 400, ramp(device, 1, 2, 300, 8) / 400

    def attend() -> Tensor:
        return query.scaled_dot_product_attention(cache, cache)

    expected = attend().numpy()
    graph = Graph(device)
    with graph.capture():
        result = attend()

    def repeat() -> None:
        for _ in range(3):
            np.testing.assert_array_equal(attend().numpy(), expected)
            graph.replay()
            np.testing.assert_array_equal(result.numpy(), expected)
            result.zero_()

    repeat()
    in_thread(repeat)
    counters = np.empty(COUNTERS, np.uint32)
    device.inner.driver.copy_to_host(counters, device.inner.counters)
    assert not counters.any()
