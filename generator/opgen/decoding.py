"""How a weight is decoded: an expression of a block's fields and of a place in it, written once for NumPy and C++."""

import ast
import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from opgen.expression import ExpressionError, parse_expression
from opgen.problem import did_you_mean


class FieldType(NamedTuple):
    """The type of a field of a block."""

    cpp: str
    numpy: str
    bytes: int
    low: int  # of integers, the least and the greatest
    high: int
    bits: int  # of floats, those of the significand; 0 of integers


FIELD_TYPES: Final = {
    "u8": FieldType("uint8_t", "numpy.uint8", 1, 0, 255, 0),
    "i8": FieldType("int8_t", "numpy.int8", 1, -128, 127, 0),
    "i16": FieldType("int16_t", "numpy.int16", 2, -32768, 32767, 0),
    "f16": FieldType("f16", "numpy.float16", 2, 0, 0, 11),
    "bf16": FieldType("bf16", "ml_dtypes.bfloat16", 2, 0, 0, 8),
    "f32": FieldType("float", "numpy.float32", 4, 0, 0, 24),
}
# NumPy makes a float32 of a product of one with integers of 16 bits, and a float64 of one with wider ones.
_MOST: Final = (1 << 15) - 1
_OPERATORS: Final[Mapping[type[ast.operator], str]] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "/",
    ast.Mod: "%",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.BitAnd: "&",
    ast.BitOr: "|",
}


@dataclass(frozen=True)
class Decoding:
    """An expression in both languages, and how many bits its significand has."""

    text: str
    numpy: str  # of the blocks b and the place
    cpp: str  # of the fields and the place
    bits: int
    is_float: bool
    has_place: bool


class _Part(NamedTuple):
    """A part of an expression: what it is in both languages, and its range, or its bits where it is a float."""

    numpy: ast.expr
    cpp: str
    low: int
    high: int
    bits: int = 0
    has_place: bool = False

    @property
    def exact_bits(self) -> int:
        """The bits of the significand that it has as a float."""
        return self.bits or max(self.high.bit_length(), (-self.low - 1).bit_length() if self.low < 0 else 0)


def decode(text: str, fields: Mapping[str, tuple[str, int | None]], place: str, count: int) -> Decoding:
    """The expression `text` over fields, given by type and length, and over a place below `count`.

    ValueError where it is none, names what there is not, reaches outside a field, or may not be exact.
    """
    try:
        tree = parse_expression(text)
    except ExpressionError as error:
        raise ValueError(f"'{text}' is no expression of Python ({error}); write one over the fields") from None
    part = _Translator(fields, place, count).part(tree)
    return Decoding(text, ast.unparse(part.numpy), _bare(part.cpp), part.exact_bits, part.bits > 0, part.has_place)


def _bare(cpp: str) -> str:
    """A part without the brackets that each operation has around it."""
    return cpp[1:-1] if cpp.startswith("(") else cpp


