"""opgen check."""

from pathlib import Path

import click

from opgen.commands.code_objects import tell_out_of_date
from opgen.commands.options import OUTPUT, root_option
from opgen.project import read_project


@click.command()
@root_option
@click.option("--diff", is_flag=True, help="Print what 'opgen generate' would change.")
def check(root: Path, diff: bool) -> None:
    """Check the spec, and that generated/ is what it says. Exit code 1 if not.

    \b
    opgen check
    opgen check --diff
    """  # noqa: D301 -- \b is the character that click reads
    project = read_project(root)
    outputs, found = project.outputs, project.changes(root / OUTPUT)
    if diff:
        for change in found:
            for line in change.diff().splitlines():
                click.secho(line, fg={"+": "green", "-": "red", "@": "cyan"}.get(line[:1]))
    if not found:
        click.echo(f"{len(outputs)} files, all up to date")
        tell_out_of_date(root, project.spec)
        return
    if not diff:
        for change in found:
            state = (
                "edited" if change.is_edit_lost
                else "missing" if change.old is None
                else "left over" if change.new is None
                else "differs"
            )  # fmt: skip
            click.echo(f"{click.style(state, fg='red')} generated/{change.path}")
    mend = "run 'opgen generate'"
    if any(change.is_edit_lost for change in found):
        mend = (
            "move what was edited by hand to templates/, runtime/ or spec/, or run 'opgen generate --force' to lose it"
        )
    click.secho(f"{len(found)} of {len(outputs)} files differ; {mend}", fg="red", err=True)
    raise SystemExit(1)
