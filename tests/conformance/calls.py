"""The smallest valid call of every cell."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from tallow import DType, GgmlDType
from tallow.op import BinaryGradientOp, BinaryGradientsOp, BinaryOp, CmpOp, MethodOp, ReduceOp, UnaryGradientOp, UnaryOp
from tallow.runtime.core.conv import ParamsConv1D, ParamsConv2D, ParamsConvTranspose1D, ParamsConvTranspose2D
from tallow.runtime.core.layout import Layout
from tallow.runtime.ranks.group import Group

from . import custom_ops
from .bench import dtype_of, shape_of
from .oracle.formats import COMPLEX, NUMPY, Array, compute_name

if TYPE_CHECKING:
    import tallow
    from tallow.runtime.doctor.support import SupportCell

# Makes a storage of a dtype's name and a length.
Make = Callable[[str, int], "tallow.Storage"]
# By name, in the order of the signature.
Arguments = dict[str, Any]

_CONV = {"b_size": 1, "c_in": 1, "c_out": 1, "padding": 0, "stride": 1, "dilation": 1}
LINE = {**_CONV, "l_in": 4, "k_size": 2}
IMAGE = {**_CONV, "i_h": 2, "i_w": 2, "k_h": 1, "k_w": 2}
# The same with sizes that differ.
_SIZES = {"b_size": 2, "c_in": 3, "c_out": 4, "padding": 1, "stride": 2, "dilation": 1}
LINE_SIZES = {**_SIZES, "l_in": 9, "k_size": 5}
IMAGE_SIZES = {**_SIZES, "i_h": 7, "i_w": 9, "k_h": 5, "k_w": 6}
# Without the transposed ones, and those.
LINE_PARAMS = (ParamsConv1D, ParamsConvTranspose1D)
IMAGE_PARAMS = (ParamsConv2D, ParamsConvTranspose2D)


def layout(*sizes: int) -> Layout:
    """A contiguous layout."""
    return Layout.contiguous(shape_of(*sizes))


def another_dtype(name: str) -> str:
    """A dtype besides the one called `name`, which every backend has."""
    # Complex numbers become no real ones.
    return "i32" if name == "f32" else "bool" if name in COMPLEX else "f32"


def format_of(name: str) -> GgmlDType:
    """The package's block format of this name."""
    return GgmlDType(name)


def call_blocks(cell: SupportCell, blocks: tallow.QStorage, make: Make) -> object:
    """Call a method of weights in blocks, of which there are two rows of 256."""
    return _made(blocks, cell.method, block_arguments(cell, make))


def call_storage(cell: SupportCell, make: Make) -> object:
    """Call a storage method on a few elements of the cell's dtype, and what it needs besides."""
    return _made(*storage_call(cell, make))


def call_device(cell: SupportCell, device: tallow.Device) -> object:
    """Call a device method."""
    return _made(device, cell.method, device_arguments(cell))


def _made(owner: object, method: str, arguments: Arguments) -> object:
    called = getattr(owner, method)
    return called(*arguments.values()) if callable(called) else called


def block_arguments(cell: SupportCell, make: Make) -> Arguments:
    """What a method of two rows of 256 weights in blocks takes."""
    match cell.method:
        case "block_size" | "size_in_bytes" | "data":
            return {}
        case "quantize":
            return {"src": make("f32", 512), "layout": layout(512)}
        case "dequantize" | "dequantize_f16":
            return {"elem_count": 512}
        case "embedding":
            return {"rows": 2, "hidden": 256, "ids": make("u32", 3), "ids_layout": layout(3)}
        case "fwd":
            # As many rows as a library takes.
            product = {"rows": 2, "hidden": 256, "x": make("f32", 10 * 256), "layout": layout(10, 256)}
            return {**product, "activations": None}
        case "fwd_rms_norm":
            product = {"rows": 2, "hidden": 256, "x": make("f32", 3 * 256), "layout": layout(3, 256)}
            others = {"weight": make("f32", 256), "weight_layout": layout(256)}
            others |= {"residual": make("f32", 3 * 256), "residual_layout": layout(3, 256)}
            return {**product, **others, "activations": None, "eps": 1e-5}
        case "fwd_silu_mul":
            product = {"rows": 2, "hidden": 256, "x": make("f32", 3 * 256), "layout": layout(3, 256)}
            return {**product, "y": make("f32", 3 * 256), "y_layout": layout(3, 256), "activations": None}
    raise AssertionError(f"no call is written for the method of blocks {cell.method}")