class _Translator:
    def __init__(self, fields: Mapping[str, tuple[str, int | None]], place: str, count: int) -> None:
        self._fields = fields
        self._place = place
        self._count = count

    def part(self, node: ast.expr) -> _Part:
        """A part, whose numbers fit what NumPy computes in."""
        part = self._part(node)
        if max(part.high, -part.low) > _MOST:
            raise ValueError(f"'{ast.unparse(node)}' may be beyond 16 bits; let it be at most {_MOST}")
        return part

    def _part(self, node: ast.expr) -> _Part:
        match node:
            case ast.Constant(value=int(number)) if type(number) is int:
                return _Part(node, str(number), number, number)
            case ast.Name(id=name) if name == self._place:
                return _Part(node, name, 0, self._count - 1, has_place=True)
            case ast.Name(id=name):
                return self._field(name, None)
            case ast.Subscript(value=ast.Name(id=name), slice=index):
                return self._field(name, self.part(index))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                part = self.part(operand)
                negative = ast.UnaryOp(ast.USub(), part.numpy)
                return part._replace(numpy=negative, cpp=f"(-{part.cpp})", low=-part.high, high=-part.low)
            case ast.IfExp(test=ast.Compare(left=left, ops=[ast.Lt()], comparators=[right]), body=body, orelse=other):
                return self._choice(*map(self.part, (left, right, body, other)))
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
                return self._joined(node, operator, self.part(left), self.part(right))
        known = "integers, fields, + - * // % << >> & | and 'x if y < z else w'"
        raise ValueError(f"'{ast.unparse(node)}' has no place in a decoder; write it with {known}")

    def _field(self, name: str, index: _Part | None) -> _Part:
        if name not in self._fields:
            known = [*self._fields, self._place]
            raise ValueError(f"unknown name '{name}'{did_you_mean(name, known)}")
        kind, length = self._fields[name]
        if (index is None) != (length is None):
            mend = f"write '{name}[{self._place}]'" if index is None else f"write '{name}' alone"
            raise ValueError(f"'{name}' is {'an array' if index is None else 'no array'}; {mend}")
        if index is not None and not 0 <= index.low <= index.high < (length or 0):
            reached = f"its index is from {index.low} to {index.high}"
            raise ValueError(f"'{name}' has {length} elements, and {reached}; let it stay inside")
        facts = FIELD_TYPES[kind]
        arguments: list[ast.expr] = [ast.Name("b"), ast.Constant(name)]
        arguments += [] if index is None else [index.numpy]
        taken = ast.Call(ast.Name("floats" if facts.bits else "integers"), arguments, [])
        cpp = name if index is None else f"{name}[{_bare(index.cpp)}]"
        spelled = f"to_compute({cpp})" if facts.bits else cpp
        return _Part(taken, spelled, facts.low, facts.high, facts.bits, index is not None and index.has_place)

    def _choice(self, left: _Part, right: _Part, body: _Part, other: _Part) -> _Part:
        if left.bits or right.bits or body.bits or other.bits:
            raise ValueError("a choice is one of integers; multiply with the float outside of it")
        test = ast.Compare(left.numpy, [ast.Lt()], [right.numpy])
        where = ast.Attribute(ast.Name("np"), "where")
        return _Part(
            ast.Call(where, [test, body.numpy, other.numpy], []),
            f"either({left.cpp} < {right.cpp}, {body.cpp}, {other.cpp})",
            min(body.low, other.low),
            max(body.high, other.high),
            has_place=left.has_place or right.has_place or body.has_place or other.has_place,
        )

    def _joined(self, node: ast.expr, operator: ast.operator, left: _Part, right: _Part) -> _Part:
        has_place = left.has_place or right.has_place
        numpy = ast.BinOp(left.numpy, operator, right.numpy)
        if left.bits or right.bits:
            if not isinstance(operator, ast.Mult):
                raise ValueError(
                    f"'{ast.unparse(node)}' may round; floats are multiplied alone, and an offset is added last"
                )
            sides = [part.cpp if part.bits else f"static_cast<float>({_bare(part.cpp)})" for part in (left, right)]
            bits = left.exact_bits + right.exact_bits
            return _Part(numpy, f"({' * '.join(sides)})", 0, 0, bits, has_place)
        low, high = _range(node, operator, left, right)
        return _Part(numpy, f"({left.cpp} {_OPERATORS[type(operator)]} {right.cpp})", low, high, 0, has_place)


def _range(node: ast.expr, operator: ast.operator, left: _Part, right: _Part) -> tuple[int, int]:
    """The least and the greatest number that an operation of integers gives."""
    ends = [(x, y) for x in (left.low, left.high) for y in (right.low, right.high)]
    match operator:
        case ast.Add():
            return left.low + right.low, left.high + right.high
        case ast.Sub():
            return left.low - right.high, left.high - right.low
        case ast.Mult():
            products = [x * y for x, y in ends]
            return min(products), max(products)
    # Here the two languages differ below 0.
    is_division = isinstance(operator, ast.FloorDiv | ast.Mod)
    if left.low < 0 or right.low < is_division or (isinstance(operator, ast.LShift | ast.RShift) and right.high > 15):
        raise ValueError(f"'{ast.unparse(node)}' may be undefined; let its sides be from 0 on, and shifts below 16")
    match operator:
        case ast.FloorDiv():
            return left.low // right.high, left.high // right.low
        case ast.Mod():
            return 0, min(left.high, right.high - 1)
        case ast.RShift():
            return left.low >> right.high, left.high >> right.low
        case ast.LShift():
            return left.low << right.low, left.high << right.high
        case ast.BitAnd():
            return 0, min(left.high, right.high)
    return max(left.low, right.low), (1 << max(left.high.bit_length(), right.high.bit_length())) - 1


class Quads(NamedTuple):
    """Four quants that follow each other, in C++: bytes of a word, and what is added to each.

    The quants that are `apart` from each other stand in the same bytes, which are loaded once.
    """

    loads: int
    loaded: str  # a list of the words of each load, for N of them that follow each other from `first` on
    cpp: str  # of word `quad` of all loads, and of i, the place of the first of the four
    bias: int
    highest: int  # what a byte of a word is at most
    runs: int  # how many quants the same bytes hold
    apart: int


