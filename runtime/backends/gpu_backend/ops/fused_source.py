"""The C++ of fused functions: a statement for each step, which calls the functor of its op."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from .....kernels.constants import STRUCTS, WIDTHS
from .....op import MethodOp
from ..execute.kernels import compose

if TYPE_CHECKING:
    from .....dtype import DType
    from ....program.fused_function import FusedFunction, Step

_LONGEST_NAME: Final = 64
ROWS: Final = """
namespace tallow {{

struct Composition {{
    {types}static constexpr bool is_composed = true;
    static constexpr bool has_begin = true;
    {index}static constexpr uint32_t operands = {operands};
    static constexpr uint32_t of_rows = {of_rows};
    static constexpr uint32_t along_rows = {along_rows};
    static constexpr uint32_t results = {results};
    static constexpr uint32_t totals = {totals};
    static constexpr uint32_t parameters = {parameters};
    static constexpr uint32_t passes = {passes};
    static constexpr uint32_t known = {known};
    static constexpr uint32_t in_registers = {in_registers};
    static constexpr uint32_t rescaled = {rescaled};
    static constexpr uint32_t row_results = {row_results};
    {derived}template <uint32_t Pass> struct Reduced;
    template <uint32_t Pass, typename T, typename Number>
    static TALLOW_INLINE void contribute(const RowOf<T, Composition>& row,
                                         const compute_type<T> (&elements)[{elements}], uint32_t position,
                                         Number (&numbers)[Reduced<Pass>::count]) {{
        {contributions}
    }}
    template <typename T> static TALLOW_INLINE void begin([[maybe_unused]] RowOf<T, Composition>& row) {{
        {begin}
    }}
    template <uint32_t Pass, typename T> static TALLOW_INLINE void finish(RowOf<T, Composition>& row) {{
        {finish}
    }}
    template <typename T>
    static TALLOW_INLINE void compute(const RowOf<T, Composition>& row, const compute_type<T> (&elements)[{elements}],
                                      uint32_t position, compute_type<T> (&outputs)[results + totals]) {{
        {compute}
    }}
}};
{joins}

{kernels}

}} // namespace tallow
"""


INDEX: Final = """static constexpr bool has_index = true;
    static constexpr uint32_t at_index = {};
    """
DERIVED: Final = """static constexpr uint32_t derived = {count};
    using Derived = Types<{types}>;
    template <uint32_t Stage> static constexpr uint32_t derives = {stages};
    template <uint32_t Pass, typename T>
    static TALLOW_INLINE void derive(const RowOf<T, Composition>& row, compute_type<T> (&elements)[operands + derived],
                                     uint32_t position) {{
        {derive}
    }}
    """
# The value of an element at the index of its row, of operands that are loaded there before the first pass.
GATHERED: Final = """const auto {name} = [&] {{
                compute_type<T> elements[{elements}] = {{}};
                {loads}
                [[maybe_unused]] const uint64_t position = row.index;
                {values}
                return row.index == no_index ? convert<{cpp}>(compute_type<{cpp}>{{0}}) : {value};
            }}();"""


class Statements:
    """The statements of the steps of a kernel."""

    def __init__(self, kernel: FusedFunction, word: Callable[[int], str]) -> None:
        """Read the numbers of the kernel from words of 64 bits: `word` writes the one at a position."""
        self._word = word
        ends = accumulate([number.words for number in kernel.numbers.values()])
        self.positions = {
            name: end - number.words for end, (name, number) in zip(ends, kernel.numbers.items(), strict=True)
        }
        """Where the words of each number begin."""
        self.terms = {name: self._number(number.dtype, self.positions[name]) for name, number in kernel.numbers.items()}
        """How statements write operands that are not a variable of their name."""

    def _number(self, dtype: DType, position: int) -> str:
        """A number of a dtype; of two words, each is a part of a complex number."""
        if dtype.itemsize <= 8:
            return f"from_bits<{dtype.cpp}>({self._word(position)})"
        return f"{dtype.cpp}({self._number(dtype.real, position)}, {self._number(dtype.real, position + 1)})"

    def operands(self, step: Step) -> list[str]:
        """The operands of a step."""
        return [self.terms.get(name, name) for name in step.operands]

    def of_map(self, step: Step, *, is_rounded: bool = True) -> str:
        """The statement that computes an elementwise op, rounded as a kernel of the op alone rounds it.

        One that is not rounded is in the compute type.
        """
        operands = self.operands(step)
        cpp, of = step.dtype.cpp, step.operand_dtype.cpp
        if step.op is MethodOp.TO_DTYPE and step.dtype is step.operand_dtype:
            return f"const {cpp} {step.name} = {operands[0]};"
        if step.op.moves:
            of = WIDTHS[f"b{8 * step.dtype.itemsize}"]
            operands[1:] = [f"bit_cast<{of}>({operand})" for operand in operands[1:]]
        words = ", ".join(self._word(self.positions[name]) for name in step.parameters)
        if not is_rounded:
            cpp = f"compute_type<{cpp}>"
        result = of if step.op.moves else cpp
        function = f"ElementFunction<{STRUCTS[step.op.value]}, {result}, {of}>"
        value = f"{function}(ParameterBits<{max(len(step.parameters), 1)}>{{{{{words}}}}})({', '.join(operands)})"
        return f"const {cpp} {step.name} = {f'bit_cast<{cpp}>({value})' if step.op.moves else value};"


def composed(base: str, name: str, source: str, **fields: str | int) -> str:
    """Compose a family of kernels with a name like that of a function, which all have that do the same."""
    checksum = hashlib.sha256(repr((source, fields)).encode()).hexdigest()[:16]
    name = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")[:_LONGEST_NAME]
    family = f"{name if name.isidentifier() else 'fused'}_{checksum}"
    compose(base, family, source.format(family=family, **fields))
    return family
