"""The smallest valid call of every cell."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from tallow import GgmlDType
from tallow.conv import ParamsConv1D, ParamsConv2D, ParamsConvTranspose1D, ParamsConvTranspose2D
from tallow.layout import Layout
from tallow.op import BinaryOp, CmpOp, MethodOp, ReduceOp, UnaryOp

from . import custom_ops
from .bench import dtype_of, shape_of
from .oracle.formats import NUMPY, Array

if TYPE_CHECKING:
    import tallow
    from tallow.support import SupportCell

# Makes a storage of a dtype's name and a length.
Make = Callable[[str, int], "tallow.Storage"]

_CONV = {"b_size": 1, "c_in": 1, "c_out": 1, "padding": 0, "stride": 1, "dilation": 1}
LINE = {**_CONV, "l_in": 4, "k_size": 2}
IMAGE = {**_CONV, "i_h": 2, "i_w": 2, "k_h": 1, "k_w": 2}


def layout(*sizes: int) -> Layout:
    """A contiguous layout."""
    return Layout.contiguous(shape_of(*sizes))


def another_dtype(name: str) -> str:
    """A dtype besides the one called `name`, which every backend has."""
    return "i32" if name == "f32" else "f32"


def format_of(name: str) -> GgmlDType:
    """The package's block format of this name."""
    return GgmlDType(name)


def call_blocks(cell: SupportCell, blocks: tallow.QStorage, make: Make) -> object:
    """Call a method of weights in blocks, of which there are two rows of 256."""
    x = make("f32", 512)
    match cell.method:
        case "block_size" | "size_in_bytes" | "data":
            return getattr(blocks, cell.method)
        case "quantize":
            return blocks.quantize(x, layout(512))
        case "dequantize" | "dequantize_f16":
            return getattr(blocks, cell.method)(512)
        case "embedding":
            return blocks.embedding(2, 256, make("u8", 2), layout(2))
        case "fwd":
            # As many rows as a library takes.
            return blocks.fwd(2, 256, make("f32", 10 * 256), layout(10, 256), False, None)
    raise AssertionError(f"no call is written for the method of blocks {cell.method}")


