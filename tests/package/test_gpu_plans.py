"""Plans of a GPU: programs of calls, which run with other memory and numbers when the calls come again."""

import gc
import traceback
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest
import tallow as tl
from tallow.dtype import DType
from tallow.runtime.backends.gpu_backend.execute.program import GpuPlan
from tallow.runtime.program.builder import OpCall
from tallow.runtime.program.program import HostCall, LibraryCall, Program, accessed
from tallow.runtime.program.values import Memory, Operand
from tallow.runtime.selftest import examples, plan, trial


@pytest.fixture
def plans(gpu):
    gpu.plans.clear()
    return gpu.plans


def on(gpu, array):
    return tl.Tensor.from_numpy(np.asarray(array), tl.Device(gpu))


def test_a_program_is_interpreted_first_and_compiled_when_its_call_comes_again(gpu, plans):
    x = on(gpu, np.arange(6, dtype="f4"))
    x.cumsum(0)
    (first,) = plans.values()
    assert isinstance(first, GpuPlan)
    x.cumsum(0)
    (plan,) = plans.values()
    assert plan.__name__ == "scan"
    assert on(gpu, np.arange(6, dtype="f4") + 1).cumsum(0).tolist() == [1, 3, 6, 10, 15, 21]
    assert list(plans.values()) == [plan]


def test_one_program_serves_any_number_of_elements(gpu, plans):
    def halves(count, device):
        return tl.arange(count, dtype="f32", device=device) * 0.5

    calls = [
        lambda count, device: halves(count, device).gelu(),
        lambda count, device: halves(count, device).elu(count),
        lambda count, device: halves(count, device) + halves(count, device),
        lambda count, device: tl.zeros((count,), dtype="i16", device=device),
        lambda count, device: tl.full((count,), count, device=device),
        lambda count, device: tl.rand((count,), device=device),
    ]
    for call in calls:
        for count in (3, 3, 8, 5, 5, 5, 70_000, 0, 1, 3):
            values = []
            for device in (tl.Device(gpu), tl.Device.cpu()):
                device.set_seed(count)
                values.append(call(count, device).numpy())
            assert np.allclose(*values, rtol=1e-5)
    # A number and one element have a program of their own.
    names = ["arange", "binary", "unary", "binary", "unary", "binary", "zeros", "const_set", "rand_uniform_f64"]
    assert [plan.name for plan in plans.dynamic.values()] == names


def test_a_number_that_a_layout_repeats_is_written_once_whatever_was_written_before(gpu, plans):
    for count in (1, 5, 100_000):
        number = tl.Device(gpu).storage_from_slice([2.0], DType.F32)
        number.const_set(3.0, tl.Layout((count,), (0,)))
        assert number.to_numpy() == 3


def test_an_error_in_a_plan_shows_its_line_and_its_op(gpu, plans, monkeypatch):
    x = on(gpu, np.arange(6, dtype="f4"))
    for _ in range(2):
        x.exp()

    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(gpu.slice_class, "__init__", fail)
    with pytest.raises(KeyboardInterrupt) as caught:
        x.exp()
    frame = next(frame for frame in traceback.extract_tb(caught.tb) if frame.filename.startswith("<tallow program"))
    assert (frame.name, frame.filename.rpartition(" ")[2]) == ("unary", "unary>")
    assert frame.line.startswith("m0_memory = Slice(allocator, ")


def test_plans_tell_ops_dtypes_layouts_and_lengths_from_each_other(gpu, plans):
    for dtype in ("f4", "i4"):
        for size in (4, 6):
            x = on(gpu, np.arange(size, dtype=dtype))
            for view, host in ((x, x.numpy()), (x[::2], x.numpy()[::2]), (x[1:3], x.numpy()[1:3])):
                for _ in range(3):
                    assert np.array_equal((view + view).numpy(), host + host)
                    assert np.array_equal((view * view).numpy(), host * host)


def test_numbers_are_those_of_each_call(gpu, plans):
    x = on(gpu, [1.0, 2.0])
    for number in (2, 3.5, 0.0, -0.0, 7):
        assert (x * number).tolist() == [number, 2 * number]
        assert x.affine(number, 1).tolist() == [number + 1, 2 * number + 1]
        assert (x > number).tolist() == [number < 1, number < 2]
        assert x.copy().fill_(number).tolist() == [number] * 2
    assert np.signbit((x * -0.0).numpy()).all()
    assert not np.signbit((x * 0.0).numpy()).any()


