"""opgen init."""

import sys
from importlib.util import find_spec
from pathlib import Path

import click

from opgen.notes import module_name
from opgen.start import choose_base, start


@click.command()
@click.argument("name")
@click.option(
    "--base", metavar="PACKAGE", help="The installed package that the project builds on, if there are several."
)
def init(name: str, base: str | None) -> None:
    """Begin a project of your own in the folder NAME: a few ops on a few backends, with tests.

    What the project does not have itself, such as kernels and a runtime, it takes from the package that it builds on. A
    folder that is there already is left as it is.

    \b
    opgen init mylib && cd mylib
    make build && make test
    """  # noqa: D301 -- \b is the character that click reads
    chosen = choose_base(base)
    for flaw in module_name(None, name):
        raise click.BadParameter(flaw)
    if name in sys.stdlib_module_names or find_spec(name) is not None:
        raise click.BadParameter(f"'{name}' is the name of another package here; choose one of your own")
    for path in start(chosen, name, Path(name)):
        click.echo(f"{click.style('wrote', fg='green')} {name}/{path}")
    click.echo(f"{name} builds on {chosen.package}; now: cd {name} && make build && make test")
