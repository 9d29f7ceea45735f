"""The layers of the package: facts that are generated, the runtime, the dispatch that is generated, and the front."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from .project import REPOSITORY

PACKAGE, RUNTIME = REPOSITORY / "generated/tallow", REPOSITORY / "runtime"
# What the runtime has of the front, which stands on the dispatch.
FRONT = tuple(f"runtime.{room}" for room in ("files", "graph", "models", "quantized", "run", "tensor", "tokenizer"))
FRONT += ("runtime.backends.gpu_backend.user_kernels",)  # imported when the first kernel of a user is launched
# What the runtime below the dispatch may import of what is generated, when it is imported itself.
FACTS = {
    *("array_functors", "array_library", "dtype", "ggml_dtype", "host_blocks", "limits", "op", "support_table"),
    *("kernels", "kernels.arguments", "kernels.constants", "kernels.functors", "kernels.host_arguments"),
    *("kernels.toolchains", "libraries.miopen", "libraries.onednn"),
}


def modules() -> dict[str, tuple[ast.Module, bool]]:
    """The modules of the package by their names, and whether they are packages."""
    found = {}
    for folder, prefix in ((PACKAGE, ()), (RUNTIME, ("runtime",))):
        for path in folder.rglob("*.py"):
            parts = (*prefix, *path.relative_to(folder).with_suffix("").parts)
            is_package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if is_package else parts)
            found[name] = (ast.parse(path.read_text(encoding="utf-8")), is_package)
    return found


def at_import(body: Iterable[ast.stmt]) -> Iterator[ast.ImportFrom]:
    """The imports that are made when the module is: not those of functions, nor those for types alone."""
    for node in body:
        match node:
            case ast.ImportFrom() if node.level:
                yield node
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                yield from at_import(node.orelse)
            case ast.If() | ast.Try() | ast.With():
                yield from at_import(node.body)


def imports() -> dict[str, set[str]]:
    """The modules that each module imports."""
    every = modules()
    found: dict[str, set[str]] = {}
    for name, (tree, is_package) in every.items():
        home = name.split(".") if name else []
        found[name] = set()
        for node in at_import(tree.body):
            up = node.level - is_package
            base = [*home[: len(home) - up], *(node.module or "").split(".")]
            module = ".".join(part for part in base if part)
            for alias in node.names:
                inner = f"{module}.{alias.name}".lstrip(".")
                found[name].add(inner if inner in every else module)
    return found


def test_no_module_imports_itself_by_way_of_others() -> None:
    waiting = imports()
    while free := {name for name, needed in waiting.items() if not needed & waiting.keys() - {name}}:
        waiting = {name: needed for name, needed in waiting.items() if name not in free}
    assert not waiting


def test_no_import_leads_up() -> None:
    """Facts, the runtime, the dispatch, the front: facts need names and errors of the runtime's core as well."""
    found = imports()
    below = {name for name in found if name.startswith("runtime") and not name.startswith(FRONT)}
    assert not sorted((name, needed) for name in below for needed in found[name] - below - FACTS - {"runtime"})
    own = {name for name in below if name.startswith(("runtime.core", "runtime.helpers", "runtime.backends"))}
    assert not sorted((name, needed) for name in FACTS for needed in found[name] - FACTS - own)
