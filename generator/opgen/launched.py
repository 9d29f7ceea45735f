"""Which kernels compute an op or a method."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import PurePosixPath

from opgen.folders import BACKENDS
from opgen.kernels import Kernel, KernelFamily
from opgen.matrix import Cell
from opgen.model.functors import Functor
from opgen.model.spec import Spec
from opgen.sources import Sources


def launched(
    spec: Spec, sources: Sources, functor: Functor | None, cells: Iterable[Cell]
) -> Iterator[tuple[KernelFamily, Sequence[Kernel]]]:
    """Return by family the kernels of a functor, or those that the functions of some cells name.

    Where these name families alone, of the host's or of others, it is all kernels of the families.
    """
    calls = {
        (cell.backend, call.module, call.function)
        for cell in cells
        if functor is None and cell.via is not None
        for call in spec.lowerings[cell.backend][cell.method, cell.op][cell.dtype].calls
    }
    called = {
        (BACKENDS / package / "ops" / f"{module}.py", function)
        for backend, module, function in calls
        for package in spec.packages[backend]
    }
    texts = [_text(sources, path, function) for path, function in called]
    hosts = {family.name for family in spec.kernels if family.host}
    named_ops = ((module, function) for _, module, function in calls)
    ops = [spec.launch_ops[name] for name in named_ops if name in spec.launch_ops]
    families, named = set[str](), {(op.family.name, kernel.name) for op in ops for kernel in op.kernels}
    for text in texts:
        words = {*re.findall(r"'(\w+)'", text)}
        # A function that launches kernels of the host names ops, which families for GPUs may be called as.
        own = words & hosts or words
        families |= own
        for family in (family for family in spec.kernels if family.name in own):
            for kernel in family.kernels:
                # Of a width is written as of b{bits}.
                start, brace, _ = kernel.name.partition("{")
                if start and (start.rstrip("_") in words or (brace and re.search(rf"{start}b?{{", text))):
                    named.add((family.name, kernel.name))
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
    """Return the text of a function and of all that it needs of its module and siblings; empty if it is missing."""
    sources_of: dict[tuple[PurePosixPath, str], str] = {}
    waiting = [(path, function)]
    while waiting:
        module, name = source = waiting.pop()
        node = _defined(sources, module).get(name)
        if isinstance(node, ast.ImportFrom):
            waiting.append((module.with_name(f"{node.module}.py"), name))
        elif node is not None and source not in sources_of:
            sources_of[source] = ast.unparse(node)
            waiting += ((module, word) for word in re.findall(r"\w+", sources_of[source]))
    return "\n".join(sources_of.values())


@lru_cache(maxsize=256)
def _defined(sources: Sources, module: PurePosixPath) -> Mapping[str, ast.stmt]:
    """Yield the statements that define names of a module, or import them from a sibling."""
    defined: dict[str, ast.stmt] = {}
    for node in (sources.tree(module) or ()) if module in sources.paths else ():
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                defined[name] = node
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                defined[name] = node
            case ast.ImportFrom(level=1, names=names):
                defined.update(dict.fromkeys((alias.name for alias in names), node))
    return defined
