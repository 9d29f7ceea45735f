"""What `tallow.profile` shows of calls, and that it leaves nothing behind."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tallow as tl
from tallow.runtime.backends import backend as backends
from tallow.runtime.backends.gpu_backend.driver import slow_path
from tallow.runtime.backends.gpu_backend.execute import profiler
from tallow.runtime.backends.gpu_backend.ops import conv, copy
from tallow.runtime.backends.plan import Key, Plan
from tallow.runtime.helpers import c_library
from tallow.runtime.profile import ranges
from tallow.runtime.profile.session import session
from tallow.runtime.program.builder import OpCall, ProgramBuilder
from tallow.runtime.program.program import Allocate, Copy, ExpectError, Fill, HostCall, Launch, LibraryCall, Program
from tallow.runtime.program.values import Buffer, Operand
from tallow.runtime.selftest import examples, trial

from .test_custom_ops_page import PAGE, ran
from .test_gpu_fallbacks import call as call_of_library
from .test_programs_of_ops import cells, example

HERE = Path(__file__).name
KINDS = {Launch: "kernel", LibraryCall: "library", Copy: "copy", Fill: "fill", HostCall: "host"}


@pytest.fixture
def x(device: tl.Device) -> Iterator[tl.Tensor]:
    plans = device.inner.plans
    plans.clear()
    yield tl.Tensor(np.arange(6, dtype="f4").reshape(2, 3), device=device)
    assert plans.observers == ()
    assert not slow_path.required


def calls_of(p: Any) -> list[Any]:
    """The calls of ops: no copies, and no replays."""
    return [call for call in p.calls if call.name.partition(" ")[0] in dir(tl.Storage)]


class Programs:
    """Notes the program of each call that a device makes, and the sizes of what it allocates."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self.seen: list[tuple[Program, list[int]]] = []

    def observed(self, _key: Key, call: OpCall, plan: Plan, _is_known: bool) -> Plan:
        program = call.program(self.device.facts)
        assert program is not None

        def run(*operands: Any) -> Any:
            result = plan(*operands)
            sizes = [step.memory.nbytes for step in program.steps if isinstance(step, Allocate)]
            if program.is_host_call and result is not None:
                results = result if isinstance(result, tuple | list) else (result,)
                sizes = [each.length * each.dtype.itemsize for each in results]
            self.seen.append((program, sizes))
            return result

        return run


def test_a_call_has_its_name_operands_and_line(x: tl.Tensor) -> None:
    row = tl.Tensor(np.ones(3, "f4"), device=x.device)
    with tl.profile() as p:
        x + row.reshape((1, 3)).broadcast_as((2, 3))
        x.t().exp()
        x.sum(0)
        x.to_dtype("f16")
    add, exp, total, cast = calls_of(p)
    assert add.title == "binary_impl add (2, 3) f32, (2, 3) f32 strides (0, 1)"
    assert exp.title == "unary_impl exp (2, 3) f32"
    assert total.title == "reduce_op sum (2, 3) f32"
    assert cast.title == "to_dtype f16 (2, 3) f32"
    code = test_a_call_has_its_name_operands_and_line.__code__
    first = code.co_firstlineno + 3
    assert [call.line for call in (add, exp, total, cast)] == [f"{__file__}:{first + number}" for number in range(4)]
    assert {call.device for call in p.calls} == {x.device.label}
    assert {call.thread for call in p.calls} == {threading.get_ident()}


def test_the_first_call_of_a_kind_has_no_plan(x: tl.Tensor) -> None:
    x.exp()
    with tl.profile() as p:
        x.exp()
        for _ in range(3):
            x.sin()
    assert [call.is_planned for call in calls_of(p)] == [True, False, True, True]
    assert [call.plan_ns > 0 for call in calls_of(p)] == [False, True, False, False]
    assert "4 calls" in str(p)
    assert re.search(r"^unary_impl sin +3 +1 ", str(p), re.MULTILINE)
    assert re.search(r"^unary_impl exp +1 +\d+\.\d{3} ", str(p), re.MULTILINE), "a known plan takes no time to make"


