"""Functions that are fused: what they take and refuse, when they are traced, and how they are launched."""

from __future__ import annotations

import decimal
import math
import pickle
from pathlib import Path

import numpy as np
import pytest
import tallow as tl
from tallow.runtime.base.error import (
    DeviceMismatch,
    DTypeMismatch,
    FusionError,
    InvalidArgument,
    ShapeMismatch,
    UnsupportedDType,
)

from . import backend
from .programs import Observer

X = tl.Tensor(np.arange(12, dtype="f4").reshape(3, 4) - 5)
WEIGHT = tl.Tensor([1.0, 2.0, 3.0, 4.0])


def eight(x, y):
    x = x * 2 + y
    x = (x - 1).abs().sqrt()
    return (x.silu() / 3).clamp(0, 5)


def branches(x):
    return x if x > 0 else -x


def assigns(x):
    x += 1
    return x


def writes(x):
    x[0] = 1
    return x


def reduces(x):
    return x - x.prod(-1, keepdim=True)


def closes_over(x):
    return x * WEIGHT


def closes_over_left(x):
    return WEIGHT * x


def makes(x):
    return x + x.zeros_like()


REFUSED = [
    (branches, "bool reads elements; use where instead of if, or compute the number before and pass it"),
    (lambda x: x * float(x), "float reads elements; use where"),
    (lambda x: x.numpy(), "numpy reads elements; use where"),
    (lambda x: x + x.item(), "item reads elements; use where"),
    (lambda x: x + len(str(x)), "repr reads elements; use where"),
    (
        reduces,
        "prod combines elements as no kernel of rows can; reduce outside of the fused function, and",
    ),
    (lambda x: x.sum(), "sum joins elements of several dims; reduce outside"),
    (
        lambda x: x.T.sum(0, keepdim=True) + x.sum(-1),
        "add gives what was computed another shape; do it to the arguments",
    ),
    (lambda x: x.matmul(x.T), "matmul is no elementwise op; call it outside of the fused function"),
    (lambda x: tl.cat([x, x]), "cat is no elementwise op; call it outside"),
    (
        lambda x: x.gather(x.to_dtype("i64"), 0),
        "gather chooses other elements than one float of each row; call",
    ),
    (assigns, "iadd writes in place; write x = x + y instead of x += y"),
    (writes, "setitem writes in place; write x = x + y"),
    (lambda x: x.fill_(2), "fill_ writes in place; write x = x + y"),
    (lambda x: x.exp().reshape(12), "reshape gives what was computed another shape; do it to the arguments"),
    (lambda x: x.exp().T, "T gives what was computed another shape; do it to the arguments"),
    (lambda x: x.exp()[0], "getitem gives what was computed another shape; do it to the arguments"),
    (lambda x: x.T.copy().reshape(12), "reshape gives what was computed another shape; do it to the arguments"),
    (closes_over, "mul is given a tensor that is no argument of the function; make it one"),
    (closes_over_left, "mul is given a tensor that is no argument of the function; make it one"),
    (makes, "add is given a tensor that is no argument of the function; make it one"),
]


@pytest.fixture(params=["cpu", "gpu"])
def x(request):
    if request.param == "cpu":
        return X
    return X.to(tl.Device(request.getfixturevalue("gpu")))


@pytest.mark.parametrize(("function", "message"), REFUSED, ids=[message.partition(";")[0] for _, message in REFUSED])
def test_what_is_no_elementwise_op_is_refused_at_its_line(x, function, message):
    with pytest.raises(FusionError) as failure:
        tl.fuse(function)(x)
    error = failure.value
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    first = function.__code__.co_firstlineno
    assert error.file == __file__
    assert error.line == first if function.__name__ == "<lambda>" else error.line == first + 1, lines[error.line - 1]
    assert str(error).startswith(f"{function.__name__} cannot be fused: {__file__}:{error.line}: {message}")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_the_line_is_that_of_a_function_that_is_called(x):
    with pytest.raises(FusionError) as failure:
        tl.fuse(lambda x: reduces(x) * 2)(x)
    assert failure.value.line == reduces.__code__.co_firstlineno + 1


