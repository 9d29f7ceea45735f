"""opgen check."""

from collections.abc import Iterator
from pathlib import Path

import click

from opgen.build import FILE_KINDS
from opgen.commands.code_objects import tell_out_of_date
from opgen.commands.options import OUTPUT, patience, root_option
from opgen.problem import Location, Problem, SpecError
from opgen.project import Project, recalled_project
from opgen.report import BREAK, DIFFERENCE, FORMATS, MISTAKE, Findings
from opgen.schema import FOLDER, stale_files
from opgen.write import Change


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
    "--against", metavar="REF", help="Check that nothing breaks callers of the commit REF too; see docs/rules.md."
)
def check(root: Path, diff: bool, style: str, against: str | None) -> None:
    """Check the spec, and that generated/ is what it says.

    Exit code 0 if so, 1 if there are mistakes or files differ, 2 if the command itself is wrong.

    \b
    opgen check
    opgen check --diff
    opgen check --against v0.1.0                  and that callers of this version can go on as they are
    opgen check --format github                   annotations of a workflow of GitHub
    opgen check --format sarif > opgen.sarif      for code scanning
    opgen check --format json | jq '.[].message'
    """  # noqa: D301 -- \b is the character that click reads
    if style != "text":
        if diff:
            raise click.UsageError("--diff is for people; leave --format out")
        findings = _findings(root, against)
        click.echo(FORMATS[style](findings))
        raise SystemExit(1 if findings else 0)
    with patience("checking"):
        project = _read(root, against)
        found = project.changes(root / OUTPUT)
    if diff:
        for change in found:
            for line in change.diff().splitlines():
                click.secho(line, fg={"+": "green", "-": "red", "@": "cyan"}.get(line[:1]))
    differences = list(_differences(root, found))
    for path, state, _ in differences[len(found) if diff else 0 :]:
        click.echo(f"{click.style(state, fg='red')} {path}")
    if not differences:
        click.echo(f"{len(project.outputs)} files, all up to date")
        tell_out_of_date(root, project.spec)
        return
    mends = dict.fromkeys(mend for _, _, mend in differences)
    text = f"{len(differences)} of {_count(root, project)} files differ; {' and '.join(mends)}"
    click.secho(text, fg="red", err=True)
    raise SystemExit(1)


def _differences(root: Path, found: list[Change]) -> Iterator[tuple[str, str, str]]:
    """The files that differ from what the spec says, in which way, and what to do."""
    mend = "run 'opgen generate'"
    if any(change.is_edit_lost for change in found):
        mend = (
            "move what was edited by hand to templates/, runtime/ or spec/, or run 'opgen generate --force' to lose it"
        )
    for change in found:
        state = (
            "edited" if change.is_edit_lost
            else "missing" if change.old is None
            else "left over" if change.new is None
            else "differs"
        )  # fmt: skip
        yield f"{OUTPUT}/{change.path}", state, mend
    for path, text in stale_files(root).items() if _has_schemas(root) else ():
        yield str(path), "left over" if text is None else "differs", "run 'opgen schema'"


def _has_schemas(root: Path) -> bool:
    """Whether a project keeps what 'opgen schema' writes."""
    return (root / FOLDER).is_dir()


def _count(root: Path, project: Project) -> int:
    return len(project.outputs) + (len(FILE_KINDS) + 1 if _has_schemas(root) else 0)


def _read(root: Path, against: str | None) -> Project:
    """The project; SpecError lists every mistake in it, or what breaks callers of the commit `against`."""
    project = recalled_project(root)
    if against is not None:
        # Most checks compare nothing, and the rules take long to import.
        from opgen.comparison.changes import compare
        from opgen.comparison.revision import spec_at
        from opgen.comparison.rules import CallersError, breaks, mistakes

        comparison = compare(spec_at(root, against), project.spec)
        if problems := [*mistakes(comparison, breaks(comparison))]:
            raise CallersError(problems)
    return project


def _findings(root: Path, against: str | None) -> Findings:
    """All that is wrong: the mistakes or, where there are none, the files that differ."""
    try:
        found = _read(root, against).changes(root / OUTPUT)
    except SpecError as error:
        from opgen.comparison.rules import CallersError

        rule = BREAK if isinstance(error, CallersError) else MISTAKE
        return [(rule, problem) for problem in error.problems]
    return [
        (DIFFERENCE, Problem(Location(Path(path)), f"{state}; {mend}"))
        for path, state, mend in _differences(root, found)
    ]
