"""How kernels decode quants: four that follow each other as bytes of a word, in C++."""

import ast
import copy
import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from opgen.decoding import FIELD_TYPES, FieldFacts, Known, Part, TableFacts, Translator, bare, place_values

_PLACE: Final = "i"
_BYTE: Final = 255
# The most that unsigned bytes may be where a processor adds two of their products with signed ones in 16 bits.
_UNSIGNED: Final = 128
# The quants that kernels decode together, and the smallest group of them.
_RUN: Final = 32
_HALF_RUN: Final = 16
# Entries of a table that one instruction for bytes looks up.
_LISTED: Final = 16


class Quads(NamedTuple):
    """Four quants that follow each other, in C++: bytes of a word, and what is added to each.

    Quants `apart` positions from each other share the words that are loaded.
    """

    loads: int
    loaded: str  # a list of the words of each load, for N of them that follow each other from `first` on
    cpp: str  # of word `quad` of all loads, and of i, the position of the first of the four
    bias: int
    highest: int  # what a byte of a word is at most
    runs: int  # how many quants share words
    apart: int
    calls_quant: bool  # each quant is decoded by itself


class _Word(NamedTuple):
    """Four numbers less `bias`, from 0 to `high`: bytes of a word or, if `is_wide`, 16 bits each."""

    cpp: str
    high: int
    bias: int = 0
    is_wide: bool = False

    @property
    def widened(self) -> "_Word":
        """Widen the bytes to 16 bits each."""
        return self if self.is_wide else self._replace(cpp=f"Halves({bare(self.cpp)})", is_wide=True)

    @property
    def in_bytes(self) -> "_Word":
        """Narrow the values to bytes."""
        if self.high > _BYTE:
            raise _ApartError
        return self._replace(cpp=f"bytes_of({bare(self.cpp)})", is_wide=False) if self.is_wide else self


class _ApartError(Exception):
    """Four quants cannot be computed as a word."""


def quads_of(tree: ast.expr, known: Known, alignments: Mapping[str, int], count: int) -> Quads:
    """The quants of a block by fours; ValueError where they do not fit bytes. `tree` can be decoded.

    Fields begin at addresses that are multiples of `alignments`.
    """
    words = _Words(known, alignments, count)
    calls_quant = False
    try:
        word = _signed(words.word(tree).in_bytes)
    except _ApartError:
        calls_quant = True
        words = _Words(known, alignments, count)
        word = words.joined(tree)
    runs, apart = words.runs
    loaded = f"{{{{{', '.join(words.loads)}}}}}"
    return Quads(len(words.loads), loaded, bare(word.cpp), word.bias, word.high, runs, apart, calls_quant)


def _signed(word: _Word) -> _Word:
    """Bytes of which two products with signed ones fit 16 bits, or that are signed but for the highest bit."""
    if word.high <= _UNSIGNED or word.bias == -_UNSIGNED:
        return word
    more = word.bias + _UNSIGNED
    if more < 0 or word.high + more > _BYTE:
        raise _ApartError
    return _Word(f"({word.cpp} + {_repeated(more)})", word.high + more, -_UNSIGNED)


def _repeated(byte: int) -> str:
    return f"0x{byte * 0x01010101:08x}u"