def test_calls_without_operands_have_plans(gpu, plans):
    device = tl.Device(gpu)
    for _ in range(3):
        assert tl.Tensor.zeros((3,), device=device).tolist() == [0, 0, 0]
        assert tl.arange(1, 4, device=device).tolist() == [1, 2, 3]
    assert {getattr(plan, "__name__", None) for plan in plans.values()} == {"zeros", "arange"}


@pytest.mark.parametrize("runs", [0, 2])
def test_a_run_that_fails_draws_nothing(gpu, plans, monkeypatch, runs):
    """Whether the program runs step by step, or is compiled."""
    device = tl.Device(gpu)

    def draw():
        return tl.Tensor.rand((3,), device=device).tolist()

    def fail(*_):
        raise KeyboardInterrupt

    device.set_seed(3)
    expected = [draw() for _ in range(runs + 1)][-1]
    device.set_seed(3)
    plans.clear()
    for _ in range(runs):
        draw()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(*((gpu.slice_class, "__init__") if runs else (type(gpu.kernels), "function")), fail)
        draw()
    assert draw() == expected


def test_joins_of_any_number_of_tensors_have_plans_of_their_own(gpu, plans):
    for start in range(4):
        arrays = [np.arange(start + size, start + size + 6, dtype="i4").reshape(2, 3) for size in range(20)]
        tensors = [on(gpu, array) for array in arrays]
        for count in (1, 2, 3, 20):
            assert np.array_equal(tl.cat(tensors[:count], 1).numpy(), np.concatenate(arrays[:count], 1))
        assert np.array_equal(
            tl.cat([tensors[0][:, 1:], tensors[1]], 1).numpy(), np.concatenate([arrays[0][:, 1:], arrays[1]], 1)
        )
        assert np.array_equal(tl.cat([tensors[0]] * 2).numpy(), np.concatenate([arrays[0]] * 2))
    assert "cat" in {getattr(plan, "__name__", "") for key, plan in plans.items() if key[0] == "cat"}


def test_a_number_that_is_worked_with_is_that_of_each_call(gpu, plans):
    """A strided fill repeats the bits of its number."""
    for number in (1.0, 2.0, 3.0, 4.0):
        x = on(gpu, np.zeros((4, 4), "f4"))
        x[:, ::2] = number
        x[1:3, 1] += number
        expected = np.zeros((4, 4), "f4")
        expected[:, ::2] = number
        expected[1:3, 1] += number
        assert np.array_equal(x.numpy(), expected)


def test_writing_to_shared_memory_is_not_mistaken_for_writing_to_memory_apart(gpu, plans):
    for _ in range(3):
        x, other = on(gpu, np.arange(8, dtype="f4")), on(gpu, np.arange(8, dtype="f4"))
        x[1:].copy_(other[:-1])
        assert x.tolist() == [0, 0, 1, 2, 3, 4, 5, 6]
        x[1:].copy_(x[:-1])
        assert x.tolist() == [0, 0, 0, 1, 2, 3, 4, 5]


def test_indexes_out_of_range_are_found_by_plans(gpu, plans):
    x = on(gpu, np.arange(4, dtype="f4"))
    good, bad = on(gpu, np.array([1, 2])), on(gpu, np.array([1, 9]))
    for _ in range(4):
        assert x.index_select(good, 0).tolist() == [1, 2]
        with pytest.raises(tl.InvalidIndex, match="9"):
            x.index_select(bad, 0).tolist()


def test_plans_keep_no_memory(gpu, plans):
    # The library of products has a workspace from now on.
    on(gpu, np.zeros((2, 2), "f4")).matmul(on(gpu, np.zeros((2, 2), "f4")))
    gc.collect()
    before = gpu.allocator.statistics().allocated
    for _ in range(3):
        x = on(gpu, np.zeros(1 << 16, "f4"))
        y = (x + x).sum() + x.reshape(256, 256).transpose(0, 1).contiguous().matmul(x.reshape(256, 256))
        y.numpy()
    del x, y
    gc.collect()
    assert gpu.allocator.statistics().allocated == before


