"""No import leads up: facts, the runtime, the dispatch, the front, as docs/architecture.md draws them."""

from __future__ import annotations

from .layers import FACTS, FRONT, REPOSITORY, arrows, drawing, imports


def test_no_module_imports_itself_by_way_of_others() -> None:
    waiting = imports()
    while free := {name for name, needed in waiting.items() if not needed & waiting.keys() - {name}}:
        waiting = {name: needed for name, needed in waiting.items() if name not in free}
    assert not waiting


def test_what_is_below_the_dispatch_imports_facts_alone() -> None:
    found = imports()
    below = {name for name in found if name.startswith("runtime") and not name.startswith(FRONT)}
    assert not sorted((name, needed) for name in below for needed in found[name] - below - FACTS - {"runtime"})


def test_no_room_imports_itself_by_way_of_others() -> None:
    """So the drawing has a top and a bottom."""
    waiting = arrows()
    assert {"dispatch", "tensor", "backends"} <= waiting.keys()
    while free := {here for here, needed in waiting.items() if not needed & waiting.keys()}:
        waiting = {here: needed for here, needed in waiting.items() if here not in free}
    assert not waiting


def test_the_page_has_the_drawing() -> None:
    page = (REPOSITORY / "docs/architecture.md").read_text(encoding="utf-8")
    assert f"```mermaid\n{drawing()}\n```" in page, "run python tests/generator/layers.py, and put what it prints there"
