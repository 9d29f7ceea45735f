"""The formats' part of the model: what spec/formats.yaml says of the blocks in which GGML keeps weights."""

import math
from collections.abc import Callable as Function
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Final

from opgen.decoder import Diagnostics
from opgen.decoding import FIELD_TYPES, Decoding, FieldFacts, FieldType, Known, TableFacts, decode, parse_decoding
from opgen.names import Names
from opgen.notes import Choice, Entry, Key, Mark, Name, Pattern, Range, defines
from opgen.problem import Location
from opgen.quads import Quads, quads_of
from opgen.reserved import no_cpp_word

# Of the significand of an f32, in which weights are decoded.
_BITS = 24
_PARTS = ("quant", "scale", "offset")
# The quants that kernels decode together; scales belong to half of them, or to all, and to no part of a half.
_RUN = 32
# The indexes in expressions, and the members of a block in C++ besides its fields.
_TAKEN_NAMES = ("i", "g", "b", "np", "ones", "elements", "group", "has_scale", "has_offset", *_PARTS)


@dataclass(frozen=True)
class BlockField:
    """A field of a block."""

    name: Annotated[Name, no_cpp_word, Entry("field '{}'")]
    type: Annotated[str, Choice((*FIELD_TYPES,)), "The type of the field, or of an element of an array."]
    count: Annotated[int | None, Range(1), "How many there are, if the field is an array."]
    offset: Annotated[int, "Where the field begins in the block, in bytes."]
    location: Location = field(compare=False)

    @property
    def facts(self) -> FieldType:
        """Its type."""
        return FIELD_TYPES[self.type]

    @property
    def end(self) -> int:
        """Where the next field begins."""
        return self.offset + self.facts.bytes * (1 if self.count is None else self.count)

    def diagnostics(self, _: str) -> Diagnostics:
        """Note a name that something else has."""
        if self.name in _TAKEN_NAMES:
            yield (None,), f"'{self.name}' cannot be a field, the name is taken; choose another one"


@dataclass(frozen=True)
class Table:
    """Integers that quants and scales choose by an index: a list, or a grid whose rows are chosen together.

    A format has one grid at most, because kernels of GPUs copy it to shared memory; a second one is appended to it as
    further rows.
    """

    name: Annotated[Name, no_cpp_word, Entry("table '{}'")]
    values: Annotated[tuple[int, ...], "The integers of a list, or of a grid those that its digits stand for."]
    columns: Annotated[int | None, Range(4), "How many integers a row of a grid has."]
    rows: Annotated[
        str | None,
        Pattern(r"[0-9]+( [0-9]+)*", "012 210"),
        "The rows of a grid, of a digit for each integer: its position in `values`.",
    ]
    location: Location = field(compare=False)

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        """All integers, row by row."""
        return self.values if self.rows is None else tuple(self.values[int(digit)] for digit in self.digits)

    @property
    def digits(self) -> str:
        """Those of all rows."""
        return "".join((self.rows or "").split())

    def diagnostics(self, what: str) -> Diagnostics:
        """Note rows that are none of the grid."""
        if (self.rows is None) != (self.columns is None):
            yield (None,), f"{what} has one of 'rows' and 'columns'; a grid has both, and a list has neither"
        elif self.rows is not None and self.columns:
            if self.columns % 4:
                yield "columns", f"'columns' of {what} must be a multiple of 4, not {self.columns}"
            wrong = [row for row in self.rows.split() if len(row) != self.columns]
            if wrong:
                yield "rows", f"row '{wrong[0]}' of {what} has {len(wrong[0])} digits; write {self.columns}"
            largest = max((int(digit) for digit in self.digits if digit.isdecimal()), default=0)
            if largest >= len(self.values):
                yield "rows", f"a row of {what} has digit {largest}; 'values' has {len(self.values)} integers"
        if not self.values or max(map(abs, self.values)) > 127:
            yield "values", f"'values' of {what} must be integers from -127 to 127"