def test_launches_are_those_of_the_programs(device: tl.Device, full: bool) -> None:
    """Of each op: their kernels with grids, calls of libraries and of the host, and the memory that is allocated."""
    if device.backend != "cpu" and not full:
        pytest.skip("kernels for GPUs take minutes to compile; run it with --full")
    programs, faults = Programs(device.inner), []
    with tl.profile() as p, device.inner.plans.observed_by(programs):
        for cell in cells(device.backend, full=False):
            example(device, cell, examples.SMALLEST, examples.contiguous).call()
    records = [call for call in p.calls if not call.name.startswith(("copy ", "synchronize", "Graph."))]
    assert len(records) == len(programs.seen) > 100
    for call, (program, sizes) in zip(records, programs.seen, strict=True):
        steps = [step for step in program.steps if not isinstance(step, Allocate | ExpectError)]
        expected = [(KINDS[type(step)], step.blocks if isinstance(step, Launch) else None) for step in steps]
        names = [f"{step.family}/{step.kernel}" for step in steps if isinstance(step, Launch)]
        actual = [(launch.kind, launch.grid) for launch in call.launches]
        own = [launch.name for launch in call.launches if launch.kind == "kernel"]
        if actual != expected or any(not name.startswith(kernel) for name, kernel in zip(own, names, strict=True)):
            faults.append((call.title, call.launches, str(program)))
        elif [each.nbytes for each in call.allocations] != sizes:
            faults.append((call.title, call.allocations, str(program)))
        elif any(launch.duration_ns is None or launch.start_ns is None for launch in call.launches):
            faults.append((call.title, call.launches, "times"))
    assert faults == []


def test_calls_with_plans_are_recorded_as_first_calls_are(device: tl.Device, full: bool) -> None:
    """Of each op, whichever function of its cell takes the call: those in front of it refuse it in a profile too."""
    if device.backend != "cpu" and not full:
        pytest.skip("kernels for GPUs take minutes to compile; run it with --full")
    device.inner.plans.clear()
    first, second = [
        [
            recorded(example(device, cell, examples.SMALLEST, lay))
            for cell in cells(device.backend, full=full)
            for lay in (examples.contiguous, trial.strided)
        ]
        for _ in range(2)
    ]
    assert [pair for pair in zip(first, second, strict=True) if pair[0] != pair[1]] == []
    assert len(first) > 200


def recorded(call: examples.Example) -> Any:
    """What a call gives, or the class of the error that it raises, and the calls on the device with their launches."""
    result: Any
    with tl.profile() as p:
        try:
            result = described(call.call())
        except tl.TallowError as error:
            result = type(error)
    return call.method, result, [(each.name, [launch.name for launch in each.launches]) for each in calls_of(p)]


def described(result: Any) -> Any:
    """The storages among the results of a call, by their class, dtype and length."""
    if isinstance(result, tuple | list):
        return [described(each) for each in result]
    if isinstance(result, tl.Storage):
        inner: Any = result.inner
        return type(inner), getattr(inner, "dtype", None), getattr(inner, "length", None)
    return type(result)


def test_bytes_are_those_that_layouts_reach(x: tl.Tensor) -> None:
    """4 of each element that is read, once, and of each that is written."""
    row = tl.Tensor(np.ones((1, 3), "f4"), device=x.device)
    with tl.profile() as p:
        x + row.broadcast_as((2, 3))
        x.narrow(0, 1, 1).exp()
        x * x
        x.narrow(0, 1, 1).broadcast_as((2, 3)).exp()
    assert [sum(launch.nbytes for launch in call.launches) for call in calls_of(p)] == [60, 24, 48, 36]


def test_times_lie_inside_of_the_block(x: tl.Tensor) -> None:
    x.exp()
    with tl.profile() as p:
        x.exp()
        x.sum()
    begin, end = p._begin_ns, p.calls[-1].start_ns + p.calls[-1].duration_ns
    for call in p.calls:
        assert begin <= call.start_ns <= end
        assert call.has_stream == (x.device.backend in ("cuda", "rocm"))
        for launch in call.launches:
            assert launch.duration_ns >= 0
            if not call.has_stream:
                assert call.start_ns <= launch.start_ns
                assert launch.start_ns + launch.duration_ns <= call.start_ns + call.duration_ns


