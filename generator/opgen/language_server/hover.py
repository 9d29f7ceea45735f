"""Hover texts: the meaning of a key or a name, and for an op the backends that support it."""

from collections.abc import Iterator
from pathlib import Path

from opgen.formula.printing import text_of
from opgen.language_server.index import Thing
from opgen.language_server.tree import nodes_of
from opgen.language_server.workspace import PYTHON_KINDS, Workspace
from opgen.model.functors import Functor
from opgen.model.methods import Method
from opgen.model.reductions import Monoid
from opgen.model.spec import Spec


def hover(workspace: Workspace, path: Path, line: int, column: int) -> str:
    """Return the hover text for a position, in Markdown; empty if there is none."""
    parts = [*_of_word(workspace, path, line, column)]
    document = workspace.documents.get(path)
    text = workspace.lines(path)[line - 1 : line]
    for node in nodes_of(document) if document is not None else ():
        is_here = node.location.line == line and node.location.column <= column
        if node.value is None and is_here and column <= node.location.column + len(str(node.steps[-1])) and text:
            parts += [node.doc] if node.doc else []
    return "\n\n---\n\n".join(parts)


def _of_word(workspace: Workspace, path: Path, line: int, column: int) -> Iterator[str]:
    word = workspace.index.at(path, line, column)
    if word is None:
        return
    for kind in word.kinds:
        if kind in PYTHON_KINDS:
            yield from (target.doc for target in workspace.defined_in_python(kind, word.text, path))
    thing = workspace.index.meaning(word)
    spec = workspace.spec
    if thing is not None and spec is not None:
        yield "\n\n".join(of_thing(spec, thing))


def of_thing(spec: Spec, thing: Thing) -> Iterator[str]:
    """Yield the meaning of a name of the spec, in paragraphs."""
    yield f"**{thing.name}** ({thing.kind})"
    match thing.kind:
        case "op":
            for functor in (each for each in spec.every_functor if each.name == thing.name):
                yield from _of_functor(spec, functor)
        case "method":
            for method in (each for each in spec.methods if each.name == thing.name):
                yield f"```python\n{method.signature}\n```"
                yield method.doc
                yield from _where(spec, method, None)
        case "dtype":
            yield from (f"{dtype.doc}; {dtype.bytes} bytes" for dtype in spec.dtypes if dtype.name == thing.name)
        case "primitive" if thing.name in spec.primitives:
            primitive = spec.primitives[thing.name]
            yield f"`{primitive.call}`: {primitive.doc}"
        case "word":
            for family in spec.backend_families:
                if thing.name in family.vocabulary:
                    word = family.vocabulary[thing.name]
                    yield f"`{word.call}`: {word.doc}"
        case "backend":
            yield from (backend.doc for backend in spec.backends if backend.name == thing.name)


def _of_functor(spec: Spec, functor: Functor) -> Iterator[str]:
    yield functor.summary
    reduction = functor.reduction
    if functor.computed is not None:
        yield f"```\n{text_of(functor.computed.node)}\n```"
    elif isinstance(reduction, Monoid):
        yield f"```\n{text_of(reduction.combine.node)}\n```"
    for method in spec.storage_methods():
        if method.functor == functor.name:
            yield from _where(spec, method, None)
        elif functor.name in spec.ops(method):
            yield from _where(spec, method, functor.name)


def _where(spec: Spec, method: Method, op: str | None) -> Iterator[str]:
    """Where a method works: for each backend of how many dtypes, and by what."""
    rows = []
    for backend in spec.backends:
        lowerings = spec.lowerings.get(backend.name, {}).get((method.name, op), {})
        vias = dict.fromkeys(lowering.via for lowering in lowerings.values() if lowering.unsupported is None)
        reasons = dict.fromkeys(lowering.unsupported for lowering in lowerings.values() if lowering.unsupported)
        count = sum(lowering.unsupported is None for lowering in lowerings.values())
        shown = "; ".join(f"`{via}`" for via in vias) or "; ".join(map(str, reasons))
        rows.append(f"| {backend.name} | {count} of {len(lowerings)} | {shown} |")
    if rows:
        called = f"`{method.name}`" if op is None else f"`{method.name}` with `{op}`"
        table = "\n".join(("| backend | dtypes | by |", "| --- | --- | --- |", *rows))
        yield f"{called}\n\n{table}"
