"""The names that emitted code reserves, which nothing of a spec may have.

A parameter keeps its name in the methods of the package, in functions of arrays and in kernels, so that whoever reads
these knows it. The languages' words, and the names of emitted functions, are taken there: tests/generator/test_names.py
compares them with emitted code.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from opgen.decoder import Cursor
from opgen.notes import Form, like

# With macros of compilers and of C's headers, and the functions around operands.
_CPP_WORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class co_await
co_return co_yield compl concept const const_cast consteval constexpr constinit continue decltype default delete do
double dynamic_cast else enum explicit export extern false final float for friend goto if import inline int long module
mutable namespace new noexcept not not_eq nullptr operator or or_eq override private protected public register
reinterpret_cast requires return short signed sizeof static static_assert static_cast struct switch template this
thread_local throw true try typedef typeid typename typeof union unsigned using virtual void volatile wchar_t while xor
xor_eq assert errno linux unix i386 stdin stdout stderr signbit isnan isinf isfinite isnormal fpclassify
fast_math compute_type
"""
# Storages and plans; recorded calls and gradients; functions, modules and builtins.
_METHOD_WORDS = """
self cls inner op layout dtype np numerics output key plan error unknown new item storage device ordinal number
gradient first_result plain node rule state record results changed tracked rewritten unwrap_each inputs_of extensions
handle handle_of argument check layer_check rules kernels partial getattr isinstance enumerate super type bool int float
complex str tuple list frozenset filter any len range next property object max min is_deterministic operands_of
assert_never backend_name device_mismatch require_dtype require_format require_instance require_made require_nothing
require_op require_real require_same_device require_same_dtype require_writable operands backend keeps_result needs_site
without_gradients record_each mode dims shape live_batches is_mixed collectives convolutions decompositions fourier
normalization recurrent row_formulas scans
"""
FORMULA_WORDS: Final = frozenset({"g", "result", "count", "unit", "inf", "nan"})
"""The names that formulas define themselves: gradients, reductions, literals."""
CPP_WORDS: Final = frozenset(_CPP_WORDS.split())
"""The words of C++, and macros that are no less."""
METHOD_WORDS: Final = frozenset(_METHOD_WORDS.split())
"""The names that emitted methods and functions of gradients and arrays define themselves."""
_PARTS = r"part_\d+"  # what a formula has more than once


def is_reserved(name: str) -> bool:
    """Whether no operand, parameter or named part of an op may be called so."""
    return name in FORMULA_WORDS | CPP_WORDS | METHOD_WORDS or re.fullmatch(_PARTS, name) is not None


class _NoCppWord:
    """A name that kernels have as it stands."""

    def __call__(self, _: Cursor, text: str) -> Iterator[str]:
        """Note a word of C++."""
        if text in CPP_WORDS:
            yield f"'{text}' cannot be a name in kernels, it is a word of C++; choose another one"

    def schema(self) -> Mapping[str, object]:
        """No word of C++."""
        return {"not": like("|".join(sorted(CPP_WORDS))).schema()}


no_cpp_word: Final = _NoCppWord()


def not_reserved() -> Form:
    """Return the schema of a name that must not be reserved."""
    return Form(**{"not": like("|".join([*sorted(FORMULA_WORDS | CPP_WORDS | METHOD_WORDS), _PARTS])).schema()})


def names_around(operands: Iterable[str], backends: Iterable[str]) -> frozenset[str]:
    """Return the names that a method derives from its operands and from backends."""
    of_operands = (f"{name}_inner {name}_node {name}_key plain_{name} keeps_{name}" for name in operands)
    of_backends = (f"{name} {name}_result {name}_operands" for name in backends)
    return frozenset(" ".join((*of_operands, *of_backends)).split())