def storage_call(cell: SupportCell, make: Make) -> tuple[tallow.Storage, str, Arguments]:
    """The storage of the smallest valid call of a cell, its method and the arguments by name.

    Sizes differ where they may, so that an argument in the place of another one is no valid call.
    """
    assert cell.dtype is not None, f"{cell.method} has a dtype"
    name, method, made = cell.dtype.value, cell.method, layout(4)

    def held(where: Layout, dtype: str = name) -> tallow.Storage:
        return make(dtype, where.elem_count)

    def operands(**layouts: Layout) -> Arguments:
        """Storages of the cell's dtype, each with its layout."""
        pairs = ({name: held(where), f"{name}_layout": where} for name, where in layouts.items())
        return {key: value for pair in pairs for key, value in pair.items()}

    def index(name: str, where: Layout) -> Arguments:
        return {name: held(where, "u32"), f"{name}_layout": where}

    arguments: Arguments
    match method:
        case "device" | "dtype":
            arguments = {}
        case "const_set":
            arguments = {"value": 1.0, "layout": made}
        case "to_dtype":
            arguments = {"layout": made, "dtype": dtype_of(another_dtype(name))}
        case "where_cond":
            arguments = {"layout": made, **operands(on_true=made, on_false=made)}
            return held(made, "u8"), method, arguments
        case "where_cond_gradients":
            return held(made, "u8"), method, {"layout": made, **operands(gradient=made)}
        case functor if functor in {op.value for op in MethodOp}:
            names = [*inspect.signature(getattr(held(made), functor)).parameters]
            given = {"dims": (0,), **{name: made for name in names if name.endswith("layout")}}
            others = {name: held(made) for name in names if f"{name}_layout" in names}
            arguments = {name: {**given, **others}.get(name, 1.0) for name in names}
        case "unary_impl":
            arguments = {"op": UnaryOp(cell.op), "layout": made}
        case "binary_impl":
            arguments = {"op": BinaryOp(cell.op), "rhs": held(made), "lhs_layout": made, "rhs_layout": made}
        case "binary_assign":
            arguments = {"op": BinaryOp(cell.op), "layout": made, **operands(source=made)}
        case "unary_gradient":
            arguments = {"op": UnaryGradientOp(cell.op), "layout": made, **operands(x=made)}
        case "binary_gradient":
            arguments = {"op": BinaryGradientOp(cell.op), "layout": made, **operands(x=made, y=made)}
        case "binary_gradients":
            arguments = {"op": BinaryGradientsOp(cell.op), "layout": made, **operands(x=made, y=made)}
        case "assign":
            arguments = {"layout": made, **operands(source=made)}
        case "cmp":
            arguments = {"op": CmpOp(cell.op), "rhs": held(made), "lhs_layout": made, "rhs_layout": made}
        case "reduce_op":
            arguments = {"op": ReduceOp(cell.op), "layout": made, "dims": (0,)}
        case "cumsum" | "cumprod":
            arguments = {"layout": made, "dim": 0}
        case "fft":
            made = layout(2, 4)
            arguments = {"layout": made, "inverse": False}
        case "rfft":
            made = layout(2, 4)
            arguments = {"layout": made}
        case "irfft":
            made = layout(2, 3)
            arguments = {"layout": made, "count": 4}
        case "triangle":
            made = layout(2, 3)
            arguments = {"layout": made, "diagonal": 1, "is_upper": False}
        case "cholesky" | "det" | "slogdet" | "eig" | "eigh" | "qr" | "svd" | "solve":
            # Ones have an inverse where there is one of them.
            made = layout(1, 1)
            asked = {"eig": ("has_vectors",), "eigh": ("has_vectors",), "qr": ("is_complete",)}
            asked["svd"] = ("has_vectors", "is_full")
            arguments = {"layout": made, **dict.fromkeys(asked.get(method, ()), True)}
            arguments |= operands(values=layout(1, 3)) if method == "solve" else {}
        case "argsort" | "sort":
            arguments = {"layout": made, "descending": False, "count": 4}
        case "searchsorted":
            arguments = {"layout": made, **operands(values=layout(3)), "right": False}
        case "matmul":
            made, right = layout(2, 3, 4), layout(2, 4, 5)
            arguments = {"rhs": held(right), "bmnk": (2, 3, 5, 4), "lhs_layout": made, "rhs_layout": right}
        case "scaled_dot_product_attention" | "scaled_dot_product_attention_with_logsumexp":
            made, keys = layout(2, 4, 3, 8), layout(2, 2, 5, 8)
            arguments = {"layout": made, **operands(keys=keys, values=keys, mask=layout(2, 4, 3, 5))}
            arguments |= {**index("lengths", layout(2)), "is_causal": False, "scale": 0.5}
        case "scaled_dot_product_attention_gradient":
            made, keys = layout(2, 4, 3, 8), layout(2, 2, 5, 8)
            others, rows = operands(keys=keys, values=keys, result=made, gradient=made), layout(2, 4, 3)
            others |= {"logsumexp": held(rows, compute_name(name)), "logsumexp_layout": rows}
            others |= operands(mask=layout(2, 4, 3, 5))
            arguments = {"layout": made, **others, **index("lengths", layout(2))}
            arguments |= {"is_causal": False, "of_mask": True, "scale": 0.5}
        case "linear":
            made = layout(2, 4)
            arguments = {"layout": made, **operands(weight=layout(3, 4), bias=layout(3))}
        case "conv1d" | "conv_transpose1d" | "conv2d" | "conv_transpose2d":
            sizes, kinds = (LINE_SIZES, LINE_PARAMS) if method.endswith("1d") else (IMAGE_SIZES, IMAGE_PARAMS)
            is_transposed = "transpose" in method
            params = kinds[is_transposed](**sizes, **({"output_padding": 0} if is_transposed else {}))
            made = Layout.contiguous(params.input_dims)
            arguments = {"layout": made, **operands(kernel=Layout.contiguous(params.kernel_dims)), "params": params}
        case "avg_pool2d" | "max_pool2d":
            made = layout(2, 3, 4, 5)
            arguments = {"layout": made, "kernel_size": (2, 3), "stride": (6, 1)}
        case "upsample_nearest1d":
            made = layout(2, 3, 4)
            arguments = {"layout": made, "size": 7}
        case "upsample_nearest2d" | "upsample_bilinear2d":
            made = layout(2, 3, 4, 5)
            arguments = {"layout": made, "height": 7, "width": 9}
            if method == "upsample_bilinear2d":
                arguments |= {"align_corners": False, "scale_h": 1.75, "scale_w": 1.8}
        case "softmax" | "log_softmax":
            made = layout(3, 2)
            arguments = {"layout": made, "dim": 1}
        case "softmax_gradient" | "log_softmax_gradient":
            made = layout(3, 2)
            arguments = {"layout": made, **operands(gradient=made), "dim": 1}
        case "layer_norm" | "rms_norm":
            made, row = layout(3, 2), layout(2)
            vectors = {"weight": row, "bias": row} if method == "layer_norm" else {"weight": row}
            arguments = {"layout": made, **operands(**vectors, residual=made), "eps": 1e-5}
        case "layer_norm_gradient" | "rms_norm_gradient":
            made = layout(3, 2)
            asked = {"of_weight": True} | ({"of_bias": True} if method == "layer_norm_gradient" else {})
            arguments = {
                "layout": made,
                **operands(gradient=made, weight=layout(2), residual=made),
                **asked,
                "eps": 1e-5,
            }
        case "rope":
            made, table = layout(2, 3, 4), layout(5, 2)
            angles = {"cos": held(table, "f32"), "cos_layout": table, "sin": held(table, "f32"), "sin_layout": table}
            arguments = {"layout": made, **angles, **index("positions", layout(2)), "interleaved": False}
        case "cross_entropy":
            made = layout(3, 2)
            arguments = {"layout": made, **index("targets", layout(3)), "dim": 1, "ignore_index": -100}
        case "ratio_of_sums":
            made = layout(3, 2)
            arguments = {"layout": made, "divisor": held(made, name), "divisor_layout": made}
        case "cross_entropy_gradient":
            made, rows = layout(3, 2), layout(3)
            arguments = {"layout": made}
            for each in ("losses", "gradient"):
                arguments |= {each: held(rows, compute_name(name)), f"{each}_layout": rows}
            arguments |= {**index("targets", rows), "dim": 1, "ignore_index": -100, "overwrites": False}
        case "gather":
            # Indexes that would fit along any dim: the wrong one is refused by itself.
            made = layout(3, 5)
            arguments = {"layout": made, **index("indexes", layout(3, 2)), "dim": 1}
        case "index_select":
            made, row = layout(3, 2), layout(5)
            arguments = {"indexes": held(row, "u32"), "layout": made, "indexes_layout": row, "dim": 1}
        case "scatter_set" | "scatter_add":
            made, places = layout(3, 5), layout(3, 2)
            arguments = {"layout": made, **index("indexes", places), **operands(source=places), "dim": 1}
        case "index_add":
            made, rows = layout(3, 2), layout(3, 5)
            arguments = {"layout": made, **index("indexes", layout(5)), **operands(source=rows), "dim": 1}
        case "copy_strided_src":
            arguments = {"dst": make(name, 7), "dst_offset": 3, "src_layout": made}
        case "cat":
            made, others = layout(3, 2), (layout(3, 4), layout(3, 5))
            arguments = {"layout": made, "others": tuple(map(held, others)), "other_layouts": others, "dim": 1}
        case "sgd_step" | "adam_step":
            made, others, compute = layout(3, 2), (layout(4), layout(2, 2)), cell.dtype.compute.value
            given = (made, *others)
            lists = {"others": tuple(map(held, others)), "other_layouts": others}
            lists |= {"gradients": tuple(map(held, given)), "gradient_layouts": given}
            if method == "sgd_step":
                state = {"velocities": make(compute, 48), "numbers": make(compute, 3), "is_nesterov": False}
            else:
                state = {"moments": make(compute, 96), "numbers": make(compute, 8), "is_decoupled": False}
            arguments = {"layout": made, **lists, **state}
        case "copy2d":
            made = layout(11)
            rows = {"d1": 2, "d2": 3, "src_stride": 5, "dst_stride": 4, "src_offset": 3, "dst_offset": 1}
            arguments = {"dst": make(name, 8), **rows}
        case "try_clone":
            arguments = {"layout": made}
        case "all_gather" | "all_to_all":
            arguments = {"layout": made, "group": Group.alone()}
        case "all_reduce" | "reduce_scatter":
            arguments = {"layout": made, "reduction": "max" if name == "bool" else "sum", "group": Group.alone()}
        case "broadcast":
            arguments = {"layout": made, "root": 0, "group": Group.alone()}
        case "reduce":
            reduction = "sum" if DType(name).is_complex else "max"
            arguments = {"layout": made, "reduction": reduction, "root": 0, "group": Group.alone()}
        case "send":
            arguments = {"layout": made, "target": 0, "group": Group.alone()}
        case "recv":
            group = Group.alone()
            group.host.send(_zeros(name), 0)
            arguments = {"layout": made, "source": 0, "group": group}
        case _:
            count = int(method[-1])
            arguments = {"layout" if count == 1 else "layout1": made}
            for position in range(2, count + 1):
                arguments |= {f"storage{position}": held(made), f"layout{position}": made}
            arguments["op"] = custom_op(method)
    return held(made), method, arguments


