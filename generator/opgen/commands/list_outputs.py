"""opgen list."""

from pathlib import Path

import click

from opgen.commands.options import root_option
from opgen.project import read_project


@click.command(name="list")
@root_option
def list_outputs(root: Path) -> None:
    """List every file that is emitted and the template that it comes from.

    \b
    opgen list
    opgen list | grep storage
    """  # noqa: D301 -- \b is the character that click reads
    outputs = read_project(root).outputs
    width = max(len(str(output.path)) for output in outputs)
    for output in outputs:
        click.echo(f"generated/{output.path!s:<{width}}  {output.template}")
