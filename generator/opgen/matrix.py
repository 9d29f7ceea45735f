"""The support matrix: one cell for each op, dtype and backend, from the lowerings that emit the branches."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from opgen.cache.memo import memoize
from opgen.gradients import differentiable
from opgen.model.backends import Backend
from opgen.model.methods import Method
from opgen.model.spec import Spec
from opgen.problem import Location
from opgen.scopes import is_differentiable
from opgen.streams import is_terminal


@dataclass(frozen=True)
class Cell:
    """The support for an op and a dtype on a backend."""

    method: str
    op: str | None
    backend: str
    dtype: str | None  # or the block format; None for device methods that have none
    status: str  # supported or unsupported
    via: str | None  # what the branch calls
    reason: str | None
    gradient: bool  # whether there are gradients of what it makes
    source: Location  # where the spec says so

    @property
    def name(self) -> str:
        """The method or op that the cell is for."""
        return _name(self.method, self.op)

    @property
    def names(self) -> tuple[str, ...]:
        """The names by which users may call its op."""
        return (self.method,) if self.op is None else (self.method, self.name, self.op)


def _name(method: str, op: str | None) -> str:
    return method if op is None else f"{method}.{op}"


class Alike(NamedTuple):
    """Cells of an op on a backend that differ in dtype and in source alone."""

    method: str
    op: str | None
    backend: str
    status: str
    via: str | None
    reason: str | None
    dtypes: tuple[str | None, ...]
    sources: tuple[Location, ...]  # of each dtype
    differentiable: bool  # whether floats have gradients

    @property
    def name(self) -> str:
        """The methods and ops that the cells are for."""
        return _name(self.method, self.op)


def _made_of(spec: Spec) -> tuple[object, ...]:
    """Return the parts of the spec that the cells depend on."""
    methods = (spec.families, spec.device_methods, spec.functors, spec.package)
    return (*methods, spec.known_dtypes, spec.formats, spec.backends, spec.lowerings)


def cells(spec: Spec) -> list[Cell]:
    """All cells: the storage methods first, then the device methods; backends and dtypes in the order of the spec."""
    return [cell for method in spec.methods for op in spec.ops(method) for cell in op_cells(spec, method, op)]


def op_cells(spec: Spec, method: Method, op: str | None) -> Iterator[Cell]:
    """The cells of one op, on each backend a cell for each dtype."""
    floats = {*spec.groups["float"]}
    cells: dict[tuple[str, str | None], Cell] = {}
    for own in alike(spec, method, op):
        for dtype, source in zip(own.dtypes, own.sources, strict=True):
            gradient = own.differentiable and (method.holds_blocks or dtype in floats)
            cells[own.backend, dtype] = Cell(
                own.method, own.op, own.backend, dtype, own.status, own.via, own.reason, gradient, source
            )
    dtypes: tuple[str | None, ...] = (None,) if spec.op_names(method, op) is None else spec.kinds(method)
    return (cells[backend.name, dtype] for backend in spec.backends for dtype in dtypes)


# More than one output needs them.
@memoize(_made_of, 1)
def alike_by_op(spec: Spec) -> list[Sequence[Alike]]:
    """The cells of each op of each method, in the same order."""
    return [alike(spec, method, op) for method in spec.methods for op in spec.ops(method)]


def _decisive(spec: Spec, method: Method, op: str | None) -> tuple[object, ...]:
    lowerings = (table[method.name, op] for table in spec.lowerings.values())
    facts = (spec.known_dtypes, spec.formats, spec.package, *spec.backends)
    return (method, op, spec.functor(method, op), *facts, *lowerings)


@memoize(_decisive)
def alike(spec: Spec, method: Method, op: str | None) -> Sequence[Alike]:
    """The cells of one op: those that a backend has for the same reason together."""
    return _one_of_equals(tuple(own for backend in spec.backends for own in _on_backend(spec, method, op, backend)))


@cache
def _one_of_equals(groups: Sequence[Alike]) -> Sequence[Alike]:
    """Return equal cells as one object, so that values cached by identity stay valid."""
    return groups


def _on_backend(spec: Spec, method: Method, op: str | None, backend: Backend) -> Iterator[Alike]:
    lowerings = spec.lowerings[backend.name][method.name, op]
    has = spec.op_dtypes(method, op)
    lacking = op_reason(spec, method, op), (spec.functor(method, op) or method).location
    has_gradient = _has_gradient(spec, method, op)
    groups: dict[tuple[str, str | None, str | None], tuple[list[str | None], list[Location]]] = {}
    for dtype in (None,) if has is None else spec.kinds(method):
        if has is None or dtype in has:
            lowering = lowerings[dtype]
            via, reason, source = lowering.via, lowering.unsupported, lowering.location
            status = "supported" if reason is None else "unsupported"
        else:
            of_library = backend.lacking.get(dtype or "") if method.operands else None
            status, via, (reason, source) = "unsupported", None, of_library or lacking
        dtypes, sources = groups.setdefault((status, via, reason), ([], []))
        dtypes.append(dtype)
        sources.append(source)
    for (status, via, reason), (own, locations) in groups.items():
        is_one = has_gradient and status == "supported"
        yield Alike(method.name, op, backend.name, status, via, reason, tuple(own), tuple(locations), is_one)


def _has_gradient(spec: Spec, method: Method, op: str | None) -> bool:
    functor, gradient = spec.functor(method, op), method.gradient
    if method.body is not None:
        return bool(differentiable(spec, method))
    if functor is not None:
        return is_differentiable(spec, functor)
    return gradient is not None and gradient.none is None and gradient.missing is None


def op_reason(spec: Spec, method: Method, op: str | None) -> str | None:
    """Why a method with `op` has not the dtypes that it lacks."""
    functor = spec.functor(method, op)
    return method.unsupported or (functor.unsupported if functor else None)


Rows = list[list[str]]


def counts(cells: Sequence[Cell]) -> tuple[list[str], Rows]:
    """A title and a row for each op: of how many of its dtypes each backend has it, and whether it has gradients."""
    backends = [*dict.fromkeys(cell.backend for cell in cells)]
    by_op: dict[str, dict[str, list[Cell]]] = {}
    for cell in cells:
        by_op.setdefault(cell.name, {}).setdefault(cell.backend, []).append(cell)
    rows = []
    for name, columns in by_op.items():
        gradient = any(cell.gradient for own in columns.values() for cell in own)
        rows.append([name, *(_count(columns[backend]) for backend in backends), "yes" if gradient else "no"])
    return ["op", *backends, "gradient"], rows


def _count(cells: Sequence[Cell]) -> str:
    supported = sum(cell.status == "supported" for cell in cells)
    if cells[0].dtype is None:
        return "yes" if supported else "no"
    return f"{supported} of {len(cells)}"


def implementations(cells: Sequence[Cell]) -> tuple[list[str], Rows]:
    """Return titles and a row for each op, backend and lowering of some dtypes, or the reason why it has none."""
    dtypes: dict[tuple[str, str, str], list[str | None]] = {}
    every: dict[str, list[str | None]] = {}
    for cell in cells:
        how = cell.via if cell.via is not None else f"unsupported: {cell.reason}"
        dtypes.setdefault((cell.name, cell.backend, how), []).append(cell.dtype)
        every.setdefault(f"{cell.name} {cell.backend}", []).append(cell.dtype)
    rows = []
    for (name, backend, how), own in dtypes.items():
        is_all = len(own) > 1 and own == every[f"{name} {backend}"]
        rows.append([name, backend, "all" if is_all else " ".join(dtype or "" for dtype in own), how])
    return ["op", "backend", "dtypes", "how"], rows


def laid_out(head: Sequence[str], rows: Rows, *, is_markdown: bool) -> Iterator[str]:
    """The lines of a table: for a terminal as wide as it is, else as wide as its texts are."""
    # No other command lays out tables, and rich takes as long to import as a small spec to check.
    from rich.box import MARKDOWN
    from rich.console import Console
    from rich.table import Table

    is_wide = is_markdown or not is_terminal(sys.stdout)
    console = Console(
        width=sys.maxsize if is_wide else None, color_system=None, markup=False, highlight=False, emoji=False
    )
    table = Table(
        box=MARKDOWN if is_markdown else None, pad_edge=is_markdown, padding=(0, 1) if is_markdown else (0, 2, 0, 0)
    )
    for title in head:
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*row)
    with console.capture() as capture:
        console.print(table)
    # Of Markdown's box, the edges above and below are empty.
    yield from (line.rstrip() for line in capture.get().splitlines() if line.strip())
