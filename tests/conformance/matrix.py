"""What the support matrix has to hold: the methods of the spec, and for which dtypes semantics defines each."""

from __future__ import annotations

from collections.abc import Container
from functools import cache

import tallow
from tallow import op
from tallow.storage.quantized import QuantizedMethods

from .oracle import complex_numbers, scans
from .oracle.blocks import SIZES
from .oracle.elementwise import (
    BINARY_BOOL_OPS,
    BINARY_INTEGER_OPS,
    BIT_OPS,
    COMPLEX_CMP_OPS,
    COMPLEX_ONLY_OPS,
    INTEGER_METHODS,
    UNARY_INTEGER_OPS,
)
from .oracle.reductions import BOOL_REDUCTIONS, COMPLEX_REDUCTIONS, FLOAT_REDUCTIONS
from .oracle.rows import ROWS

BACKENDS = tuple(sorted({cell.backend for cell in tallow.support()}))
DTYPES = tuple(dtype.value for dtype in tallow.DType)
FORMATS = tuple(SIZES)
_METHODS = tuple(dict.fromkeys(cell.method for cell in tallow.support()))
BLOCK_METHODS = tuple(name for name in _METHODS if name in vars(QuantizedMethods))
STORAGE_METHODS = tuple(name for name in _METHODS if hasattr(tallow.Storage, name))
DEVICE_METHODS = tuple(name for name in _METHODS if hasattr(tallow.Device, name))
DEVICE_METHODS_WITHOUT_DTYPE = (
    *("set_seed", "get_current_seed", "synchronize", "compile", "graph", "rand_integers"),
    *("quantized_zeros", "quantized_from_data"),
)
# A CPU runs no kernels, and nothing is enqueued there.
GPU_METHODS = ("compile", "graph")
# Nor does it save a launch.
JOINED_METHODS = ("fwd_rms_norm", "fwd_silu_mul")
# The methods that choose between ops, and their ops.
METHODS_WITH_OPS = {
    "unary_impl": op.UnaryOp,
    "binary_impl": op.BinaryOp,
    "binary_assign": op.BinaryOp,
    "unary_gradient": op.UnaryGradientOp,
    "binary_gradient": op.BinaryGradientOp,
    "binary_gradients": op.BinaryGradientsOp,
    "cmp": op.CmpOp,
    "reduce_op": op.ReduceOp,
}
# Semantics has these for floating-point dtypes only.
FLOAT_METHODS = (
    *("unary_gradient", "binary_gradient", "binary_gradients"),
    *("ratio_of_sums", "linear", "scaled_dot_product_attention", "scaled_dot_product_attention_gradient"),
    "scaled_dot_product_attention_with_logsumexp",
    *("rfft", "avg_pool2d", "upsample_bilinear2d", "rand_uniform_f64", "rand_normal_f64", "sgd_step", "adam_step"),
    *(member.value for member in op.MethodOp if member.value not in (*INTEGER_METHODS, *scans.of_kind("integer"))),
)
# Of these floats of 8 bits have too few numbers.
WIDE_METHODS = (
    *("softmax", "log_softmax", "layer_norm", "rms_norm", "rope", "cross_entropy"),
    *("softmax_gradient", "log_softmax_gradient", "cross_entropy_gradient"),
    *("layer_norm_gradient", "rms_norm_gradient"),
    *(name for op in ROWS for name in (op, f"{op}_gradient")),
)

