"""How a weight is decoded: an expression of a block's fields and an index in it, written once for NumPy and C++."""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from opgen.expression import ExpressionError, parse_expression, substituted
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
    "u16": FieldType("uint16_t", "numpy.uint16", 2, 0, 65535, 0),
    "f16": FieldType("f16", "numpy.float16", 2, 0, 0, 11),
    "bf16": FieldType("bf16", "ml_dtypes.bfloat16", 2, 0, 0, 8),
    "f32": FieldType("float", "numpy.float32", 4, 0, 0, 24),
}
# NumPy computes in 16 bits where all numbers fit them, and else in 32; floats hold this many exactly.
_NARROW: Final = (1 << 15) - 1
_MOST: Final = (1 << 24) - 1
_EXPONENTS: Final = range(-149, 128)
# Rows of at most this many integers, each of at most this many choices, are words of four bits for each.
_CODED_COLUMNS: Final = 8
_MAX_CHOICES: Final = 8
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


class FieldFacts(NamedTuple):
    """A field of a block."""

    type: str
    length: int | None


class TableFacts(NamedTuple):
    """Integers that a format defines, row by row; `columns` is None of a list.

    Kernels have a row of a grid as words of four bytes or, if it has eight integers of at most eight, as a word of
    their positions in the sorted `choices`, four bits each.
    """

    name: str  # in C++, and in capitals in Python
    numbers: tuple[int, ...]
    columns: int | None

    @property
    def bias(self) -> int:
        """The offset that kernels add to the bytes of a grid, which are not negative."""
        return min(0, *self.numbers)

    @property
    def choices(self) -> tuple[int, ...]:
        """The integers that rows choose from, where a row is a word of positions; else none."""
        choices = tuple(sorted({*self.numbers}))
        return choices if self.columns == _CODED_COLUMNS and len(choices) <= _MAX_CHOICES else ()

    @property
    def choice_bytes(self) -> str:
        """The choices less the bias in C++, a byte each."""
        return f"0x{int.from_bytes(bytes(number - self.bias for number in self.choices), 'little'):x}ull"

    @property
    def words(self) -> tuple[int, ...]:
        """The words of all rows of a grid."""
        if choices := self.choices:
            code_of = {number: code for code, number in enumerate(choices)}
            codes = [code_of[number] for number in self.numbers]
            return tuple(sum(code << 4 * k for k, code in enumerate(codes[j : j + 8])) for j in range(0, len(codes), 8))
        numbers = bytes(number - self.bias for number in self.numbers)
        return tuple(int.from_bytes(numbers[k : k + 4], "little") for k in range(0, len(numbers), 4))


Known: TypeAlias = Mapping[str, FieldFacts | TableFacts]
"""The names that expressions may use besides the index."""


@dataclass(frozen=True)
class Decoding:
    """An expression in both languages, and how many bits its significand has."""

    text: str
    numpy: str  # of the blocks b and the index
    cpp: str  # of the fields and the index
    bits: int
    is_float: bool
    has_place: bool
    low: int
    high: int


class Part(NamedTuple):
    """A part of an expression: what it is in both languages, and its range; of a float that of its integer factors."""

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


def parse_decoding(text: str, let: Mapping[str, str]) -> ast.expr:
    """Return the tree of an expression with the parts of `let` substituted; ValueError if it is none."""
    parts: dict[str, ast.expr] = {}
    for name, part in {**let, "": text}.items():
        try:
            parts[name] = substituted(parse_expression(part), parts)
        except ExpressionError as error:
            raise ValueError(f"'{part}' is no expression of Python ({error}); write one over the fields") from None
    return parts[""]


def decode(text: str, let: Mapping[str, str], known: Known, index: str, count: int) -> Decoding:
    """The expression `text` over fields and tables, and over an index below `count`.

    ValueError where it is none, names what there is not, reaches outside a field, or may not be exact.
    """
    tree = parse_decoding(text, let)
    translator = Translator(known, index, count)
    part = translator.part(tree)
    if translator.highest > _NARROW:
        part = Translator(known, index, count, is_wide=True).part(tree)
        if not part.bits:
            part = part._replace(numpy=_converted(part.numpy, "int16"))
    numpy, cpp = ast.unparse(part.numpy), bare(part.cpp)
    return Decoding(text, numpy, cpp, part.exact_bits, part.bits > 0, part.has_place, part.low, part.high)


def place_values(node: ast.expr, index: str, count: int) -> Sequence[int] | None:
    """Return the values of an expression of the index alone; None if it has fields, or an error."""
    return _values(ast.unparse(node), index, count)


@lru_cache(4096)
def _values(text: str, index: str, count: int) -> Sequence[int] | None:
    try:
        code = compile(text, "<index>", "eval")
        return tuple(int(eval(code, {"__builtins__": {}}, {index: i})) for i in range(count))
    except (ArithmeticError, NameError):
        return None