def test_compiling_leaves_no_garbage_that_has_memory(gpu, plans):
    x = on(gpu, np.ones((4, 4), dtype="f4"))
    # The library of products has a workspace from now on.
    x.matmul(x)
    gc.collect()
    gc.disable()
    try:
        before = gpu.allocator.statistics().allocated
        for _ in range(2):
            (x.T.matmul(x) + x.softmax(0)).sum(1)
        assert gpu.allocator.statistics().allocated == before
    finally:
        gc.enable()


def test_temporary_memory_is_given_back_where_it_was(gpu, plans):
    """Convolutions by columns use the memory of one piece for the next."""
    x = on(gpu, np.random.default_rng(1).random((3, 4, 8, 8), dtype="f4"))
    kernel = on(gpu, np.random.default_rng(2).random((16, 4, 3, 3), dtype="f4"))
    results = [x.conv2d(kernel, padding=1).numpy() for _ in range(4)]
    assert all(np.array_equal(results[0], result) for result in results)


def needed(program: Program, size: Callable[[int], int]) -> int:
    """Return the most bytes in use at once: each memory from its first step to its last, results to the end."""
    count = len(program.steps)
    spans: dict[Memory, list[int]] = {}
    for number, step in enumerate(program.steps):
        for memory in accessed(step):
            spans.setdefault(memory, [number, number])[1] = number
    for buffer in program.buffers:
        spans.setdefault(buffer.memory, [count, count])[1] = count
    allocated = [(size(it.nbytes), *span) for it, span in spans.items() if type(it) is Memory and it.argument is None]
    return max(sum(nbytes for nbytes, first, last in allocated if first <= step <= last) for step in range(count + 1))


@pytest.mark.parametrize("lay", [examples.contiguous, trial.strided])
def test_no_plan_has_more_memory_than_its_steps_need_at_once(gpu, plans, monkeypatch, lay):
    """Of each method, where the program alone allocates: libraries have workspaces."""
    allocator, checked = gpu.allocator, {}

    class Observer:
        def observed(self, key, call, plan, is_known):
            program = call.program(gpu.facts)

            def run(*operands):
                before = allocator.peak = allocator.allocated
                result = plan(*operands)
                if not any(isinstance(step, LibraryCall | HostCall) for step in program.steps):
                    checked.setdefault(cell.method, []).append((allocator.peak - before, program))
                return result

            return run

    monkeypatch.setattr(gpu.kernels, "function", lambda *_: lambda blocks, arguments: None)
    for cell in tl.support():
        if cell.backend != gpu.backend or cell.dtype is not DType.F32 or not hasattr(tl.Storage, cell.method):
            continue
        if cell.status == "supported" and plan.is_call(cell) and plan.family_of(cell) not in plan.NOT_TRIED:
            # Layouts that an op refuses, and elements that no kernel has computed.
            with suppress(tl.TallowError), plans.observed_by(Observer()):
                call, _ = trial.example(cell, tl.Device(gpu), lay)
                for _ in range(3):
                    call.call()
    gpu.index_errors.check()
    for method, runs in checked.items():
        for peak, program in runs:
            assert peak == needed(program, allocator._size), (method, str(program))
    assert len(checked) > 80
    assert any(len(program.steps) > 4 for runs in checked.values() for _, program in runs)


def test_memory_of_others_has_plans_by_how_it_is_aligned(gpu, plans):
    data = np.arange(9, dtype="f4")
    base = on(gpu, data)
    for start in (0, 1, 4):
        # A library that exports memory from anywhere on.
        lent = tl.Tensor.from_dlpack(base[start : start + 4])
        for _ in range(3):
            assert (lent + lent).tolist() == (2 * data[start : start + 4]).tolist()
    lent = tl.Tensor.from_dlpack(base)
    for step in range(4):
        base[1:].copy_(lent[:-1])
        assert base.numpy()[-1] == 8 - step - 1


def test_writing_to_memory_of_others_has_plans_that_ask_whether_it_is_shared(gpu, plans):
    gpu = type(gpu).open(0)
    base, source = on(gpu, np.zeros(8, "f4")), on(gpu, np.arange(8, dtype="f4"))
    lent = tl.Tensor.from_dlpack(base)
    for _ in range(3):
        lent.copy_(source)
        lent.add_(source)
    assert base.tolist() == (2 * np.arange(8)).tolist()
    # The same call, on memory that both have.
    plan = next(plan for key, plan in plans.items() if key[0] == "assign")
    assert hasattr(plan, "__name__")
    ahead, behind = tl.Tensor.from_dlpack(base[:4]), tl.Tensor.from_dlpack(base[2:6])
    for _ in range(3):
        expected = behind.numpy()
        ahead.copy_(behind)
        assert np.array_equal(ahead.numpy(), expected)


