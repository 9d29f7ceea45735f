"""What is passed to cuDNN's frontend, and what comes of it where it refuses, fails or is missing."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
from types import ModuleType, SimpleNamespace

import pytest
from tallow.dtype import DType
from tallow.runtime.core.conv import ParamsConv2D, ParamsConvolution

pytest.importorskip("cuda.bindings")

from tallow.runtime.backends.cuda_backend.libraries import cudnn, cudnn_graphs
from tallow.runtime.backends.cuda_backend.libraries.cudnn import CuDnn
from tallow.runtime.backends.gpu_backend.driver import slow_path
from tallow.runtime.backends.gpu_backend.driver.error import LibraryError
from tallow.runtime.backends.gpu_backend.libraries.library import (
    AttentionGradientParams,
    AttentionParams,
    ConvolutionKind,
    EpilogueParams,
)
from tallow.runtime.backends.gpu_backend.memory.allocator import CachingAllocator

from .library_calls import run
from .test_gpu_allocator import Memory

FORWARD = ConvolutionKind.FORWARD
SIZES = {"b_size": 2, "i_h": 8, "i_w": 9, "k_h": 3, "k_w": 2, "c_out": 5, "c_in": 4}
PARAMS = ParamsConv2D(**SIZES, padding=1, stride=1, dilation=1).general


class Context:
    """A context that knows whether it is current."""

    label = "cuda:0"

    def __init__(self) -> None:
        self.depth = 0

    @contextlib.contextmanager
    def activated(self):
        self.depth += 1
        yield
        self.depth -= 1


class NotSupported(Exception):
    """As the frontend's."""


class Recorder:
    """Answers any call with itself, and notes it."""

    def __init__(self, library) -> None:
        self.library = library

    def __getattr__(self, name):
        if name == "_plan_index":
            return self.library.chosen
        if name in ("_lowered_graph", "_plans"):
            if self.library.lowered is None:
                raise AttributeError(name)
            return self if name == "_lowered_graph" else self.library.lowered

        def call(*arguments, **options):
            self.library.note(name, *arguments, **options)
            names = self.library.names
            if name == "_execute_with_raw_ptrs":
                address, count, *_ = arguments
                self.library.pointed.append([*(ctypes.c_void_p * count).from_address(address)])
            if name == "sdpa":
                return self, self if options["generate_stats"] else None
            if name == "sdpa_backward":
                return self, self, self
            if name == "get_plan_name_at_index":
                return names[arguments[0]]
            return {"get_workspace_size": 64, "get_execution_plan_count": len(names)}.get(name, self)

        return call


class Library(ModuleType):
    """The frontend: what it is called with, in the context of the device."""

    cudnnGraphNotSupportedError = NotSupported  # noqa: N815 - the frontend's own name
    data_type = SimpleNamespace(HALF="half", BFLOAT16="bfloat16", FLOAT="float")
    diagonal_alignment = SimpleNamespace(BOTTOM_RIGHT="bottom right")
    heur_mode = SimpleNamespace(A="A", FALLBACK="fallback")
    numerical_note = SimpleNamespace(
        **{name: name for name in (*cudnn_graphs._REFUSED_OF_F32, "STRICT_NAN_PROP")},
    )

    def __init__(self, context: Context) -> None:
        super().__init__("cudnn")
        self.context = context
        self.calls: list[tuple] = []
        self.failing: dict[str, Exception] = {}
        # The plans that cuDNN proposes, and the one that it builds.
        self.names = ["eng2_k2=1", "eng62_k2=5_k13=1"]
        self.chosen = 1
        # The plans of a frontend that lets its C++ be called, which a plan has a number of, and what that was given.
        self.lowered = None
        self.pointed = []
        self.handle = 77

    def note(self, name, /, *arguments, **options):
        assert self.context.depth or name == "backend_version"
        self.calls.append((name, *arguments, *options.items()))
        if name in self.failing:
            raise self.failing[name]

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)

        def call(*arguments, **options):
            self.note(name, *arguments, **options)
            return {"create_handle": self.handle, "pygraph": Recorder(self)}.get(name)

        return call

    def named(self, name):
        return [call[1:] for call in self.calls if call[0] == name]


@pytest.fixture
def context():
    return Context()


@pytest.fixture
def library(context, monkeypatch):
    library = Library(context)
    monkeypatch.setitem(sys.modules, "cudnn", library)
    return library


