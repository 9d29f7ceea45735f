"""The support matrix: one cell for each op, dtype and backend, from the lowerings that emit the branches."""

from dataclasses import dataclass

from opgen.model import Backend, Lowering, Method, Spec


@dataclass(frozen=True)
class Cell:
    """What a backend makes of an op on a dtype."""

    method: str
    op: str | None
    backend: str
    dtype: str | None  # None for device methods that have none
    status: str  # supported, unsupported, or unavailable: lowered, but the backend has no runtime yet
    via: str | None
    reason: str | None


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
    table = backend.storage if method in tuple(spec.storage_methods()) else backend.device
    lowerings = table[method.name][op]
    has = spec.op_dtypes(method, op)
    if has is None:
        return [_cell(method, op, backend, None, lowerings[0])]
    by_dtype = {
        dtype: lowering
        for lowering in lowerings
        if lowering.dtypes is not None
        for dtype in spec.resolve(lowering.dtypes)
    }
    found = []
    for dtype in (dtype.name for dtype in spec.dtypes):
        if dtype in has:
            found.append(_cell(method, op, backend, dtype, by_dtype[dtype]))
        else:
            reason = op_reason(spec, method)
            found.append(Cell(method.name, op, backend.name, dtype, "unsupported", None, reason))
    return found


def op_reason(spec: Spec, method: Method) -> str | None:
    """Why a method's ops have not the dtypes that they lack."""
    return spec.functors[method.kind].unsupported if method.kind else method.unsupported


def _cell(method: Method, op: str | None, backend: Backend, dtype: str | None, lowering: Lowering) -> Cell:
    if lowering.unsupported is not None:
        return Cell(method.name, op, backend.name, dtype, "unsupported", None, lowering.unsupported)
    # A field of a storage can be read wherever there is a storage, be it a stand-in.
    if backend.runtime is None and lowering.via != "attribute field":
        return Cell(method.name, op, backend.name, dtype, "unavailable", lowering.via, backend.missing)
    return Cell(method.name, op, backend.name, dtype, "supported", lowering.via, None)
