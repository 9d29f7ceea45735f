"""No import leads up: facts, the runtime, the dispatch, the front, as docs/architecture.md draws them."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache

import pytest
from tallow.runtime.core.extensions import Extensions

from . import layers
from .layers import FACTS, FRONT, REPOSITORY, arrows, circles, drawing, imports


def test_no_module_of_the_runtime_imports_itself_by_way_of_others() -> None:
    """Count imports in functions and under TYPE_CHECKING too.

    A circle of generated modules alone is one of types: a storage names its device, and a device its storages.
    """
    assert circles(imports(), "runtime") == []


def test_no_module_imports_itself_by_way_of_others_when_it_runs() -> None:
    assert circles(imports(with_types=False)) == []


def test_no_module_of_opgen_imports_itself_by_way_of_others() -> None:
    assert circles(imports(layers.OPGEN)) == []


def test_what_is_below_the_dispatch_imports_facts_alone() -> None:
    result = imports()
    below = {name for name in result if name.startswith("runtime") and not name.startswith(FRONT)}
    assert not sorted((name, needed) for name in below for needed in result[name] - below - FACTS - {"runtime"})


def test_no_subpackage_imports_itself_through_others() -> None:
    """So the drawing has a top and a bottom."""
    actual = arrows(imports())
    assert {"dispatch", "tensor", "backends"} <= actual.keys()
    assert circles(actual) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from ..core import check", {("a.core", "check", False)}),
        ("import tallow.a.core", {("a.core", "", False)}),
        ("from tallow.a import core", {("a", "core", False)}),
        ("import numpy", set()),
        ("def f():\n    if True:\n        from . import x", {("a.b", "x", False)}),
        ("if TYPE_CHECKING:\n    def f():\n        from .x import y", {("a.b.x", "y", True)}),
        ("if TYPE_CHECKING:\n    pass\nelse:\n    from .x import y", {("a.b.x", "y", False)}),
        ("library = Imported('cpu', '...library', __package__)", {("library", "", False)}),
    ],
)
def test_every_kind_of_import_counts(text: str, expected: set[tuple[str, str, bool]]) -> None:
    assert set(layers.imported(ast.parse(text).body, ["a", "b"])) == expected


def test_a_circle_is_named() -> None:
    graph = {"a": {"b", "d"}, "b": {"a.c"}, "a.c": {"a", "b"}, "d": {"e"}, "e": {"d"}}
    assert circles(graph) == ["a -> b -> a.c -> a", "d -> e -> d"]
    assert circles(graph, "b") == ["b -> a.c -> b"]


def test_the_page_has_the_drawing() -> None:
    page = (REPOSITORY / "docs/architecture.md").read_text(encoding="utf-8")
    expected = f"```mermaid\n{drawing(imports())}\n```"
    assert expected in page, "run python tests/generator/layers.py, and put what it prints there"


# ---- What layers attach to each other


@cache
def nodes() -> list[tuple[str, ast.AST]]:
    """The nodes of all modules that import, write to attributes, call or name something, each with its module."""
    kinds = ast.ImportFrom | ast.Attribute | ast.Call | ast.Name
    return [
        (name, node)
        for name, (tree, _) in layers.modules().items()
        for node in ast.walk(tree)
        if isinstance(node, kinds)
    ]


def test_no_module_writes_to_a_class_that_it_imports() -> None:
    imported = {
        (name, alias.asname or alias.name)
        for name, node in nodes()
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name[0].isupper()
    }
    faults = []
    for name, node in nodes():
        match node:
            case ast.Attribute(ctx=ast.Store(), value=ast.Name(id=target)):
                faults += [f"{name}: {ast.unparse(node)}"] * ((name, target) in imported)
            case ast.Call(func=ast.Name(id="setattr"), args=[ast.Name(id=target), *_]):
                faults += [f"{name}: {ast.unparse(node)}"] * ((name, target) in imported)
    assert faults == []


def test_nothing_changes_its_class_or_counts_references() -> None:
    faults = []
    for name, node in nodes():
        match node:
            case ast.Attribute(attr="__class__", ctx=ast.Store()) | ast.Attribute(attr="getrefcount"):
                faults.append(f"{name}: {ast.unparse(node)}")
            case ast.Name(id="getrefcount"):
                faults.append(name)
    assert faults == []


def test_storages_are_made_in_one_place() -> None:
    """A storage lacks what is not set when it is made, so `Storage._new` sets it."""
    calls = [(name, ast.unparse(node)) for name, node in nodes() if isinstance(node, ast.Call)]
    assert [(name, text) for name, text in calls if text.endswith(("new(Storage)", "__new__(Storage)"))] == []


def test_each_extension_has_one_provider() -> None:
    provided = Counter(
        keyword.arg
        for _, node in nodes()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "provide"
        for keyword in node.keywords
    )
    assert provided == Counter([name for name in Extensions.__slots__ if not name.startswith("_")])