def test_what_a_function_returns_is_a_tensor_or_several(x):
    for function, message in (
        (lambda x: 3, "it returns 3; return what it computes, a tensor or a tuple of tensors"),
        (lambda x: (x, None), "it returns None; return what it computes"),
        (lambda x: (), "it returns nothing; return what it computes"),
        (lambda x: WEIGHT, "it returns a tensor that is none of its arguments; return what it computes"),
    ):
        with pytest.raises(FusionError, match="cannot be fused") as failure:
            tl.fuse(function)(x)
        assert message in str(failure.value)
        assert failure.value.line == function.__code__.co_firstlineno


def test_arguments_are_tensors_and_numbers(x):
    fused = tl.fuse(lambda x, scale=2: x * scale)
    for inputs, message in (
        ((x, "2"), "argument 2 must be a Tensor or a Python number, not of type str"),
        (([1.0],), "argument 1 must be a Tensor or a Python number, not of type list"),
        ((2.0,), "none of its arguments is a Tensor; give it one"),
    ):
        with pytest.raises(InvalidArgument) as failure:
            fused(*inputs)
        assert str(failure.value) == f"<lambda>: {message}"
    with pytest.raises(InvalidArgument, match="scale must be a Tensor or a Python number, not of type NoneType"):
        fused(x, scale=None)
    with pytest.raises(InvalidArgument, match="fuse: function must be a function, not 3"):
        tl.fuse(3)


def test_ops_refuse_what_they_refuse_one_by_one(x):
    full = x.to_dtype("i64")
    for function, inputs, error in (
        (lambda x, y: x + y, (x.to_dtype("complex64"), full), DTypeMismatch),
        (lambda x, y: x + y, (x, x[:, :3]), ShapeMismatch),
        (lambda x: x.exp(), (full,), UnsupportedDType),
        (lambda x: x.where(x, x), (x,), UnsupportedDType),
        (lambda x, number: x + number, (full, 0.5), InvalidArgument),
        (lambda x: x.clamp("a", 2), (x,), InvalidArgument),
        (lambda x: x.no_such_method(), (x,), AttributeError),
    ):
        with pytest.raises(error) as expected:
            function(*inputs)
        with pytest.raises(error) as actual:
            tl.fuse(function)(*inputs)
        assert str(actual.value).partition(" must be")[0] in (
            str(expected.value).partition(" must be")[0],
            "clamp: the number",
            "'TracedTensor' object has no attribute 'no_such_method'",
        )


def test_operands_are_on_one_device(gpu):
    x = X.to(tl.Device(gpu))
    with pytest.raises(DeviceMismatch):
        tl.fuse(lambda x, y: x + y)(x, X)
    with pytest.raises(DeviceMismatch):
        tl.fuse(lambda x, y: x + y)(X, x)


def test_arguments_go_by_name_and_keep_their_defaults(x):
    @tl.fuse
    def scaled(x, scale=2, *, add=0.0):
        """Documented."""
        return x * scale + add

    assert scaled.__name__ == "scaled"
    assert scaled.__doc__ == "Documented."
    assert repr(scaled) == "<fused function scaled>"
    for inputs, named in (((x,), {}), ((x, 3), {}), ((), {"x": x, "add": 1}), ((x,), {"add": 1, "scale": np.int8(4)})):
        for _ in range(3):
            expected = scaled.__wrapped__(*inputs, **named)
            assert np.array_equal(scaled(*inputs, **named).numpy(), expected.numpy())


def test_results_are_new_tensors(x):
    for function in (lambda x: x, lambda x: x.T, lambda x: x[1:, ::2], lambda x: x.broadcast_as(2, 3, 4)):
        result, expected = tl.fuse(function)(x), function(x).numpy()
        result.fill_(0)
        assert np.array_equal(function(x).numpy(), expected)


