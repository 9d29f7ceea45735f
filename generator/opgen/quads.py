"""How kernels decode quants: four that follow each other as bytes of a word, in C++."""

import ast
import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from opgen.decoding import (
    FIELD_TYPES,
    FieldFacts,
    Known,
    Part,
    TableFacts,
    Translator,
    bare,
    place_values,
    positions_of_sevens,
)

_PLACE: Final = "i"
_BYTE: Final = 255
# The most that unsigned bytes may be where a processor adds two of their products with signed ones in 16 bits.
_UNSIGNED: Final = 128
# The quants that kernels decode together, and the smallest group of them.
_RUN: Final = 32
_HALF_RUN: Final = 16
# Choices of a grid that bytes of two words have with either sign.
_SIGNED_CHOICES: Final = 4
# Entries of a table that one instruction for bytes looks up.
_LISTED: Final = 16


class Quads(NamedTuple):
    """Four quants that follow each other, in C++: bytes of a word, and what is added to each.

    Quants `run_stride` positions from each other share the words that are loaded.
    """

    loads: int
    loaded: str  # a list of the words of each load, for N of them that follow each other from `first` on
    windows: tuple[str, ...]  # what stands in loads for fields of which a run reads bytes side by side
    cpp: str  # of word `quad` of all loads, and of i, the position of the first of the four
    bias: int
    highest: int  # what a byte of a word is at most
    runs: int  # how many quants share words
    run_stride: int
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


