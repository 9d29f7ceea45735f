"""The support matrix: one cell for each op, dtype and backend, from the lowerings that emit the branches."""

from dataclasses import dataclass

from opgen.model import Backend, Method, Spec
from opgen.problem import Location


@dataclass(frozen=True)
class Cell:
    """What a backend makes of an op on a dtype."""

    method: str
    op: str | None
    backend: str
    dtype: str | None  # or the block format; None for device methods that have none
    status: str  # supported or unsupported
    via: str | None  # what the branch calls
    reason: str | None
    source: Location  # where the spec says so


def cells(spec: Spec) -> list[Cell]:
    """All cells: the storage methods first, then the device methods; backends and dtypes in the order of the spec."""
    return [
        cell
        for method in (*spec.storage_methods(), *spec.device_methods)
        for op in spec.ops(method)
        for backend in spec.backends
        for cell in method_cells(spec, method, op, backend)
    ]


def method_cells(spec: Spec, method: Method, op: str | None, backend: Backend) -> list[Cell]:
    """The cells of one op on one backend, a cell for each dtype."""
    found = []
    lowerings = spec.lowerings[backend.name][method.name, op]
    has = spec.op_dtypes(method, op)
    place = (spec.functor(method, op) or method).location
    for dtype in (None,) if has is None else spec.kinds(method):
        if has is None or dtype in has:
            lowering = lowerings[dtype]
            status = "supported" if lowering.unsupported is None else "unsupported"
            via, reason, source = lowering.via, lowering.unsupported, lowering.location
        elif method.operands and dtype is not None and dtype in backend.lacking:
            status, via, (reason, source) = "unsupported", None, backend.lacking[dtype]
        else:
            status, via, reason, source = "unsupported", None, op_reason(spec, method), place
        found.append(Cell(method.name, op, backend.name, dtype, status, via, reason, source))
    return found


def op_reason(spec: Spec, method: Method) -> str | None:
    """Why a method's ops have not the dtypes that they lack."""
    return method.unsupported or (spec.functors[method.kind].unsupported if method.kind else None)