def test_results_are_a_tuple_or_a_list_of_any_shapes_and_dtypes(x):
    def several(x, row):
        return x + row, row.exp(), x > row, x.T * 2, row.to_dtype("f16")

    row = WEIGHT.to(x.device)
    fused = tl.fuse(several)
    for _ in range(3):
        results = fused(x, row)
        assert type(results) is tuple
        for got, expected in zip(results, several(x, row), strict=True):
            assert got.dtype is expected.dtype
            assert np.array_equal(got.numpy(), expected.numpy())
    assert type(tl.fuse(lambda x: [x, -x])(x)) is list
    many = tl.fuse(lambda x: [x + i for i in range(20)])(x)
    assert [np.array_equal(got.numpy(), x.numpy() + i) for i, got in enumerate(many)] == [True] * 20


def test_no_result_shares_its_memory(x):
    def several(x):
        y = x.exp()
        return y, y, y.broadcast_as(2, 3, 4), x, x, x[0], y[:]

    fused = tl.fuse(several)
    for _ in range(3):
        results, expected = fused(x), [part.numpy() for part in several(x)]
        assert all(part.layout.is_contiguous for part in results)
        for number, part in enumerate(results):
            part.fill_(number)
        for number, (part, was) in enumerate(zip(results, expected, strict=True)):
            assert np.array_equal(part.numpy(), np.full_like(was, number))
    assert np.array_equal(x.numpy(), X.numpy())


NUMBER_FUNCTIONS = {
    "isinstance": lambda n: 2 if isinstance(n, int) else 3,
    "match": lambda n: _matched(n),
    "math.sqrt": lambda n: math.sqrt(n),
    "math.gcd": lambda n: math.gcd(int(n), 4),
    "np.sqrt": lambda n: float(np.sqrt(n)),
    "np.float32": lambda n: np.float32(n),
    "np.maximum": lambda n: float(np.maximum(n, 3)),
    "NumPy's numbers": lambda n: float(np.float64(2) * n + n * np.float64(3)),
    "divmod": lambda n: divmod(n, 3)[1] + divmod(30, n)[0],
    "round": lambda n: round(n, 1) + round(n),
    "methods": lambda n: n.real + float(n).is_integer(),
    "complex": lambda n: complex(n).real,
    "max": lambda n: max(n, 3),
    "sum": lambda n: sum([n, n]),
    "range": lambda n: len(range(int(n))),
    "format": lambda n: len(f"{n:.3f}{n!r}"),
}


def _matched(number):
    match number:
        case int():
            return 2
        case float():
            return 3
    return 4


@pytest.mark.parametrize("name", NUMBER_FUNCTIONS)
def test_a_number_is_what_it_is_for_functions_of_python_and_numpy(x, name):
    function = NUMBER_FUNCTIONS[name]
    fused = tl.fuse(lambda x, n: x * function(n))
    for number in (4, 4.0, 5, 2.25, 4):
        assert np.array_equal(fused(x, number).numpy(), (x * function(number)).numpy()), number


def test_integers_may_be_taken_apart_bit_by_bit(x):
    fused = tl.fuse(
        lambda x, n: x * ((n & 6) + (n | 1) + (n ^ 3) + (n << 2) + (n >> 1) + (~n) + (8 >> n) + n.bit_length())
    )
    for number in (3, 5, 3):
        assert np.array_equal(fused(x, number).numpy(), fused.__wrapped__(x, number).numpy())


def test_a_function_that_takes_only_pythons_own_numbers_is_named_with_its_line(x):
    function = lambda x, n: x * float(decimal.Decimal(n))  # noqa: E731
    with pytest.raises(
        FusionError, match=r"gives what stands for an argument to .*; give it float\(n\) or int\(n\)"
    ) as failure:
        tl.fuse(function)(x, 2.0)
    assert (failure.value.file, failure.value.line) == (__file__, function.__code__.co_firstlineno)


def test_errors_of_the_function_itself_come_through(x):
    with pytest.raises(TypeError, match="unexpected keyword") as failure:
        tl.fuse(lambda x: x)(x, y=x)
    assert not isinstance(failure.value, tl.TallowError)


class Scaled:
    def __init__(self, scale):
        self.scale = scale

    @tl.fuse
    def forward(self, x, add=0):
        """Documented."""
        return x * self.scale + add


