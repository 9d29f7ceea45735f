"""Views of the block formats: their enum, their blocks in C++, how NumPy and C++ decode them, and their page."""

from typing import NamedTuple

from opgen.decoding import Decoding, Quads
from opgen.formats import BlockField, Format
from opgen.model import Spec
from opgen.views.python import quoted


class PartRow(NamedTuple):
    """What makes a weight: its quant, or the scale or the offset of its group."""

    name: str
    text: str  # as the spec writes it, for a table
    cpp_type: str
    cpp_place: str
    cpp: str
    numpy_place: str
    numpy: str


class FormatRow(NamedTuple):
    """A block format."""

    name: str  # the member of its enum
    struct: str  # in C++
    doc: str
    number: int
    elements: int
    bytes: int
    bits: str  # a weight's
    group: int
    has_scale: str  # in C++
    has_offset: str
    declarations: tuple[str, ...]  # of its fields in C++
    offsets: tuple[tuple[str, int], ...]  # by field
    numpy: str  # the fields in NumPy: (name, module, type, count) of each
    shown: str  # the fields, for people
    parts: tuple[PartRow, ...]
    quads: Quads | None


class FormatsView(NamedTuple):
    """The block formats."""

    formats: tuple[FormatRow, ...]


def formats(spec: Spec, _: str | None) -> FormatsView:
    """The block formats, in the order of the spec."""
    return FormatsView(tuple(map(_row, spec.formats)))


def _row(item: Format) -> FormatRow:
    return FormatRow(
        name=item.name.upper(),
        struct=struct_name(item.name.upper()),
        doc=item.doc,
        number=item.number,
        elements=item.elements,
        bytes=item.bytes,
        bits=f"{8 * item.bytes / item.elements:g}",
        group=item.group,
        has_scale=str(item.scale is not None).lower(),
        has_offset=str(item.offset is not None).lower(),
        declarations=tuple(f"{field.facts.cpp} {field.name}{_count(field)};" for field in item.fields),
        offsets=tuple((field.name, field.offset) for field in item.fields),
        numpy=", ".join(map(_numpy, item.fields)),
        shown=", ".join(f"{field.name}: {field.type}{_count(field)}" for field in item.fields),
        quads=item.quads,
        parts=tuple(_part(name, decoding) for name, decoding in item.decodings.items()),
    )


def struct_name(name: str) -> str:
    """What C++ calls the block of a format."""
    return f"Block{name}"


def _part(name: str, decoding: Decoding) -> PartRow:
    has_place, place = decoding.has_place, "i" if name == "quant" else "g"
    return PartRow(
        name=name,
        text=decoding.text.replace("|", "\\|"),
        cpp_type="float" if decoding.is_float else "int",
        cpp_place=f"uint32_t {place}" if has_place else "uint32_t",
        cpp=decoding.cpp,
        numpy_place=place if has_place else "_",
        numpy=decoding.numpy,
    )


def _count(field: BlockField) -> str:
    return "" if field.count is None else f"[{field.count}]"


def _numpy(field: BlockField) -> str:
    module, _, name = field.facts.numpy.rpartition(".")
    return f"({quoted(field.name)}, {quoted(module)}, {quoted(name)}, {field.count})"
