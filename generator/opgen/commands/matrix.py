"""opgen matrix."""

import json
from collections.abc import Sequence
from pathlib import Path

import click

from opgen.commands.options import check_names, complete_backend, complete_dtype, complete_op, root_option
from opgen.matrix import cells, counts, implementations, laid_out
from opgen.problem import did_you_mean
from opgen.project import read_spec


@click.command()
@root_option
@click.argument("op", required=False, shell_complete=complete_op)
@click.option(
    "--backend",
    "backends",
    multiple=True,
    metavar="NAME",
    help="Only this backend; may be repeated.",
    shell_complete=complete_backend,
)
@click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    metavar="NAME",
    help="Only this dtype; may be repeated.",
    shell_complete=complete_dtype,
)
@click.option("--format", "style", type=click.Choice(["table", "json", "markdown"]), default="table", show_default=True)
def matrix(root: Path, op: str | None, backends: Sequence[str], dtypes: Sequence[str], style: str) -> None:
    """Print what works where: of how many dtypes each backend has each op, and which have gradients.

    With OP, print how each backend does it, or why not.

    \b
    opgen matrix
    opgen matrix conv2d
    opgen matrix unary_impl --dtype f16 --dtype bf16
    opgen matrix --format json | jq '.[] | select(.status == "unsupported")'
    """  # noqa: D301 -- \b is the character that click reads
    spec = read_spec(root)
    every = cells(spec)
    check_names("backend", backends, [backend.name for backend in spec.backends])
    check_names("dtype", dtypes, dict.fromkeys(cell.dtype for cell in every if cell.dtype is not None))
    if op is not None:
        known = dict.fromkeys(name for cell in every for name in cell.names)
        if op not in known:
            raise click.BadParameter(f"unknown op '{op}'{did_you_mean(op, known)}", param_hint="OP")
    chosen = [
        cell
        for cell in every
        if (op is None or op in cell.names)
        and cell.backend in (backends or (cell.backend,))
        and cell.dtype in (dtypes or (cell.dtype,))
    ]
    if style == "json":
        names = ("method", "op", "backend", "dtype", "status", "via", "reason", "gradient")
        rows = ",\n".join(
            json.dumps({**{name: getattr(cell, name) for name in names}, "source": str(cell.source)}) for cell in chosen
        )
        click.echo(f"[\n{rows}\n]")
        return
    head, body = counts(chosen) if op is None else implementations(chosen)
    for number, line in enumerate(laid_out(head, body, is_markdown=style == "markdown")):
        click.secho(line, bold=True if number == 0 and style == "table" else None)