def test_methods_are_fused_for_each_object(x):
    assert Scaled.forward.__doc__ == Scaled(1).forward.__doc__ == "Documented."
    fused = Scaled.__dict__["forward"]
    for scale in (2, 3, 2):
        module = Scaled(scale)
        for add in (0, 1.5):
            expected = (x * scale + add).numpy()
            assert np.array_equal(module.forward(x, add).numpy(), expected)
            assert np.array_equal(Scaled.forward(module, x, add=add).numpy(), expected)
        mine = type("Mine", (tl.Tensor,), {})._new(x.storage, x.layout)
        assert np.array_equal(module.forward(mine).numpy(), (x * scale).numpy())
        del module
        # An id may serve again, but not what was found for it.
        assert not fused._objects


@pytest.mark.parametrize("name", ["3d", "<ü>", "", "a b-c", "int", "x" * 300])
def test_a_name_that_is_no_identifier_is_compiled(x, name):
    def function(x):
        return x.exp() * 2

    function.__name__ = name
    assert np.array_equal(tl.fuse(function)(x).numpy(), (x.exp() * 2).numpy())


def test_a_function_is_one_program_that_drops_what_nothing_needs_any_more():
    """So a long chain needs no more memory than its ops one by one."""
    device, fused = tl.Device.cpu().inner, tl.fuse(lambda x, n: (x.exp() + n).sqrt() * x)
    fused(X, 0.5)
    observer = Observer(device.facts)
    with device.plans.observed_by(observer):
        fused(X, 0.5)
    (program,) = observer.programs
    lines = str(program).splitlines()
    assert lines[0] == "fused(x0: f32[12], n1):"
    assert [line.split()[1] for line in lines if line.startswith("    free")] == ["m0", "m1", "m2", "m3"]
    assert lines[-1] == "    return m4: f32[12]"


def test_a_function_is_traced_once_for_each_combination_of_layouts_and_dtypes(x):
    runs = []

    @tl.fuse
    def noted(x, y):
        runs.append((x.shape, x.dtype))
        return x + y

    for _ in range(4):
        noted(x, x)
    assert len(runs) == 1
    for inputs in ((x, x[0]), (x.to_dtype("f16"),) * 2, (x.T, x.T), (x[1:], x[1:])):
        for _ in range(4):
            assert np.array_equal(noted(*inputs).numpy(), (inputs[0] + inputs[1]).numpy())
    assert len(runs) == 5


def test_numbers_that_decide_leave_no_more_than_so_many_traces(x):
    """A step count that decides what a function does is another one in each call."""
    code = tl.fuse(lambda x, step: x * 2 if step % 2 else x + 1)
    for step in range(1000):
        code(x, step)
    (kind,) = code._kinds.values()
    assert 0 < len(kind._traced) <= 128


def test_numbers_are_those_of_each_call_and_traced_again_only_where_they_decide(x):
    runs = []

    def lerp(x, weight):
        runs.append(weight)
        return x * (1 - weight) + weight / 2 + x.clamp(-weight, abs(weight)) + 2**weight

    def decides(x, weight, power):
        runs.append(weight)
        return x.sqr() ** power if weight > 0 else x - weight

    fused = tl.fuse(lerp)
    for weight in (0.5, 1, 0.0, -0.0, 0.25, 2):
        assert np.array_equal(fused(x, weight).numpy(), lerp(x, weight).numpy())
    assert len([weight for weight in runs if type(weight) not in (int, float)]) == 1
    runs.clear()
    fused = tl.fuse(decides)
    for weight, power in ((1, 2), (-1, 2), (-1, 3), (1, 2), (2, 2), (1, 3), (-1, 2)):
        assert np.array_equal(fused(x, weight, power).numpy(), decides(x, weight, power).numpy())
    assert len([weight for weight in runs if type(weight) not in (int, float)]) == 5


def test_a_number_that_an_integer_dtype_lacks_is_refused_at_each_call(x):
    full = x.to_dtype("i16")
    fused = tl.fuse(lambda x, number: x + number * 2)
    for _ in range(3):
        assert np.array_equal(fused(full, 1.5).numpy(), (full + 3).numpy())
    with pytest.raises(InvalidArgument, match=r"0\.5 is not an integer, but the tensor's dtype is i16"):
        fused(full, 0.25)
    with pytest.raises(InvalidArgument, match="40000 is outside the range of i16"):
        fused(full, 20000)