@pytest.fixture
def memory():
    return Memory()


@pytest.fixture
def allocator(memory):
    return CachingAllocator(memory)


@pytest.fixture
def opened(context, library, allocator):
    return CuDnn.open(SimpleNamespace(device=context, queue=SimpleNamespace(handle=1234)), allocator)


def test_a_handle_is_given_the_stream_and_given_back(library, context, allocator):
    opened = CuDnn.open(SimpleNamespace(device=context, queue=SimpleNamespace(handle=1234)), allocator)
    assert library.named("create_handle") == [()]
    assert library.named("set_stream") == [(("handle", 77), ("stream", 1234))]
    del opened
    gc.collect()
    assert library.named("destroy_handle") == [(77,)]


def test_a_convolution_is_planned_once_and_run_each_time(opened, library, allocator):
    for result in (480, 496):
        assert run(opened.convolution(FORWARD, DType.BF16, PARAMS, 160, 320, result))
    assert len(library.named("build_plans")) == 1
    assert library.named("conv_fprop")[0][2:] == (("padding", [1, 1]), ("stride", [1, 1]), ("dilation", [1, 1]))
    assert [dict(options)["dim"] for options in library.named("tensor")] == [[2, 4, 8, 9], [5, 4, 3, 2]]
    assert library.named("set_dim") == [([2, 5, 8, 10],)]
    assert library.named("set_stride") == [([400, 80, 10, 1],)]
    assert library.named("execute") == [({1: 160, 2: 320, 3: result}, 256, 77) for result in (480, 496)]
    assert allocator.statistics() == (0, 512, 512)


@pytest.mark.parametrize("kind", ConvolutionKind)
def test_operands_may_be_channels_last(opened, library, kind):
    params = ParamsConv2D(**SIZES, padding=0, stride=1, dilation=1).general._replace(channels_last=True)
    assert run(opened.convolution(kind, DType.BF16, params, 160, 320, 480))
    strides = {(2, 4, 8, 9): [288, 1, 36, 4], (5, 4, 3, 2): [24, 1, 8, 4], (2, 5, 6, 8): [240, 1, 40, 5]}
    inputs = [dict(options) for options in library.named("tensor")]
    assert [each["stride"] for each in inputs] == [strides[tuple(each["dim"])] for each in inputs]
    assert library.named("set_stride") == [(strides[kind.result_dims(params)],)]


@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16])
def test_gradients_that_are_slow_in_order_are_left_to_kernels(opened, dtype):
    plain = {**SIZES, "padding": 0, "stride": 1, "dilation": 1}
    colours, indices = ({**plain, "c_in": 3}, {**plain, "k_h": 1, "k_w": 1})
    taken = [
        [kind.value for kind in ConvolutionKind if opened.convolution(kind, dtype, params, 160, 320, 480) is not None]
        for params in (ParamsConv2D(**sizes).general for sizes in (plain, colours, indices))
    ]
    every = ["forward", "input", "weight"]
    assert taken == ([every, ["forward"], ["forward", "input"]] if dtype is DType.F32 else [every] * 3)


def test_an_epilogue_is_part_of_the_graph(opened, library, monkeypatch):
    filled = []
    monkeypatch.setattr(
        opened, "_queue", SimpleNamespace(fill=lambda *given: filled.append(given), handle=1, own_handle=1)
    )
    params = ParamsConv2D(**SIZES, padding=0, stride=1, dilation=1).general._replace(channels_last=True)
    epilogue = EpilogueParams(DType.F32, DType.F16, True, "relu", DType.F16)
    assert run(opened.fused_convolution(DType.F16, params, epilogue, *range(160, 160 * 7, 160)))
    given = [dict(options) for options in library.named("tensor")]
    assert [each["dim"] for each in given[2:]] == [[1, 5, 1, 1], [1, 5, 1, 1], [2, 5, 6, 8]]
    assert [each["data_type"] for each in given] == ["half", "half", "float", "half", "half"]
    assert given[4]["stride"] == [240, 1, 40, 5]
    names = [call[0] for call in library.calls]
    assert [name for name in names if name in ("conv_fprop", "mul", "add", "relu")] == [
        "conv_fprop", "mul", "add", "add", "relu",
    ]  # fmt: skip
    assert [call[0] for call in library.named("execute")] == [{index: 160 * index for index in range(1, 7)}]
    # A memset of the result keeps it apart from the kernel in front of it.
    assert filled == [(960, 0, 1)]