def custom_op(method: str) -> object:
    """The op that `method` is called with."""
    return {
        "apply_op1": custom_ops.Interleave1,
        "apply_op2": custom_ops.Interleave2,
        "apply_op3": custom_ops.Interleave3,
        "inplace_op1": custom_ops.Reverse,
        "inplace_op2": custom_ops.Replace,
        "inplace_op3": custom_ops.Blend,
    }[method]()


def device_arguments(cell: SupportCell) -> Arguments:
    """What a device method takes."""
    match cell.method:
        case "set_seed":
            return {"seed": 3}
        case "get_current_seed" | "synchronize" | "graph":
            return {}
        case "rand_integers":
            return {"lo": -3, "up": 5, "shape": shape_of(4)}
        case "compile":
            source = 'extern "C" __global__ void nothing() {}'
            return {"name": "nothing", "source": source, "options": (), "signature": ""}
        case "quantized_zeros":
            return {"elem_count": 64, "dtype": format_of("Q4_0")}
        case "quantized_from_data":
            return {"data": np.zeros(36, np.uint8), "dtype": format_of("Q4_0")}
    assert cell.dtype is not None, f"{cell.method} has a dtype"
    made = {"shape": shape_of(4), "dtype": cell.dtype}
    match cell.method:
        case "rand_uniform_f64":
            return {"lo": 0.0, "up": 1.0, **made}
        case "rand_normal_f64":
            return {"mean": 0.0, "std": 1.0, **made}
        case "zeros" | "alloc_uninit":
            return made
        case "arange":
            return {"start": 0, "step": 1, **made}
        case "storage_from_slice":
            return {"data": [1.0, 2.0], "dtype": cell.dtype}
        case "storage" | "storage_owned":
            return {"array": _zeros(cell.dtype.value)}
    raise AssertionError(f"no call is written for the device method {cell.method}")


def _zeros(name: str) -> Array:
    return np.zeros(4, NUMPY[name])


def error_op(cell: SupportCell) -> str:
    """What an error calls the op: the unary op and so on where there is one, the custom op's name, or the method."""
    if cell.method.startswith(("apply_op", "inplace_op")):
        return str(custom_op(cell.method).name)
    return cell.op or cell.method
