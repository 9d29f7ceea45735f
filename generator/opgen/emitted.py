"""Stage 5, last part: what is about to be written is Python, and imports and names only what is there."""

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from opgen.cache.memo import memoize, persistent
from opgen.folders import RUNTIME, TEMPLATES
from opgen.plan import Output
from opgen.problem import Location, Problem, SpecError
from opgen.sources import Sources, location_of

_PACKAGE = "__init__"
_WORD = re.compile(r"\w+")
# The texts of the last package without errors, and the surroundings of each.
_sound: list[Any] = persistent("sound texts", [])
_IMPORT = re.compile(r"^[ \t]*from (\.+)([\w.]*) import (\([^)]*\)|.*)", re.MULTILINE)


def check_whole(
    outputs: Sequence[Output], texts: Mapping[PurePosixPath, str], sources: Sources, mount: PurePosixPath
) -> None:
    """SpecError where one of `texts`, bodies of outputs, or a module of the runtime needs one that is not there.

    `mount` is where the runtime is in the package.
    """
    package = _Whole(outputs, texts, sources, mount)
    # Whether a file needs what is not there depends on itself, on which files there are, and on what packages define.
    around = (set(package.texts), {path: text for path, text in package.texts.items() if path.stem == _PACKAGE})
    sound = _sound[1] if _sound[:1] == [around] else {}
    problems = [
        problem for path, text in package.texts.items() if sound.get(path) != text for problem in package.problems(path)
    ]
    if problems or sources.problems:
        raise SpecError([*problems, *sources.problems])
    _sound[:] = around, package.texts


def check_syntax(outputs: Sequence[Output], texts: Mapping[PurePosixPath, str], sources: Sources) -> None:
    """SpecError where one of `texts`, bodies of outputs, is no Python."""
    problems: list[Problem] = []
    for output in outputs:
        if output.path.suffix == ".py":
            problems += _syntax(output, texts[output.path], sources)
    if problems:
        raise SpecError(problems)


def _syntax(output: Output, text: str, sources: Sources) -> Iterator[Problem]:
    try:
        ast.parse(text)
    except SyntaxError as error:
        line, reason = error.lineno or 1, error.msg
    except (ValueError, RecursionError) as error:
        line, reason = 1, str(error)
    else:
        return
    # It imports Jinja, of which nothing is needed where nothing is wrong.
    from opgen.provenance import template_line

    where = template_line(output, sources, line)
    message = f"generated/{output.path} would be no Python ({reason}); fix the template"
    yield Problem(where, f"{message} or its view")