@lru_cache(64)
def positions_of_sevens(text: str, field: str, width: int, length: int, block: range) -> Sequence[int] | None:
    """Return where in a field the seven bits begin that an expression of it and of `i` is; None if it is no such.

    The field has `length` elements of `width` bits. It is tried with contents that identify its bits: in the k-th one
    a bit is bit k of its own position.
    """
    code = compile(text, "<bits>", "eval")
    bits = range(width * length)
    contents = [sum((position >> k & 1) << position for position in bits) for k in range(len(bits).bit_length())]
    values = []
    for content in contents:
        elements = [content >> width * k & (1 << width) - 1 for k in range(length)]
        try:
            values.append([eval(code, {"__builtins__": {}}, {field: elements, "i": i}) for i in block])
        except (ArithmeticError, NameError, ValueError, IndexError):
            return None
    positions = [sum((value & 1) << k for k, value in enumerate(column)) for column in zip(*values, strict=True)]
    sevens = [[content >> position & 127 for position in positions] for content in contents]
    return positions if sevens == values else None


def bare(cpp: str) -> str:
    """A part without the brackets that each operation has around it."""
    return cpp[1:-1] if cpp.startswith("(") else cpp


def _converted(numpy: ast.expr, kind: str) -> ast.expr:
    """Return an array of integers as another type; a number stays as it is."""
    if not any(isinstance(node, ast.Name) for node in ast.walk(numpy)):
        return numpy
    return ast.Call(ast.Attribute(numpy, "astype"), [ast.Attribute(ast.Name("np"), kind)], [])


