"""opgen schema."""

from pathlib import Path

import click

from opgen.commands.options import lock, root_option, tell_file
from opgen.folders import OUTPUT
from opgen.schema import SPEC, stale_files
from opgen.write import write


@click.command()
@root_option
def schema(root: Path) -> None:
    """Write JSON Schemas of the files of spec/ to spec/schema/, and spec/README.md, which explains every key.

    An editor with a YAML language server completes and checks keys by them: a comment at the top of a file names its
    schema. 'opgen check' says when they are out of date. A file of the same name that opgen did not write stops it.

    \b
    opgen schema
    """  # noqa: D301 -- \b is the character that click reads
    with lock(root / OUTPUT):
        stale = stale_files(root)
        write(stale, root / SPEC)
    for change in stale:
        tell_file(SPEC / change.path, is_removed=change.new is None)
    click.echo(f"{len(stale)} files changed")