def call_storage(cell: SupportCell, make: Make) -> object:
    """Call a storage method on four elements of the cell's dtype, and what it needs besides."""
    assert cell.dtype is not None, f"{cell.method} has a dtype"
    name = cell.dtype.value
    x, y = make(name, 4), make(name, 4)
    vector, image = layout(4), layout(1, 1, 2, 2)
    match cell.method:
        case "device" | "dtype":
            return getattr(x, cell.method)
        case "try_clone":
            return x.try_clone(vector)
        case "const_set":
            return x.const_set(1.0, vector)
        case "to_dtype":
            return x.to_dtype(vector, dtype_of(another_dtype(name)))
        case "where_cond":
            return make("u8", 4).where_cond(vector, x, vector, y, vector)
        case functor if functor in {op.value for op in MethodOp}:
            call = getattr(x, functor)
            names = inspect.signature(call).parameters
            given = {"dims": (0,), **{name: vector for name in names if name.endswith("layout")}}
            return call(*(given.get(name, y if f"{name}_layout" in names else 1.0) for name in names))
        case "unary_impl":
            return x.unary_impl(UnaryOp(cell.op), vector)
        case "binary_impl":
            return x.binary_impl(BinaryOp(cell.op), y, vector, vector)
        case "binary_assign":
            return x.binary_assign(BinaryOp(cell.op), vector, y, vector)
        case "assign":
            return x.assign(vector, y, vector)
        case "cmp":
            return x.cmp(CmpOp(cell.op), y, vector, vector)
        case "reduce_op":
            return x.reduce_op(ReduceOp(cell.op), vector, (0,))
        case "cumsum":
            return x.cumsum(vector, 0)
        case "argsort":
            return x.argsort(vector, False, vector.shape[0])
        case "matmul":
            return x.matmul(y, (1, 2, 2, 2), layout(1, 2, 2), layout(1, 2, 2))
        case "scaled_dot_product_attention":
            mask = (make(name, 4), image)
            operands = (y, image, make(name, 4), image, *mask, make("u8", 1), layout(1))
            return x.scaled_dot_product_attention(image, *operands, False, 1.0)
        case "linear":
            return x.linear(layout(2, 2), y, layout(2, 2), None, None)
        case "conv1d":
            return x.conv1d(layout(1, 1, 4), y, layout(1, 1, 2), ParamsConv1D(**LINE))
        case "conv_transpose1d":
            params = ParamsConvTranspose1D(**LINE, output_padding=0)
            return x.conv_transpose1d(layout(1, 1, 4), y, layout(1, 1, 2), params)
        case "conv2d":
            return x.conv2d(image, y, layout(1, 1, 1, 2), ParamsConv2D(**IMAGE))
        case "conv_transpose2d":
            params = ParamsConvTranspose2D(**IMAGE, output_padding=0)
            return x.conv_transpose2d(image, y, layout(1, 1, 1, 2), params)
        case "avg_pool2d" | "max_pool2d":
            return getattr(x, cell.method)(image, (2, 2), (1, 1))
        case "upsample_nearest1d":
            return x.upsample_nearest1d(layout(1, 1, 4), 8)
        case "upsample_nearest2d":
            return x.upsample_nearest2d(image, 4, 4)
        case "upsample_bilinear2d":
            return x.upsample_bilinear2d(image, 4, 4, False, None, None)
        case "softmax" | "log_softmax":
            return getattr(x, cell.method)(layout(2, 2), 1)
        case "layer_norm":
            return x.layer_norm(layout(2, 2), y, layout(2), y, layout(2), x, layout(2, 2), 1e-5)
        case "rms_norm":
            return x.rms_norm(layout(2, 2), y, layout(2), None, None, 1e-5)
        case "rope":
            table, place = make("f32", 3), make("u8", 1)
            return x.rope(layout(2, 2), table, layout(3, 1), table, layout(3, 1), place, layout(1), False)
        case "cross_entropy":
            return x.cross_entropy(layout(2, 2), make("u8", 2), layout(2), 1, -100)
        case "gather":
            return x.gather(vector, make("u32", 4), vector, 0)
        case "index_select":
            return x.index_select(make("u32", 4), vector, vector, 0)
        case "scatter_set" | "scatter_add" | "index_add":
            return getattr(x, cell.method)(vector, make("u32", 4), vector, y, vector, 0)
        case "copy_strided_src":
            return x.copy_strided_src(y, 0, vector)
        case "cat":
            return x.cat(vector, (y, x), (vector, vector), 0)
        case "copy2d":
            return x.copy2d(y, 2, 2, 2, 2, 0, 0)
        case _:
            return _call_custom(cell.method, x, y, make(name, 4), vector)


def _call_custom(method: str, x: tallow.Storage, y: tallow.Storage, z: tallow.Storage, vector: Layout) -> object:
    rest = [vector, y, vector, z, vector][: 2 * int(method[-1]) - 1]
    return getattr(x, method)(*rest, custom_op(method))


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


def call_device(cell: SupportCell, device: tallow.Device) -> object:
    """Call a device method."""
    match cell.method:
        case "set_seed":
            return device.set_seed(3)
        case "get_current_seed":
            return device.get_current_seed()
        case "synchronize":
            return device.synchronize()
        case "compile":
            return device.compile("nothing", 'extern "C" __global__ void nothing() {}', (), "")
        case "graph":
            return device.graph()
        case "quantized_zeros":
            return device.quantized_zeros(64, "Q4_0")
        case "quantized_from_data":
            return device.quantized_from_data(np.zeros(36, np.uint8), "Q4_0")
    assert cell.dtype is not None, f"{cell.method} has a dtype"
    match cell.method:
        case "rand_uniform_f64" | "rand_normal_f64":
            return getattr(device, cell.method)(0.0, 1.0, shape_of(4), cell.dtype)
        case "zeros" | "alloc_uninit":
            return getattr(device, cell.method)(shape_of(4), cell.dtype)
        case "arange":
            return device.arange(0, 1, shape_of(4), cell.dtype)
        case "storage_from_slice":
            return device.storage_from_slice([1.0, 2.0], cell.dtype)
        case "storage" | "storage_owned":
            return getattr(device, cell.method)(_zeros(cell.dtype.value))
    raise AssertionError(f"no call is written for the device method {cell.method}")


def _zeros(name: str) -> Array:
    return np.zeros(4, NUMPY[name])


def error_op(cell: SupportCell) -> str:
    """What an error calls the op: the unary op and so on where there is one, the custom op's name, or the method."""
    if cell.method.startswith(("apply_op", "inplace_op")):
        return str(custom_op(cell.method).name)
    return cell.op or cell.method
