"""The view of dtype.py."""

from dataclasses import dataclass

from opgen.model import DType, Spec
from opgen.views.python import wrapped


@dataclass(frozen=True)
class DTypeRow:
    """A member of the enum DType."""

    name: str
    value: str
    doc: str
    facts: str


@dataclass(frozen=True)
class GroupRow:
    """A set of dtypes."""

    name: str
    assignment: str


@dataclass(frozen=True)
class DTypeView:
    """dtype.py."""

    dtypes: tuple[DTypeRow, ...]
    groups: tuple[GroupRow, ...]


def _row(dtype: DType) -> DTypeRow:
    numpy = dtype.numpy.rpartition(".")
    values = [
        f'"{dtype.kind}"',
        str(dtype.bytes),
        f'"{numpy[0]}"',
        f'"{numpy[2]}"',
        f'"{dtype.compute}"',
        str(dtype.index_mark),
        f'"{dtype.safetensors}"',
        str(dtype.dlpack),
    ]
    return DTypeRow(dtype.name.upper(), dtype.name, dtype.doc, ", ".join(values))


def dtype_module(spec: Spec, _: str | None) -> DTypeView:
    """The enum DType and the groups."""
    groups = []
    for name, members in spec.groups.items():
        items = [f"DType.{member.upper()}" for member in members]
        one_line = f"{name.upper()}: Final = frozenset(({', '.join(items)}))"
        if len(one_line) > 120:
            one_line = wrapped(f"{name.upper()}: Final = frozenset(\n    (", [f"{item}" for item in items], ")\n)", 4)
            inner = "".join(f"        {item},\n" for item in items)
            one_line = f"{name.upper()}: Final = frozenset(\n    (\n{inner}    )\n)"
        groups.append(GroupRow(name.upper(), one_line))
    return DTypeView(tuple(_row(dtype) for dtype in spec.dtypes), tuple(groups))
