"""The definitions of emitted files: classes, functions and values of Python, and names of C++."""

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import PurePosixPath

from opgen.explanation import GENERATED, generated
from opgen.plan import Output
from opgen.problem import Location, lines_of
from opgen.project import Project


def emitted_text(project: Project, path: PurePosixPath) -> str:
    """The text of an output as it lies in generated/; nothing where it is not there."""
    try:
        return (project.root / GENERATED / path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


@lru_cache(maxsize=1)
def emitted_modules(project: Project) -> dict[PurePosixPath, ast.Module]:
    """The emitted modules of Python."""
    modules = {}
    for output in project.outputs:
        if output.path.suffix == ".py":
            try:
                modules[output.path] = ast.parse(emitted_text(project, output.path))
            except SyntaxError:  # of an edited file
                continue
    return modules


def _defined(owner: str, node: ast.stmt, path: PurePosixPath) -> Iterator[tuple[str, str, str, Location]]:
    """Return the names that a statement defines."""
    match node:
        case ast.ClassDef(name=name):
            yield owner, name, "class", generated(path, node.lineno)
        case ast.FunctionDef(name=name):
            yield owner, name, "method" if owner else "function", generated(path, node.lineno)
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            yield owner, name, "value", generated(path, node.lineno)


def defined_in_cpp(project: Project, name: str) -> Iterator[tuple[str, str, Location]]:
    """Where emitted sources of kernels define a name."""
    pattern = re.compile(rf"\b(struct|class|enum|using|constexpr|#define)\b[\w\s]*?\b{re.escape(name)}\b(?!\s*[;>,])")
    for output in project.outputs:
        for number, line in enumerate(lines_of(emitted_text(project, output.path)) if _is_cpp(output) else (), 1):
            match = pattern.search(line)
            if match is not None:
                yield name, match[1].removeprefix("#"), generated(output.path, number)


def _is_cpp(output: Output) -> bool:
    return output.path.suffix in (".hip", ".cpp", ".hpp")


def definitions(project: Project) -> Iterator[tuple[str, str, str, Location]]:
    """The class, if there is one, the name, the kind and the location of everything that emitted modules define."""
    for path, tree in emitted_modules(project).items():
        for node in tree.body:
            yield from _defined("", node, path)
            for inner in node.body if isinstance(node, ast.ClassDef) else ():
                yield from _defined(node.name if isinstance(node, ast.ClassDef) else "", inner, path)


def defined(project: Project, name: str, module: str = "", folder: str = "") -> Location | None:
    """Where a class or a function is defined in a folder of generated/, or a method in the classes of a module."""
    matches = (
        where
        for holder, own, kind, where in definitions(project)
        if own == name and kind != "value" and (where.path.stem == module if module else not holder)
        if not folder or folder in where.path.parts
    )
    return next(matches, None)


def assigned(project: Project, name: str, owner: str) -> Location | None:
    """Where a class of generated/ assigns a name."""
    return next((where for holder, own, _, where in definitions(project) if (holder, own) == (owner, name)), None)