@pytest.mark.parametrize("is_captured", [False, True])
def test_fused_kernels_are_apart_from_the_kernel_in_front(opened, monkeypatch, is_captured):
    """By a memset of the result in a stream; graphs have their own edges."""
    fills = []
    handles = {"handle": 2 if is_captured else 1, "own_handle": 1}
    monkeypatch.setattr(opened, "_queue", SimpleNamespace(fill=lambda *what: fills.append(what), **handles))
    monkeypatch.setattr(slow_path, "required", is_captured)
    params = ParamsConv2D(**SIZES, padding=0, stride=1, dilation=1).general._replace(channels_last=True)
    epilogue = EpilogueParams(None, None, False, "relu", DType.F16)
    assert run(opened.fused_convolution(DType.F16, params, epilogue, 160, 320, 480))
    assert fills == ([] if is_captured else [(480, 0, 1)])


def test_an_activation_that_cudnn_lacks_has_no_call(opened, library):
    epilogue = EpilogueParams(None, DType.F32, False, "silu", DType.F16)
    assert opened.fused_convolution(DType.F16, PARAMS, epilogue, 160, 320, 480, 640) is None


@pytest.mark.parametrize("lies", ["beside the interpreter", "where the loader looks", "elsewhere"])
def test_cudnn_is_loaded_from_where_the_frontend_does_not_look(monkeypatch, tmp_path, lies):
    loaded = []

    def load(name):
        loaded.append(name)
        if lies == "elsewhere":
            raise OSError(name)

    file = tmp_path / "nvidia" / "cudnn" / "lib" / "libcudnn.so.9"
    if lies == "beside the interpreter":
        file.parent.mkdir(parents=True)
        file.touch()
    finder = SimpleNamespace(load_nvidia_dynamic_lib=loaded.append)
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", finder)
    monkeypatch.setattr(cudnn, "sysconfig", SimpleNamespace(get_path=lambda _: str(tmp_path)))
    monkeypatch.setattr(cudnn, "ctypes", SimpleNamespace(CDLL=load))
    cudnn._load_library()
    assert loaded == {"beside the interpreter": [], "elsewhere": ["libcudnn.so.9", "cudnn"]}.get(
        lies, ["libcudnn.so.9"]
    )


def test_the_frontend_is_given_integers_of_python_itself(opened, library):
    class Address(int):
        pass

    assert run(opened.convolution(FORWARD, DType.F16, PARAMS, Address(160), Address(320), Address(480)))
    ((addresses, *_),) = library.named("execute")
    assert {type(address) for address in addresses.values()} == {int}


def open_lowered(context, library, allocator, number):
    """A handle on a frontend that gives plans the numbers of its C++."""
    library.lowered = [SimpleNamespace(cpp_index=None), SimpleNamespace(cpp_index=number)]
    library.handle = SimpleNamespace(backend_handle=99)
    return CuDnn.open(SimpleNamespace(device=context, queue=SimpleNamespace(handle=1234)), allocator)


def test_addresses_go_past_what_the_frontend_does_with_tensors(context, library, allocator):
    opened = open_lowered(context, library, allocator, 5)
    assert run(opened.convolution(FORWARD, DType.BF16, PARAMS, 160, 320, 480))
    ((_, count, workspace, handle, plan),) = library.named("_execute_with_raw_ptrs")
    assert (count, workspace % 256, handle, plan) == (3, 0, 99, 5)
    assert library.pointed == [[160, 320, 480]]
    assert not library.named("execute")


def test_what_the_frontend_does_by_itself_goes_through_it(context, library, allocator):
    opened = open_lowered(context, library, allocator, None)
    assert run(opened.convolution(FORWARD, DType.BF16, PARAMS, 160, 320, 480))
    assert [call[0] for call in library.named("execute")] == [{1: 160, 2: 320, 3: 480}]


def test_a_call_looks_for_no_plan(opened, library, monkeypatch):
    convolution = opened.convolution(FORWARD, DType.F16, PARAMS, 160, 320, 480)
    monkeypatch.setattr(opened, "_plan", None)
    assert run(convolution)
    assert [call[0] for call in library.named("execute")] == [{1: 160, 2: 320, 3: 480}]


def test_what_cudnn_does_not_take_has_no_call(opened, library):
    library.failing["check_support"] = NotSupported("no engine")
    assert opened.convolution(FORWARD, DType.F16, PARAMS, 160, 320, 480) is None


