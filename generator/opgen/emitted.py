"""Stage 5, last part: what is about to be written is Python that imports only what is there."""

import ast
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from opgen.plan import Output
from opgen.problem import Problem, SpecError
from opgen.render import line_of_template
from opgen.templates import Templates, place

_WORD = re.compile(r"\w+")
_IMPORT = re.compile(r"^[ \t]*from (\.+)([\w.]*) import (\([^)]*\)|.*)", re.MULTILINE)


def check_imports(
    outputs: Sequence[Output],
    texts: Mapping[PurePosixPath, str],
    templates: Templates,
) -> None:
    """SpecError where one of `texts`, bodies of outputs, imports a module that is not among them."""
    made_by = {output.path: output for output in outputs}
    problems: list[Problem] = []
    folders = {folder for path in texts if path.suffix == ".py" for folder in path.parents}
    for path, text in texts.items():
        if path.suffix == ".py":
            problems += _imports(made_by[path], text, texts, folders, templates)
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
    templates: Templates,
) -> Iterator[Problem]:
    for match in _IMPORT.finditer(text):
        module = output.path.parents[len(match[1]) - 1].joinpath(*match[2].split("."))
        # What is no module may be a name that the package defines, unless it is the package that asks.
        init = module / "__init__.py"
        defined = texts.get(init, "") if init != output.path else ""
        for missing in _missing(module, match[3], defined, texts, folders):
            line = text.count("\n", 0, match.start()) + 1
            where = place(output.template, line_of_template(output, templates, line))
            message = f"it imports {missing.name}, but no template makes generated/{missing}.py"
            yield Problem(where, f"{message}; write templates/{missing}.py or remove the import")


def _missing(
    module: PurePosixPath,
    names: str,
    defined: str,
    texts: Mapping[PurePosixPath, str],
    folders: Container[PurePosixPath],
) -> Iterator[PurePosixPath]:
    """The modules that `from module import names` needs and no text is; the text `defined` defines names of its own."""
    if _file(module) in texts:
        return
    if module not in folders:
        yield module
        return
    for name in re.findall(r"(\w+)(?: as \w+)?", re.sub(r"#.*", "", names)):
        inner = module / name
        if _file(inner) not in texts and inner not in folders and name not in _WORD.findall(defined):
            yield inner


def _file(module: PurePosixPath) -> PurePosixPath:
    return module.with_name(f"{module.name}.py")
