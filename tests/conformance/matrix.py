"""The expected support matrix: the methods of the spec, and the dtypes that the spec gives each of them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

import own_spec
import tallow
from tallow import op
from tallow.examples import METHODS
from tallow.runtime.base.example import Operand
from tallow.storage.quantized import QuantizedMethods

from .oracle.blocks import SIZES

if TYPE_CHECKING:
    from opgen.model.methods import Method

BACKENDS = tuple(sorted({cell.backend for cell in tallow.support()}))
DTYPES = tuple(dtype.value for dtype in tallow.DType)
FORMATS = tuple(SIZES)
BLOCK_METHODS = tuple(name for name in METHODS if name in vars(QuantizedMethods))
STORAGE_METHODS = tuple(name for name in METHODS if hasattr(tallow.Storage, name))
DEVICE_METHODS = tuple(name for name in METHODS if hasattr(tallow.Device, name))
# A CPU runs no kernels, and nothing is enqueued there.
GPU_METHODS = ("compile", "graph")
# Nor does it save a launch.
JOINED_METHODS = ("fwd_rms_norm", "fwd_silu_mul")
# The methods that choose between ops, and their ops.
METHODS_WITH_OPS = {
    name: getattr(op, method.parameters["op"])
    for name, method in METHODS.items()
    if hasattr(op, method.parameters.get("op", ""))
}
# Those of matrices, of which a result may not be found.
DECOMPOSITIONS = tuple(
    name for name, method in METHODS.items() if method.operands.get("self", Operand(None, "")).values == "definite"
)

Key = tuple[str, str | None, str | None]


def class_of(backend: str, kind: str) -> type:
    """The class of a backend's devices, or of its storages."""
    result: type = getattr(tallow.backends, "".join(part.capitalize() for part in backend.split("_")) + kind)
    return result


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


def expected_cells() -> dict[Key, bool]:
    """(method, op, dtype) of every cell that each backend has, and whether the spec has the method for the dtype."""
    spec = own_spec.read()
    cells: dict[Key, bool] = {}
    for method in (*spec.storage_methods(), *spec.device_methods):
        names = _names(method)
        for chosen, served in _served(method):
            cells |= {(method.name, chosen, name): name is None or name in served for name in names}
    return cells


def dtypes_of_operand(method: Method) -> tuple[str, ...]:
    """The dtypes of the first operand of a method: where `op` chooses, those of the first op."""
    return next(_served(method))[1]


def _names(method: Method) -> tuple[str | None, ...]:
    if method.owner == "device":
        return (None,) if method.dtypes is None else DTYPES
    return FORMATS if method.holds_blocks else DTYPES


def _served(method: Method) -> Iterator[tuple[str | None, tuple[str, ...]]]:
    """The ops of a method, and the dtypes or formats that each of them has."""
    spec = own_spec.read()
    if method.kind is not None and method.functor is None:
        yield from ((each.name, spec.resolve(each.dtypes)) for each in spec.functors[method.kind].chosen)
        return
    dtypes = method.dtypes if method.owner == "device" else method.operands[0].dtypes
    yield None, () if dtypes is None else spec.resolve(dtypes)