# Those of truth values, besides ops.
BOOL_METHODS = (
    *("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "send", "recv"),
    *("try_clone", "device", "dtype", "const_set", "assign", "copy_strided_src", "cat", "copy2d", "triangle"),
    *("cmp", "to_dtype", "where_cond", "gather", "scatter_set", "index_select"),
    *("upsample_nearest1d", "upsample_nearest2d"),
    *("apply_op1", "apply_op2", "apply_op3", "inplace_op1", "inplace_op2", "inplace_op3"),
    *("zeros", "alloc_uninit", "storage_from_slice", "storage", "storage_owned"),
)
# Those of matrices.
DECOMPOSITIONS = ("cholesky", "det", "slogdet", "solve", "eig", "eigh", "qr", "svd")
# Those of complex numbers alone, and all of them, besides ops.
TRANSFORMS = ("fft", "irfft")
COMPLEX_METHODS = (
    *(*BOOL_METHODS, "powf", *scans.of_kind("complex"), "matmul", "scatter_add", "index_add"),
    *TRANSFORMS,
    *DECOMPOSITIONS,
)

Key = tuple[str, str | None, str | None]


def class_of(backend: str, kind: str) -> type:
    """The class of a backend's devices, or of its storages."""
    found: type = getattr(tallow.backends, "".join(part.capitalize() for part in backend.split("_")) + kind)
    return found


@cache
def dtypes_of(backend: str) -> tuple[str, ...]:
    """The names of the dtypes that a backend has."""
    cells = [cell for cell in tallow.support() if cell.backend == backend and cell.method == "zeros"]
    return tuple(str(cell.dtype) for cell in cells if cell.status == "supported")


def widest_float(backend: str) -> str:
    """The name of the floating-point dtype that has the most digits of those of a backend."""
    return "f64" if "f64" in dtypes_of(backend) else "f32"


@cache
def refusals(backend: str) -> frozenset[str | None]:
    """Why cells of a backend are unsupported."""
    return frozenset(cell.reason for cell in tallow.support() if cell.backend == backend)


def expected_cells() -> list[Key]:
    """(method, op, dtype) of every cell that each backend has."""
    cells: list[Key] = []
    for method in _METHODS:
        ops = [member.value for member in METHODS_WITH_OPS[method]] if method in METHODS_WITH_OPS else [None]
        names = [None] if method in DEVICE_METHODS_WITHOUT_DTYPE else FORMATS if method in BLOCK_METHODS else DTYPES
        cells += [(method, chosen, name) for chosen in ops for name in names]
    return cells


def serves_bool(method: str, op: str | None) -> bool:
    """Whether semantics has the op for truth values: what moves, compares and joins them."""
    if method in ("binary_impl", "binary_assign", "reduce_op"):
        return op in (*BINARY_BOOL_OPS, *BOOL_REDUCTIONS)
    return method in (*BOOL_METHODS, *scans.of_kind("bool"))


def serves_complex(method: str, op: str | None) -> bool:
    """Whether semantics has the op for complex numbers: what needs no order, and functions that are differentiable."""
    ops: dict[str, Container[str | None]] = {
        "unary_impl": complex_numbers.UNARY,
        "binary_impl": complex_numbers.BINARY,
        "binary_assign": complex_numbers.BINARY,
        "cmp": COMPLEX_CMP_OPS,
        "reduce_op": COMPLEX_REDUCTIONS,
    }
    return op in ops[method] if method in ops else method in COMPLEX_METHODS


def needs_complex(method: str, op: str | None) -> bool:
    """Whether semantics has the op for complex numbers only."""
    return op in COMPLEX_ONLY_OPS or method in TRANSFORMS


def needs_integers(op: str | None) -> bool:
    """Whether semantics has the op for integers only."""
    return op in ("sum_i64", "prod_i64", "bitwise_invert", *BIT_OPS)


def lacks_short_floats(method: str, op: str | None) -> bool:
    """Whether the dtypes of 8 and 16 bits, whose compute dtype is another one, lack the op."""
    return method in ("rfft", "ratio_of_sums", *DECOMPOSITIONS)


def needs_float(method: str, op: str | None) -> bool:
    """Whether semantics has the op for floating-point dtypes only."""
    if method == "unary_impl":
        return op not in UNARY_INTEGER_OPS
    if method in ("binary_impl", "binary_assign"):
        return op not in BINARY_INTEGER_OPS
    return method in (*FLOAT_METHODS, *WIDE_METHODS, *DECOMPOSITIONS) or op in FLOAT_REDUCTIONS