class _Words:
    """Writes expressions of four quants that follow each other as expressions of a word."""

    def __init__(self, known: Known, alignments: Mapping[str, int], count: int) -> None:
        self._known = known
        self._alignments = alignments
        self._count = count
        self.loads: list[str] = []
        # Those whose quants stand in the first byte of each field.
        self._places = set(range(count))

    @property
    def runs(self) -> tuple[int, int]:
        """How many quants share words, and how far these are from each other."""
        indexes = sorted(self._places)
        apart = indexes[1] if len(indexes) > 1 else self._count
        return (len(indexes), apart) if apart % _RUN == 0 or apart == _HALF_RUN else (1, self._count)

    def joined(self, tree: ast.expr) -> _Word:
        """Quants that are decoded one by one; ValueError where they are no bytes."""
        part = self._scalar(tree)
        bias = part.low if part.high - part.low <= _UNSIGNED else -_UNSIGNED
        if part.low < bias or part.high - bias > _BYTE:
            message = f"it is from {part.low} to {part.high}, and kernels multiply bytes"
            raise ValueError(f"{message}; let it be from -128 to 127")
        quants = ", ".join(f"quant(i + {k}) - {bias}" for k in range(4)).replace("- -", "+ ")
        return _Word(self._gathered(f"join_bytes({quants})"), part.high - bias, bias)

    def word(self, node: ast.expr) -> _Word:
        """A word of the value of `node` at four places; _ApartError where there is none."""
        if self._is_uniform(node):
            return self._uniform(node)
        match node:
            case ast.Subscript(value=ast.Name(id=name), slice=index):
                facts = self._known[name]
                return self._load(name, facts, index) if isinstance(facts, FieldFacts) else self._number(facts, index)
            case ast.BinOp(left=left, op=ast.BitAnd(), right=ast.Constant(value=int(mask))):
                return self._masked(left, mask)
            case ast.BinOp(left=left, op=ast.Mod(), right=ast.Constant(value=256)):
                return self._masked(left, _BYTE)
            case ast.BinOp(left=left, op=ast.RShift(), right=ast.Constant(value=int(number))):
                word = self.word(left).widened
                return _Word(f"({word.cpp} >> {number})", word.high >> number, _no_bias(word), is_wide=True)
            case ast.BinOp(left=left, op=ast.LShift(), right=ast.Constant(value=int(number))):
                word = self.word(left).in_bytes
                return _fitting(_Word(f"({word.cpp} << {number})", word.high << number, _no_bias(word)))
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                word, other = self.word(left).in_bytes, self.word(right).in_bytes
                high = (1 << max(word.high.bit_length(), other.high.bit_length())) - 1
                return _Word(f"({word.cpp} | {other.cpp})", high, _no_bias(word) + _no_bias(other))
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self._sum(self.word(left), self.word(right))
            case ast.BinOp(left=left, op=ast.Sub(), right=ast.Constant(value=int(number))):
                word = self.word(left)
                return word._replace(bias=word.bias - number)
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                return self._product(left, right)
            case ast.IfExp():
                return self._with_sign(node)
        raise _ApartError

    def _uniform(self, node: ast.expr) -> _Word:
        """Return a number in each of the four bytes."""
        part = self._scalar(node)
        if part.low == part.high:
            return _Word("0u", 0, part.low)
        less = f" - {part.low}".replace("- -", "+ ") if part.low else ""
        cpp = self._gathered(f"static_cast<uint32_t>({bare(part.cpp)}{less})")
        return _fitting(_Word(f"({cpp} * 0x01010101u)", part.high - part.low, part.low))

    def _gathered(self, cpp: str) -> str:
        """A word for each four quants of its own, over i; nothing else shares it."""
        self._places &= {0}
        members = {"quant", *(name for name, facts in self._known.items() if isinstance(facts, FieldFacts))}
        capture = "this" if members & {*re.findall(r"\w+", cpp)} else ""
        return self._loaded(f"gather_words<N>(first, [{capture}](uint32_t i) {{ return {cpp}; }})")

    def _loaded(self, load: str) -> str:
        self.loads += [load] if load not in self.loads else []
        return f"loaded.words[{self.loads.index(load)}].values[quad]"

    def _load(self, name: str, facts: FieldFacts, index: ast.expr) -> _Word:
        values = self._values(index)
        if FIELD_TYPES[facts.type].bytes != 1 or self._steps(values) != {1}:
            raise _ApartError
        self._places &= {offset for offset in range(self._count) if values[offset] == values[0]}
        # So many quants from a multiple of it on are bytes from a multiple of it on.
        whole = [n for n in (4, 8, 16) if all(values[offset] % n == 0 for offset in range(0, self._count, n))]
        aligned = min(self._alignments[name], max(whole, default=1))
        if all(values[i + 1] - values[i] == 1 for i in range(self._count - 1) if (i + 1) % _HALF_RUN):
            cpp = self._loaded(f"load_words<{aligned}, N>({name} + {self._cpp(index, 'first')})")
        else:
            cpp = self._gathered(f"load_word<{aligned}>({name} + {self._cpp(index)})")
        if FIELD_TYPES[facts.type].low < 0:
            return _Word(f"({cpp} ^ 0x80808080u)", _BYTE, -_UNSIGNED)
        return _Word(cpp, _BYTE)

    def _number(self, facts: TableFacts, index: ast.expr) -> _Word:
        """Numbers of a row of a grid, or each of a list."""
        if isinstance(index, ast.Tuple):
            row, column = index.elts
            values = self._values(column)
            if self._steps(values) != {1} or not self._is_uniform(row):
                raise _ApartError
            assert facts.columns is not None
            words = facts.columns // 4
            offset = (
                self._scalar(row).cpp if words == 1 else f"{words} * {self._scalar(row).cpp} + {self._cpp(column)} / 4"
            )
            high = max(facts.numbers) - facts.bias
            cpp = self._gathered(f"{facts.name}[{bare(offset) if words == 1 else offset}]")
            return _fitting(_Word(cpp, high, facts.bias))
        word = self.word(index).in_bytes
        if word.high >= _LISTED or _no_bias(word):
            raise _ApartError
        low, high = min(facts.numbers), max(facts.numbers)
        is_signed = high - low > _UNSIGNED
        numbers = [number % 256 if is_signed else number - low for number in facts.numbers]
        numbers += [0] * (_LISTED - len(numbers))
        words_of = [int.from_bytes(bytes(numbers[k : k + 4]), "little") for k in range(0, _LISTED, 4)]
        cpp = f"look_up<{', '.join(f'0x{word:08x}u' for word in words_of)}>({self._nibbles(index, word)})"
        return _Word(f"({cpp} ^ 0x80808080u)", _BYTE, -_UNSIGNED) if is_signed else _Word(cpp, high - low, low)

    def _nibbles(self, index: ast.expr, word: _Word) -> str:
        """A word and the shift of the half bytes in it that are looked up; instructions do so for both halves."""
        match index:
            case ast.BinOp(left=ast.BinOp(left=value, op=ast.RShift(), right=shift), op=ast.BitAnd()):
                if {*(self._place_values(shift) or ())} <= {0, 4}:
                    loaded = self.word(value)
                    if not loaded.is_wide and not loaded.bias:
                        return f"{bare(loaded.cpp)}, {bare(self._cpp(shift))}"
        return f"{bare(word.cpp)}, 0"

    def _masked(self, left: ast.expr, mask: int) -> _Word:
        match left:
            case ast.BinOp(left=value, op=ast.RShift(), right=shift) if (
                values := self._place_values(shift)
            ) is not None:
                steps = self._steps(values)
                if steps == {1} and mask == 1 and self._is_uniform(value):
                    return self._spread(value, shift)
                if steps == {0} and not self._is_uniform(value):
                    word = self.word(value)
                    if not word.is_wide and not mask >> 8 - max(values):
                        # Bits of the byte above are cleared, which a mask of fewer bits does.
                        return _Word(f"(({word.cpp} >> {self._cpp(shift)}) & {_repeated(mask)})", mask, _no_bias(word))
        word = self.word(left)
        if word.is_wide:
            return _Word(f"({word.cpp} & {mask})", min(mask, word.high), _no_bias(word), is_wide=True)
        return _Word(f"({word.cpp} & {_repeated(mask & _BYTE)})", min(mask, word.high), _no_bias(word))

    def _spread(self, value: ast.expr, shift: ast.expr) -> _Word:
        """Bits of a number that follow each other."""
        if isinstance(value, ast.Subscript) and isinstance(self._known[ast.unparse(value.value)], FieldFacts):
            indexes = self._place_values(value.slice)
            # The host reads bytes that follow each other.
            eights = range(0, self._count - 8, 8)
            if indexes is not None and all(indexes[i + 8] - indexes[i] == 1 for i in eights if (i + 8) % _RUN):
                return _Word(
                    f"spread_bits<N>({ast.unparse(value.value)}, {self._cpp(value.slice)}, {self._cpp(shift)})", 1
                )
        bits = self._gathered(f"static_cast<uint32_t>({bare(self._scalar(ast.BinOp(value, ast.RShift(), shift)).cpp)})")
        return _Word(f"spread_bits({bits})", 1)

    def _sum(self, word: _Word, other: _Word) -> _Word:
        bias = word.bias + other.bias
        if other.high == 0 or word.high == 0:
            return (word if other.high == 0 else other)._replace(bias=bias)
        if word.is_wide or other.is_wide:
            word, other = word.widened, other.widened
        return _fitting(word._replace(cpp=f"({word.cpp} + {other.cpp})", high=word.high + other.high, bias=bias))

    def _product(self, left: ast.expr, right: ast.expr) -> _Word:
        """A word times a number that is the same for all four."""
        if self._is_uniform(left):
            left, right = right, left
        if not self._is_uniform(right):
            raise _ApartError
        part, word = self._scalar(right), self.word(left)
        if part.low < 0 or (word.bias and part.low != part.high):
            raise _ApartError
        high = word.high * part.high
        if high > _BYTE:
            word = word.widened
        factor = f"{part.low}u" if part.low == part.high else self._gathered(f"static_cast<uint32_t>({bare(part.cpp)})")
        return _fitting(word._replace(cpp=f"({word.cpp} * {factor})", high=high, bias=word.bias * part.low))

    def _with_sign(self, node: ast.IfExp) -> _Word:
        """x or -x, as bits say: `x if bit < 1 else -x`."""
        match node:
            case ast.IfExp(
                test=ast.Compare(left=bit, ops=[ast.Lt()], comparators=[ast.Constant(value=1)]),
                body=value,
                orelse=ast.UnaryOp(op=ast.USub(), operand=other),
            ) if ast.dump(value) == ast.dump(other):
                word, sign = self.word(value).in_bytes, self.word(bit).in_bytes
                if sign.high == 1 and not sign.bias and 2 * word.high <= _BYTE:
                    cpp = f"apply_signs<{word.high}>({bare(word.cpp)}, {bare(sign.cpp)})"
                    return _Word(cpp, 2 * word.high, _no_bias(word) - word.high)
        raise _ApartError

    def _is_uniform(self, node: ast.expr) -> bool:
        """Return True if `node` has one value at the four places."""
        values = self._place_values(node)
        if values is not None:
            return self._steps(values) == {0}
        return all(self._is_uniform(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))

    def _scalar(self, node: ast.expr) -> Part:
        return Translator(self._known, _PLACE, self._count).part(node)

    def _place_values(self, node: ast.expr) -> Sequence[int] | None:
        return place_values(node, _PLACE, self._count)

    def _values(self, node: ast.expr) -> Sequence[int]:
        values = self._place_values(node)
        if values is None:
            raise _ApartError
        return values

    def _steps(self, values: Sequence[int]) -> set[int]:
        """From each place to the next of the same four."""
        return {values[i + 1] - values[i] for i in range(self._count - 1) if i % 4 != 3}

    def _cpp(self, node: ast.expr, index: str = _PLACE) -> str:
        named = _Renamed(_PLACE, index).visit(copy.deepcopy(node))
        return Translator({}, index, self._count).part(named).cpp


def _no_bias(word: _Word) -> int:
    """Return 0; _ApartError where a word has a bias."""
    if word.bias:
        raise _ApartError
    return 0


def _fitting(word: _Word) -> _Word:
    """Return a word whose numbers fit its parts."""
    if word.high > (65535 if word.is_wide else _BYTE):
        raise _ApartError
    return word


class _Renamed(ast.NodeTransformer):
    """A name in the place of another."""

    def __init__(self, name: str, other: str) -> None:
        self._name = name
        self._other = other

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self._other) if node.id == self._name else node
