"""opgen reference."""

from pathlib import Path

import click

from opgen.commands.options import check_names, lock, root_option
from opgen.project import read_project


@click.command()
@root_option
@click.argument("output", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--notes",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A folder with NAME.md for what the page of an op says besides.",
)
def reference(root: Path, output: Path, notes: Path | None) -> None:
    """Write the reference to OUTPUT: a page for each op and method, and the support matrix.

    The pages are Markdown for Sphinx with MyST. They include emitted code from generated/, which 'opgen generate'
    writes. Put OUTPUT/index and OUTPUT/matrix into a toctree. Only pages that change are written; pages of ops that the
    spec no longer has are removed. A page of the same name that opgen did not write stops it.

    \b
    opgen reference build/docs/source/reference
    opgen reference build/docs/source/reference --notes build/docs/notes
    """  # noqa: D301 -- \b is the character that click reads
    # No other command renders pages.
    from opgen.reference.pages import Reference, write_pages

    texts = {file.stem: file.read_text(encoding="utf-8") for file in notes.glob("*.md")} if notes is not None else {}
    contents = Reference(read_project(root), texts)
    check_names("notes", [*texts], [subject.name for subject in contents.subjects])
    output.parent.mkdir(parents=True, exist_ok=True)
    with lock(output):
        pages = contents.pages(output)
        changed = write_pages(pages, output)
    click.echo(f"{len(pages)} pages, {changed} changed")