class _Whole:
    """The package: what is emitted, and the runtime that is mounted in it."""

    def __init__(
        self, outputs: Sequence[Output], texts: Mapping[PurePosixPath, str], sources: Sources, mount: PurePosixPath
    ) -> None:
        self._made_by = {output.path: output for output in outputs}
        self._sources, self._mount = sources, mount
        mounted = _mounted(sources, mount)
        self.texts = {**texts, **mounted}
        self._folders = _folders(tuple(texts)) | _folders(tuple(mounted))
        self._bare = {folder for folder in self._folders if folder / f"{_PACKAGE}.py" not in self.texts}

    def problems(self, path: PurePosixPath) -> Iterator[Problem]:
        """Yield an error for each module that a file imports and that is missing."""
        if path.suffix == ".py":
            yield from self._imports(path, self.texts[path])
        elif path.name == "pyproject.toml":
            yield from self._files(path, self.texts[path])

    def _place(self, path: PurePosixPath, text: str, start: int) -> Location:
        """Where the text of a file that begins at `start` is written."""
        line = text.count("\n", 0, start) + 1
        if path not in self._made_by:
            return location_of(self._source(path), line)
        from opgen.provenance import template_line

        output = self._made_by[path]
        return template_line(output, self._sources, line)

    def _source(self, path: PurePosixPath) -> PurePosixPath:
        """Return the path of the file to write so that the package has an output."""
        if path.is_relative_to(self._mount):
            return RUNTIME / path.relative_to(self._mount)
        return TEMPLATES / f"{path}.j2"

    def _imports(self, path: PurePosixPath, text: str) -> Iterator[Problem]:
        for one in _imports(text):
            module = path.parents[one.level - 1].joinpath(*one.module)
            for missing in self._missing(module, one.names, path):
                name = missing.parent.name if missing.name == _PACKAGE else missing.name
                message = f"it imports {name}, but there is no {self._source(_file(missing))}; write it"
                yield Problem(self._place(path, text, one.start), f"{message} or remove the import")

    def _missing(self, module: PurePosixPath, names: Iterable[str], path: PurePosixPath) -> Iterator[PurePosixPath]:
        """The modules that `from module import names` of the file at `path` needs, and that are not there."""
        for package in sorted(self._bare.intersection((module, *module.parents))) if self._bare else ():
            self._bare.remove(package)  # which is noted once
            yield package / _PACKAGE
        if _file(module) in self.texts:
            return
        if module not in self._folders:
            yield module
            return
        inner = [module / name for name in names]
        unknown = [each for each in inner if _file(each) not in self.texts and each not in self._folders]
        # What is no module may be a name that the package defines, unless it is the package that asks.
        init = module / f"{_PACKAGE}.py"
        defined = _WORD.findall(self.texts.get(init, "")) if unknown and init != path else ()
        yield from (each for each in unknown if each.name not in defined)

    def _files(self, path: PurePosixPath, text: str) -> Iterator[Problem]:
        """Yield the files that a pyproject.toml names and that are missing."""
        try:
            settings = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            reason, _, position = str(error).partition(" (at ")
            line = re.search(r"line (\d+)", position)
            start = sum(map(len, text.splitlines(keepends=True)[: int(line[1]) - 1])) if line is not None else 0
            message = f"generated/{path} would be no TOML ({reason}); fix the template or its view"
            yield Problem(self._place(path, text, start), message)
            return
        project, setuptools = settings.get("project", {}), settings.get("tool", {}).get("setuptools", {})
        data = setuptools.get("package-data", {}).values()
        licenses = project.get("license-files", ())
        for name in (project.get("readme", "*"), *licenses, *(name for names in data for name in names)):
            if "*" not in name and not any(other.match(name) for other in self.texts):
                message = f"it names '{name}', which is not there; write it below templates/ or runtime/"
                yield Problem(self._place(path, text, text.index(f'"{name}"')), f"{message}, or remove the name")


@memoize(lambda sources, mount: (sources, mount), size=1)
def _mounted(sources: Sources, mount: PurePosixPath) -> Mapping[PurePosixPath, str]:
    """The files of the runtime, by where they are in the package."""
    return {mount / path.relative_to(RUNTIME): sources.text(path) or "" for path in sources.below(RUNTIME)}


@lru_cache(maxsize=2)
def _folders(paths: tuple[PurePosixPath, ...]) -> frozenset[PurePosixPath]:
    """The folders that Python imports from."""
    python = (path for path in paths if path.suffix == ".py")
    return frozenset(folder for path in python for folder in path.parents if folder.name)


class _Import(NamedTuple):
    """An import, its offset in a text, its level, its module and the imported names."""

    start: int
    level: int
    module: tuple[str, ...]
    names: tuple[str, ...]


@lru_cache(maxsize=4096)
def _imports(text: str) -> Sequence[_Import]:
    return [
        _Import(
            match.start(),
            len(match[1]),
            tuple(match[2].split(".")),
            tuple(re.findall(r"(\w+)(?: as \w+)?", re.sub(r"#.*", "", match[3]))),
        )
        for match in _IMPORT.finditer(text)
    ]


def _file(module: PurePosixPath) -> PurePosixPath:
    return module.with_name(f"{module.name}.py")
