"""Stage 3, last part: what expressions name, found in the kernels' headers, in NumPy and in the runtime."""

import ast
import importlib.util
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path, PurePosixPath
from types import ModuleType

from opgen.cpp import names_in
from opgen.kernels import KernelFamily
from opgen.model import Functor, Spec
from opgen.problem import Location, Problem, did_you_mean
from opgen.scopes import HIP, LITERALS, NUMPY, Scoped, scoped
from opgen.sources import HEADERS, RUNTIME, TEMPLATES, Sources, place

_NUMPY_MODULE = "numpy"
_INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
_PLACEHOLDER = re.compile(r"{\w+}")
# The modules that the expressions over arrays see.
_NUMPY, _NUMERICS = "np", "numerics"


def check_references(spec: Spec, sources: Sources, problems: list[Problem]) -> None:
    """Note the names that nothing answers to, at which a compiler or a call would fail."""
    _check_kernels(spec, sources, problems)
    modules = (path for path in sources.below(RUNTIME) if path.name == f"{_NUMERICS}.py")
    # Functions of a module, or methods of an object in its place.
    numerics = [known for path in modules if (known := sources.methods(path) or {*(sources.functions(path) or ())})]
    for dtype in spec.dtypes:
        module, _, name = dtype.numpy.rpartition(".")
        if module == _NUMPY_MODULE and name not in _numpy_names() and not hasattr(_numpy(), name):
            mend = "write a type of NumPy"
            _note(dtype.location, f"'numpy' of dtype '{dtype.name}'", name, dir(_numpy()), mend, problems)
    for kind in spec.functors.values():
        for functor in kind.functors:
            _check_arrays(spec, functor, numerics, problems)


def _note(location: Location, what: str, name: str, known: Iterable[str], mend: str, problems: list[Problem]) -> None:
    problems.append(Problem(location, f"unknown name '{name}' in {what}{did_you_mean(name, known, mend)}"))


@cache
def _numpy_names() -> Collection[str]:
    """What NumPy's stub lists: nearly all that a spec names, in a hundredth of the time that importing NumPy takes."""
    found = importlib.util.find_spec(_NUMPY_MODULE)
    stub = Path(found.origin).with_suffix(".pyi") if found is not None and found.origin is not None else None
    text = stub.read_text(encoding="utf-8") if stub is not None and stub.is_file() else ""
    listed = re.search(r"^__all__ = \[([^\]]*)\]", text, re.MULTILINE)
    return frozenset(re.findall(r'"(\w+)"', listed[1])) if listed is not None else frozenset()


def _numpy() -> ModuleType:
    # Imported only for a name that the stub does not list.
    return importlib.import_module(_NUMPY_MODULE)


def _check_kernels(spec: Spec, sources: Sources, problems: list[Problem]) -> None:
    paths = [*sources.below(HEADERS), *sources.below(TEMPLATES / spec.package.name / "kernels")]
    headers = {path.name.removesuffix(".j2"): path for path in paths if ".hpp" in path.suffixes}
    is_whole = bool(headers) and bool(spec.kernels)
    unknown: dict[tuple[Scoped, str], list[str]] = {}
    defined_anywhere: set[str] = set()
    for family in spec.kernels:
        before = len(problems)
        for header, location in family.headers.items():
            if header not in headers:
                hint = did_you_mean(header, headers, f"write a header to {HEADERS}")
                problems.append(Problem(location, f"unknown header '{header}'{hint}"))
        reached = _reached(family, headers, sources, problems)
        # A header that is missing would have defined something.
        if len(problems) == before:
            _check_calls(spec, family, reached, problems)
            for scope, name in _unknown(spec, family, reached):
                unknown.setdefault((scope, name), []).append(family.path.as_posix())
            defined_anywhere |= reached
        else:
            is_whole = False
    # One expression serves several families.
    for (scope, name), families in unknown.items():
        mend = f"write one of {', '.join(scope.names)}, or define it in a header of {' and '.join(families)}"
        _note_scoped(scope, name, {*defined_anywhere, *scope.names}, mend, problems)
    # Kernels name the types of all dtypes and widths, so that what one header defines is enough.
    defined = {name for path in headers.values() for name in sources.defined(path)}
    types = {f"'cpp' of dtype '{dtype.name}'": (dtype.cpp, dtype.location) for dtype in spec.dtypes}
    types.update({f"width '{width}'": text for width, text in spec.widths.items()})
    for what, (text, location) in types.items() if is_whole else ():
        for name in names_in(text):
            if name not in defined:
                _note(location, what, name, defined, f"define it in a header of {HEADERS}", problems)


