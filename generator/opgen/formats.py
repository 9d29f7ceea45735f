"""The formats' part of the model: what spec/formats.yaml says of the blocks in which GGML keeps weights."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from opgen.decoding import FIELD_TYPES, Decoding, FieldType, Quads, decode, quads_of
from opgen.fields import Fields
from opgen.loader import Document, Value
from opgen.problem import Location, Problem

# Of the significand of an f32, in which weights are decoded.
_BITS = 24
# What expressions call places, and the members that a block has in C++ besides its fields.
_TAKEN_NAMES = ("i", "g", "elements", "group", "has_scale", "has_offset", "quant", "scale", "offset")


@dataclass(frozen=True)
class BlockField:
    """A field of a block."""

    name: str
    type: str  # a key of FIELD_TYPES
    count: int | None  # of an array
    offset: int
    location: Location

    @property
    def facts(self) -> FieldType:
        """Its type."""
        return FIELD_TYPES[self.type]

    @property
    def end(self) -> int:
        """Where the next field begins."""
        return self.offset + self.facts.bytes * (1 if self.count is None else self.count)


@dataclass(frozen=True)
class Format:
    """A block format: its weights are quant * scale + offset."""

    name: str
    doc: str
    number: int
    elements: int
    bytes: int
    fields: tuple[BlockField, ...]
    group: int  # how many weights share a scale and an offset
    quant: Decoding | None  # None where it is a mistake
    quads: Quads | None
    scale: Decoding | None
    offset: Decoding | None
    location: Location


def build_formats(document: Document, problems: list[Problem]) -> tuple[Format, ...]:
    """The block formats."""
    fields = Fields(document.root, "formats.yaml", problems)
    formats = tuple(_format(name, value, problems) for name, value in fields.mapping("formats").items())
    fields.finish()
    owners: dict[int, str] = {}
    for item in formats:
        if owners.setdefault(item.number, item.name) != item.name:
            message = f"number {item.number} is that of format '{owners[item.number]}' too; choose another"
            problems.append(Problem(item.location, message))
    return formats


def _format(name: str, value: Value, problems: list[Problem]) -> Format:
    before = len(problems)
    fields = Fields(value, f"format '{name}'", problems)
    number, elements, size = (fields.integer(key) for key in ("number", "elements", "bytes"))
    members = tuple(_field(key, inner, problems) for key, inner in fields.mapping("fields").items())
    group_value = fields.optional("group")
    group = elements if group_value is None else fields.scalar(group_value, int, "group") or 0
    doc = fields.text("doc")
    written = {key: text for key in ("quant", "scale", "offset") if (text := _expression(fields, key)) is not None}
    fields.finish()
    if len(problems) == before:
        _check_sizes(fields, number, elements, size, members, group_value)
    decodings: dict[str, Decoding] = {}
    known = {member.name: (member.type, member.count) for member in members}
    if len(problems) == before:
        for key, text in written.items():
            place, count = ("i", elements) if key == "quant" else ("g", elements // group)
            try:
                decodings[key] = decode(text, known, place, count)
            except ValueError as error:
                fields.problem(fields.place(key), f"'{key}' of {fields.what}: {error}")
    quads = None
    if len(problems) == before:
        alignments = {member.name: math.gcd(member.offset, size, 16) for member in members}
        quads = quads_of(written["quant"], known, alignments, elements)
        _check_decodings(fields, decodings, group_value)
    return Format(
        name=name,
        doc=doc,
        number=number,
        elements=elements,
        bytes=size,
        fields=members,
        group=group,
        quant=decodings.get("quant"),
        quads=quads,
        scale=decodings.get("scale"),
        offset=decodings.get("offset"),
        location=value.key_location,
    )


def _expression(fields: Fields, key: str) -> str | None:
    return fields.text(key) if key == "quant" else fields.text_or_none(key)


def _field(name: str, value: Value, problems: list[Problem]) -> BlockField:
    fields = Fields(value, f"field '{name}'", problems)
    kind = fields.choice("type", tuple(FIELD_TYPES))
    count = fields.scalar(fields.optional("count"), int, "count")
    field = BlockField(name, kind, count, fields.integer("offset"), value.key_location)
    if name in _TAKEN_NAMES:
        fields.problem(field.location, f"'{name}' cannot be a field, the name is taken; choose another one")
    if count is not None and count < 1:
        fields.problem(fields.place("count"), f"'count' of {fields.what} must be 1 or more, not {count}")
    fields.finish()
    return field


def _check_sizes(
    fields: Fields, number: int, elements: int, size: int, members: tuple[BlockField, ...], group: Value | None
) -> None:
    """Note numbers that no file has, fields that do not follow each other, and a size that is not theirs."""
    for key, given, least in (("number", number, 0), ("elements", elements, 1)):
        if given < least:
            fields.problem(fields.place(key), f"'{key}' of {fields.what} must be {least} or more, not {given}")
    end = 0
    for member in members:
        if member.offset != end:
            what = "overlaps the one before it" if member.offset < end else "leaves a gap before it"
            message = f"field '{member.name}' of {fields.what} {what}; it begins at {end}, not at {member.offset}"
            fields.problem(member.location, message)
        elif end % member.facts.bytes:
            message = (
                f"field '{member.name}' of {fields.what} must begin at a multiple of {member.facts.bytes}, not at {end}"
            )
            fields.problem(member.location, message)
        end = member.end
    if size != end:
        fields.problem(
            fields.place("bytes"), f"'bytes' of {fields.what} must be {end}, where its fields end, not {size}"
        )
    if group is not None and not (
        isinstance(group.content, int) and group.content > 0 and elements % group.content == 0
    ):
        fields.problem(group.location, f"'group' of {fields.what} must divide its {elements} elements")


def _check_decodings(fields: Fields, decodings: Mapping[str, Decoding], group: Value | None) -> None:
    """Note a weight that is rounded more than once, and a group that nothing depends on."""
    scale, offset, quant = (decodings.get(key) for key in ("scale", "offset", "quant"))
    if quant is None:
        return
    if scale is None and (offset is not None or not quant.is_float):
        fields.problem(
            fields.key_location, f"{fields.what} lacks the key 'scale', which makes a float of its quants; add it"
        )
    for key, part in (("scale", scale), ("offset", offset)):
        if part is not None and not part.is_float:
            fields.problem(fields.place(key), f"'{key}' of {fields.what} must be a float, such as a field of type f16")
        elif part is not None and part.bits > _BITS:
            message = f"'{key}' of {fields.what} has {part.bits} bits and is rounded in f32, which has {_BITS}"
            fields.problem(fields.place(key), f"{message}; only the last step of a weight may round")
    if scale is not None and offset is not None and scale.bits + quant.bits > _BITS:
        message = f"quants times scales of {fields.what} have {scale.bits + quant.bits} bits and are rounded before the"
        fields.problem(
            fields.place("scale"), f"{message} offset is added; f32 has {_BITS}, and only the last step may round"
        )
    if group is not None and not any(part is not None and part.has_place for part in (scale, offset)):
        fields.problem(group.key_location, f"no scale or offset of {fields.what} depends on g; remove 'group'")