QUERY = ((2, 4, 6, 64), (1536, 64, 256, 1))
KEYS = ((2, 2, 9, 64), (1152, 64, 128, 1))


@pytest.mark.parametrize("is_causal", [False, True])
def test_attention_is_planned_once_of_operands_as_they_lie(opened, library, is_causal):
    params = AttentionParams(QUERY, KEYS, KEYS, is_causal, 0.125)
    for result in (640, 656):
        assert run(opened.attention(DType.BF16, params, 160, 320, 480, result))
    assert [(dict(options)["dim"], dict(options)["stride"]) for options in library.named("tensor")] == [
        ([*dims], [*strides]) for dims, strides in (QUERY, KEYS, KEYS)
    ]
    (options,) = map(dict, library.named("sdpa"))
    assert (options["attn_scale"], options["generate_stats"]) == (0.125, False)
    assert options.get("diagonal_band_right_bound") == (0 if is_causal else None)
    assert options.get("diagonal_alignment") == ("bottom right" if is_causal else None)
    assert library.named("set_dim") == [([2, 4, 6, 64],)]
    assert library.named("set_stride") == [([1536, 384, 64, 1],)]
    (refused,) = library.named("deselect_numeric_notes")[0]
    assert "NONDETERMINISTIC" in refused
    executed = [call[0] for call in library.named("execute")]
    assert executed == [{1: 160, 2: 320, 3: 480, 4: result} for result in (640, 656)]
    assert not library.named("deselect_engines")


def test_attention_leaves_its_statistics_where_gradients_need_them(opened, library):
    assert run(
        opened.attention_with_logsumexp(
            DType.F16, AttentionParams(QUERY, KEYS, KEYS, True, 0.125), 160, 320, 480, 640, 800
        )
    )
    (options,) = map(dict, library.named("sdpa"))
    assert options["generate_stats"]
    assert library.named("set_dim") == [([2, 4, 6, 64],), ([2, 4, 6, 1],)]
    assert library.named("set_stride") == [([1536, 384, 64, 1],), ([24, 6, 1, 1],)]
    assert library.named("set_data_type") == [("half",), ("float",)]
    assert [call[0] for call in library.named("execute")] == [{1: 160, 2: 320, 3: 480, 4: 640, 5: 800}]


@pytest.mark.parametrize("nondeterministic", [False, True])
@pytest.mark.parametrize("is_causal", [False, True])
def test_gradients_of_attention_are_of_its_statistics_and_may_differ_if_they_may(
    opened, library, is_causal, nondeterministic
):
    own = AttentionParams(QUERY, KEYS, KEYS, is_causal, 0.125)
    params = AttentionGradientParams(own, QUERY, QUERY, nondeterministic)
    addresses = tuple(range(160, 160 + 9 * 16, 16))
    for _ in range(2):
        assert run(opened.attention_gradient(DType.BF16, params, *addresses))
    tensors = [dict(options) for options in library.named("tensor")]
    forms = [*((dims, strides, "bfloat16") for dims, strides in (QUERY, KEYS, KEYS, QUERY, QUERY))]
    forms.append(((2, 4, 6, 1), (24, 6, 1, 1), "float"))
    assert [(options["dim"], options["stride"], options["data_type"]) for options in tensors] == [
        ([*dims], [*strides], kind) for dims, strides, kind in forms
    ]
    (options,) = map(dict, library.named("sdpa_backward"))
    assert (options["attn_scale"], options["use_deterministic_algorithm"]) == (0.125, not nondeterministic)
    (refused,) = library.named("deselect_numeric_notes")[0]
    assert ("NONDETERMINISTIC" in refused, "REDUCED_PRECISION_REDUCTION" in refused) == (not nondeterministic, True)
    assert options.get("diagonal_band_right_bound") == (0 if is_causal else None)
    assert options.get("diagonal_alignment") == ("bottom right" if is_causal else None)
    assert library.named("set_dim") == [([2, 4, 6, 64],), ([2, 2, 9, 64],), ([2, 2, 9, 64],)]
    assert [call[0] for call in library.named("execute")] == [dict(enumerate(addresses, 1))] * 2


