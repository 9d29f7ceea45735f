"""opgen check."""

from pathlib import Path

import click

from opgen.cache.up_to_date import Outputs, Run
from opgen.commands.options import patience, root_option, tell_outputs
from opgen.report import FORMATS, Findings


@click.command()
@root_option
@click.option("--diff", is_flag=True, help="Print what 'opgen generate' would change.")
@click.option(
    "--format",
    "style",
    type=click.Choice(["text", *FORMATS]),
    default="text",
    show_default=True,
    help="How to print what is wrong: for people, or for a machine.",
)
@click.option(
    "--against", metavar="REF", help="Check that nothing breaks callers of the commit REF too; 'opgen diff' says why."
)
def check(root: Path, diff: bool, style: str, against: str | None) -> None:
    """Check the spec, and that generated/ is what it says.

    Exit code 0 if so, 1 if there are errors or files differ, 2 if the command itself is wrong.

    \b
    opgen check
    opgen check --diff
    opgen check --against v0.1.0                  and that callers of this version can go on as they are
    opgen check --format github                   annotations of a workflow of GitHub
    opgen check --format sarif > opgen.sarif      for code scanning
    opgen check --format json | jq '.[].message'
    """  # noqa: D301 -- \b is the character that click reads
    if diff and style != "text":
        raise click.UsageError("--diff is for people; leave --format out")
    run = Run(root)
    known = run.outputs if against is None else None
    if style != "text":
        findings = _findings(root, against, run) if known is None else []
        click.echo(FORMATS[style](findings))
        raise SystemExit(1 if findings else 0)
    tell_outputs(known or _up_to_date(root, against, run, diff=diff), "all up to date")


def _findings(root: Path, against: str | None, run: Run) -> Findings:
    # Of a project that has not changed, most of opgen is not needed.
    from opgen.commands.findings import findings

    return findings(root, against, run)


def _up_to_date(root: Path, against: str | None, run: Run, *, diff: bool) -> Outputs:
    """Return the outputs if all of them are up to date; else print those that are not, and exit."""
    from opgen.commands.findings import check_project

    with patience("checking"):
        result = check_project(root, against, run)
    if diff:
        for change in result.changes:
            for line in change.diff().splitlines():
                click.secho(line, fg={"+": "green", "-": "red", "@": "cyan"}.get(line[:1]))
    for path, state, _ in result.differences[len(result.changes) if diff else 0 :]:
        click.echo(f"{click.style(state, fg='red')} {path}")
    if result.differences:
        fixes = dict.fromkeys(each.fix for each in result.differences)
        text = f"{len(result.differences)} of {result.files} files differ; {' and '.join(fixes)}"
        click.secho(text, fg="red", err=True)
        raise SystemExit(1)
    return result.outputs
