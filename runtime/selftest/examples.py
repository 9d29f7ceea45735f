"""A valid call of every cell of the support matrix, in one of several sizes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, cast

import numpy as np

from ...dtype import DType
from ...ggml_dtype import GgmlDType
from ..core.conv import ParamsConv1D, ParamsConv2D, ParamsConvTranspose1D, ParamsConvTranspose2D
from ..core.layout import Layout
from ..core.shape import Shape
from ..ranks.group import Group

if TYPE_CHECKING:
    from ...storage import Storage
    from ..doctor.support import SupportCell

Arguments = dict[str, Any]
"""By name, in the order of the signature."""


class Make(Protocol):
    """Makes a storage of a dtype and a length, whose numbers fit what the call does with them."""

    def __call__(self, dtype: str, length: int, /, numbers: Numbers = ...) -> Storage:
        """Make `length` elements of the dtype of that name."""


class Numbers(NamedTuple):
    """Constraints on the numbers of an operand."""

    below: int | None = None
    """Integers from 0 to below this one."""
    ascending: bool = False
    """In ascending order."""
    units: bool = False
    """1 and -1, whose products neither overflow nor vanish."""
    positive: bool = False
    matrix: Layout | None = None
    """A Hermitian positive definite matrix with distinct eigenvalues, where this layout has its elements."""


ANY: Final = Numbers()


@dataclass(frozen=True)
class Sizes:
    """The sizes of operands, which differ where they may: an argument in the place of another is no valid call."""

    vector: int = 4
    rows: int = 3
    columns: int = 2
    wide: int = 5
    product: tuple[int, int, int, int] = (2, 3, 4, 5)
    """Of a product of matrices: batch, rows, the dim that is summed, columns."""
    heads: tuple[int, int, int, int] = (2, 4, 2, 8)
    """Of attention: batch, heads of the query, heads of the keys, size; then the factor of the scores."""
    scale: float = 0.5
    queries: int = 3
    keys: int = 5
    rotated: tuple[int, int, int] = (2, 3, 4)
    """Of rope: batch, positions, size."""
    angles: int = 5
    picture: tuple[int, int, int, int] = (2, 3, 4, 5)
    points: int = 4
    """Of a transform."""
    matrix: int = 1
    """The rows of a square matrix. Ones have an inverse where there is one of them."""
    parameters: tuple[tuple[int, ...], ...] = ((3, 2), (4,), (2, 2))
    """The shapes of the parameters of an optimiser."""
    channels: tuple[int, int] = (3, 4)
    line: int = 9
    image: tuple[int, int] = (7, 9)
    block_rows: int = 2
    hidden: int = 256
    block_products: int = 10
    """As many rows as a library takes."""


_DECOMPOSED: Final[dict[str, tuple[str, ...]]] = {
    "eig": ("has_vectors",),
    "eigh": ("has_vectors",),
    "qr": ("is_complete",),
    "svd": ("has_vectors", "is_full"),
}
"""The options of decompositions, all of which are set."""

SMALLEST: Final = Sizes()
"""The smallest valid calls."""
TILED: Final = Sizes(
    vector=1337,
    rows=37,
    columns=300,
    wide=410,
    # Rows of 16-bit elements begin at multiples of 16 bytes, as matrix cores need.
    product=(2, 67, 136, 72),
    heads=(1, 4, 2, 64),
    scale=0.125,
    queries=35,
    keys=70,
    rotated=(2, 33, 64),
    angles=70,
    picture=(2, 3, 17, 23),
    points=60,
    matrix=12,
    # Multiples of 16 elements, since the state between the parts of two parameters is undefined.
    parameters=((37, 304), (1344,), (2, 8)),
    channels=(9, 17),
    line=41,
    image=(15, 19),
    block_rows=33,
    hidden=512,
    block_products=12,
)
"""Larger than a wave, a block of threads and a tile of a kernel, and no multiples of them."""


class Example(NamedTuple):
    """A call of a method of a storage, of block-quantized weights or of a device."""

    owner: Any
    method: str
    arguments: Arguments

    def call(self) -> Any:
        """Make the call; an attribute is read."""
        called = getattr(self.owner, self.method)
        return called(*self.arguments.values()) if callable(called) else called


def contiguous(sizes: Sequence[int]) -> Layout:
    """The layout of a shape whose elements follow each other."""
    return Layout.contiguous(Shape(sizes))


def another_dtype(name: str) -> str:
    """Name a dtype besides the one called `name` to convert to; complex numbers become no real ones."""
    return "i32" if name == "f32" else "bool" if DType(name).is_complex else "f32"


def _windows(sizes: Sizes, lines: bool, is_transposed: bool) -> Any:
    common = {"b_size": 2, "c_in": sizes.channels[0], "c_out": sizes.channels[1]}
    common |= {"padding": 1, "stride": 2, "dilation": 1}
    extra = {"output_padding": 0} if is_transposed else {}
    if lines:
        kind = ParamsConvTranspose1D if is_transposed else ParamsConv1D
        return kind(**common, l_in=sizes.line, k_size=5, **extra)
    pictures = ParamsConvTranspose2D if is_transposed else ParamsConv2D
    height, width = sizes.image
    return pictures(**common, i_h=height, i_w=width, k_h=5, k_w=6, **extra)


def storage_example(
    cell: SupportCell, make: Make, sizes: Sizes = SMALLEST, lay: Callable[[Sequence[int]], Layout] = contiguous
) -> Example:
    """Return a call of a storage method, whose operands have the layouts that `lay` makes of their shapes."""
    assert isinstance(cell.dtype, DType), f"{cell.method} has a dtype"
    name, method = cell.dtype.value, cell.method

    def layout(*dims: int) -> Layout:
        return lay(dims)

    def storage(where: Layout, dtype: str = name, numbers: Numbers = ANY) -> Storage:
        return make(dtype, where.end, numbers)

    def operands(numbers: Numbers = ANY, **layouts: Layout) -> Arguments:
        """Return storages of the cell's dtype, each with its layout."""
        pairs = ({key: storage(where, name, numbers), f"{key}_layout": where} for key, where in layouts.items())
        return {key: value for pair in pairs for key, value in pair.items()}

    def index(key: str, where: Layout, below: int) -> Arguments:
        return {key: storage(where, "u32", Numbers(below=below)), f"{key}_layout": where}

    numbers = ANY
    vector, rows, columns, wide = layout(sizes.vector), sizes.rows, sizes.columns, sizes.wide
    own = vector
    arguments: Arguments
    match method:
        case "device" | "dtype":
            arguments = {}
        case "const_set":
            arguments = {"value": 1.0, "layout": own}
        case "to_dtype":
            arguments = {"layout": own, "dtype": DType(another_dtype(name))}
        case "where_cond":
            arguments = {"layout": own, **operands(on_true=own, on_false=own)}
            return Example(storage(own, "u8", Numbers(below=2)), method, arguments)
        case "where_cond_gradients":
            arguments = {"layout": own, **operands(gradient=own)}
            return Example(storage(own, "u8", Numbers(below=2)), method, arguments)
        case functor if functor in _method_ops():
            names = [*inspect.signature(getattr(type(storage(own)), functor)).parameters][1:]
            inputs = {"dims": (0,), "dim": 0, **{key: own for key in names if key.endswith("layout")}}
            others = {key: storage(own) for key in names if f"{key}_layout" in names}
            arguments = {key: {**inputs, **others}.get(key, 1.0) for key in names}
        case "unary_impl" | "reduce_op":
            arguments = {"op": _op(cell), "layout": own} | ({"dims": (0,)} if method == "reduce_op" else {})
            numbers = Numbers(units="prod" in (cell.op or ""))
        case "binary_impl" | "cmp":
            arguments = {"op": _op(cell), "rhs": storage(own), "lhs_layout": own, "rhs_layout": own}
        case "binary_assign":
            arguments = {"op": _op(cell), "layout": own, **operands(source=own)}
        case "unary_gradient":
            arguments = {"op": _op(cell), "layout": own, **operands(x=own)}
        case "binary_gradient" | "binary_gradients":
            arguments = {"op": _op(cell), "layout": own, **operands(x=own, y=own)}
        case "assign":
            arguments = {"layout": own, **operands(source=own)}
        case "cumsum" | "cumprod":
            arguments = {"layout": own, "dim": 0}
            numbers = Numbers(units=method == "cumprod")
        case "fft":
            own = layout(2, sizes.points)
            arguments = {"layout": own, "inverse": False}
        case "rfft":
            own = layout(2, sizes.points)
            arguments = {"layout": own}
        case "irfft":
            own = layout(2, sizes.points // 2 + 1)
            arguments = {"layout": own, "count": sizes.points}
        case "triangle":
            own = layout(columns, rows)
            arguments = {"layout": own, "diagonal": 1, "is_upper": False}
        case "cholesky" | "det" | "slogdet" | "eig" | "eigh" | "qr" | "svd" | "solve":
            own, numbers = layout(sizes.matrix, sizes.matrix), Numbers(matrix=layout(sizes.matrix, sizes.matrix))
            arguments = {"layout": own, **dict.fromkeys(_DECOMPOSED.get(method, ()), True)}
            arguments |= operands(values=layout(sizes.matrix, 3)) if method == "solve" else {}
        case "argsort" | "sort":
            arguments = {"layout": own, "descending": False, "count": sizes.vector}
        case "searchsorted":
            arguments = {"layout": own, **operands(values=layout(rows)), "right": False}
            numbers = Numbers(ascending=True)
        case "matmul":
            batch, m, k, n = sizes.product
            own, rhs = layout(batch, m, k), layout(batch, k, n)
            arguments = {"rhs": storage(rhs), "bmnk": (batch, m, n, k), "lhs_layout": own, "rhs_layout": rhs}
        case "scaled_dot_product_attention" | "scaled_dot_product_attention_with_logsumexp":
            own, arguments = _attention(sizes, layout, operands, index)
            arguments = {"layout": own, **arguments, "is_causal": False, "scale": sizes.scale}
        case "scaled_dot_product_attention_gradient":
            own, inputs = _attention(sizes, layout, operands, index)
            lengths = {key: inputs.pop(key) for key in ("lengths", "lengths_layout")}
            mask = {key: inputs.pop(key) for key in ("mask", "mask_layout")}
            lines = layout(sizes.heads[0], sizes.heads[1], sizes.queries)
            arguments = {"layout": own, **inputs, **operands(result=own, gradient=own)}
            arguments |= {"logsumexp": storage(lines, _compute(name)), "logsumexp_layout": lines, **mask, **lengths}
            arguments |= {"is_causal": False, "of_mask": True, "scale": sizes.scale}
        case "linear":
            _, m, k, n = sizes.product
            own = layout(columns if sizes is SMALLEST else m, k)
            arguments = {"layout": own, **operands(weight=layout(rows, k), bias=layout(rows))}
        case "conv1d" | "conv_transpose1d" | "conv2d" | "conv_transpose2d":
            params = _windows(sizes, method.endswith("1d"), "transpose" in method)
            own = lay(params.input_dims)
            arguments = {"layout": own, **operands(kernel=lay(params.kernel_dims)), "params": params}
        case "avg_pool2d" | "max_pool2d":
            own = lay(sizes.picture)
            arguments = {"layout": own, "kernel_size": (2, 3), "stride": (6, 1)}
        case "upsample_nearest1d":
            own = lay(sizes.picture[:3])
            arguments = {"layout": own, "size": 2 * sizes.picture[2] - 1}
        case "upsample_nearest2d" | "upsample_bilinear2d":
            own = lay(sizes.picture)
            height, width = (2 * size - 1 for size in sizes.picture[2:])
            arguments = {"layout": own, "height": height, "width": width}
            if method == "upsample_bilinear2d":
                arguments |= {"align_corners": False, "scale_h": 1.75, "scale_w": 1.8}
        case "softmax" | "log_softmax":
            own = layout(rows, columns)
            arguments = {"layout": own, "dim": 1}
        case "softmax_gradient" | "log_softmax_gradient":
            own = layout(rows, columns)
            arguments = {"layout": own, **operands(gradient=own), "dim": 1}
        case "layer_norm" | "rms_norm":
            own, row = layout(rows, columns), layout(columns)
            bias = operands(bias=row) if method == "layer_norm" else {}
            arguments = {"layout": own, **operands(weight=row), **bias, **operands(residual=own), "eps": 1e-5}
        case "layer_norm_gradient" | "rms_norm_gradient":
            own = layout(rows, columns)
            wanted = {"of_weight": True} | ({"of_bias": True} if method == "layer_norm_gradient" else {})
            inputs = operands(gradient=own, weight=layout(columns), residual=own)
            arguments = {"layout": own, **inputs, **wanted, "eps": 1e-5}
        case "rope":
            batch, count, size = sizes.rotated
            own, table = layout(batch, count, size), layout(sizes.angles, size // 2)
            angles = {
                "cos": storage(table, "f32"),
                "cos_layout": table,
                "sin": storage(table, "f32"),
                "sin_layout": table,
            }
            positions = index("positions", layout(batch), sizes.angles - count + 1)
            arguments = {"layout": own, **angles, **positions, "interleaved": False}
        case "cross_entropy":
            own = layout(rows, columns)
            arguments = {"layout": own, **index("targets", layout(rows), columns), "dim": 1, "ignore_index": -100}
        case "ratio_of_sums":
            own = layout(rows, columns)
            arguments = {"layout": own, "divisor": storage(own), "divisor_layout": own}
        case "cross_entropy_gradient":
            own, lines = layout(rows, columns), layout(rows)
            arguments = {"layout": own}
            for each in ("losses", "gradient"):
                arguments |= {each: storage(lines, _compute(name)), f"{each}_layout": lines}
            arguments |= {**index("targets", lines, columns), "dim": 1, "ignore_index": -100, "overwrites": False}
        case "gather":
            # Indexes that would fit along any dim: the wrong one is refused by itself.
            own = layout(rows, wide)
            arguments = {"layout": own, **index("indexes", layout(rows, columns), wide), "dim": 1}
        case "index_select":
            own, row = layout(rows, columns), layout(wide)
            indexes = storage(row, "u32", Numbers(below=columns))
            arguments = {"indexes": indexes, "layout": own, "indexes_layout": row, "dim": 1}
        case "scatter_set" | "scatter_add":
            own, targets = layout(rows, wide), layout(rows, columns)
            arguments = {"layout": own, **index("indexes", targets, wide), **operands(source=targets), "dim": 1}
        case "index_add":
            own, source = layout(rows, columns), layout(rows, wide)
            arguments = {"layout": own, **index("indexes", layout(wide), columns), **operands(source=source), "dim": 1}
        case "copy_strided_src":
            arguments = {"dst": make(name, 3 + own.elem_count), "dst_offset": 3, "src_layout": own}
        case "cat":
            own, cat = layout(rows, columns), (layout(rows, columns + 2), layout(rows, columns + 3))
            arguments = {"layout": own, "others": tuple(map(storage, cat)), "other_layouts": cat, "dim": 1}
        case "sgd_step" | "adam_step":
            own, *rest = every = tuple(map(lay, sizes.parameters))
            joined, state = tuple(rest), Numbers(positive=True)
            lists = {"others": tuple(map(storage, joined)), "other_layouts": joined}
            lists |= {"gradients": tuple(map(storage, every)), "gradient_layouts": every}
            # Each part begins at a multiple of 16 elements.
            room, compute = sum(-(-each.elem_count // 16) * 16 for each in every), _compute(name)
            if method == "sgd_step":
                memory = {"velocities": make(compute, room), "numbers": make(compute, 3, state)}
                arguments = {"layout": own, **lists, **memory, "is_nesterov": False}
            else:
                memory = {"moments": make(compute, 2 * room, state), "numbers": make(compute, 8, state)}
                arguments = {"layout": own, **lists, **memory, "is_decoupled": False}
        case "copy2d":
            # Rows of `rows` elements, in wider ones.
            d1, d2 = columns, rows
            steps = {"src_stride": d2 + 2, "dst_stride": d2 + 1, "src_offset": 3, "dst_offset": 1}
            own = layout(3 + (d1 - 1) * (d2 + 2) + d2)
            arguments = {"dst": make(name, 1 + (d1 - 1) * (d2 + 1) + d2), "d1": d1, "d2": d2, **steps}
        case "try_clone":
            arguments = {"layout": own}
        case "all_gather" | "all_to_all":
            arguments = {"layout": own, "group": Group.alone()}
        case "all_reduce" | "reduce_scatter":
            arguments = {"layout": own, "reduction": "max" if name == "bool" else "sum", "group": Group.alone()}
        case "broadcast":
            arguments = {"layout": own, "root": 0, "group": Group.alone()}
        case "reduce":
            reduction = "sum" if cell.dtype.is_complex else "max"
            arguments = {"layout": own, "reduction": reduction, "root": 0, "group": Group.alone()}
        case "send":
            arguments = {"layout": own, "target": 0, "group": Group.alone()}
        case "recv":
            group = Group.alone()
            group.host.send(np.zeros(own.elem_count, cell.dtype.numpy), 0)
            arguments = {"layout": own, "source": 0, "group": group}
        case _:
            raise NotImplementedError(f"no call is written for the method {method}")
    return Example(storage(own, numbers=numbers), method, arguments)


def _attention(
    sizes: Sizes, layout: Callable[..., Layout], operands: Callable[..., Arguments], index: Callable[..., Arguments]
) -> tuple[Layout, Arguments]:
    batch, heads, groups, size = sizes.heads
    own, keys = layout(batch, heads, sizes.queries, size), layout(batch, groups, sizes.keys, size)
    mask = layout(batch, heads, sizes.queries, sizes.keys)
    lengths = index("lengths", layout(batch), sizes.keys + 1)
    return own, {**operands(keys=keys, values=keys, mask=mask), **lengths}


def _compute(name: str) -> str:
    return DType(name).compute.value


def _method_ops() -> frozenset[str]:
    from ...op import MethodOp

    return frozenset(op.value for op in MethodOp)


def _op(cell: SupportCell) -> Any:
    """The member of the enum that a method takes for its op."""
    from ... import op

    kind = "".join(part.capitalize() for part in cell.method.removesuffix("_impl").removesuffix("_op").split("_"))
    kind = {"BinaryAssign": "Binary"}.get(kind, kind)
    return getattr(op, f"{kind}Op")(cell.op)


def block_arguments(cell: SupportCell, make: Make, sizes: Sizes = SMALLEST) -> Arguments:
    """Return the arguments of a method of block-quantized weights: `block_rows` rows of `hidden`."""
    rows, hidden = sizes.block_rows, sizes.hidden
    product = {"rows": rows, "hidden": hidden}

    def operand(key: str, *dims: int) -> Arguments:
        where = contiguous(dims)
        return {key: make("f32", where.elem_count), "layout" if key in ("src", "x") else f"{key}_layout": where}

    match cell.method:
        case "block_size" | "size_in_bytes" | "data":
            return {}
        case "quantize":
            return operand("src", rows * hidden)
        case "dequantize" | "dequantize_f16":
            return {"elem_count": rows * hidden}
        case "embedding":
            return {**product, "ids": make("u32", 3, Numbers(below=rows)), "ids_layout": contiguous((3,))}
        case "fwd":
            return {**product, **operand("x", sizes.block_products, hidden), "activations": None}
        case "fwd_rms_norm":
            others = {**operand("weight", hidden), **operand("residual", 3, hidden)}
            return {**product, **operand("x", 3, hidden), **others, "activations": None, "eps": 1e-5}
        case "fwd_silu_mul":
            return {**product, **operand("x", 3, hidden), **operand("y", 3, hidden), "activations": None}
    raise NotImplementedError(f"no call is written for the method of blocks {cell.method}")


def device_arguments(cell: SupportCell, sizes: Sizes = SMALLEST) -> Arguments:
    """Return the arguments of a device method."""
    shape = Shape((sizes.vector,))
    match cell.method:
        case "set_seed":
            return {"seed": 3}
        case "get_current_seed" | "synchronize" | "graph":
            return {}
        case "rand_integers":
            return {"lo": -3, "up": 5, "shape": shape}
        case "compile":
            source = 'extern "C" __global__ void nothing() {}'
            return {"name": "nothing", "source": source, "options": (), "signature": ""}
        case "quantized_zeros":
            return {"elem_count": 64, "dtype": GgmlDType("Q4_0")}
        case "quantized_from_data":
            return {"data": np.zeros(36, np.uint8), "dtype": GgmlDType("Q4_0")}
    dtype = cast("DType", cell.dtype)
    assert dtype is not None, f"{cell.method} has a dtype"
    tensor = {"shape": shape, "dtype": dtype}
    match cell.method:
        case "rand_uniform_f64":
            return {"lo": 0.0, "up": 1.0, **tensor}
        case "rand_normal_f64":
            return {"mean": 0.0, "std": 1.0, **tensor}
        case "zeros" | "alloc_uninit":
            return tensor
        case "arange":
            return {"start": 0, "step": 1, **tensor}
        case "storage_from_slice":
            return {"data": [1.0, 2.0], "dtype": dtype}
        case "storage" | "storage_owned":
            return {"array": (np.arange(sizes.vector) % 5).astype(dtype.numpy)}
    raise NotImplementedError(f"no call is written for the device method {cell.method}")
