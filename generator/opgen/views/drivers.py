"""Views of the drivers and compilers of GPUs: a function for each operation, with the calls of the vendor's binding."""

import ast
import builtins
from types import SimpleNamespace as View

from opgen.docstrings import sentence
from opgen.drivers import OUT_OF_MEMORY, VALUES, Binding, DriverCall, DriverTable, Operation
from opgen.model.backends import Backend
from opgen.model.spec import Spec
from opgen.problem import Location
from opgen.views.backend import package_with
from opgen.views.python import quoted

# What stands at hand in the emitted module.
_BINDING, _CHECKED, _RESULT, _ABOUT = "binding", "checked", "result", "about"


def drivers_errors(spec: Spec) -> View:
    """The errors of all drivers."""
    return View(drivers=[_errors(spec, backend) for _, backend in backends_with_drivers(spec)])


def _errors(spec: Spec, backend: Backend) -> View:
    table = spec.driver_of(backend)
    assert table is not None
    return View(
        made_from=(Location(table.path),),
        table=table,
        error=_error_class(backend),
        unrecoverable=list(map(quoted, table.unrecoverable)),
        memory_exhausted=table.statuses[OUT_OF_MEMORY],
    )


def _error_class(backend: Backend) -> str:
    return f"{backend.class_prefix}Error"


def backends_with_drivers(spec: Spec) -> list[tuple[str, Backend]]:
    """The backends on GPUs that have a runtime, by their names."""
    return [(each.name, each) for each in spec.backends if each.package and spec.driver_of(each) is not None]


def driver_of(spec: Spec, backend: Backend) -> View:
    """The calls of a backend's driver, and those of its compiler."""
    family = spec.family_of(backend)
    assert family is not None
    table = spec.driver_of(backend)
    assert table is not None
    targets = spec.targets_of(backend)
    assert targets is not None
    calls = _calls(spec, backend, table, family.driver)
    return View(
        **vars(calls),
        made_from=(Location(table.path),),
        backend=backend.name,
        error=_error_class(backend),
        launch_extra=ast.unparse(_Written(table, calls.known).visit(table.launch_extra.tree)),
        compiler=_calls(spec, backend, table.compiler, family.compiler),
        targets=quoted(targets),
    )


def _calls(spec: Spec, backend: Backend, table: Binding, operations: tuple[Operation, ...]) -> View:
    """The calls of a binding that do operations."""
    helpers = {module for package in spec.packages[backend.name] for module in spec.own_modules[package]}
    written = [(each, call) for each in operations if (call := table.calls.get(each.name)) is not None]
    used = {name for operation, call in written for name in {*call.names} - {*operation.parameters}}
    module, _, binding = table.binding.rpartition(".")
    known = {*helpers, *table.imports, *vars(builtins), _BINDING, _CHECKED}
    return View(
        table=table,
        known=known,
        imports=[
            f"from {module} import {binding} as _binding",
            *(f"from {home} import {name}" for name, home in table.imports.items()),
            *(f"from {package_with(spec, backend, name)} import {name}" for name in sorted(helpers & used)),
        ],
        functions=[_function(table, operation, call, known) for operation, call in written],
        lacking=[each.name for each in operations if each.name not in table.calls],
        names=list(map(quoted, table.functions)),
    )


def _function(table: Binding, operation: Operation, call: DriverCall, known: set[str]) -> View:
    """The function that does an operation."""
    written = _Written(table, {*known, *operation.parameters})
    tree = written.visit(call.tree)
    calls = written.calls
    parameters = [f"{'' if name in call.names else '_'}{name}: Any" for name in operation.parameters]
    lines = []
    if len(calls) == 1 and _CHECKED not in call.names:
        name, text = calls[0]
        lines += [f"{_RESULT} = {text}", *_refusals(table, operation, name)]
        result = f"{_RESULT}[1{':' * (operation.gives == VALUES)}]"
        value = ast.unparse(tree).replace(ast.unparse(written.values[0]), result)
    else:
        value = ast.unparse(tree)
    if operation.gives:
        lines.append(f"return {value}")
    elif operation.unless:
        lines.append("return True")
    elif not calls:
        lines.append(value)
    return View(
        made_from=(operation.location, call.location),
        name=operation.name,
        parameters=", ".join([*parameters, f'{_ABOUT if calls else "_about"}: str = ""']),
        result="Any" if operation.gives else "bool" if operation.unless else "None",
        doc=sentence(operation.doc),
        lines=lines,
    )


def _refusals(table: Binding, operation: Operation, name: str) -> list[str]:
    """Return the statements after a call: for a status that is no error, then for those that are."""
    lines = []
    if isinstance(table, DriverTable):
        forgotten = [] if table.after_error is None else [f"    {_BINDING}.{table.after_error}()"]
        for status, answer in ((operation.unless, "None" if operation.gives else "False"), (operation.accepts, "True")):
            known = table.statuses.get(status or "")
            if known is not None:
                lines += [f"if {_RESULT}[0].name == {quoted(known)}:", *forgotten, f"    return {answer}"]
    return [*lines, f"if {_RESULT}[0]:", f"    raise failure({quoted(name)}, {_RESULT}[0], {_ABOUT})"]


class _Written(ast.NodeTransformer):
    """Names of the binding become its attributes; calls of functions with a status are collected, and marked."""

    def __init__(self, table: Binding, names: set[str]) -> None:
        self._table = table
        self._names = names
        self.calls: list[tuple[str, str]] = []
        self.values: list[ast.Call] = []  # the calls that replace them

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """A name."""
        own = ast.Name(_BINDING, ast.Load())
        return node if node.id in self._names else ast.Attribute(own, node.id, ast.Load())

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Visit a call after its arguments."""
        function = node.func.id if isinstance(node.func, ast.Name) else ""
        visited = self.generic_visit(node)
        assert isinstance(visited, ast.expr)
        if not self._table.is_function(function):
            return visited
        text = ast.unparse(visited)
        self.calls.append((function, text))
        value = ast.Call(ast.Name(_CHECKED), [ast.Constant(function), visited, ast.Name(_ABOUT)], [])
        self.values.append(value)
        return value
