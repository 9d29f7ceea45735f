"""Stage 5, last part: what is about to be written is Python, and imports and names only what is there."""

import ast
import re
import tomllib
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from opgen.plan import Output
from opgen.problem import Problem, SpecError
from opgen.render import line_of_template
from opgen.templates import Templates, place

_PACKAGE = "__init__"
_WORD = re.compile(r"\w+")
_IMPORT = re.compile(r"^[ \t]*from (\.+)([\w.]*) import (\([^)]*\)|.*)", re.MULTILINE)


def check_whole(
    outputs: Sequence[Output],
    texts: Mapping[PurePosixPath, str],
    templates: Templates,
) -> None:
    """SpecError where one of `texts`, bodies of outputs, needs a module or a file that is not among them."""
    made_by = {output.path: output for output in outputs}
    problems: list[Problem] = []
    folders = {folder for path in texts if path.suffix == ".py" for folder in path.parents if folder.name}
    bare = {folder for folder in folders if folder / f"{_PACKAGE}.py" not in texts}
    for path, text in texts.items():
        if path.suffix == ".py":
            problems += _imports(made_by[path], text, texts, folders, bare, templates)
        elif path.name == "pyproject.toml":
            problems += _files(made_by[path], text, texts, templates)
    if problems:
        raise SpecError(problems)


def check_syntax(outputs: Sequence[Output], texts: Mapping[PurePosixPath, str], templates: Templates) -> None:
    """SpecError where one of `texts`, bodies of outputs, is no Python."""
    problems: list[Problem] = []
    for output in outputs:
        if output.path.suffix == ".py":
            problems += _syntax(output, texts[output.path], templates)
    if problems:
        raise SpecError(problems)


def _syntax(output: Output, text: str, templates: Templates) -> Iterator[Problem]:
    try:
        ast.parse(text)
    except SyntaxError as error:
        line, reason = error.lineno or 1, error.msg
    except (ValueError, RecursionError) as error:
        line, reason = 1, str(error)
    else:
        return
    where = place(output.template, line_of_template(output, templates, line))
    message = f"generated/{output.path} would be no Python ({reason}); mend the template"
    yield Problem(where, message if output.view is None else f"{message} or its view")


def _imports(
    output: Output,
    text: str,
    texts: Mapping[PurePosixPath, str],
    folders: Container[PurePosixPath],
    bare: set[PurePosixPath],
    templates: Templates,
) -> Iterator[Problem]:
    for match in _IMPORT.finditer(text):
        module = output.path.parents[len(match[1]) - 1].joinpath(*match[2].split("."))
        # What is no module may be a name that the package defines, unless it is the package that asks.
        init = module / f"{_PACKAGE}.py"
        defined = texts.get(init, "") if init != output.path else ""
        for missing in _missing(module, match[3], defined, texts, folders, bare):
            line = text.count("\n", 0, match.start()) + 1
            where = place(output.template, line_of_template(output, templates, line))
            name = missing.parent.name if missing.name == _PACKAGE else missing.name
            message = f"it imports {name}, but no template makes generated/{missing}.py"
            yield Problem(where, f"{message}; write templates/{missing}.py or remove the import")


def _files(output: Output, text: str, texts: Mapping[PurePosixPath, str], templates: Templates) -> Iterator[Problem]:
    """What a pyproject.toml names of files that are not there."""
    settings = tomllib.loads(text)
    project, setuptools = settings.get("project", {}), settings.get("tool", {}).get("setuptools", {})
    data = setuptools.get("package-data", {}).values()
    for name in (
        project.get("readme", "*"),
        *project.get("license-files", ()),
        *(name for names in data for name in names),
    ):
        if "*" not in name and not any(path.match(name) for path in texts):
            line = text.count("\n", 0, text.index(f'"{name}"')) + 1
            where = place(output.template, line_of_template(output, templates, line))
            yield Problem(
                where, f"it names '{name}', which no template makes; write it below templates/ or remove the name"
            )


def _missing(
    module: PurePosixPath,
    names: str,
    defined: str,
    texts: Mapping[PurePosixPath, str],
    folders: Container[PurePosixPath],
    bare: set[PurePosixPath],
) -> Iterator[PurePosixPath]:
    """The modules that `from module import names` needs and no text is; the text `defined` defines names of its own.

    `bare` are the packages that no text makes and that are not noted yet.
    """
    for package in sorted(bare.intersection((module, *module.parents))):
        bare.remove(package)  # which is noted once
        yield package / _PACKAGE
    if _file(module) in texts:
        return
    if module not in folders:
        yield module
        return
    own = frozenset(_WORD.findall(defined))
    for name in re.findall(r"(\w+)(?: as \w+)?", re.sub(r"#.*", "", names)):
        inner = module / name
        if _file(inner) not in texts and inner not in folders and name not in own:
            yield inner


def _file(module: PurePosixPath) -> PurePosixPath:
    return module.with_name(f"{module.name}.py")
