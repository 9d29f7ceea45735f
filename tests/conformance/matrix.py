"""What the support matrix has to hold, written by hand."""

from __future__ import annotations

from .oracle.elementwise import BINARY_OPS, CMP_OPS, UNARY_INTEGER_OPS, UNARY_OPS
from .oracle.formats import NUMPY
from .oracle.reductions import REDUCE_OPS

BACKENDS = ("cpu", "cuda", "metal", "rocm")
DTYPES = tuple(NUMPY)

# Storage methods that choose between ops, and their ops.
METHODS_WITH_OPS = {
    "unary_impl": UNARY_OPS,
    "binary_impl": BINARY_OPS,
    "cmp": CMP_OPS,
    "reduce_op": REDUCE_OPS,
}
STORAGE_METHODS = (
    *("try_clone", "device", "dtype", "const_set", "affine", "powf", "elu", "cmp", "reduce_op", "to_dtype"),
    *("apply_op1", "apply_op2", "apply_op3", "inplace_op1", "inplace_op2", "inplace_op3"),
    *("unary_impl", "binary_impl", "conv1d", "conv_transpose1d", "conv2d", "conv_transpose2d"),
    *("avg_pool2d", "max_pool2d", "upsample_nearest1d", "upsample_nearest2d", "upsample_bilinear2d", "where_cond"),
    *("gather", "scatter_set", "scatter_add", "index_add", "index_select", "matmul", "copy_strided_src", "copy2d"),
)
DEVICE_METHODS_WITH_DTYPE = (
    *("rand_uniform_f64", "rand_normal_f64", "zeros", "alloc_uninit", "storage_from_slice", "storage", "storage_owned"),
)
DEVICE_METHODS_WITHOUT_DTYPE = ("set_seed", "get_current_seed", "synchronize")
DEVICE_METHODS = DEVICE_METHODS_WITH_DTYPE + DEVICE_METHODS_WITHOUT_DTYPE

Key = tuple[str, str | None, str | None]


def expected_cells() -> list[Key]:
    """(method, op, dtype) of every cell that each backend has."""
    cells: list[Key] = []
    for method in STORAGE_METHODS:
        for op in METHODS_WITH_OPS.get(method, (None,)):
            cells += [(method, op, name) for name in DTYPES]
    cells += [(method, None, name) for method in DEVICE_METHODS_WITH_DTYPE for name in DTYPES]
    cells += [(method, None, None) for method in DEVICE_METHODS_WITHOUT_DTYPE]
    return cells


def needs_float(method: str, op: str | None) -> bool:
    """Whether semantics has the op for floating-point dtypes only."""
    if method == "unary_impl":
        return op not in UNARY_INTEGER_OPS
    return method in (
        "powf",
        "elu",
        "avg_pool2d",
        "upsample_bilinear2d",
        "rand_uniform_f64",
        "rand_normal_f64",
    )