@pytest.mark.parametrize("dtype", [DType.BF16, DType.F16, DType.F32])
def test_sums_are_of_f32_and_repeat_and_no_algorithm_rounds_what_it_is_given(opened, library, dtype):
    assert run(opened.convolution(FORWARD, dtype, PARAMS, 160, 320, 480))
    options = dict(library.named("pygraph")[0])
    assert options["compute_data_type"] == options["intermediate_data_type"] == "float"
    (refused,) = library.named("deselect_numeric_notes")[0]
    assert {"NONDETERMINISTIC", "WINOGRAD", "FFT", "DOWN_CONVERT_INPUTS", "REDUCED_PRECISION_REDUCTION"} <= {*refused}
    # With f32, tensor cores round to TF32.
    assert ("TENSOR_CORE" in refused) == (dtype is DType.F32)


@pytest.mark.parametrize("call", ["build_operation_graph", "create_execution_plans", "check_support", "build_plans"])
def test_what_cudnn_does_not_take_is_handed_on_and_not_asked_again(opened, library, call):
    library.failing[call] = NotSupported("no engine")
    assert not run(opened.convolution(FORWARD, DType.F16, PARAMS, 160, 320, 480))
    assert not run(opened.convolution(FORWARD, DType.F16, PARAMS, 160, 320, 480))
    assert len(library.named("pygraph")) == 1
    library.failing.clear()
    assert run(opened.convolution(FORWARD, DType.F32, PARAMS, 160, 320, 480))


def test_a_convolution_of_a_capture_goes_into_its_stream(opened, library, monkeypatch):
    monkeypatch.setattr(opened, "_queue", SimpleNamespace(handle=5678, own_handle=1234))
    monkeypatch.setattr(slow_path, "required", True)
    monkeypatch.setattr(opened._allocator, "attended", lambda: opened._allocator)
    library.calls.clear()
    assert run(opened.convolution(FORWARD, DType.F16, PARAMS, 160, 320, 480))
    streams = [(("handle", 77), ("stream", stream)) for stream in (5678, 1234)]
    assert library.named("set_stream") == streams
    assert [call[0] for call in library.calls[-3:]] == ["set_stream", "execute", "set_stream"]


def test_without_memory_for_the_workspace_it_is_handed_on(opened, library, memory):
    memory.total = 1
    assert not run(opened.convolution(FORWARD, DType.F16, PARAMS, 160, 320, 480))
    assert not library.named("execute")


@pytest.mark.parametrize("call", ["pygraph", "execute"])
def test_a_failure_names_the_library_and_leaves_it_usable(opened, library, call):
    library.failing[call] = RuntimeError("CUDNN_STATUS_EXECUTION_FAILED")
    with pytest.raises(LibraryError, match=r"^cudnn \w+: CUDNN_STATUS_EXECUTION_FAILED; tallow needs cuDNN 9"):
        run(opened.convolution(FORWARD, DType.F16, PARAMS, 160, 320, 480))
    library.failing.clear()
    assert run(opened.convolution(FORWARD, DType.F16, PARAMS, 160, 320, 480))


@pytest.mark.parametrize(
    ("kind", "call", "dims", "result"),
    [
        (ConvolutionKind.INPUT, "conv_dgrad", [[2, 6, 8, 10], [6, 2, 3, 2]], [2, 4, 8, 9]),
        (ConvolutionKind.WEIGHT, "conv_wgrad", [[2, 4, 8, 9], [2, 6, 8, 10]], [6, 2, 3, 2]),
    ],
)
def test_gradients_of_groups_are_calls_of_their_own(opened, library, kind, call, dims, result):
    """cuDNN finds the groups by the dims."""
    params = ParamsConvolution((2, 4, 8, 9), (6, 2, 3, 2), (8, 10), (1, 1), (1, 1), (1, 1), 2)
    assert run(opened.convolution(kind, DType.F16, params, 160, 320, 480))
    assert len(library.named(call)) == 1
    assert [dict(options)["dim"] for options in library.named("tensor")] == dims
    assert library.named("set_dim") == [(result,)]
    assert not library.named("deselect_engines")


@pytest.mark.parametrize("kind", ConvolutionKind)
def test_padding_that_differs_at_the_ends_is_refused(opened, kind):
    for padding, size in ((1, 7), (0, 9)):
        params = ParamsConvolution((2, 4, 8), (6, 4, 3), (size,), (padding,), (1,), (1,))
        assert opened.convolution(kind, DType.F16, params, 160, 320, 480) is None