def test_the_first_run_of_a_plan_may_be_for_memory_that_is_shared(gpu, plans):
    """It launches other kernels than later runs, for which those are found then."""
    gpu = type(gpu).open(0)
    gpu.kernels._functions.clear()
    base = on(gpu, np.arange(64, dtype="i2").reshape(8, 8))
    one, other = tl.Tensor.from_dlpack(base), tl.Tensor.from_dlpack(base)
    apart = tl.Tensor.from_dlpack(on(gpu, np.ones((8, 8), dtype="i2")))
    expected = base.numpy()
    for source in (other, other, apart, apart):
        expected = expected - source.numpy().T
        one.sub_(source.T)
        assert np.array_equal(base.numpy(), expected)


def every_step(build, x, y, number):
    """An op of the tests, with each kind of step that needs no library."""
    results = build.empty(x.dtype, x.storage.length), build.empty(DType.U8, 3)
    scratch = build.allocate(x.storage.nbytes)
    build.fill(scratch.address, 7, scratch.nbytes)
    build.copy(scratch.address + 4, x.storage.address + 4, scratch.nbytes - 4)
    build.copy(results[0].address, scratch.address, scratch.nbytes)
    build.host(add_to, results[0], number, (y, (y.layout.shape, "constant")), factor=2)
    build.host(fill_with_nines, target=5)
    build.zero(results[1])
    return results


def add_to(target, number, pair, *, factor):
    x, (shape, text) = pair
    assert (text, x.shape) == ("constant", shape)
    elements = target.to_numpy() + factor * number * x.storage.to_numpy()
    target.device.write(target.memory.address, elements.astype("f4"))


def fill_with_nines(*, target):
    assert target == 5


def in_place(build, x, number):
    build.fill(x.storage.address, 1, 1)
    return ()


def call(gpu, op, *arguments):
    """Call an op, the last of whose arguments is a number."""
    plan = gpu.plans.get(op)
    if plan is None:
        return gpu.planned(op, 1, op, arguments, {}, may_refuse=True)
    _, operands = OpCall.of(op, arguments, {}, 1)
    return plan(*operands)


def test_a_program_does_the_same_step_by_step_and_compiled(gpu, plans):
    x, y = (Operand(gpu.storage(np.arange(4, dtype="f4") + start), tl.Layout.contiguous((4,))) for start in (0, 10))
    sevens = np.frombuffer(bytes([7] * 4), "f4")[0]
    for number in (1.0, 2.0, 3.0):
        elements, zeros = call(gpu, every_step, x, y, number)
        added = 2 * number * (np.arange(4) + 10)
        assert elements.to_numpy().tolist() == [sevens + added[0], *(np.arange(4) + added)[1:]]
        assert zeros.to_numpy().tolist() == [0, 0, 0]
        assert call(gpu, in_place, x, number) is True
    assert {plan.__name__ for plan in plans.values()} == {"every_step", "in_place"}


def test_a_number_that_turns_into_memory_has_another_plan(gpu, plans):
    x = on(gpu, np.ones(4, "f4"))
    number = tl.Device(gpu).storage_from_slice([2.0], tl.DType.F32)
    two = tl.Tensor.from_storage(number, tl.Layout.contiguous(()))
    for value in (2.0, 2.0, 2.0, 5.0, 5.0, 5.0):
        if value == 5.0:
            two.fill_(5.0)
        assert (x * two).tolist() == [value] * 4


def test_a_plan_for_a_number_takes_one_that_was_just_written_to_memory(gpu, plans):
    """As another thread may do between the look for a plan and its run."""
    x = on(gpu, np.ones(4, "f4"))
    for _ in range(3):
        x * 2.5
    (plan,) = (plan for key, plan in plans.items() if key[0] == "binary_impl")
    number = tl.Device(gpu).storage_from_slice([4.0], tl.DType.F32).inner
    assert number.memory.nbytes == 4
    assert number.number is None
    assert tl.Storage(plan(x.storage.inner, number)).to_numpy().tolist() == [4.0] * 4
