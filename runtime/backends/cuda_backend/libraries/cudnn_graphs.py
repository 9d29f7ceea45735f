"""Graphs of ops for cuDNN, through nvidia-cudnn-frontend, and the plans that it builds of them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from .....dtype import DType
from ....core.conv import ParamsConvolution
from ....core.layout import layout_of
from ....core.shape import Shape
from ...gpu_backend.libraries.library import AttentionGradientParams, AttentionParams, ConvolutionKind, EpilogueParams

# cuDNN's names of the dtypes.
_NAMES: Final = DType.known({"bf16": "BFLOAT16", "f16": "HALF", "f32": "FLOAT"})
# What marks an algorithm whose result is none of ours: it spreads an infinity to where none is, or it rounds what it is
# passed or adds up; or its bits vary from run to run.
_REFUSED_IN_ANY_ORDER: Final = ("WINOGRAD", "FFT", "DOWN_CONVERT_INPUTS", "REDUCED_PRECISION_REDUCTION")
_REFUSED: Final = ("NONDETERMINISTIC", *_REFUSED_IN_ANY_ORDER)
# Tensor cores multiply an f32 as a TF32.
_REFUSED_OF_F32: Final = (*_REFUSED, "TENSOR_CORE")
# The engines of cuDNN 9 that were seen to multiply the zeros of the padding too, at dilations of 1: infinity times zero
# is NaN. Others leave them out. The second ones were also seen to do so at strides above 1.
_PADDED: Final = ("eng22", "eng45", "eng62", "eng70")
_PADDED_WITH_STRIDES: Final = ("eng22", "eng45", "eng62")
# The engine that generates kernels of fused convolutions.
_PADDED_FUSED: Final = ("eng4",)
# The engines of input gradients that multiply the zeros between elements by the kernel, at strides above 1.
_SPREADING: Final = ("eng28", "eng74")
# The engine of f16 whose sums of negative infinity come out as 0.
_LOSING: Final = ("eng47",)
# The engine that takes any convolution: of strided gradients of f32 it takes 2 to 6 times the time of our kernels. Its
# plan has no settings, and so no underscore in its name.
_SLOWEST: Final = "eng0"
# Those of colours.
_FEW_CHANNELS: Final = 3


class Plan(NamedTuple):
    """How cuDNN does an operation."""

    enqueue: Callable[[tuple[int, ...], int], object]
    """Takes the addresses of the operands and of the result, and that of a workspace."""
    nbytes: int
    """Of the workspace."""


def convolution(
    kind: ConvolutionKind, library: Any, handle: Any, dtype: DType, params: ParamsConvolution
) -> Plan | None:
    """A convolution, or a gradient of it; None where padding would not be multiplied.

    That of a gradient may be left out: it meets only infinities and NaN.
    """
    if not _has_equal_ends(params) or (dtype is DType.F32 and _is_slow_in_order(kind, params)):
        return None
    # A line is an image of height 1.
    params = params.as_images
    graph = _Graph(library, handle, dtype)
    image, kernel, result = params.input_dims, params.kernel_dims, params.out_dims
    steps = {name: [*getattr(params, name)] for name in ("padding", "stride", "dilation")}
    operands, build = {
        ConvolutionKind.FORWARD: ({"image": image, "weight": kernel}, graph.frontend.conv_fprop),
        ConvolutionKind.INPUT: ({"loss": result, "filter": kernel}, graph.frontend.conv_dgrad),
        ConvolutionKind.WEIGHT: ({"image": image, "loss": result}, graph.frontend.conv_wgrad),
    }[kind]
    tensors = {
        name: graph.operand(dims, layout_of(dims, params.channels_last).strides) for name, dims in operands.items()
    }
    dims = kind.result_dims(params)
    graph.give(build(**tensors, **steps), dims, strides=layout_of(dims, params.channels_last).strides)
    graph.propose(_REFUSED_OF_F32 if dtype is DType.F32 else _REFUSED)
    has_strides = {*params.stride} != {1}
    if kind is ConvolutionKind.FORWARD and any(params.padding):
        padded = _PADDED_WITH_STRIDES if has_strides else _PADDED
        return graph.build_padded(padded, params)
    if kind is ConvolutionKind.FORWARD and dtype is DType.F16:
        graph.frontend.deselect_engines([f"{engine}_" for engine in _LOSING])
    if kind is ConvolutionKind.INPUT and has_strides:
        slow = [_SLOWEST] if dtype is DType.F32 else []
        graph.frontend.deselect_engines([*(f"{engine}_" for engine in _SPREADING), *slow])
    return graph.build()


def _is_slow_in_order(kind: ConvolutionKind, params: ParamsConvolution) -> bool:
    """Whether cuDNN is slow at a gradient of f32 whose bits do not vary.

    On an H200 it takes 2 to 12 times the time of our kernels for inputs of few channels, and for kernels of one
    element.
    """
    is_weight = kind is ConvolutionKind.WEIGHT
    return kind is not ConvolutionKind.FORWARD and (
        params.channels[0] <= _FEW_CHANNELS or (is_weight and params.taps == 1)
    )


def fused_convolution(
    library: Any, handle: Any, dtype: DType, params: tuple[ParamsConvolution, EpilogueParams]
) -> Plan | None:
    """A convolution with its epilogue; None where cuDNN lacks the activation, or would leave out padding."""
    of, epilogue = params
    activation = _ACTIVATIONS.get(epilogue.activation)
    if activation is None or not _has_equal_ends(of):
        return None
    of = of.as_images
    graph = _Graph(library, handle, dtype)

    def operand(dims: tuple[int, ...], kind: Any = None) -> Any:
        return graph.operand(dims, layout_of(dims, of.channels_last).strides, kind)

    def vector(dtype: DType) -> Any:
        return operand((1, of.kernel_dims[0], *(1,) * len(of.result_sizes)), graph.kind(dtype))

    image, kernel = operand(of.input_dims), operand(of.kernel_dims)
    steps = {name: [*getattr(of, name)] for name in ("padding", "stride", "dilation")}
    y = graph.frontend.conv_fprop(image=image, weight=kernel, **steps)
    if epilogue.scale is not None:
        y = graph.frontend.mul(a=y, b=vector(epilogue.scale))
    if epilogue.bias is not None:
        y = graph.frontend.add(a=y, b=vector(epilogue.bias))
    if epilogue.has_residual:
        y = graph.frontend.add(a=y, b=operand(of.out_dims))
    y = activation(graph.frontend, y)
    strides = layout_of(of.out_dims, of.channels_last).strides
    graph.give(y, of.out_dims, graph.kind(epilogue.result), strides=strides)
    graph.propose(_REFUSED_OF_F32 if dtype is DType.F32 else _REFUSED)
    return graph.build_padded(_PADDED_FUSED, of) if any(of.padding) else graph.build()


# By the names of ours. cuDNN's GELU approximates, and its SiLU is a product of an infinity and 0 at -infinity.
_ACTIVATIONS: Final[dict[str | None, Callable[[Any, Any], Any]]] = {
    None: lambda _, x: x,
    "relu": lambda graph, x: graph.relu(x),
    "sigmoid": lambda graph, x: graph.sigmoid(x),
    "tanh": lambda graph, x: graph.tanh(x),
}


def _has_equal_ends(params: ParamsConvolution) -> bool:
    """Whether there is as much padding after the input as before, but for elements that no window reaches."""
    ends = zip(params.padding, params.padding_after, params.stride, strict=True)
    return all(after <= before < after + stride for before, after, stride in ends)


def attention(library: Any, handle: Any, dtype: DType, params: AttentionParams) -> Plan | None:
    """softmax(query keys^T * scale) values, without the scores in between."""
    return _attention(library, handle, dtype, params, has_logsumexp=False)


def attention_with_logsumexp(library: Any, handle: Any, dtype: DType, params: AttentionParams) -> Plan | None:
    """The attention, and log(sum(exp(query keys^T * scale))) of each query."""
    return _attention(library, handle, dtype, params, has_logsumexp=True)


def _attention(library: Any, handle: Any, dtype: DType, params: AttentionParams, *, has_logsumexp: bool) -> Plan | None:
    graph = _Graph(library, handle, dtype)
    query, keys, values = [graph.operand(*operand) for operand in (params.query, params.keys, params.values)]
    result, logsumexp = graph.frontend.sdpa(
        q=query, k=keys, v=values, attn_scale=params.scale, generate_stats=has_logsumexp, **_hidden(library, params)
    )  # fmt: skip
    graph.give(result, params.query[0])
    if has_logsumexp:
        graph.give(logsumexp, (*params.query[0][:3], 1), library.data_type.FLOAT)
    graph.propose(_REFUSED)
    return graph.build()


def attention_gradient(library: Any, handle: Any, dtype: DType, params: AttentionGradientParams) -> Plan | None:
    """The gradients of query, keys and values, without those of the scores in between."""
    graph, of = _Graph(library, handle, dtype), params.attention
    forms = of.query, of.keys, of.values, params.result, params.gradient
    query, keys, values, result, gradient = [graph.operand(*form) for form in forms]
    dims = (*of.query[0][:3], 1)
    logsumexp = graph.operand(dims, _contiguous(dims), library.data_type.FLOAT)
    gradients = graph.frontend.sdpa_backward(
        q=query, k=keys, v=values, o=result, dO=gradient, stats=logsumexp, attn_scale=of.scale,
        use_deterministic_algorithm=not params.nondeterministic, **_hidden(library, of),
    )  # fmt: skip
    for each, form in zip(gradients, forms, strict=False):
        graph.give(each, form[0])
    graph.propose(_REFUSED_IN_ANY_ORDER if params.nondeterministic else _REFUSED)
    return graph.build()


def _hidden(library: Any, params: AttentionParams) -> dict[str, Any]:
    """The arguments that hide keys from queries: the last one sees all."""
    if not params.is_causal:
        return {}
    return {"diagonal_alignment": library.diagonal_alignment.BOTTOM_RIGHT, "diagonal_band_right_bound": 0}


class _Graph:
    """A graph of one operation in the making: `frontend` is what nvidia-cudnn-frontend calls one."""

    def __init__(self, library: Any, handle: Any, dtype: DType) -> None:
        self._library = library
        self._handle = handle
        self._kind = self.kind(dtype)
        self._tensors = 0
        sums = library.data_type.FLOAT
        self.frontend: Any = library.pygraph(
            io_data_type=self._kind, intermediate_data_type=sums, compute_data_type=sums, handle=handle
        )

    def kind(self, dtype: DType) -> Any:
        """Return cuDNN's name of a dtype."""
        return getattr(self._library.data_type, _NAMES[dtype])

    def operand(self, dims: tuple[int, ...], strides: tuple[int, ...], kind: Any = None) -> Any:
        """The next operand; they are numbered from 1 on."""
        number = self._number()
        return self.frontend.tensor(
            name=str(number), dim=[*dims], stride=[*strides], data_type=kind or self._kind, uid=number
        )  # fmt: skip

    def give(
        self, result: Any, dims: tuple[int, ...], kind: Any = None, *, strides: tuple[int, ...] | None = None
    ) -> None:
        """Declare the next result, which is contiguous unless it has strides; they come after all operands."""
        result.set_output(True).set_data_type(kind or self._kind).set_uid(self._number())
        result.set_dim([*dims]).set_stride([*(strides or _contiguous(dims))])

    def propose(self, refused: tuple[str, ...]) -> None:
        """Ask for plans, without algorithms that are marked by one of these."""
        graph, modes = self.frontend, self._library.heur_mode
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([modes.A, modes.FALLBACK])
        graph.deselect_numeric_notes([getattr(self._library.numerical_note, name) for name in refused])

    def build(self) -> Plan:
        """The best of the plans that are left."""
        self.frontend.check_support()
        self.frontend.build_plans()
        return Plan(self._enqueuing(), self.frontend.get_workspace_size())

    def build_padded(self, engines: tuple[str, ...], params: ParamsConvolution) -> Plan | None:
        """The best of the plans of these engines, which multiply the zeros of the padding; None where none is left."""
        if {*params.dilation} != {1}:
            return None
        graph = self.frontend
        names = [_engine(graph.get_plan_name_at_index(index)) for index in range(graph.get_execution_plan_count())]
        # Engines are known by a part of a plan's name: eng2 would be eng22 too.
        graph.deselect_engines(sorted({f"{name}_" for name in names if name not in engines}))
        if not {*names} & {*engines}:
            return None
        plan = self.build()
        return plan if _engine(graph.get_plan_name_at_index(graph._plan_index)) in engines else None

    def _number(self) -> int:
        self._tensors += 1
        return self._tensors

    def _enqueuing(self) -> Callable[[tuple[int, ...], int], object]:
        graph, handle, count = self.frontend, self._handle, self._tensors
        pointers = ctypes.c_void_p * count

        def execute(addresses: tuple[int, ...], workspace: int) -> None:
            # The frontend takes no other integers for addresses.
            graph.execute(dict(enumerate(map(int, addresses), 1)), workspace, handle)

        try:
            # The call that this comes to. The full one describes every tensor again, which takes most of the time.
            pointed, plan = graph._lowered_graph._execute_with_raw_ptrs, graph._plans[graph._plan_index].cpp_index
            address = handle.backend_handle
        except AttributeError:
            return execute
        if plan is None:
            return execute

        def execute_pointed(addresses: tuple[int, ...], workspace: int) -> None:
            array = pointers(*addresses)
            pointed(ctypes.addressof(array), count, workspace, address, plan)

        return execute_pointed


def _engine(name: str) -> str:
    return name.partition("_")[0]


def _contiguous(dims: tuple[int, ...]) -> tuple[int, ...]:
    return Shape._trusted(dims).contiguous_strides()