def _reached(
    family: KernelFamily, headers: Mapping[str, PurePosixPath], sources: Sources, problems: list[Problem]
) -> set[str]:
    """What a family's headers define, and those that they include."""
    waiting = [header for header in family.headers if header in headers]
    seen: set[str] = set()
    while waiting:
        header = waiting.pop()
        if header in seen:
            continue
        seen.add(header)
        text = sources.text(headers[header]) or ""
        for match in _INCLUDE.finditer(text):
            if match[1] in headers:
                waiting.append(match[1])
            else:
                hint = did_you_mean(match[1], headers, "write it, or remove the include")
                where = place(headers[header], text.count("\n", 0, match.start()) + 1)
                problems.append(Problem(where, f"it includes an unknown header, '{match[1]}'{hint}"))
    return {name for header in seen for name in sources.defined(headers[header])}


def _unknown(spec: Spec, family: KernelFamily, known: set[str]) -> Iterator[tuple[Scoped, str]]:
    """The names in the functors of a family that neither its headers nor their scopes have."""
    for kind in family.kinds:
        for functor in spec.functors[kind].functors if kind in spec.functors else ():
            for scope in scoped(spec, functor):
                if scope.language == HIP:
                    for name in dict.fromkeys(names_in(scope.text)):
                        if name not in known and name not in scope.names:
                            yield scope, name


def _note_scoped(scope: Scoped, name: str, known: Iterable[str], mend: str, problems: list[Problem]) -> None:
    """Note a name that an expression may not use; where others may, say why."""
    if name in LITERALS and scope.is_of_integers:
        message = f"'{name}' in {scope.what} is a float, and the op has integers"
        fix = "give these an expression of their own" if scope.key == scope.language else "give the op floats alone"
        problems.append(Problem(scope.location, f"{message}; {fix}"))
    elif name == "y" and scope.key == "element":
        message = f"{scope.what} names y, the result of a reduction that NumPy finds first"
        fix = "use a 'state'" if scope.language == HIP else "name it in 'given'"
        problems.append(Problem(scope.location, f"{message}; {fix}"))
    else:
        _note(scope.location, scope.what, name, known, mend, problems)


def _check_calls(spec: Spec, family: KernelFamily, known: set[str], problems: list[Problem]) -> None:
    mend = f"define it in a header of {family.path.as_posix()}"
    known = known | {struct.name for struct in family.structs} | {constant.name for constant in spec.constants}
    for kernel in family.kernels:
        for name in names_in(_PLACEHOLDER.sub("", kernel.call)):
            if name not in known:
                _note(kernel.call_location, f"'call' of kernel '{kernel.name}'", name, known, mend, problems)


def _check_arrays(spec: Spec, functor: Functor, numerics: Sequence[Collection[str]], problems: list[Problem]) -> None:
    for scope in scoped(spec, functor):
        mend = f"write one of {', '.join(scope.names)}, or a name of NumPy" if scope.names else "write a name of NumPy"
        for name in dict.fromkeys(outer_names(scope.text)) if scope.language == NUMPY else ():
            known = _resolved(name, scope.names, numerics)
            if known is not None:
                _note_scoped(scope, ".".join(name), known, mend, problems)


def outer_names(expression: str) -> Iterator[tuple[str, ...]]:
    """The names, with their attributes, that an expression of Python takes from its surroundings."""
    try:
        tree = ast.parse(expression, mode="eval")
    except SyntaxError:
        return
    nodes = list(ast.walk(tree))
    own = {node.arg for node in nodes if isinstance(node, ast.arg)}
    own |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    parts = {node.value for node in nodes if isinstance(node, ast.Attribute)}
    for node in nodes:
        name = _dotted(node)
        if name and node not in parts and name[0] not in own:
            yield name


def _dotted(node: ast.AST) -> tuple[str, ...]:
    match node:
        case ast.Name(id=name):
            return (name,)
        case ast.Attribute(value=value, attr=name):
            base = _dotted(value)
            return (*base, name) if base else ()
    return ()


def _resolved(
    name: tuple[str, ...], operands: Iterable[str], numerics: Sequence[Collection[str]]
) -> Iterable[str] | None:
    """None where something answers to `name`; else the names that are known in its place."""
    first, *rest = name
    if first in operands:
        return None
    if first == _NUMERICS:
        # Each of the modules of this name has all of them; one that cannot be read is told elsewhere.
        lacking = next((known for known in numerics if rest and rest[0] not in known), None)
        return None if lacking is None else [f"{first}.{other}" for other in lacking]
    if first == _NUMPY and (not rest or (len(rest) == 1 and rest[0] in _numpy_names())):
        return None
    value: object = _numpy()
    if first != _NUMPY:
        return [*operands, *([f"{_NUMPY}.{first}"] if hasattr(value, first) else [])]
    prefix = first
    for attribute in rest:
        if not hasattr(value, attribute):
            return [f"{prefix}.{other}" for other in dir(value)]
        value, prefix = getattr(value, attribute), f"{prefix}.{attribute}"
    return None
