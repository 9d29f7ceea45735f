"""The errors that the spec lists for a method are those that its checks raise, and more."""

import ast
from pathlib import Path

import pytest
from opgen.cli import read_spec
from opgen.model import Method

from .project import REPOSITORY

# What the checks call outside of their module.
CALLED = {"check": {"InvalidLayout"}, "uniform_range": {"InvalidArgument"}}
SPEC = read_spec(REPOSITORY)
METHODS = [*SPEC.storage_methods(), *SPEC.device_methods]


def functions() -> dict[str, ast.FunctionDef]:
    tree = ast.parse(Path(REPOSITORY, "templates/tallow/check.py").read_text(encoding="utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def raised(name: str) -> set[str]:
    found: set[str] = set()
    known = functions()
    for node in ast.walk(known[name]):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            found.add(ast.unparse(node.exc.func))
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func).rpartition(".")[2]
            found |= raised(called) if called in known else CALLED.get(called, set())
    return found


@pytest.mark.parametrize("method", [method for method in METHODS if method.checks], ids=lambda method: method.name)
def test_what_the_checks_raise_is_listed(method: Method) -> None:
    errors = set().union(*(raised(item.call.name) for item in method.checks))
    assert errors
    has_layout = any(operand.layout for operand in method.operands)
    assert errors <= {*method.errors, *(["InvalidLayout"] if has_layout else [])}


def test_what_makes_a_storage_may_run_out_of_memory() -> None:
    makers = [method for method in METHODS if method.signature.returns == "Storage" and not method.operands]
    assert len(makers) == 8
    assert all("OutOfMemory" in method.errors for method in makers)