@pytest.mark.parametrize("fails", [False, True])
def test_the_file_is_one_of_trace_events(x: tl.Tensor, tmp_path: Path, fails: bool) -> None:
    path = tmp_path / "t.json"
    with pytest.raises(tl.ShapeMismatch) if fails else tl.profile(), tl.profile(path) as p:
        loss = (tl.Var(x) * 2).sum()
        loss.backward()
        if fails:
            x.reshape((5, 5))
    assert [*tmp_path.iterdir()] == [path], "nothing else is left"
    described = json.loads(path.read_text())
    every = described["traceEvents"]
    phases = {"X": {"dur"}, "i": {"s"}, "C": set(), "M": set(), "s": {"id"}, "f": {"id", "bp"}}
    for event in every:
        assert {"name", "cat", "ph", "ts", "pid", "tid", "args"} | phases[event["ph"]] == {*event}
        assert all(isinstance(event[name], int) for name in ("pid", "tid"))
        assert event["ts"] >= 0
        assert event.get("dur", 0) >= 0
    by_category = {
        category: [event for event in every if event["cat"] == category and event["ph"] in "Xi"]
        for category in ("call", "kernel", "memory")
    }
    calls = [event for event in by_category["call"] if event["name"] != "make the plan"]
    assert [event["name"] for event in calls] == [call.title for call in p.calls]
    assert [event["args"]["line"] for event in calls] == [call.line for call in p.calls]
    assert all(event["args"]["line"].partition(":")[0].endswith(HERE) for event in calls)
    assert [event["name"] for event in by_category["kernel"]] == [launch.name for launch in p.launches]
    assert [event["args"].get("grid") for event in by_category["kernel"]] == [launch.grid for launch in p.launches]
    assert [event["args"]["bytes"] for event in by_category["memory"]] == [each.nbytes for each in p.allocations]
    counters = [event["args"]["bytes"] for event in every if event["ph"] == "C"]
    assert counters == [sample.nbytes for sample in p.memory]
    names = {event["args"]["name"] for event in every if event["ph"] == "M"}
    assert {"tallow", threading.current_thread().name} <= names
    if p.calls[0].has_stream:
        assert {event["pid"] for event in by_category["kernel"]} == {1 << 23}
        assert x.device.label in names
        arrows = [[event["id"] for event in every if event["ph"] == phase] for phase in "sf"]
        assert arrows[0] == arrows[1] == list(range(1, len(p.launches) + 1))
    else:
        assert {event["pid"] for event in every} == {os.getpid()}


def test_memory_in_use_is_that_of_the_device(x: tl.Tensor) -> None:
    with tl.profile() as p:
        saved = [x.exp() for _ in range(3)]
    used = [sample.nbytes for sample in p.memory]
    if x.device.backend in ("cuda", "rocm"):
        block = 512
        assert np.diff(used).tolist() == [block, block]
        assert used[-1] == x.device.inner.allocator.allocated
    elif x.device.backend == "cpu" and sys.platform == "linux":
        assert len(used) == len(saved)
        assert min(used) > 1 << 20, "the process has more than that"
        assert "MiB in use at most" in str(p)


