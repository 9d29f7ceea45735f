"""The op that computes a formula in one step, if there is one."""

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import permutations
from typing import TypeAlias

from opgen.cache.memo import memoize
from opgen.formula.nodes import MULTIPLY, Call, Name, Node, inlined, names, size, walk
from opgen.model.functors import Functor

_COMMUTATIVE = ("x + y", MULTIPLY, "x == y", "x != y", "minimum", "maximum")
_TURNED = {"x > y": "x < y", "x >= y": "x <= y"}
Ops: TypeAlias = Mapping[int, Sequence[Functor]]


def is_step(node: Node) -> bool:
    """Whether a formula is one op of what it names, at most."""
    return not isinstance(node, Call) or not any(isinstance(argument, Call) for argument in node.arguments)


@memoize(tuple, size=4)
def by_size(functors: Sequence[Functor]) -> Ops:
    """Elementwise ops by how many parts their formulas have, in which those that compute the same agree."""
    ops: dict[int, list[Functor]] = {}
    for functor in functors:
        if functor.formula is not None:
            ops.setdefault(size(functor.formula.node), []).append(functor)
    return ops


def computing(node: Node, ops: Ops, numbers: Collection[str]) -> tuple[Functor, tuple[str, ...]] | None:
    """Return the op that computes a formula in one step, and its arguments; `numbers` are names of no tensors."""
    return _computing(node, ops.get(size(node), ()), numbers)


@memoize(lambda node, ops, numbers: (node, *ops, *numbers))
def _computing(node: Node, ops: Sequence[Functor], numbers: Collection[str]) -> tuple[Functor, tuple[str, ...]] | None:
    known, form, made_of = names(node), _form(node), _made_of(node)
    for functor in ops:
        if functor.formula is None or _made_of(functor.formula.node) != made_of:
            continue
        read = names(functor.formula.node)
        own = [name for name in (*functor.operands, *functor.parameters) if name in read]
        if len(own) != len(known):
            continue
        for arguments in permutations(known):
            bindings = dict(zip(own, arguments, strict=True))
            if any((name in functor.parameters) != (other in numbers) for name, other in bindings.items()):
                continue
            if _form(inlined(functor.formula.node, {name: Name(other) for name, other in bindings.items()})) == form:
                # What an operand is that the formula does not have, is all the same.
                operand = bindings[functor.operands[0]]
                return functor, tuple(bindings.get(name, operand) for name in (*functor.operands, *functor.parameters))
    return None


def op_of(functor: Functor, gradient: Node, ops: Ops) -> tuple[Functor, tuple[str, ...]] | None:
    """Return the op that computes the gradient of an operand of a functor in one step, and its arguments."""
    return computing(gradient, ops, functor.parameters)


@lru_cache(maxsize=4096)
def _made_of(node: Node) -> Sequence[str]:
    """The primitives of a formula, which are the same in another order."""
    calls = (part.primitive for part in walk(node) if isinstance(part, Call))
    return sorted(_TURNED.get(primitive, primitive) for primitive in calls)


@lru_cache(maxsize=4096)
def _form(node: Node) -> Hashable:
    """Return a key that formulas share if they compute the same in another order."""
    if not isinstance(node, Call):
        return node
    arguments = _factors(node) if node.primitive == MULTIPLY else node.arguments
    forms = [_form(argument) for argument in arguments]
    if node.primitive in _COMMUTATIVE:
        return node.primitive, frozenset(Counter(forms).items())
    if node.primitive in _TURNED:
        return _TURNED[node.primitive], *reversed(forms)
    return node.primitive, *forms


def _factors(node: Node) -> Iterator[Node]:
    """Yield the factors of a product."""
    if isinstance(node, Call) and node.primitive == MULTIPLY:
        for argument in node.arguments:
            yield from _factors(argument)
    else:
        yield node
