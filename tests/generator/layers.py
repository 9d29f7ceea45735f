"""The imports of the package, and a drawing of its layers: `python tests/generator/layers.py` prints it."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import yaml

REPOSITORY = Path(__file__).parents[2]
PACKAGE, RUNTIME = REPOSITORY / "generated/tallow", REPOSITORY / "runtime"
# What the runtime below the dispatch may import of what is generated, when it is imported itself.
FACTS = {
    *("array_functors", "dtype", "ggml_dtype", "host_blocks", "limits", "op", "promotion"),
    *("kernels.arguments", "kernels.constants", "kernels.host_arguments", "kernels.toolchains"),
    *("libraries.miopen", "libraries.onednn"),
}
# What the runtime has of the front, which stands on the dispatch.
ROOMS = (
    "array_api",
    "distributed",
    "files",
    "gradient",
    "graph",
    "hip",
    "models",
    "quantized",
    "run",
    "selftest",
    "tensor",
    "tokenizer",
)
FRONT = tuple(f"runtime.{room}" for room in ROOMS)
# Imported when the first kernel of a user is launched.
USER_KERNELS = "runtime.backends.gpu_backend.user_kernels"
FRONT += (USER_KERNELS,)


def modules() -> dict[str, tuple[ast.Module, bool]]:
    """The modules of the package by their names, and whether they are packages."""
    found = {}
    folders: tuple[tuple[Path, tuple[str, ...]], ...] = ((PACKAGE, ()), (RUNTIME, ("runtime",)))
    for folder, prefix in folders:
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


@cache
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


# Where generated modules are in the drawing that are neither facts nor dispatch: what expressions of functors become,
# both sides of a launch, and parts of the front.
OWN = {
    **dict.fromkeys(("array_functors", "array_library"), "functors"),
    **{name: "both sides of a launch" for name in (*FACTS, "kernels") if name.startswith("kernels")},
    "tensor_ops": "tensor",
    "tensor_moves": "tensor",
    "quantized_matmul": "quantized",
    "kernel_op": "user kernels",
    USER_KERNELS: "user kernels",
    "": "tallow",
}


def room(name: str) -> str:
    """Where a module is in the drawing: in a room of the runtime, or among those that are generated."""
    if name.partition(".")[0] == "gradients":
        return "gradient"
    if name in OWN or name in FACTS or name == "support_table":
        return OWN.get(name, "facts")
    if name.startswith("runtime."):
        return name.split(".")[1]
    return "public names" if name in public() else "dispatch"


@cache
def public() -> set[str]:
    """The modules of the front that users import, which have the names of others."""
    text = (REPOSITORY / "spec/package.yaml").read_text(encoding="utf-8")
    names = yaml.safe_load(text)["public"]
    return {name.removesuffix("/__init__").replace("/", ".") for name in names if "_backend" not in name}


def arrows() -> dict[str, set[str]]:
    """The rooms that each room imports."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, every in imports().items():
        for needed in every:
            if "runtime" not in (name, needed) and room(name) != room(needed):
                found[room(name)].add(room(needed))
    return dict(found)


def drawing() -> str:
    """The layers in the language of Mermaid: an arrow leads from what imports to what is imported.

    An arrow that follows from others is left out.
    """
    every = arrows()

    def reached(start: str) -> set[str]:
        return set().union(*({there} | reached(there) for there in every.get(start, ())))

    rooms = sorted({*every, *(there for needed in every.values() for there in needed)})
    lines = ["flowchart TD", *(f'    {_id(name)}["{name}"]' for name in rooms)]
    for here in sorted(every):
        further = set().union(*map(reached, every[here]))
        lines += [f"    {_id(here)} --> {_id(there)}" for there in sorted(every[here] - further)]
    return "\n".join(lines)


def _id(name: str) -> str:
    # Some words are Mermaid's own.
    return f"room_{name.replace(' ', '_')}"


if __name__ == "__main__":
    print(drawing())
