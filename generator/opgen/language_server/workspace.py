"""A project as an editor has it: its files, the texts that are not saved yet, and what is wrong with both."""

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from opgen.base import Base, with_base
from opgen.build import build
from opgen.check import check
from opgen.errors import CHECKS
from opgen.folders import BACKENDS, BASE, HEADERS
from opgen.gradients import RULES
from opgen.language_server.index import Index, index_of
from opgen.launch_ops import launch_packages
from opgen.loader import Document, load
from opgen.model.emitted_ops import LaunchOp, module_of
from opgen.model.spec import Spec
from opgen.problem import Location, Problem, Problems, lines_of
from opgen.project import diagnose
from opgen.results import SHAPES
from opgen.sources import Sources


@dataclass(frozen=True)
class Target:
    """A definition in a file below the project; lines count from 1."""

    path: Path
    line: int
    doc: str = ""


class Workspace:
    """The state of a project in the server."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.unsaved: dict[Path, str] = {}  # by their paths below the project
        self.documents: Mapping[Path, Document] = {}  # of those files that are no YAML now, as they were last
        self.texts: dict[Path, str] = {}
        self.problems: Sequence[Problem] = ()
        self._uris: dict[Path, list[str]] = {}  # by which the editor has opened files
        self._spec: Spec | None = None
        self._base: Base | None = None
        self._sources: Sources | None = None

    def forget_sources(self) -> None:
        """Read templates/ and runtime/ anew when they are needed next: some of them changed."""
        self._sources = None

    @property
    def sources(self) -> Sources:
        """The files of templates/ and runtime/."""
        if self._sources is None or self._sources.base != self._base:
            self._sources = Sources(self.root, self._base)
        return self._sources

    def absolute(self, path: Path) -> Path:
        """Return the path of a file: in the project, or in the package that it builds on."""
        posix = PurePosixPath(path)
        if posix in self.sources.paths:
            return self.sources.paths[posix] / path
        is_of_base = Location(path).is_of_base and self._base is not None and self._base.package == path.parts[0]
        return self._base.folder / Path(*path.parts[1:]) if is_of_base and self._base is not None else self.root / path

    def open(self, path: Path, uri: str, text: str) -> None:
        """Use an unsaved text for a file: the editor's document of this URI."""
        self.unsaved[path] = text
        uris = self._uris.setdefault(path, [])
        if uri not in uris:
            uris.append(uri)

    def close(self, path: Path, uri: str) -> None:
        """Take the file's own text again, once no document of the editor is it."""
        remaining = [each for each in self._uris.pop(path, []) if each != uri]
        if remaining:
            self._uris[path] = remaining
        else:
            self.unsaved.pop(path, None)

    def uris(self, path: Path) -> Sequence[str]:
        """Return the URIs of a file: those by which the editor has opened it, perhaps through several links."""
        return self._uris.get(path) or [self.absolute(path).as_uri()]

    def new_problems(self, texts: Mapping[Path, str]) -> Sequence[Problem]:
        """Return the errors that the spec would have with other texts for some files, and does not have now."""
        problems = Problems()
        documents = load(self.root, problems, {**self.unsaved, **texts})
        with_base(documents, problems)
        spec = build(documents, problems)
        if not problems:
            check(spec, problems)
        return sorted({*problems} - {*self.problems})

    @property
    def spec(self) -> Spec | None:
        """The spec, as it was when its files could last be read."""
        return self._spec

    def diagnose(self) -> None:
        """Find what is wrong now."""
        problems = Problems()
        documents = load(self.root, problems, self.unsaved)
        self._base = with_base(documents, problems)
        is_readable = not problems
        spec, _ = diagnose(self.root, documents, self.sources, problems)
        if is_readable:
            self._spec = spec
        self.problems = sorted(set(problems))
        self.documents = {**self.documents, **documents}
        self.__dict__.pop("index", None)

    @cached_property
    def index(self) -> Index:
        """The names of the spec."""
        return index_of(self.documents, {path: self.text(it.path) for path, it in self.documents.items()})

    def text(self, path: Path) -> str:
        """Return the text of a file in the editor, or else on disk."""
        if path in self.unsaved:
            return self.unsaved[path]
        try:
            return self.absolute(path).read_text(encoding="utf-8")
        except (OSError, ValueError):
            return ""

    def lines(self, path: Path) -> Sequence[str]:
        """The lines of a file."""
        return lines_of(self.text(path))

    def packages(self, path: Path) -> list[str]:
        """The packages whose ops a file calls: that of a cell and what it extends, or the one that has launches."""
        if self._spec is None:
            return []
        modules = [module_of(family) for family in self._spec.kernels if family.path == path]
        packages = [launch_packages(self._spec)[module] for module in modules]
        owners = [owner for owner in self._spec.owners if owner.path == path]
        packages += [owner.package for each in owners for owner in self._spec.chain(each)]
        return list(dict.fromkeys(filter(None, packages)))

    def functions(self, path: Path) -> Iterator[tuple[str, Target, str]]:
        """Yield the functions that a file may call: `module.function`, its definition and its signature."""
        folders = [BACKENDS / package / "ops" for package in self.packages(path)]
        # Launches call functions of the package too.
        folders += [each for folder in folders if path.parent.name == "kernels" for each in (folder.parent, BACKENDS)]
        for file in (file for folder in folders for file in self.sources.python(folder).values()):
            for node in self._definitions(file):
                if isinstance(node, ast.FunctionDef):
                    yield f"{file.stem}.{node.name}", _target(file, node), _signature(node)
        if self._spec is not None:
            packages, called = launch_packages(self._spec), self.packages(path)
            yield from map(_launch, (op for op in self._spec.launch_ops.values() if packages[op.module] in called))

    def _definitions(self, file: PurePosixPath) -> Iterator[ast.FunctionDef | ast.ClassDef]:
        """The functions and classes of a module for others."""
        for node in (self.sources.tree(file) or ()) if file in self.sources.paths else ():
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                yield node

    def defined_in_python(self, kind: str, name: str, path: Path) -> Iterator[Target]:
        """Where Python defines what a name of a kind means in a file of the spec."""
        if kind == "function":
            yield from (target for function, target, _ in self.functions(path) if function == name)
        elif kind in PYTHON_KINDS:
            nodes = ((home, node) for home in self._homes(kind) for node in self._definitions(home))
            yield from (_target(home, node) for home, node in nodes if node.name == name)

    def python_names(self, kind: str, path: Path) -> Iterator[tuple[str, str]]:
        """The names of a kind that are in the runtime, and what each is."""
        if kind == "function":
            yield from ((function, signature) for function, _, signature in self.functions(path))
        elif kind == "header":
            yield from ((str(file.relative_to(HEADERS)), "") for file in self.sources.below(HEADERS))
        else:
            nodes = (node for home in self._homes(kind) for node in self._definitions(home))
            yield from ((node.name, _signature(node)) for node in nodes)

    def _homes(self, kind: str) -> Iterable[PurePosixPath]:
        """The modules that define the names of a kind."""
        return self.sources.python(RULES).values() if kind == "rule" else _HOMES.get(kind, ())


_HOMES = {
    "check": [*CHECKS.values()],
    "error": [BASE / "error.py"],
    "shape": [SHAPES],
}
PYTHON_KINDS = ("function", "header", "rule", *_HOMES)


def _launch(op: LaunchOp) -> tuple[str, Target, str]:
    """An op that opgen makes of a launch."""
    where, signature = op.location, str(op.method.signature)
    doc = f"launch {op.struct} of {op.family.name}\n\n```python\n{signature}\n```"
    return op.name, Target(where.path, where.line, doc), signature


def _target(path: PurePosixPath, node: ast.FunctionDef | ast.ClassDef) -> Target:
    doc = ast.get_docstring(node) or ""
    return Target(Path(path), node.lineno, f"```python\n{_signature(node)}\n```\n\n{doc}")


def _signature(node: ast.FunctionDef | ast.ClassDef) -> str:
    if isinstance(node, ast.ClassDef):
        return f"class {node.name}"
    returns = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    return f"def {node.name}({ast.unparse(node.args)}){returns}"