def test_sizes_may_be_read(x):
    mean = tl.fuse(lambda x: x / x.shape[-1] + x.rank + x.elem_count)
    for view in (x, x[:, :2], x[0]):
        expected = view / view.shape[-1] + view.rank + view.elem_count
        assert np.array_equal(mean(view).numpy(), expected.numpy())


def test_a_fused_function_calls_another(x):
    inner = tl.fuse(lambda x, y: x * y + 1)
    outer = tl.fuse(lambda x, y: inner(x, 2.0) - inner(y, x))
    assert np.array_equal(outer(x, x).numpy(), ((x * 2 + 1) - (x * x + 1)).numpy())


def test_tensors_of_a_class_of_the_user_are_taken(x):
    class Mine(tl.Tensor):
        pass

    mine = Mine._new(x.storage, x.layout)
    assert np.array_equal(tl.fuse(lambda x: x * 2)(mine).numpy(), (x * 2).numpy())


def test_too_many_operands_are_refused(x):
    fused = tl.fuse(lambda *tensors: sum(tensors[1:], tensors[0]))
    assert np.array_equal(fused(*[x + i for i in range(16)]).numpy(), (x * 16 + 120).numpy())
    with pytest.raises(FusionError, match="it has 17 operands in memory, and a kernel 16 at most; make two functions"):
        fused(*[x + i for i in range(17)])
    with pytest.raises(FusionError, match="it has 40 numbers, and a kernel 32 at most"):
        tl.fuse(lambda x: sum([x * i for i in range(40)], x))(x)


def test_a_long_chain_is_one_kernel(x):
    def long(x):
        for i in range(300):
            x = x + i % 7
        return x

    assert np.array_equal(tl.fuse(long)(x).numpy(), long(x).numpy())


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x[:, 1:], lambda x: x[:1], lambda x: x[:0]])
def test_a_function_is_one_launch(host, gpu, view):
    device = tl.Device(gpu)
    x, y = (tl.Tensor(np.arange(12, dtype="f4").reshape(3, 4), device=device) for _ in range(2))
    fused = tl.fuse(eight)
    for _ in range(3):
        host.take_log()
        result = fused(view(x), y[:, : view(x).shape[1]] if len(view(x)) == 3 else y[:0, :4] if not len(view(x)) else y)
        names = [entry["kernel"] for entry in host.take_log() if "kernel" in entry]
        assert len(names) == (1 if result.elem_count else 0)
        assert all(name.startswith("eight_") for name in names)


def test_a_graph_captures_a_fused_function(gpu):
    device = tl.Device(gpu)
    x, y = (tl.Tensor(np.arange(12, dtype="f4").reshape(3, 4), device=device) for _ in range(2))
    fused = tl.fuse(eight)
    fused(x, y)
    with tl.Graph(device) as graph:
        with graph.capture():
            result = fused(x, y[0])
        for step in range(3):
            x.copy_(tl.Tensor(np.full((3, 4), step, "f4"), device=device))
            graph.replay()
            assert np.array_equal(result.numpy(), eight(x, y[0]).numpy())


def test_kernels_are_shared_by_functions_that_do_the_same_and_kept_for_other_processes(gpu, run_python, tmp_path):
    script = """
        import numpy as np, tallow as tl
        from tallow.runtime.backends.gpu_backend.execute import kernels
        made = []
        compiled = kernels.CodeCache.get
        def get(cache, made_of, compile_code, load):
            return compiled(cache, made_of, lambda: made.append(1) or compile_code(), load)
        kernels.CodeCache.get = get
        x = tl.Tensor(np.ones((2, 3), "f4"), device=DEVICE)
        made.clear()
        for size in (1, 2):
            for number in (2, 3):
                fused = tl.fuse(lambda x, number=number: x.exp() * number + 0.5)
                fused(x[:size])
        print(len(made))
    """.replace("DEVICE", repr(backend.backend_name()))
    # Kernels for the CPU would go to the same cache.
    settings = {"TALLOW_CACHE": str(tmp_path), "TALLOW_THREADS": "0"}
    assert run_python(script, **settings) == "1\n"
    assert run_python(script, **settings) == "0\n"
