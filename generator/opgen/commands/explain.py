"""opgen explain."""

import json
from collections.abc import Iterator
from pathlib import Path

import click

from opgen.commands.options import (
    check_names,
    complete,
    complete_backend,
    complete_dtype,
    ops,
    patience,
    root_option,
)
from opgen.commands.trees import Branch, show
from opgen.explain import Scope
from opgen.explain import explain as facts_of
from opgen.explanation import Fact
from opgen.problem import one_line
from opgen.project import Project, read_project


def _common_names(project: Project) -> Iterator[str]:
    """The names that a person asks for: kernels, which have one for each dtype, would hide them."""
    spec = project.spec
    yield from (name for name in ops(project) if "." not in name)
    for named in (spec.backends, spec.dtypes, spec.families, spec.kernels, spec.formats):
        yield from (each.name for each in named)
    yield from (name for name in spec.primitives if name.isidentifier())


@click.command()
@root_option
@click.argument("name", shell_complete=complete(_common_names))
@click.option("--backend", metavar="NAME", help="What this backend does alone.", shell_complete=complete_backend)
@click.option("--dtype", metavar="NAME", help="What is done for this dtype alone.", shell_complete=complete_dtype)
@click.option("--format", "style", type=click.Choice(["text", "json"]), default="text", show_default=True)
def explain(root: Path, name: str, backend: str | None, dtype: str | None, style: str) -> None:
    """Print what NAME is and where each part of it is written: in the spec, the runtime, generated/ and the tests.

    NAME is an op, a method, a dtype, a backend, a kernel or any other name of the spec; a class, a function or a
    method in generated/; or FILE:LINE of generated/, to print the lines of the template and of the spec that the line
    comes from.

    \b
    opgen explain gelu --backend gpu --dtype bf16     which kernel, computed in what, and what to edit
    opgen explain matmul
    opgen explain gelu_bf16_contiguous
    opgen explain generated/README.md:5
    opgen explain gelu --format json
    """  # noqa: D301 -- \b is the character that click reads
    with patience("reading"):
        project = read_project(root)
    spec = project.spec
    check_names("backend", [backend] if backend is not None else [], [each.name for each in spec.backends])
    dtypes = [*(each.name for each in spec.dtypes), *spec.sets["blocks"]]
    check_names("dtype", [dtype] if dtype is not None else [], dtypes)
    facts = facts_of(project, name, Scope(backend, dtype))
    if style == "json":
        click.echo(json.dumps(list(map(_json, facts)), indent=1, ensure_ascii=False))
        return
    show(list(map(_branch, facts)))


def _branch(fact: Fact, depth: int = 0) -> Branch:
    label = click.style(fact.label, bold=depth == 0, fg="cyan" if depth else None)
    text = one_line(fact.text)
    parts = [_branch(part, depth + 1) for part in fact.parts]
    return Branch(f"{label}: {text}" if text else label, str(fact.location or ""), parts)


def _json(fact: Fact) -> dict[str, object]:
    location = fact.location
    where = (
        None
        if location is None
        else {"path": location.path.as_posix(), "line": location.line, "column": location.column}
    )
    return {"label": fact.label, "text": fact.text, "location": where, "parts": list(map(_json, fact.parts))}