class _Sevens(NamedTuple):
    """Seven bits of a field for each eight quants, those of a run from `first` on in a unit of this many bits."""

    field: str
    unit: int
    first: int
    step: int


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
        word = words.packed(tree)
    runs, run_stride = words.runs
    loaded = f"{{{{{', '.join(words.loads)}}}}}"
    windows = tuple(words.windows())
    return Quads(len(words.loads), loaded, windows, bare(word.cpp), word.bias, word.high, runs, run_stride, calls_quant)


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
        self._gathered_from: list[ast.expr] = []
        # From the first quant of the same eight on.
        self._eights = tuple(i % 8 for i in range(count))
        # Those whose quants stand in the first byte of each field.
        self._places = set(range(count))

    @property
    def runs(self) -> tuple[int, int]:
        """How many quants share words, and how far these are from each other."""
        indexes = sorted(self._places)
        run_stride = indexes[1] if len(indexes) > 1 else self._count
        return (len(indexes), run_stride) if run_stride % _RUN == 0 or run_stride == _HALF_RUN else (1, self._count)

    def packed(self, tree: ast.expr) -> _Word:
        """Pack quants that are decoded one by one; ValueError where they are no bytes."""
        part = self._scalar(tree)
        bias = part.low if part.high - part.low <= _UNSIGNED else -_UNSIGNED
        if part.low < bias or part.high - bias > _BYTE:
            message = f"it is from {part.low} to {part.high}, and kernels multiply bytes"
            raise ValueError(f"{message}; let it be from -128 to 127")
        quants = ", ".join(f"quant(i + {k}) - {bias}" for k in range(4)).replace("- -", "+ ")
        return _Word(self._loaded(f"gather_words<N>({self._each(f'join_bytes({quants})')})"), part.high - bias, bias)

    def windows(self) -> Iterator[str]:
        """Fields of which each run reads bytes that are side by side, which kernels load together."""
        indexes_of: dict[str, list[Sequence[int] | None]] = {}
        for node in (each for tree in self._gathered_from for each in ast.walk(tree)):
            if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
                indexes_of.setdefault(node.value.id, []).append(self._place_values(node.slice))
        for name, indices in indexes_of.items():
            facts = self._known[name]
            if isinstance(facts, TableFacts) or any(f"({name} +" in load for load in self.loads):
                continue
            size, first = FIELD_TYPES[facts.type].bytes, [values[:_RUN] for values in indices if values is not None]
            length = max((max(values) + 1 for values in first), default=0)
            # Compilers know the remainder of an index where they do not know what it is beyond the first one.
            if length & (length - 1) or length * size <= 2 or FIELD_TYPES[facts.type].low < 0:
                continue
            if all(
                values and [v // length for v in values] == [i // _RUN for i in range(self._count)]
                for values in indices
            ):
                aligned = math.gcd(self._alignments[name], length * size)
                yield f"{name} = window<N, {length}, {aligned}>(this->{name}, first / {_RUN})"

    def word(self, node: ast.expr) -> _Word:
        """Return a word of the values of `node` at four indexes; _ApartError if there is none."""
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
        gather = "repeat_word<N>(" if self._is_uniform(node, _RUN) else "gather_words<N>("
        cpp = self._gathered(node, f"static_cast<uint32_t>({bare(part.cpp)}{less}) * 0x01010101u", gather)
        return _fitting(_Word(cpp, part.high - part.low, part.low))

    def _gathered(self, node: ast.expr, cpp: str, gather: str = "gather_words<N>(") -> str:
        """A word for each four quants of its own, by what C++ has for `node` over i."""
        self._gathered_from.append(node)
        return self._loaded(f"{gather}{self._each(cpp)})")

    def _each(self, cpp: str) -> str:
        """Arguments of what makes words, each for four quants of its own: nothing else shares it."""
        self._places &= {0}
        return f"first, [&](uint32_t i) {{ return {cpp}; }}"

    def _loaded(self, load: str) -> str:
        self.loads += [load] if load not in self.loads else []
        return f"loaded.words[{self.loads.index(load)}].values[quad]"

    def _load(self, name: str, facts: FieldFacts, index: ast.expr) -> _Word:
        values = self._values(index)
        if FIELD_TYPES[facts.type].bytes != 1 or self._steps(values) != {1}:
            raise _ApartError
        self._places &= {offset for offset in range(self._count) if values[offset] == values[0]}
        # So many quants from a multiple of it on are bytes from a multiple of it on.
        divisors = [n for n in (4, 8, 16) if all(values[offset] % n == 0 for offset in range(0, self._count, n))]
        aligned = min(self._alignments[name], max(divisors, default=1))
        if all(values[i + 1] - values[i] == 1 for i in range(self._count - 1) if (i + 1) % _HALF_RUN):
            cpp = self._loaded(f"load_words<{aligned}, N>({name} + {self._cpp(index, 'first')})")
        else:
            cpp = self._loaded(f"gather_words<N>({self._each(f'load_word<{aligned}>({name} + {self._cpp(index)})')})")
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
            offset, words = self._scalar(row).cpp, facts.columns // 4
            if self._is_coded(facts, row, column):
                cpp = self._gathered(row, bare(offset), f"gather_rows<{facts.choice_bytes}, N>(grid, ")
            elif words == 1:
                cpp = self._gathered(row, bare(offset), "gather_cells<N>(grid, ")
            else:
                cpp = self._gathered(row, f"grid[{words} * {offset} + {self._cpp(column)} / 4]")
            return _fitting(_Word(cpp, max(facts.numbers) - facts.bias, facts.bias))
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

    def _is_coded(self, facts: TableFacts, row: ast.expr, column: ast.expr) -> bool:
        """Return True if rows are words of positions; _ApartError where eight quants are not one of them."""
        if facts.choices and (self._values(column) != self._eights or not self._is_uniform(row, 8)):
            raise _ApartError
        return bool(facts.choices)

    def _nibbles(self, index: ast.expr, word: _Word) -> str:
        """Return the word, and the shift of its nibbles that are looked up; instructions do so for both of a byte."""
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
        node = ast.BinOp(value, ast.RShift(), shift)
        bits = self._gathered(node, f"static_cast<uint32_t>({bare(self._scalar(node).cpp)})")
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
        factor = f"{part.low}u"
        if part.low != part.high:
            factor = self._gathered(right, f"static_cast<uint32_t>({bare(part.cpp)})")
        return _fitting(word._replace(cpp=f"({word.cpp} * {factor})", high=high, bias=word.bias * part.low))

    def _with_sign(self, node: ast.IfExp) -> _Word:
        """x or -x, as bits say: `x if bit < 1 else -x`."""
        match node:
            case ast.IfExp(
                test=ast.Compare(left=bit, ops=[ast.Lt()], comparators=[ast.Constant(value=1)]),
                body=value,
                orelse=ast.UnaryOp(op=ast.USub(), operand=other),
            ) if ast.dump(value) == ast.dump(other):
                if (byte := self._byte_of_signs(bit)) is not None:
                    return self._signed(value, byte)
                word, sign = self.word(value).in_bytes, self.word(bit).in_bytes
                if sign.high == 1 and not sign.bias:
                    return self._with_masks(word, f"{sign.cpp} * 255u", "apply_masks")
        raise _ApartError

    def _byte_of_signs(self, bit: ast.expr) -> ast.expr | None:
        """The byte whose bits are the signs of eight quants."""
        match bit:
            case ast.BinOp(
                left=ast.BinOp(left=byte, op=ast.RShift(), right=shift),
                op=ast.BitAnd(),
                right=ast.Constant(value=1),
            ) if self._place_values(shift) == self._eights and self._is_uniform(byte, 8):
                part = self._scalar(byte)
                return byte if part.low >= 0 and part.high <= _BYTE else None
        return None

    def _signed(self, value: ast.expr, byte: ast.expr) -> _Word:
        """Numbers with the signs of a byte: of a row of few choices, these have either sign."""
        signs = self._signs(byte)
        match value:
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Tuple(elts=[row, column])):
                facts = self._known[name]
                assert isinstance(facts, TableFacts)
                high, choices = max(facts.numbers), facts.choices
                is_signed = len(choices) <= _SIGNED_CHOICES and facts.bias == 0 and 2 * high <= _BYTE
                if self._is_coded(facts, row, column) and is_signed:
                    numbers = bytes(high + sign * number for sign in (1, -1) for number in (*choices, *[0] * 4)[:4])
                    kinds = f"0x{int.from_bytes(numbers, 'little'):x}ull, {high}, N"
                    self._gathered_from += [row, byte]
                    rows = f"{self._each(bare(self._scalar(row).cpp))}, {signs}"
                    return _Word(self._loaded(f"gather_signed_rows<{kinds}>(grid, {rows})"), 2 * high, -high)
        self._gathered_from.append(byte)
        self._places &= {0}
        masks = self._loaded(f"gather_signs<N>(first, {signs})")
        return self._with_masks(self.word(value).in_bytes, masks)

    def _signs(self, byte: ast.expr) -> str:
        """A byte of signs in C++, over i; hosts complete those of several runs where the last makes the number even."""
        match byte:
            case ast.BinOp(
                left=seven,
                op=ast.BitOr(),
                right=ast.BinOp(
                    left=ast.BinOp(
                        left=ast.Call(func=ast.Name(id="ones"), args=[counted]),
                        op=ast.BitAnd(),
                        right=ast.Constant(value=1),
                    ),
                    op=ast.LShift(),
                    right=ast.Constant(value=7),
                ),
            ) if ast.dump(seven) == ast.dump(counted) and (bits := self._sevens(seven)) is not None:
                function = f"[&](uint32_t i) {{ return {bare(self._scalar(seven).cpp)}; }}"
                return f"even_signs<uint{bits.unit}_t, {bits.first}, {bits.step}>(this->{bits.field}, {function})"
        return f"[&](uint32_t i) {{ return static_cast<uint32_t>({bare(self._scalar(byte).cpp)}); }}"

    def _sevens(self, seven: ast.expr) -> _Sevens | None:
        """Return where a field has seven bits for each eight quants; None where each run has no unit of its own."""
        nodes = [node for node in ast.walk(seven) if isinstance(node, ast.Subscript)]
        (name,) = names if len(names := {ast.unparse(node.value) for node in nodes}) == 1 else ("",)
        facts = self._known.get(name)
        if not isinstance(facts, FieldFacts) or facts.length is None or self._count != 8 * _RUN:
            return None
        width = 8 * FIELD_TYPES[facts.type].bytes
        positions = positions_of_sevens(ast.unparse(seven), name, width, facts.length, range(0, self._count, 8))
        unit = width * facts.length // 8
        if positions is None or unit not in (32, 64):
            return None
        first, step = positions[0], positions[1] - positions[0]
        if positions != [unit * (k // 4) + first + step * (k % 4) for k in range(32)] or first + 3 * step + 7 > unit:
            return None
        return _Sevens(name, unit, first, step)

    def _with_masks(self, word: _Word, masks: str, apply: str = "apply_signs") -> _Word:
        """Numbers with the other sign where the bytes of masks are ones."""
        if 2 * word.high > _BYTE:
            raise _ApartError
        return _Word(f"{apply}<{word.high}>({bare(word.cpp)}, {masks})", 2 * word.high, _no_bias(word) - word.high)

    def _is_uniform(self, node: ast.expr, together: int = 4) -> bool:
        """Return True if `node` has one value at `together` consecutive indexes."""
        values = self._place_values(node)
        if values is not None:
            return self._steps(values, together) == {0}
        children = (child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))
        return all(self._is_uniform(child, together) for child in children)

    def _scalar(self, node: ast.expr) -> Part:
        return Translator(self._known, _PLACE, self._count).part(node)

    def _place_values(self, node: ast.expr) -> Sequence[int] | None:
        return place_values(node, _PLACE, self._count)

    def _values(self, node: ast.expr) -> Sequence[int]:
        values = self._place_values(node)
        if values is None:
            raise _ApartError
        return values

    def _steps(self, values: Sequence[int], together: int = 4) -> set[int]:
        """Return the steps between consecutive indexes of the same group of `together`."""
        return {values[i + 1] - values[i] for i in range(self._count - 1) if (i + 1) % together}

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
    """Rename a name."""

    def __init__(self, name: str, other: str) -> None:
        self._name = name
        self._other = other

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self._other) if node.id == self._name else node
