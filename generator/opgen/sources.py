"""The texts of templates/ and runtime/, and the names in them that the spec must keep clear of or may refer to."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path, PurePosixPath

from opgen.base import Base
from opgen.cpp import defined_in
from opgen.folders import RUNTIME, TEMPLATES, walk
from opgen.loader import read_text, unreadable
from opgen.model.callables import Callable
from opgen.model.package import Package, PublicModule
from opgen.problem import Location, Problem

# The folder of a package's own part of the runtime, if it builds on another package.
OWN_RUNTIME = "own_runtime"


def package_folders(package: Package) -> tuple[PurePosixPath, ...]:
    """Return the folders of templates of a package: its own, and that of its base."""
    names = [package.name, *([package.base.package] if package.base is not None else [])]
    return tuple(TEMPLATES / name for name in names)


class Sources:
    """The files of templates/ and runtime/ by their paths in the project. What cannot be read is a problem.

    Files of the base package are among them, unless the project has its own.
    """

    def __init__(self, root: Path, base: Base | None = None) -> None:
        self._root = root
        self.base = base
        self._texts: dict[PurePosixPath, str | None] = {}
        self._trees: dict[PurePosixPath, Sequence[ast.stmt] | None] = {}
        self._python: dict[PurePosixPath, Mapping[str, PurePosixPath]] = {}
        self._functions: dict[PurePosixPath, Mapping[str, Callable] | None] = {}
        self._methods: dict[PurePosixPath, AbstractSet[str]] = {}
        self._public: dict[tuple[str, PurePosixPath], PublicModule] = {}
        self.problems: list[Problem] = []
        roots = dict.fromkeys((*self._walk(root, TEMPLATES), *self._walk(root, RUNTIME)), root)
        if base is not None:
            for top in (TEMPLATES / base.package, RUNTIME):
                for path in self._walk(base.folder, top):
                    roots.setdefault(path, base.folder)
        self.paths = dict(sorted(roots.items()))
        self._below: dict[PurePosixPath, list[PurePosixPath]] = {}
        above = cache(lambda folder: (folder, *folder.parents))  # many files are in one
        for path in self.paths:
            for folder in above(path.parent):
                self._below.setdefault(folder, []).append(path)

    def __getstate__(self) -> dict[str, object]:
        # Trees are large, and rarely needed again.
        return {**self.__dict__, "_trees": {}}

    def __eq__(self, other: object) -> bool:
        """Whether all texts are the same."""
        if self is other:
            return True
        return (
            isinstance(other, Sources)
            and (self.base, self.paths) == (other.base, other.paths)
            and not (self.problems or other.problems)
            and all(self.text(path) == other.text(path) for path in self.paths)
        )

    __hash__ = object.__hash__

    def below(self, folder: PurePosixPath) -> Sequence[PurePosixPath]:
        """The files in a folder and in those below it."""
        return self._below.get(folder, [])

    def is_own(self, path: PurePosixPath) -> bool:
        """Whether a file is one of the project itself."""
        return self.paths[path] is self._root

    def location_of(self, path: PurePosixPath, line: int = 1) -> Location:
        """A line of a file; the path of one that the base has begins with the name of the base."""
        if self.base is None or self.is_own(path):
            return location_of(path, line)
        return location_of(PurePosixPath(self.base.package, path), line)

    def _walk(self, root: Path, top: PurePosixPath) -> Iterator[PurePosixPath]:
        def note(error: OSError) -> None:
            folder = Path(error.filename).relative_to(root)
            # Skipping it would remove its outputs as orphans. `plan` reports that there are no templates at all.
            if len(folder.parts) > 1 or not isinstance(error, FileNotFoundError):
                self.problems.append(Problem(Location(folder), unreadable(error)))

        for file in walk(root / top, note):
            path = top / file
            if file.isprintable():
                yield path
            else:
                self.problems.append(Problem(location_of(path), "its name cannot be printed; rename it"))

    def text(self, path: PurePosixPath) -> str | None:
        """The text of a file; None where it is missing or cannot be read."""
        if path not in self._texts:
            root = self.paths.get(path)
            self._texts[path] = None if root is None else read_text(root / path, location_of(path).path, self.problems)
        return self._texts[path]

    def defined(self, path: PurePosixPath) -> AbstractSet[str]:
        """The names that a header of the kernels defines."""
        return defined_in(self.text(path) or "")

    def python(self, folder: PurePosixPath) -> Mapping[str, PurePosixPath]:
        """The modules in a folder by their names."""
        if folder not in self._python:
            paths = (path for path in self.below(folder) if path.parent == folder and path.suffix == ".py")
            self._python[folder] = {path.stem: path for path in paths}
        return self._python[folder]

    def modules(self, folder: PurePosixPath) -> Iterator[str]:
        """The modules in a folder and in those below it, by names with dots."""
        paths = (path.relative_to(folder).with_suffix("") for path in self.below(folder) if path.suffix == ".py")
        return (".".join(path.parts) for path in paths)

    def methods(self, path: PurePosixPath) -> AbstractSet[str]:
        """The methods that the classes of a module define for others."""
        if path not in self._methods:
            self._methods[path] = _methods(self.tree(path) or [])
        return self._methods[path]

    def methods_of_classes(self, path: PurePosixPath) -> Mapping[str, Callable]:
        """The public methods that the classes of a module define, as they are called."""
        classes = (node for node in self.tree(path) or () if isinstance(node, ast.ClassDef))
        every = (function for node in classes for function in node.body if isinstance(function, ast.FunctionDef))
        own = {function.name: _callable(function) for function in every if not function.name.startswith("_")}
        return {
            name: replace(it, parameters=it.parameters[1:], required=it.required - 1)
            for name, it in own.items()
            if it.parameters[:1] in (("self",), ("cls",))
        }

    def functions(self, path: PurePosixPath) -> Mapping[str, Callable] | None:
        """The functions that a module defines, and those that it reexports from modules of the runtime.

        None for a text that is not Python.
        """
        if path not in self._functions:
            body = self.tree(path)
            self._functions[path] = None if body is None else {**self._reexported(path, body), **_functions(body)}
        return self._functions[path]

    def _reexported(self, path: PurePosixPath, body: Sequence[ast.stmt]) -> dict[str, Callable]:
        """The functions that a module imports from others as `name as name`."""
        functions: dict[str, Callable] = {}
        for node in body:
            if isinstance(node, ast.ImportFrom) and node.level and node.module:
                names = [alias.name for alias in node.names if alias.asname == alias.name]
                home = path.parents[node.level - 1].joinpath(*node.module.split("."))
                other = self.functions(home.with_suffix(".py")) if names else None
                functions |= {name: other[name] for name in names if other and name in other}
        return functions

    def public(self, name: str, home: str) -> PublicModule | None:
        """Return the public names of a module or a package of the runtime; None if it is missing."""
        paths = (RUNTIME / home / "__init__.py", RUNTIME / f"{home}.py")
        file = next((path for path in paths if path in self.paths), None)
        if file is None:
            return None
        if (name, file) not in self._public:
            self._public[name, file] = _public(self.tree(file) or [], name, home)
        return self._public[name, file]

    def tree(self, path: PurePosixPath) -> Sequence[ast.stmt] | None:
        """The statements of a module of the runtime; None where it is no Python, which is a problem."""
        if path not in self._trees:
            try:
                self._trees[path] = _statements(self.text(path) or "")
            except (SyntaxError, ValueError) as error:
                line, reason = (error.lineno or 1, error.msg) if isinstance(error, SyntaxError) else (1, str(error))
                self.problems.append(Problem(location_of(path, line), f"it is no Python ({reason}); fix it"))
                self._trees[path] = None
        return self._trees[path]


@lru_cache(maxsize=1024)
def _statements(text: str) -> Sequence[ast.stmt]:
    return ast.parse(text).body


def _methods(body: Sequence[ast.stmt]) -> frozenset[str]:
    inner = [node for kind in body if isinstance(kind, ast.ClassDef) for node in kind.body]
    return frozenset(node.name for node in inner if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"))


def _functions(body: Sequence[ast.stmt]) -> dict[str, Callable]:
    functions = (node for node in body if isinstance(node, ast.FunctionDef))
    return {node.name: _callable(node) for node in functions if not node.name.startswith("_")}


def _public(body: Sequence[ast.stmt], name: str, home: str) -> PublicModule:
    names: list[str] = []
    for node in body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List(elts=elements)):
                names = [str(element.value) for element in elements if isinstance(element, ast.Constant)]
                break
            case ast.FunctionDef(name=own) | ast.ClassDef(name=own) if not own.startswith("_"):
                names.append(own)
    return PublicModule(name, home, ast.get_docstring(ast.Module([*body], [])) or "", tuple(names))


def _callable(node: ast.FunctionDef) -> Callable:
    names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
    named = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
    keywords = {argument.arg: default is not None for argument, default in named}
    required, returns = (
        len(names) - len(node.args.defaults),
        None if node.returns is None else ast.unparse(node.returns),
    )
    return Callable(tuple(names), required, node.args.vararg is not None, keywords, returns)


def location_of(path: PurePosixPath, line: int = 1) -> Location:
    """A line of a template, or of a file of the runtime."""
    return Location(Path(path), line)
