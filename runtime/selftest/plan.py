"""Chooses the cells of the support matrix to try: each op, each dtype and each function of a family."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from ..doctor.support import SupportCell, support

_COLLECTIVES: Final = "collectives"
_CUSTOM: Final = "custom"
_PREFERRED: Final = "f32"

NOT_TRIED: Final = {
    _COLLECTIVES: "they need several devices; run your program with `python -m {package}.launch`",
    _CUSTOM: "they run the code of whoever writes them",
}
"""Families that are not tried, and why."""

# Methods without results to compare, and those that a program of `programs` runs.
_PROGRAMS: Final = ("graph", "compile", "synchronize", "get_current_seed", "set_seed")


@dataclass(frozen=True)
class Family:
    """Cells whose methods stand in one file of the spec."""

    name: str
    cells: tuple[SupportCell, ...]
    """The cells to try."""
    count: int
    """The number of cells that the backend supports."""


def families(backend: str) -> list[Family]:
    """The families of a backend, in the order of the matrix, but for those that are not tried."""
    groups: dict[str, list[SupportCell]] = {}
    for cell in support():
        if cell.backend == backend and cell.status == "supported" and is_call(cell):
            groups.setdefault(family_of(cell), []).append(cell)
    return [
        Family(name, tuple(chosen(cells)), len(cells))
        for name, cells in sorted(groups.items())
        if name not in NOT_TRIED
    ]


def is_call(cell: SupportCell) -> bool:
    """Return True for a method that returns elements, and False for attributes and programs."""
    owner = owner_of(cell)
    return cell.method not in _PROGRAMS and callable(getattr(owner, cell.method, None))


def family_of(cell: SupportCell) -> str:
    """The file of spec/storage that has the method; of a device's, the module whose function is called."""
    from ...device import Device

    owner = owner_of(cell)
    if owner is Device:
        # The last of the functions is the one that serves every machine.
        return str(cell.via).rpartition(" or ")[2].rpartition(": ")[2].partition(".")[0]
    home = next(base for base in owner.__mro__ if cell.method in vars(base))
    return home.__module__.rpartition(".")[2]


def owner_of(cell: SupportCell) -> type:
    """Return the class whose method a cell calls."""
    from ...device import Device
    from ...ggml_dtype import GgmlDType
    from ...storage import QStorage, Storage

    if isinstance(cell.dtype, GgmlDType):
        return QStorage
    return Device if hasattr(Device, cell.method) else Storage


def chosen(cells: Iterable[SupportCell]) -> Iterator[SupportCell]:
    """Yield few cells of a family with every op, every dtype of every method that has no ops, and every function.

    Kernels of another dtype differ in a type, and those of another op in an expression: a family with all ops and all
    dtypes has all of their code.
    """
    cells = list(cells)
    used = Counter[object]()
    seen: set[object] = set()
    by_op: dict[object, list[SupportCell]] = {}
    for cell in cells:
        by_op.setdefault((cell.method, cell.op), []).append(cell)
    picked: list[SupportCell] = []
    for group in by_op.values():
        first = min(group, key=lambda cell: (used[cell.dtype], str(cell.dtype) != _PREFERRED))
        used[first.dtype] += 1
        picked.append(first)
        seen |= _traits(first)
    for cell in cells:
        traits = _traits(cell)
        if not traits <= seen:
            seen |= traits
            picked.append(cell)
    order = {id(cell): number for number, cell in enumerate(cells)}
    yield from sorted(picked, key=lambda cell: order[id(cell)])


def _traits(cell: SupportCell) -> set[object]:
    """Return the features that a cell covers."""
    return {(cell.method, cell.via), (cell.method if cell.op is None else "ops", cell.dtype)}


def views(backend: str, name: str) -> Family:
    """Return a cell of each method, for strided operands with an offset."""
    from ...device import Device
    from ...dtype import DType

    by_method: dict[str, SupportCell] = {}
    for cell in support():
        if cell.backend != backend or cell.status != "supported" or not isinstance(cell.dtype, DType):
            continue
        if owner_of(cell) is Device or not is_call(cell) or family_of(cell) in NOT_TRIED:
            continue
        if cell.method not in by_method or (str(cell.dtype) == _PREFERRED != str(by_method[cell.method].dtype)):
            by_method[cell.method] = cell
    return Family(name, tuple(by_method.values()), len(by_method))