@dataclass(frozen=True)
class Rounding:
    """How weights are rounded to blocks, as the reference of ggml does."""

    kind: Annotated[
        str,
        Choice(("magnitude", "symmetric", "from_minimum")),
        "`magnitude`: the greatest magnitude gets the highest quant or, where scales are powers of two, at least half "
        "of it. `symmetric`: the number of the greatest magnitude gets the lowest quant. `from_minimum`: quants are "
        "steps from the least number to the greatest. Where groups share the scale of a block, or quants are of a "
        "table, scales are those of least squares.",
    ]
    search: Annotated[
        tuple[float, ...],
        Mark.OPTIONAL,
        "First, last and step of what is added to the lowest quant, or to the steps, in trials.",
    ]
    refine: Annotated[int | None, Range(1), "How often each quant is chosen again by the scale of the others."]
    lowest: Annotated[int | None, "The lowest quant that is used, if not that of the format."]
    error: Annotated[str | None, Choice(("magnitude", "square")), "What trials add up; by default squares."]
    location: Location = field(compare=False)

    def diagnostics(self, what: str) -> Diagnostics:
        """Note a search without its three numbers."""
        if len(self.search) not in (0, 3):
            yield "search", f"'search' of {what} must be a first number, a last one and a step"


@dataclass(frozen=True)
class Format:
    """A block format: its weights are quant * scale + offset."""

    name: Annotated[Name, Entry("format '{}'"), defines("format")]
    doc: Annotated[str, "What the format is, for the docs."]
    number: Annotated[int, Range(0), "What a file calls the format."]
    elements: Annotated[int, Range(1), "How many weights a block holds."]
    bytes: Annotated[int, "The size of a block: that of its fields, which follow each other."]
    fields: Annotated[tuple[BlockField, ...], "What a block holds, by name."]
    shared: Annotated[
        int | None, Key("group"), "How many weights share a scale and an offset; without this key, all of a block."
    ]
    table: Annotated[tuple[Table, ...], Mark.OPTIONAL, "What expressions look up by an index, by name."]
    let: Annotated[
        Mapping[str, str], Mark.OPTIONAL, "Named parts of expressions, each over the fields and those before."
    ]
    quant: Annotated[
        str,
        "The expression of weight `i` before it is scaled, over the fields: an integer or, if the format has no "
        "scale, a float.",
    ]
    scale: Annotated[str | None, "The expression of what the quants of group `g` are multiplied with, over the fields."]
    offset: Annotated[str | None, "The expression of what is added to the product, over the fields and `g`."]
    rounding: Annotated[
        Rounding | None, "How weights are rounded to the format; without this key, or a dtype of its name, none are."
    ]
    location: Location = field(compare=False)

    @property
    def group(self) -> int:
        """How many weights share a scale and an offset."""
        return self.elements if self.shared is None else self.shared

    @property
    def has_grid(self) -> bool:
        """Return True if expressions look up rows of a grid."""
        return any(table.rows is not None for table in self.table)

    @cached_property
    def known(self) -> Known:
        """The names that expressions may use."""
        fields = {field.name: FieldFacts(field.type, field.count) for field in self.fields}
        tables = {
            table.name: TableFacts(f"{self.name}_{table.name}", table.numbers, table.columns) for table in self.table
        }
        return {**fields, **tables}

    @cached_property
    def decodings(self) -> Mapping[str, Decoding]:
        """Return the parsed quant, scale and offset; ValueError if one is invalid."""
        return {key: self._decoding(key) for key in _PARTS if getattr(self, key) is not None}

    def _decoding(self, key: str) -> Decoding:
        index, count = ("i", self.elements) if key == "quant" else ("g", self.elements // self.group)
        return decode(getattr(self, key), self.let, self.known, index, count)

    @cached_property
    def quads(self) -> Quads:
        """The quants by fours; ValueError where they are no bytes."""
        alignments = {field.name: math.gcd(field.offset, self.bytes, 16) for field in self.fields}
        tree = parse_decoding(self.quant, self.let)
        return quads_of(tree, self.known, alignments, self.elements)

    def diagnostics(self, what: str) -> Diagnostics:
        """Note sizes that do not fit each other, several grids, and weights that are rounded more than once."""
        for table in [table for table in self.table if table.rows is not None][1:]:
            yield table.location, f"{what} has a second grid; kernels look up rows of one, so join them"
        is_whole = self.elements > 0 and all(field.type for field in self.fields)
        is_whole &= not any([*table.diagnostics("")] for table in self.table)
        errors = [] if not is_whole else [*self._sizes(what)] or [*self._flaws(what)] or [*self._roundings(what)]
        yield from errors or (() if not is_whole else self._layout(what))

    def _flaws(self, what: str) -> Diagnostics:
        for key in _PARTS:
            try:
                if getattr(self, key) is not None:
                    self._decoding(key)
            except ValueError as error:
                yield key, f"'{key}' of {what}: {error}"

    def _sizes(self, what: str) -> Diagnostics:
        end = 0
        for part in self.fields:
            begin = f"field '{part.name}' of {what}"
            if part.offset != end:
                wrong = "overlaps the one before it" if part.offset < end else "leaves a gap before it"
                yield part.location, f"{begin} {wrong}; it begins at {end}, not at {part.offset}"
            elif end % part.facts.bytes:
                yield part.location, f"{begin} must begin at a multiple of {part.facts.bytes}, not at {end}"
            end = part.end
        if self.bytes != end:
            yield "bytes", f"'bytes' of {what} must be {end}, where its fields end, not {self.bytes}"
        if self.group < 1 or self.elements % self.group:
            yield "group", f"'group' of {what} must divide its {self.elements} elements"

    def _roundings(self, what: str) -> Diagnostics:
        quant, scale, offset = map(self.decodings.get, _PARTS)
        assert quant is not None
        if scale is None and (offset is not None or not quant.is_float):
            yield (None,), f"{what} lacks the key 'scale', which makes a float of its quants; add it"
        for key, part in (("scale", scale), ("offset", offset)):
            if part is not None and not part.is_float:
                yield key, f"'{key}' of {what} must be a float, such as a field of type f16"
            elif part is not None and part.bits > _BITS:
                message = f"'{key}' of {what} has {part.bits} bits and is rounded in f32, which has {_BITS}"
                yield key, f"{message}; only the last step of a weight may round"
        if scale is not None and offset is not None and scale.bits + quant.bits > _BITS:
            message = f"quants times scales of {what} have {scale.bits + quant.bits} bits and are rounded before the"
            yield "scale", f"{message} offset is added; f32 has {_BITS}, and only the last step may round"
        if self.shared is not None and not any(part is not None and part.has_place for part in (scale, offset)):
            yield ("group", None), f"no scale or offset of {what} depends on g; remove 'group'"

    def _layout(self, what: str) -> Diagnostics:
        """Note blocks that kernels cannot read: they hold one number, or runs of quants, four in a word of 32 bits."""
        if self.scale is None:
            if self.elements != 1:
                yield "elements", f"{what} has no scale, so that a block holds 1 number, not {self.elements}; write 1"
            return
        if self.elements % _RUN:
            yield "elements", f"'elements' of {what} must be a multiple of {_RUN}, the run that kernels decode"
        elif self.group % _RUN and self.group != _RUN // 2:
            yield ("group", None), f"'group' of {what} must be {_RUN // 2} or a multiple of {_RUN}, the run of kernels"
        else:
            try:
                _ = self.quads
            except ValueError as error:
                yield "quant", f"'quant' of {what}: {error}"


@dataclass(frozen=True)
class Formats:
    """The block formats of GGML, in which GGUF files keep tensors.

    Kernels name sets of them: `blocks` (all), `quantized` (those with a scale), `gridless` (of these those without a
    grid) and `plain` (without a scale). `rounded` are those to which weights are rounded.

    `quant`, `scale` and `offset` are expressions in Python's notation. From each come one for NumPy and one for C++.
    Products are exact in f32, so a weight is rounded once, at its last step, and has the same bits everywhere. opgen
    refuses an expression if it cannot prove that.
    """

    formats: Annotated[tuple[Format, ...], "The formats by name."]


# The dtypes of an operand that holds block-quantized weights: the formats.
BLOCKS = "blocks"


FORMAT_SETS: Final[Mapping[str, Function[[Format], bool]]] = {
    BLOCKS: lambda _: True,
    "quantized": lambda each: each.scale is not None,
    "plain": lambda each: each.scale is None,
    "gridless": lambda each: each.scale is not None and not each.has_grid,
    "rounded": lambda each: each.scale is None or each.rounding is not None,
}
"""The sets of block formats, likewise."""


def is_format_set(names: Names) -> bool:
    """Return True if `names` is a set of block formats."""
    return len(names.texts) == 1 and names.texts[0] in FORMAT_SETS
