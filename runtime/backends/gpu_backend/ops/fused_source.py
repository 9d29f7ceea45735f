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

    def of_map(self, step: Step) -> str:
        """The statement that computes an elementwise op, rounded as a kernel of the op alone rounds it."""
        operands = self.operands(step)
        cpp, of = step.dtype.cpp, step.operand_dtype.cpp
        if step.op is MethodOp.TO_DTYPE and step.dtype is step.operand_dtype:
            return f"const {cpp} {step.name} = {operands[0]};"
        if step.op.moves:
            of = WIDTHS[f"b{8 * step.dtype.itemsize}"]
            operands[1:] = [f"bit_cast<{of}>({operand})" for operand in operands[1:]]
        words = ", ".join(self._word(self.positions[name]) for name in step.parameters)
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
