"""Which kernels compute an op or a method."""

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath

from opgen.kernels import Kernel, KernelFamily
from opgen.matrix import Cell
from opgen.model import Functor, Spec
from opgen.sources import BACKENDS, Sources


def launched(
    spec: Spec, sources: Sources, functor: Functor | None, cells: Iterable[Cell]
) -> Iterator[tuple[KernelFamily, Sequence[Kernel]]]:
    """By family, the kernels that are given a functor, or that the functions name which some cells call.

    Where these name families alone, of the host's or of others, it is all kernels of the families.
    """
    called = {
        (BACKENDS / package / "ops" / f"{call.module}.py", call.function)
        for cell in cells
        if functor is None and cell.via is not None
        for call in spec.lowerings[cell.backend][cell.method, cell.op][cell.dtype].calls
        for package in spec.packages[cell.backend]
    }
    text, families = "", set[str]()
    hosts = {family.name for family in spec.kernels if family.host}
    for path, function in called:
        own = _text(sources, path, function)
        text += own
        words = {*re.findall(r"'(\w+)'", own)}
        # A function that launches kernels of the host names ops, which families for GPUs may be called as.
        families |= words & hosts or words
    starts = {(family.name, it.name): it.name.partition("{")[0] for family in spec.kernels for it in family.kernels}
    named = {key for key, start in starts.items() if key[0] in families and start and start in text}
    sides = {family.host for family in spec.kernels for it in family.kernels if (family.name, it.name) in named}
    for family in spec.kernels:
        kernels = [
            it
            for it in family.kernels
            if (functor is not None and functor.kind in it.over.get("op", ())) or (family.name, it.name) in named
        ]
        is_unsure = family.name in families and family.host not in sides
        if kernels or is_unsure:
            yield family, kernels or family.kernels


def _text(sources: Sources, path: PurePosixPath, function: str) -> str:
    """A function of a module, with all of the module that it needs; the text of no function is empty."""
    found: dict[str, str] = {}
    defined: dict[str, ast.stmt] = {}
    for node in (sources.tree(path) or ()) if path in sources.paths else ():
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                defined[name] = node
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                defined[name] = node
    waiting = [function]
    while waiting:
        name = waiting.pop()
        if name in defined and name not in found:
            found[name] = ast.unparse(defined[name])
            waiting += re.findall(r"\w+", found[name])
    return "\n".join(found.values())
