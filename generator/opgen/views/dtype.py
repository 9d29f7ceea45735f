"""The view of dtype.py."""

from typing import NamedTuple

from opgen.model import DType, Spec
from opgen.views.python import quoted


class DTypeRow(NamedTuple):
    """A member of the enum DType."""

    name: str
    value: str
    doc: str
    facts: str


class GroupRow(NamedTuple):
    """A set of dtypes."""

    name: str
    assignment: str


class DTypeView(NamedTuple):
    """dtype.py."""

    dtypes: tuple[DTypeRow, ...]
    groups: tuple[GroupRow, ...]


def _row(dtype: DType) -> DTypeRow:
    numpy = dtype.numpy.rpartition(".")
    values = [
        quoted(dtype.kind),
        str(dtype.bytes),
        quoted(numpy[0]),
        quoted(numpy[2]),
        quoted(dtype.compute),
        str(dtype.index_mark),
        quoted(dtype.safetensors),
        str(dtype.dlpack),
        quoted(dtype.cpp),
    ]
    return DTypeRow(dtype.name.upper(), dtype.name, dtype.doc, ", ".join(values))


def dtype_module(spec: Spec, _: str | None) -> DTypeView:
    """The enum DType and the groups."""
    groups = []
    for name, members in spec.groups.items():
        items = "".join(f"DType.{member.upper()}, " for member in members)
        groups.append(GroupRow(name.upper(), f"{name.upper()}: Final = frozenset(({items}))"))
    return DTypeView(tuple(_row(dtype) for dtype in spec.dtypes), tuple(groups))
