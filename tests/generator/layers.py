"""The imports of the package and of opgen; `python tests/generator/layers.py` draws the layers of the package."""

from __future__ import annotations

import ast
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import yaml
from scipy.sparse.csgraph import connected_components

REPOSITORY = Path(__file__).parents[2]
PACKAGE, RUNTIME = REPOSITORY / "generated/tallow", REPOSITORY / "runtime"
Folders: TypeAlias = tuple[tuple[Path, tuple[str, ...]], ...]
"""The folders of a package, each with the names of the subpackages that lead to it; the first is the package itself."""
TALLOW: Folders = ((PACKAGE, ()), (RUNTIME, ("runtime",)))
OPGEN: Folders = ((REPOSITORY / "generator/opgen", ()),)
# The generated modules that the runtime below the dispatch may import.
FACTS = {
    *("array_functors", "array_library", "dtype", "ggml_dtype", "host_blocks", "limits", "op", "promotion"),
    "results",
    *("kernels.arguments", "kernels.constants", "kernels.host_arguments", "kernels.targets", "kernels.toolchains"),
    *("kernels.launches", "kernels.host_launches"),
    *("compilers", "compilers.cuda", "compilers.rocm"),
    *("drivers", "drivers.cuda", "drivers.errors", "drivers.rocm"),
    *("cpu_backend.library", "libraries.miopen", "libraries.onednn", "support_table"),
}
# The folders of the runtime above the dispatch.
SUBPACKAGES = (
    "array_api",
    "distributed",
    "files",
    "gradient",
    "graph",
    "hip",
    "models",
    "profile",
    "quantized",
    "run",
    "selftest",
    "tensor",
    "tokenizer",
    "transforms",
)
FRONT = tuple(f"runtime.{subpackage}" for subpackage in SUBPACKAGES)
# Functions that import the module that an argument names.
IMPORTERS = {"import_module", "_import_module", "Imported"}


@cache
def modules(folders: Folders = TALLOW) -> dict[str, tuple[ast.Module, bool]]:
    """The modules of a package by their names, and whether they are packages."""
    results = {}
    for folder, prefix in folders:
        for path in folder.rglob("*.py"):
            parts = (*prefix, *path.relative_to(folder).with_suffix("").parts)
            is_package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if is_package else parts)
            results[name] = (ast.parse(path.read_text(encoding="utf-8")), is_package)
    return results


class Import(NamedTuple):
    """An import of one module by another."""

    importer: str
    needed: str
    is_for_types: bool
    """Whether only type checkers see it."""


@cache
def all_imports(folders: Folders = TALLOW) -> frozenset[Import]:
    """All imports within a package: at module level, in functions and for types, absolute, relative and by name."""
    every = modules(folders)
    own = folders[0][0].name
    actual = set()
    for importer, (tree, is_package) in every.items():
        package = importer if is_package else importer.rpartition(".")[0]
        for module, name, is_for_types in imported(tree.body, package.split(".") if package else [], own):
            inner = f"{module}.{name}".strip(".")
            actual.add(Import(importer, inner if inner in every else module, is_for_types))
    return frozenset(each for each in actual if each.needed in every and each.needed != each.importer)


def imported(
    nodes: Iterable[ast.AST], package: list[str], own: str = PACKAGE.name, *, is_for_types: bool = False
) -> Iterator[tuple[str, str, bool]]:
    """Yield the modules of a package that syntax trees import, what of them, and whether only type checkers see that.

    `own` is the name of the package.
    """

    def absolute(module: str, level: int) -> str:
        return ".".join([*package[: len(package) - level + 1], *filter(None, [module])])

    for node in nodes:
        inside: Iterable[ast.AST] = ast.iter_child_nodes(node)
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), body=body, orelse=inside):
                yield from imported(body, package, own, is_for_types=True)
            case ast.ImportFrom(module=module, names=names, level=level) if level:
                yield from ((absolute(module or "", level), alias.name, is_for_types) for alias in names)
            case ast.ImportFrom(module=str(module), names=names) if _is_in(own, module):
                yield from ((_within(module), alias.name, is_for_types) for alias in names)
            case ast.Import(names=names):
                yield from ((_within(alias.name), "", is_for_types) for alias in names if _is_in(own, alias.name))
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=arguments) if name in IMPORTERS:
                for argument in arguments:
                    if isinstance(argument, ast.Constant) and str(argument.value).startswith("."):
                        module = str(argument.value).lstrip(".")
                        yield absolute(module, len(str(argument.value)) - len(module)), "", is_for_types
        yield from imported(inside, package, own, is_for_types=is_for_types)


def _is_in(package: str, module: str) -> bool:
    return module.partition(".")[0] == package


def _within(module: str) -> str:
    """The name of a module of the package within the package."""
    return module.partition(".")[2]


