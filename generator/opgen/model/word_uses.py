"""The words of array libraries that functions of the runtime need."""

import ast
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from opgen.folders import BACKENDS, NUMERICS

# What formulas over arrays call it, and the functions of `Numerics`.
NP, NUMERICS_NAME = "np", "numerics"
# Instead of the path of a module: any class, whose methods are known by name alone, and other packages.
CLASS, ELSEWHERE = "class", "elsewhere"

Function: TypeAlias = tuple[str, str]
"""A module of the runtime by its path, or any class, and a function or a constant of it, or a method."""
Words: TypeAlias = frozenset[str]


class Uses(NamedTuple):
    """The words that each function needs, by itself and through what it calls."""

    functions: Mapping[Function, Words]

    def of_op(self, packages: Sequence[str], module: str, function: str) -> Words:
        """Those of a function of ops, in the first of the packages that has it."""
        keys = ((str(BACKENDS / package / "ops" / f"{module}.py"), function) for package in packages)
        return next((self.functions[key] for key in keys if key in self.functions), frozenset())

    def in_text(self, text: str) -> Words:
        """Those of an expression over arrays."""
        return self.in_tree(ast.parse(text))

    def in_tree(self, tree: ast.AST, packages: Sequence[str] = (), words: Iterable[str] = ()) -> Words:
        """Those of a tree of such an expression, or of a spelling, which names other words as they are."""
        needed = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} & {*words}
        for node in ast.walk(tree):
            match node:
                case ast.Attribute(value=ast.Name(id=owner), attr=name):
                    if owner == NP:
                        needed.add(name)
                    homes = [str(folder / f"{owner}.py") for folder in (*map(BACKENDS.joinpath, packages), NUMERICS)]
                    for home in [CLASS] if owner == NUMERICS_NAME else homes:
                        needed |= self.functions.get((home, name), frozenset())
        return frozenset(needed)
