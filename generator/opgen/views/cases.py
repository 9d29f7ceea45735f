"""The cases of gradients, which stay separate where the functions of tensors that compute them are differentiated."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from opgen.formula.nodes import (
    ADD,
    DIVIDE,
    IMAGINARY,
    INCOMING,
    LITERALS,
    MULTIPLY,
    NEGATE,
    SUBTRACT,
    WHERE,
    Call,
    Name,
    Node,
    Number,
    calls,
    names,
)
from opgen.gradient_ops import GRADIENT
from opgen.model.functors import Functor

# Whose slopes are finite, and those of the slopes, wherever the operands are.
_GENTLE = {
    WHERE,
    ADD,
    SUBTRACT,
    MULTIPLY,
    NEGATE,
    "abs",
    "sign",
    "maximum",
    "minimum",
    "round",
    "sin",
    "cos",
    "tanh",
    "sigmoid",
}


class Words(NamedTuple):
    """How calls of formulas are those of tensors, by what they call."""

    methods: Mapping[str, str]
    """The tensor methods that are one primitive."""
    reductions: Mapping[str, str]
    """The members of enums that reductions are."""
    gradients: Mapping[str, str]
    """Those that ops are which are gradients."""
    gentle: Collection[str]
    """Those gradients whose slopes are finite."""

    def of(self, name: str) -> str:
        """Return the facts about a name as one text."""
        return f"{self.gradients.get(name)} {self.methods.get(name)} {self.reductions.get(name)}"


def is_gentle(functor: Functor) -> bool:
    """Whether a formula is of functions with finite slopes."""
    return functor.formula is not None and all(call.primitive in _GENTLE for call in calls(functor.formula.node))


def _is_operand(tensor: Node) -> bool:
    """Whether a tensor is no gradient: in these formulas are linear."""
    return tensor not in (Name(INCOMING), Name(GRADIENT))


class _Case(NamedTuple):
    """A case of a formula."""

    choices: Mapping[Node, int]
    """The position of the arguments that each condition chooses."""
    tensors: Mapping[Node, Node]
    """Tensors that are 1 outside of it."""


class Cases:
    """Separates the cases of a formula where the functions of tensors that compute it are differentiated.

    Backward through a case that was not chosen, 0 times an infinite slope is NaN. There 1 replaces the argument of such
    a slope is of, and the choice of that makes the NaN 0 again.
    """

    def __init__(self, numbers: Collection[str], words: Words) -> None:
        self._numbers = {*numbers, *LITERALS, IMAGINARY}
        self._words = words

    def separate(self, node: Node, case: _Case | None = None, *, is_steep: bool = False) -> Node:
        """The formula in a case; `is_steep` says that the slope of what it is part of may be infinite."""
        case = case or _Case({}, {})
        if self._is_tensor(node):
            return case.tensors.get(node, node) if is_steep else node
        if not isinstance(node, Call):
            return node
        condition = node.arguments[0]
        if node.primitive == WHERE and condition in case.choices:
            return self.separate(node.arguments[case.choices[condition]], case, is_steep=is_steep)
        steep = self._steep(node)
        arguments = []
        for index, argument in enumerate(node.arguments):
            own = case
            if node.primitive == WHERE and index:
                own = self._chosen(condition, index, argument, case)
            is_condition = node.primitive == WHERE and not index
            separated = argument if is_condition else self.separate(argument, own, is_steep=is_steep or index in steep)
            arguments.append(separated)
        return replace(node, arguments=tuple(arguments))

    def _chosen(self, condition: Node, index: int, argument: Node, case: _Case) -> _Case:
        choices = {**case.choices, condition: index}
        if {*names(condition)} <= self._numbers:
            return _Case(choices, case.tensors)
        tensors = {**case.tensors}
        for tensor in filter(_is_operand, self._tensors(argument)):
            choice = case.tensors.get(tensor, tensor), Number(1)
            tensors[tensor] = Call(WHERE, (condition, *(choice if index == 1 else reversed(choice))))
        return _Case(choices, tensors)

    def _is_tensor(self, node: Node) -> bool:
        if isinstance(node, Call):
            # Reductions are of the elements of all cases.
            return node.primitive in self._words.reductions
        return isinstance(node, Name) and node.text not in self._numbers

    def _tensors(self, node: Node) -> Iterator[Node]:
        if self._is_tensor(node):
            yield node
        elif isinstance(node, Call):
            for argument in node.arguments:
                yield from self._tensors(argument)

    def _steep(self, call: Call) -> Collection[int]:
        """Return the positions of the arguments by which the slope of a call may be infinite."""
        if call.primitive == MULTIPLY and all(
            any(map(_is_operand, self._tensors(argument))) for argument in call.arguments
        ):
            # Each is the slope of the other, and may overflow.
            return (0, 1)
        if call.primitive in _GENTLE:
            return ()
        if call.primitive == DIVIDE:
            return (1,)
        if call.primitive in self._words.gradients:
            # They are linear in the gradient.
            return () if call.primitive in self._words.gentle else range(1, len(call.arguments))
        return range(len(call.arguments))