@cache
def imports(folders: Folders = TALLOW, *, with_types: bool = True) -> dict[str, set[str]]:
    """The modules that each module of a package imports, those for types alone where wanted."""
    actual: dict[str, set[str]] = {name: set() for name in modules(folders)}
    for importer, needed, is_for_types in all_imports(folders):
        if with_types or not is_for_types:
            actual[importer].add(needed)
    return actual


def circles(graph: Mapping[str, set[str]], prefix: str = "") -> list[str]:
    """A shortest circle of each strongly connected part of a graph through a node that begins with `prefix`."""
    nodes = sorted({*graph, *chain.from_iterable(graph.values())})
    number = {node: index for index, node in enumerate(nodes)}
    matrix = np.zeros((len(nodes), len(nodes)), bool)
    for node, every in graph.items():
        matrix[number[node], [number[needed] for needed in every]] = True
    _, labels = connected_components(matrix, connection="strong")
    parts = defaultdict(list)
    for node, label in zip(nodes, labels, strict=True):
        parts[label].append(node)
    starts = [[node for node in part if node.startswith(prefix)] for part in parts.values() if len(part) > 1]
    return [" -> ".join(_circle(graph, start)) for start, *_ in filter(None, starts)]


def _circle(graph: Mapping[str, set[str]], start: str) -> list[str]:
    """A shortest path from a node to itself."""
    paths, seen = deque([[start]]), set()
    while start not in seen:
        path = paths.popleft()
        new = graph.get(path[-1], set()) - seen
        seen |= new
        paths.extend([*path, node] for node in sorted(new))
    return next(path for path in paths if path[-1] == start)


# Where generated modules are in the drawing that are neither facts nor dispatch: what expressions of functors become,
# the types of results, both sides of a launch, and parts of the front.
OWN = {
    **dict.fromkeys(("array_functors", "array_library"), "functors"),
    "results": "results",
    **dict.fromkeys(("kernels", "kernels.arguments", "kernels.host_arguments"), "both sides of a launch"),
    "batching": "transforms",
    **dict.fromkeys(("composed", "tensor_methods", "tensor_ops"), "tensor"),
    "tensor_moves": "tensor",
    "quantized_matmul": "quantized",
    "kernel_op": "user kernels",
    **dict.fromkeys(("cpu_backend.library", "metal_backend.library"), "backends"),
    **dict.fromkeys(("kernels.launches", "kernels.host_launches"), "backends"),
    **dict.fromkeys(("compilers", "compilers.cuda", "compilers.rocm"), "backends"),
    **dict.fromkeys(("drivers", "drivers.cuda", "drivers.errors", "drivers.rocm"), "backends"),
    "": "tallow",
}


def subpackage(name: str) -> str:
    """Where a module is in the drawing: in a subpackage of the runtime, or among those that are generated."""
    if name.partition(".")[0] == "gradients":
        return "gradient"
    if name in OWN or name in FACTS:
        return OWN.get(name, "facts")
    if name.startswith("runtime."):
        return name.split(".")[1]
    return "public names" if name in public() else "dispatch"


@cache
def public() -> set[str]:
    """The modules of the front that users import, which have the names of others."""
    text = (REPOSITORY / "spec/package.yaml").read_text(encoding="utf-8")
    names = yaml.safe_load(text)["public"]
    return {
        name.removesuffix("/__init__").replace("/", ".")
        for name, module in names.items()
        if "_backend" not in name or f"runtime.{module}".startswith(FRONT)
    }


def arrows(graph: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """The subpackages that each subpackage imports, where modules import those of `graph`."""
    result: dict[str, set[str]] = defaultdict(set)
    for name, every in graph.items():
        for needed in every:
            if "runtime" not in (name, needed) and subpackage(name) != subpackage(needed):
                result[subpackage(name)].add(subpackage(needed))
    return dict(result)


def drawing(graph: Mapping[str, set[str]]) -> str:
    """The layers in the language of Mermaid: an arrow leads from what imports to what is imported.

    An arrow that follows from others is left out.
    """
    every = arrows(graph)

    def reached(start: str) -> set[str]:
        return set().union(*({there} | reached(there) for there in every.get(start, ())))

    subpackages = sorted({*every, *(there for needed in every.values() for there in needed)})
    lines = ["flowchart TD", *(f'    {_id(name)}["{name}"]' for name in subpackages)]
    for here in sorted(every):
        further = set().union(*map(reached, every[here]))
        lines += [f"    {_id(here)} --> {_id(there)}" for there in sorted(every[here] - further)]
    return "\n".join(lines)


def _id(name: str) -> str:
    # Some words are Mermaid's own.
    return f"subpackage_{name.replace(' ', '_')}"


if __name__ == "__main__":
    print(drawing(imports()))