def test_padding_is_left_to_engines_that_multiply_its_zeros(opened, library):
    assert run(opened.convolution(FORWARD, DType.F16, PARAMS, 160, 320, 480))
    assert library.named("deselect_engines") == [(["eng2_"],)]
    # What was deselected all the same is not run.
    library.chosen = 0
    assert not run(opened.convolution(FORWARD, DType.BF16, PARAMS, 160, 320, 480))
    library.names = ["eng2_k2=1"]
    assert not run(opened.convolution(FORWARD, DType.F32, PARAMS, 160, 320, 480))
    library.chosen = 0
    for name, stride, dilation, is_taken in (
        ("eng70", 1, 1, True), ("eng62", 2, 1, True), ("eng70", 2, 1, False), ("eng62", 1, 2, False),
    ):  # fmt: skip
        params = ParamsConv2D(**SIZES, padding=1, stride=stride, dilation=dilation).general
        library.names = [f"{name}_k2=5"]
        opened._plans.clear()
        assert run(opened.convolution(FORWARD, DType.F32, params, 160, 320, 480)) is is_taken
    # The engine of fused kernels multiplies them too.
    epilogue = EpilogueParams(None, None, False, None, DType.F16)
    for name, is_taken in (("eng4", True), ("eng40", False)):
        library.names = [f"{name}_k24=5"]
        opened._plans.clear()
        assert (opened.fused_convolution(DType.F16, PARAMS, epilogue, 160, 320, 480) is not None) is is_taken
    # Without padding any engine is right.
    library.names = ["eng2_k2=1"]
    assert run(
        opened.convolution(
            FORWARD, DType.F32, ParamsConv2D(**SIZES, padding=0, stride=2, dilation=1).general, 160, 320, 480
        )
    )


@pytest.mark.parametrize(("dtype", "refused"), [(DType.F16, [(["eng47_"],)]), (DType.BF16, []), (DType.F32, [])])
def test_convolutions_of_f16_are_of_engines_that_sum_infinities(opened, library, dtype, refused):
    params = ParamsConv2D(**SIZES, padding=0, stride=1, dilation=1).general
    assert run(opened.convolution(FORWARD, dtype, params, 160, 320, 480))
    assert library.named("deselect_engines") == refused


@pytest.mark.parametrize("stride", [1, 2])
def test_input_gradients_are_of_engines_that_leave_out_the_zeros_between(opened, library, stride):
    params = ParamsConv2D(**SIZES, padding=0, stride=stride, dilation=1).general
    assert run(opened.convolution(ConvolutionKind.INPUT, DType.F16, params, 160, 320, 480))
    assert library.named("deselect_engines") == ([(["eng28_", "eng74_"],)] if stride > 1 else [])


def test_nothing_of_the_frontend_is_left_at_the_end_of_the_interpreter(opened, library):
    """Else its binding, nanobind, writes pages about leaks. A thread that still calls is handed on."""
    assert run(opened.convolution(FORWARD, DType.F16, PARAMS, 256, 512, 768))
    opened.leave()
    assert not opened._plans
    assert opened._library is None
    assert not run(opened.convolution(FORWARD, DType.F16, PARAMS, 256, 512, 768))


def test_plans_do_not_pile_up(opened, monkeypatch):
    monkeypatch.setattr(cudnn, "_MAX_PLANS", 2)
    for size in range(3, 8):
        params = ParamsConv2D(**{**SIZES, "i_h": size}, padding=0, stride=1, dilation=1).general
        assert run(opened.convolution(FORWARD, DType.F16, params, 16, 32, 48))
    assert [params.sizes[0] for *_, params in opened._plans] == [6, 7]


def test_without_the_library_there_is_none(library, context, allocator, monkeypatch):
    driver = SimpleNamespace(device=context, queue=SimpleNamespace(handle=0))
    library.failing["backend_version"] = RuntimeError("Unable to find symbol cudnnGetVersion")
    assert CuDnn.open(driver, allocator) is None
    monkeypatch.setitem(sys.modules, "cudnn", None)
    assert CuDnn.open(driver, allocator) is None


@pytest.mark.parametrize("addresses", [(168, 320, 480), (160, 321, 480), (160, 320, 484)])
def test_what_is_no_whole_access_is_handed_on(opened, library, addresses):
    assert not run(opened.convolution(FORWARD, DType.F32, PARAMS, *addresses))
    assert not library.named("execute")
