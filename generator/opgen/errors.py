"""The errors that a method raises: those of its checks are read from the functions that make them."""

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from opgen.cache.memo import memoize
from opgen.folders import CORE, RUNTIME
from opgen.model.callables import CheckFunction
from opgen.model.methods import Method
from opgen.model.spec import Spec
from opgen.problem import Problem
from opgen.sources import Sources

# The modules of the functions that check arguments, by the names that the dispatch has for them.
CHECKS = {name: CORE / f"{name}.py" for name in ("check", "layer_check")}
# The module that makes arguments what the signature says, of which every method may be refused.
_ARGUMENT = CORE / "argument.py"


@dataclass(frozen=True)
class _Module:
    """The top-level definitions of a module, and the modules of the runtime that it imports names from."""

    functions: Mapping[str, ast.FunctionDef]
    classes: Mapping[str, Mapping[str, ast.FunctionDef]]  # their methods
    imported: Mapping[str, PurePosixPath]


@memoize(lambda sources: (sources,), size=4)
def check_functions(sources: Sources) -> dict[str, CheckFunction]:
    """The functions that check arguments, by their names."""
    modules: dict[PurePosixPath, _Module] = {}

    def read(path: PurePosixPath) -> _Module:
        if path not in modules:
            modules[path] = _module(sources.tree(path) or [], path)
        return modules[path]

    def raised(function: ast.FunctionDef, home: _Module, seen: set[int]) -> Iterator[str]:
        if id(function) in seen:
            return
        seen.add(id(function))
        for node in ast.walk(function):
            match node:
                case ast.Raise(exc=ast.Call(func=ast.Name(id=name))):
                    yield name
                case ast.Call(func=ast.Name(id=name)) if home.imported.get(name) != _ARGUMENT:
                    owner = read(home.imported[name]) if name in home.imported else home
                    if name in owner.functions:
                        yield from raised(owner.functions[name], owner, seen)
                case ast.Call(func=ast.Attribute(value=value, attr=name)) if not _is_class(value, home):
                    # A method of an object: the classes that the module knows say which.
                    for kind, origin in home.imported.items():
                        owner = read(origin)
                        if name in owner.classes.get(kind, ()):
                            yield from raised(owner.classes[kind][name], owner, seen)

    return {
        name: CheckFunction(module, frozenset(raised(function, read(path), set())))
        for module, path in CHECKS.items()
        for name, function in read(path).functions.items()
    }


def _is_class(node: ast.expr, home: _Module) -> bool:
    return isinstance(node, ast.Name) and node.id in home.imported


def _module(body: Sequence[ast.stmt], path: PurePosixPath) -> _Module:
    return _Module(
        functions=_functions(body),
        classes={node.name: _functions(node.body) for node in body if isinstance(node, ast.ClassDef)},
        imported=dict(_imported(body, path)),
    )


def _imported(body: Iterable[ast.stmt], path: PurePosixPath) -> Iterator[tuple[str, PurePosixPath]]:
    """The names that a module takes from others of the runtime, and these."""
    for node in body:
        match node:
            case ast.ImportFrom(level=level, module=str(module), names=names) if level > 0:
                folder = path.parents[level - 1]
                if folder.is_relative_to(RUNTIME):
                    yield from ((alias.name, folder / f"{module.replace('.', '/')}.py") for alias in names)


def _functions(body: Sequence[ast.stmt]) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in body if isinstance(node, ast.FunctionDef)}


def errors_of(spec: Spec, method: Method) -> set[str]:
    """The names of the errors that a method raises, besides those that every method does."""
    errors = {*method.errors, *_implied(spec, method)}
    if method.operands or method.dtypes is not None:
        errors.add("UnsupportedDType")
    if len(method.operands) > 1:
        errors.add("DeviceMismatch")
    if any(operand.dtypes.texts == ("same",) for operand in method.operands):
        errors.add("DTypeMismatch")
    if any(operand.layout for operand in method.operands):
        errors.add("InvalidLayout")
    return errors


def _implied(spec: Spec, method: Method) -> set[str]:
    """The errors that follow from what a method checks, reads and makes."""
    called = [spec.checks[item.call.name] for item in method.checks if item.call.name in spec.checks]
    errors = {name for check in called for name in check.raised}
    functor = spec.functor(method, None)
    may_be_outside = functor is None or functor.index is not None
    if may_be_outside and any(operand.dtypes.texts == ("index",) for operand in method.operands):
        errors.add("InvalidIndex")
    if "Storage" in method.signature.returns:
        errors.add("OutOfMemory")
    if method.kind is None and "op" in method.signature.arguments:
        # A user's op, which may be none, or give what is no result.
        errors.add("InvalidArgument")
    return errors


def check_errors(spec: Spec, problems: list[Problem]) -> None:
    """Report errors that a method lists although they follow from its checks, operands or result."""
    for method in (*spec.storage_methods(), *spec.device_methods):
        for name in _implied(spec, method) & set(method.errors):
            message = f"'{name}' of method '{method.name}' follows from its checks, operands or result; remove it"
            problems.append(Problem(method.errors[name], message))