class Translator:
    """Translates parts of expressions; `highest` is the largest magnitude of an integer so far."""

    def __init__(self, known: Known, index: str, count: int, *, is_wide: bool = False) -> None:
        self._known = known
        self._place = index
        self._count = count
        self._is_wide = is_wide
        self.highest = 0

    def part(self, node: ast.expr) -> Part:
        """A part, whose numbers floats hold. The range of values that depend on the index alone is exact."""
        part = self._part(node)
        values = None if part.bits or isinstance(node, ast.Constant) else place_values(node, self._place, self._count)
        if values is not None:
            part = part._replace(low=min(values), high=max(values))
        if not part.bits:
            self.highest = max(self.highest, part.high, -part.low)
        if self.highest > _MOST:
            raise ValueError(f"'{ast.unparse(node)}' may be beyond 24 bits; let it be at most {_MOST}")
        return part

    def _part(self, node: ast.expr) -> Part:
        match node:
            case ast.Constant(value=int(number)) if type(number) is int:
                return Part(node, str(number), number, number)
            case ast.Name(id=name) if name == self._place:
                return Part(node, name, 0, self._count - 1, has_place=True)
            case ast.Name(id=name):
                return self._named(name)
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Tuple(elts=[row, column])):
                return self._named(name, self.part(row), self.part(column))
            case ast.Subscript(value=ast.Name(id=name), slice=index):
                return self._named(name, self.part(index))
            case ast.BinOp(left=ast.Constant(value=2), op=ast.Pow(), right=exponent):
                return self._power(self.part(exponent))
            case ast.Call(func=ast.Name(id="ones"), args=[argument], keywords=[]):
                return self._ones(self.part(argument))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                part = self.part(operand)
                negative = ast.UnaryOp(ast.USub(), part.numpy)
                return part._replace(numpy=negative, cpp=f"(-{part.cpp})", low=-part.high, high=-part.low)
            case ast.IfExp(test=ast.Compare(left=left, ops=[ast.Lt()], comparators=[right]), body=body, orelse=other):
                return self._choice(*map(self.part, (left, right, body, other)))
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
                return self._joined(node, operator, self.part(left), self.part(right))
        known = "integers, fields, tables, + - * // % << >> & |, 2 ** x, ones(x) and 'x if y < z else w'"
        raise ValueError(f"'{ast.unparse(node)}' cannot stand in a decoder; write it with {known}")

    def _named(self, name: str, *indices: Part) -> Part:
        """An element of a field or of a table."""
        if name not in self._known:
            known = [*self._known, self._place]
            raise ValueError(f"unknown name '{name}'{did_you_mean(name, known)}")
        facts = self._known[name]
        sizes = _sizes(facts)
        if len(indices) != len(sizes):
            fix = f"'{name}'" if not sizes else f"'{name}[{', '.join(['row', self._place][-len(sizes) :])}]'"
            what = ("no array", "an array", "a grid")[len(sizes)]
            raise ValueError(f"'{name}' is {what}; write {fix}{'' if sizes else ' alone'}")
        for index, length in zip(indices, sizes, strict=True):
            if not 0 <= index.low <= index.high < length:
                reached = f"its index is from {index.low} to {index.high}"
                raise ValueError(f"'{name}' has {length} elements, and {reached}; let it stay inside")
        has_place = any(index.has_place for index in indices)
        return (
            self._number(facts, *indices)
            if isinstance(facts, TableFacts)
            else self._field(name, facts.type, indices[0] if indices else None, has_place)
        )

    def _field(self, name: str, kind: str, index: Part | None, has_place: bool) -> Part:
        facts = FIELD_TYPES[kind]
        arguments: list[ast.expr] = [ast.Name("b"), ast.Constant(name)]
        arguments += [] if index is None else [index.numpy]
        wide = [ast.keyword("kind", ast.Attribute(ast.Name("np"), "int32"))] if self._is_wide and not facts.bits else []
        taken = ast.Call(ast.Name("floats" if facts.bits else "integers"), arguments, wide)
        cpp = name if index is None else f"{name}[{bare(index.cpp)}]"
        spelled = f"to_compute({cpp})" if facts.bits else cpp
        low, high = (1, 1) if facts.bits else (facts.low, facts.high)
        return Part(taken, spelled, low, high, facts.bits, has_place)

    def _number(self, facts: TableFacts, *indices: Part) -> Part:
        slices = [index.numpy for index in indices]
        taken = ast.Subscript(ast.Name(facts.name.upper()), slices[0] if len(slices) == 1 else ast.Tuple(slices))
        spelled = ", ".join(bare(index.cpp) for index in indices)
        cpp = f"{facts.name}[{spelled}]"
        if facts.columns is not None:
            at = f"choice_at<{facts.choice_bytes}" if facts.choices else f"number_at<{facts.columns}"
            cpp = f"{at}, {facts.bias}>({facts.name}, {spelled})"
        has_place = any(index.has_place for index in indices)
        return Part(taken, cpp, min(facts.numbers), max(facts.numbers), has_place=has_place)

    def _power(self, exponent: Part) -> Part:
        """An exact power of two, a float."""
        if exponent.bits or exponent.low < _EXPONENTS.start or exponent.high >= _EXPONENTS.stop:
            raise ValueError(f"a power of 2 may be no float; let its exponent be from {_EXPONENTS.start} to 127")
        one = ast.Call(ast.Attribute(ast.Name("np"), "float32"), [ast.Constant(1)], [])
        power = ast.Call(ast.Attribute(ast.Name("np"), "ldexp"), [one, exponent.numpy], [])
        return Part(power, f"power_of_two({bare(exponent.cpp)})", 1, 1, 1, exponent.has_place)

    def _ones(self, argument: Part) -> Part:
        """How many bits of an integer are 1."""
        if argument.bits or argument.low < 0:
            raise ValueError("ones(x) counts the bits of an integer from 0 on")
        count = ast.Call(ast.Attribute(ast.Name("np"), "bitwise_count"), [argument.numpy], [])
        high = argument.high.bit_length()
        return Part(count, f"count_ones({bare(argument.cpp)})", 0, high, has_place=argument.has_place)

    def _choice(self, left: Part, right: Part, body: Part, other: Part) -> Part:
        if left.bits or right.bits or body.bits or other.bits:
            raise ValueError("a choice is one of integers; multiply with the float outside of it")
        test = ast.Compare(left.numpy, [ast.Lt()], [right.numpy])
        where = ast.Attribute(ast.Name("np"), "where")
        return Part(
            ast.Call(where, [test, body.numpy, other.numpy], []),
            f"either({left.cpp} < {right.cpp}, {body.cpp}, {other.cpp})",
            min(body.low, other.low),
            max(body.high, other.high),
            has_place=left.has_place or right.has_place or body.has_place or other.has_place,
        )

    def _joined(self, node: ast.expr, operator: ast.operator, left: Part, right: Part) -> Part:
        has_place = left.has_place or right.has_place
        numpy = ast.BinOp(left.numpy, operator, right.numpy)
        if left.bits or right.bits:
            if not isinstance(operator, ast.Mult):
                raise ValueError(
                    f"'{ast.unparse(node)}' may round; floats are multiplied alone, and an offset is added last"
                )
            sides = [part.cpp if part.bits else f"static_cast<float>({bare(part.cpp)})" for part in (left, right)]
            bits = left.exact_bits + right.exact_bits
            if self._is_wide:
                # NumPy would compute a product with 32 bits in float64.
                sides_numpy = [part.numpy if part.bits else _converted(part.numpy, "float32") for part in (left, right)]
                numpy = ast.BinOp(sides_numpy[0], operator, sides_numpy[1])
            return Part(numpy, f"({' * '.join(sides)})", *_range(node, operator, left, right), bits, has_place)
        low, high = _range(node, operator, left, right)
        return Part(numpy, f"({left.cpp} {_OPERATORS[type(operator)]} {right.cpp})", low, high, 0, has_place)


def _range(node: ast.expr, operator: ast.operator, left: Part, right: Part) -> tuple[int, int]:
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


def _sizes(facts: FieldFacts | TableFacts) -> list[int]:
    """The sizes of the dims of a field or a table."""
    if isinstance(facts, FieldFacts):
        return [] if facts.length is None else [facts.length]
    return [len(facts.numbers)] if facts.columns is None else [len(facts.numbers) // facts.columns, facts.columns]