def test_calls_of_threads_are_told_apart(x: tl.Tensor, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    x.exp()
    threads = [threading.Thread(target=lambda: [x.exp() for _ in range(20)], name=f"worker {n}") for n in range(3)]
    with tl.profile(path) as p:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    calls = calls_of(p)
    assert len(calls) == 60
    assert all(call.is_planned and len(call.launches) == 1 for call in calls)
    events = json.loads(path.read_text())["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    # Threads that come after each other may have one number.
    assert {names[call.thread] for call in calls} <= {thread.name for thread in threads}


def test_plans_are_the_same_before_and_after(x: tl.Tensor) -> None:
    plans = x.device.inner.plans
    for _ in range(3):
        x.exp()
    before = dict(plans)
    with tl.profile():
        assert [*plans] == []
        x.exp()
        x.exp()
        assert not {*plans.values()} & {*before.values()}
    assert dict(plans) == before
    assert session._observers == {}
    assert session._profiles == ()
    assert backends._visitors == []


def test_blocks_inside_of_blocks_have_their_own_calls(x: tl.Tensor) -> None:
    with tl.profile() as outer:
        x.exp()
        with tl.profile() as inner:
            x.sin()
        x.cos()
    assert [call.name for call in calls_of(outer)] == ["unary_impl exp", "unary_impl sin", "unary_impl cos"]
    assert [call.name for call in calls_of(inner)] == ["unary_impl sin"]
    assert all(launch.duration_ns is not None for launch in (*outer.launches, *inner.launches))


def test_a_block_is_entered_once(x: tl.Tensor) -> None:
    p = tl.profile()
    assert str(p) == "no calls"
    with p:
        x.exp()
    with pytest.raises(tl.InvalidArgument, match="make another one"), p:
        pass
    assert len(calls_of(p)) == 1


def test_a_device_that_is_opened_inside_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "_opened", {})
    with tl.profile() as p:
        x = tl.Device.cpu().storage(np.ones(2, "f4"))
        x.unary_impl(tl.UnaryOp.EXP, tl.Layout.contiguous((2,)))
    assert [call.name for call in p.calls] == ["unary_impl exp"]
    assert x.inner.device.plans.observers == ()


def test_an_error_of_a_call_is_noted(x: tl.Tensor) -> None:
    indexes = tl.Tensor(np.array([7]), device=x.device)
    with tl.profile() as p, pytest.raises(tl.InvalidIndex):
        x.index_select(indexes, 0).numpy()
    noted = {call.name: call.error for call in p.calls if call.name in ("index_select", "copy to the host")}
    if x.device.backend == "cpu":
        assert noted == {"index_select": "InvalidIndex"}
    else:
        assert noted["index_select"] is None, "the GPU finds it later"


def test_a_path_that_cannot_be_written_is_named(x: tl.Tensor, tmp_path: Path) -> None:
    path = tmp_path / "missing" / "t.json"
    with pytest.raises(tl.MissingFile, match=r"profile: path .*make the folder"), tl.profile(path):
        x.exp()
    with pytest.raises(ZeroDivisionError) as error, tl.profile(path):
        1 / 0  # noqa: B018
    assert "the profile of the block was not written" in error.value.__notes__[0]
    with pytest.raises(tl.InvalidArgument, match="path: 3 names no file"):
        tl.profile(3)  # type: ignore[arg-type]


def test_replays_of_graphs_are_one_entry(x: tl.Tensor) -> None:
    try:
        graph, inner = tl.Graph(x.device), tl.Graph(x.device)
    except tl.UnsupportedDevice as error:
        pytest.skip(str(error))
    (x * 2 + 1).exp()
    with graph.capture():
        y = (x * 2 + 1).exp()
    with tl.profile() as p:
        graph.replay()
        with inner.capture():
            z = y * 2
        inner.replay()
    replay, captured, again = p.calls
    assert replay.name == again.name == "Graph.replay"
    assert captured.is_captured
    assert [launch.duration_ns for launch in captured.launches] == [None]
    assert all(call.launches[0].duration_ns > 0 for call in (replay, again))
    assert "captured" not in replay.title
    expected = np.exp(x.numpy() * 2 + 1)
    np.testing.assert_allclose(z.numpy(), 2 * expected, rtol=1e-5)
    # A capture around a block, in which no device is waited for.
    outer = tl.Graph(x.device)
    with outer.capture(), tl.profile() as p:
        w = x * 3
    assert [call.is_captured for call in p.calls] == [True]
    outer.replay()
    assert w.tolist() == (x.numpy() * 3).tolist()


def test_a_graph_holds_what_is_captured_inside_of_a_block(x: tl.Tensor) -> None:
    """A profile runs programs itself, and a capture holds their operands."""
    try:
        graph = tl.Graph(x.device)
    except tl.UnsupportedDevice as error:
        pytest.skip(str(error))
    operand = x + 1
    with graph.capture(), tl.profile():
        y = operand * 2
    del operand
    others = [tl.zeros((2, 3), device=x.device) + 5 for _ in range(4)]
    graph.replay()
    assert y.tolist() == ((x.numpy() + 1) * 2).tolist()
    del others


def test_steps_that_the_cpu_replays_are_calls() -> None:
    x, plans = tl.Tensor(np.ones(3, "f4")), tl.Device.cpu().inner.plans
    plans.clear()
    x.exp()
    noted, inside = (tl.Device.cpu().inner.replay() for _ in range(2))
    with noted:
        y = x.exp()
    with tl.profile() as p:
        noted.replay()
        with inside:
            z = x.exp()
    assert [call.title for call in p.calls] == ["unary_impl exp (3,) f32"] * 2
    assert noted.complete
    assert inside.complete
    assert [plan for plan, *_ in inside._runs] == [*plans.values()], "replays of later cost what they always do"
    x.fill_(0.0)
    noted.replay()
    inside.replay()
    assert y.tolist() == z.tolist() == [1, 1, 1]


def test_a_library_that_refuses_has_its_fallback(gpu: Any) -> None:
    it = call_of_library(gpu, conv.by_library)
    gpu.plans.clear()
    expected = it.by_kernels().to_numpy()
    with tl.profile() as p:
        it.library.has_room = False
        assert it.run() is None, "the first call is left to the next cell"
        it.library.has_room = True
        it.run()
        it.library.has_room = False
        result = it.run()
        known = it.run()
    assert np.array_equal(result.to_numpy(), expected)
    assert np.array_equal(known.to_numpy(), expected)
    refused, first, *others = [call for call in p.calls if call.name == "by_library"]
    assert refused.launches == []
    assert [launch.kind for launch in first.launches if launch.kind == "library"] == ["library"]
    for call in others:
        assert call.launches
        assert all(launch.kind != "library" for launch in call.launches)


def test_an_op_that_has_refused_refuses_in_a_profile_too(gpu: Any) -> None:
    def refuse(build: ProgramBuilder, x: Operand) -> None:
        return None

    def take(build: ProgramBuilder, x: Operand) -> Buffer:
        return copy.fresh(build, x)

    def call() -> Any:
        operand = Operand(storage, tl.Layout.contiguous((6,)))
        result = gpu.planned("refused", 0, refuse, (operand,), {}, may_refuse=True)
        return gpu.planned("refused", 0, take, (operand,), {}) if result is None else result

    storage = gpu.storage(np.arange(6, dtype="f4"))
    for _ in range(3):
        call()
    with tl.profile() as p:
        actual = [call().to_numpy().tolist() for _ in range(2)]
    assert actual == [[0, 1, 2, 3, 4, 5]] * 2
    assert [(call.name, call.is_planned) for call in p.calls if "copy" not in call.name] == [("take", True)] * 2


def test_memory_of_others_that_overlaps_is_written_as_without_a_profile(gpu: Any) -> None:
    """Which takes a program of its own, with a copy of what is read."""
    device = tl.Device(gpu)

    def add(begin: int) -> tuple[tl.Tensor, np.ndarray[Any, Any]]:
        base, expected = tl.arange(12, dtype="f32", device=device), np.arange(12, dtype="f4")
        target, other = tl.from_dlpack(base[:6]), tl.from_dlpack(base[begin : begin + 6])
        target.add_(other)
        expected[:6] += expected[begin : begin + 6].copy()
        return base, expected

    gpu.plans.clear()
    with tl.profile() as p:
        results = [add(begin) for begin in (6, 2, 6, 2)]
    for base, expected in results:
        assert base.tolist() == expected.tolist()
    writes = [call for call in p.calls if call.name == "binary_assign add"]
    assert [call.is_planned for call in writes] == [False, True, True, True]
    assert [len(call.allocations) for call in writes] == [0, 1, 0, 1]


def test_fused_functions_have_their_names(x: tl.Tensor) -> None:
    @tl.fuse
    def scaled(a: tl.Tensor, b: tl.Tensor) -> tl.Tensor:
        return a * b + 1

    scaled(x, x)
    with tl.profile() as p:
        scaled(x, x)
    names = [call.name for call in p.calls]
    assert names == ["scaled"]


def test_calls_are_ranges_of_the_vendors_profilers(x: tl.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[bytes] = []
    depth = [0]

    def push(name: bytes) -> None:
        begun.append(name)
        depth[0] += 1

    def pop() -> None:
        depth[0] -= 1

    monkeypatch.setattr(session._ranges, "_libraries", [(push, pop)])
    with tl.profile() as p:
        x.exp()
    x.exp()
    assert begun == [call.title.encode() for call in p.calls]
    assert depth == [0]


def test_the_package_of_nvtx_takes_the_place_of_its_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nvtx.py").write_text("log = []\npush_range = log.append\ndef pop_range(): log.append('end')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(c_library, "load", lambda *_: None)
    both = ranges.Ranges()
    both.push("matmul")
    both.pop()
    assert sys.modules.pop("nvtx").log == ["matmul", "end"]


def test_times_are_found_while_a_long_block_runs(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that it needs no more events than a few, in whichever order they are looked at."""
    monkeypatch.setattr(profiler, "_MAX_PENDING", 4)
    monkeypatch.setattr(profiler, "_LONGEST_MS", 0.0)
    x = gpu.storage(np.ones(8, "f4"))
    events: set[int] = set()
    record = profiler.Clock.note

    def note(clock: Any, *marks: Any) -> None:
        events.update(map(id, marks[1:]))
        record(clock, *marks)

    monkeypatch.setattr(profiler.Clock, "note", note)
    with tl.profile() as p:
        for _ in range(40):
            gpu.run(copy.fill_with, Operand(x, tl.Layout.contiguous((8,))), 0)
    assert len(p.launches) == 40
    starts = [launch.start_ns for launch in p.launches]
    assert starts == sorted(starts)
    assert len(events) < 15


def test_the_page_shows_what_its_program_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if tl.Device.cpu().inner.kernels is None:
        pytest.skip("the page shows kernels for the CPU; run 'opgen compile --host'")
    monkeypatch.chdir(tmp_path)
    page = PAGE.with_name("profiling.md")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        ran(page, tl.Device.cpu())
    # The rows are in the order of their times, and some calls of the tests before have had plans.
    first = re.compile(r"^(?:[\w/]+ )+(?= )", re.MULTILINE)
    shown = page.read_text(encoding="utf-8").partition("```text\n")[2].partition("```")[0]
    assert sorted(first.findall(shown)) == sorted(first.findall(printed.getvalue()))
    assert (tmp_path / "step.json").exists()
