"""opgen new."""

from pathlib import Path

import click

from opgen.arrays import is_module
from opgen.commands.init import init
from opgen.commands.options import check_names, root_option
from opgen.decoder import is_name
from opgen.problem import Refusal
from opgen.project import read_spec


@click.group(name="new")
def new() -> None:
    """Write a file of the spec for something new."""


new.add_command(init, "project")


@new.command(name="backend")
@root_option
@click.argument("name")
@click.option("--family", required=True, help="The family of spec/families that the backend extends.")
@click.option("--module", required=True, help="The library, as Python imports it.")
def new_backend(root: Path, name: str, family: str, module: str) -> None:
    """Write spec/backends/NAME.yaml, a backend on an array library, with each choice marked.

    Where the library is installed, the words that it lacks are marked too.

    \b
    opgen new backend torch --family array --module torch
    opgen generate
    """  # noqa: D301 -- \b is the character that click reads
    # No other command imports what a person names.
    from opgen.new import new_backend as text_of

    spec = read_spec(root)
    families = {each.name: each for each in spec.backend_families}
    check_names("family", [family], families)
    if not families[family].vocabulary:
        others = ", ".join(f"'{each.name}'" for each in families.values() if each.vocabulary)
        message = f"family '{family}' is not one of array libraries"
        raise click.BadParameter(f"{message}; give one of {others}" if others else message, param_hint="--family")
    if not is_name(name):
        raise click.BadParameter(f"'{name}' cannot be a name; use small letters, digits and underscores")
    if not is_module(module):
        raise click.BadParameter(f"'{module}' is no module; write what Python imports", param_hint="--module")
    path = Path("spec", "backends", f"{name}.yaml")
    text = text_of(spec, families[family], name, module)
    try:
        with (root / path).open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise Refusal(f"{path.as_posix()} is there already; choose another name, or remove it") from None
    except OSError as error:
        raise Refusal(f"{path.as_posix()} cannot be written: {error.strerror}; let it be written") from None
    click.echo(f"{click.style('wrote', fg='green')} {path.as_posix()}; look at its choices, then run 'opgen generate'")