def quads_of(
    text: str, fields: Mapping[str, tuple[str, int | None]], offsets: Mapping[str, int], count: int
) -> Quads | None:
    """The quants of a block by fours; None where their bytes do not follow each other. `text` can be decoded.

    Fields begin at addresses that are multiples of `offsets`.
    """
    tree = ast.parse(text, mode="eval").body
    bias = 0
    match tree:
        case ast.BinOp(left=left, op=ast.Sub(), right=ast.Constant(value=int(number))):
            tree, bias = left, -number
    try:
        made = _Quads(fields, offsets, count)
        cpp = made.word(tree)
    except _ApartError:
        return None
    highest = _Translator(fields, "i", count).part(tree).high
    if made.is_signed:
        cpp, bias, highest = f"{cpp} ^ 0x80808080u", bias - 128, highest + 128
    return Quads(len(made.loads), f"{{{{{', '.join(made.loads)}}}}}", _bare(cpp), bias, highest, *made.runs)


class _ApartError(Exception):
    """Four quants do not stand in a word."""


class _Quads:
    def __init__(self, fields: Mapping[str, tuple[str, int | None]], offsets: Mapping[str, int], count: int) -> None:
        self._fields = fields
        self._offsets = offsets
        self._count = count
        self.is_signed = False
        self.loads: list[str] = []
        # Those whose quants stand in the first byte of each field.
        self._places = set(range(count))

    @property
    def runs(self) -> tuple[int, int]:
        """How many quants the same bytes hold, and how far these are from each other."""
        places = sorted(self._places)
        return len(places), places[1] if len(places) > 1 else self._count

    def word(self, node: ast.expr) -> str:
        """A word of four bytes, each of which is the value of `node` at one of four places."""
        match node:
            case ast.Subscript(value=ast.Name(id=name), slice=index) if self._steps(index) == {1}:
                places = self._values(index)
                self._places &= {place for place in range(self._count) if places[place] == places[0]}
                self.is_signed |= FIELD_TYPES[self._fields[name][0]].low < 0
                # So many quants from a multiple of it on are bytes from a multiple of it on.
                whole = [n for n in (8, 16) if all(places[place] % n == 0 for place in range(0, self._count, n))]
                aligned = min(self._offsets[name], max(whole, default=4))
                self.loads.append(f"load_words<{aligned}, N>({name} + {self._cpp(index, 'first')})")
                return f"loaded.words[{len(self.loads) - 1}].values[quad]"
            case ast.BinOp(left=ast.BinOp(left=left, op=ast.RShift(), right=shift), op=ast.BitAnd(), right=mask):
                steps = self._steps(shift)
                if steps == {0}:
                    return f"(({self.word(left)} >> {self._cpp(shift)}) & {self._mask(mask, max(self._values(shift)))})"
                if steps == {1} and isinstance(left, ast.Subscript) and self._steps(left.slice) == {0}:
                    return f"spread_bits<N>({ast.unparse(left.value)}, {self._cpp(left.slice)}, {self._cpp(shift)})"
            case ast.BinOp(left=left, op=ast.BitAnd(), right=mask):
                return f"({self.word(left)} & {self._mask(mask, 0)})"
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                return f"({self.word(left)} | {self.word(right)})"
            case ast.BinOp(left=left, op=ast.LShift(), right=ast.Constant(value=int(number))):
                return f"({self.word(left)} << {number})"
        raise _ApartError

    def _values(self, node: ast.expr) -> list[int]:
        code = compile(ast.Expression(node), "<place>", "eval")
        try:
            return [int(eval(code, {}, {"i": place})) for place in range(self._count)]
        except NameError:  # a field's element
            raise _ApartError from None

    def _steps(self, node: ast.expr) -> set[int]:
        """From each place to the next of the same four."""
        values = self._values(node)
        return {values[i + 1] - values[i] for i in range(self._count - 1) if i % 4 != 3}

    def _mask(self, node: ast.expr, shift: int) -> str:
        # Bits of the byte above are cleared, which a mask of fewer bits does.
        if not isinstance(node, ast.Constant) or not isinstance(node.value, int) or node.value >> 8 - shift:
            raise _ApartError
        return f"0x{node.value * 0x01010101:08x}u"

    def _cpp(self, node: ast.expr, place: str = "i") -> str:
        named = _Renamed("i", place).visit(copy.deepcopy(node))
        return _Translator({}, place, self._count).part(named).cpp


class _Renamed(ast.NodeTransformer):
    """A name in the place of another."""

    def __init__(self, name: str, other: str) -> None:
        self._name = name
        self._other = other

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self._other) if node.id == self._name else node
