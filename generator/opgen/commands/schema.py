"""opgen schema."""

from pathlib import Path

import click

from opgen.commands.options import root_option, tell_file
from opgen.problem import Refusal
from opgen.schema import stale_files
from opgen.write import write_atomically


@click.command()
@root_option
def schema(root: Path) -> None:
    """Write JSON Schemas of the files of spec/ to spec/schema/, and spec/README.md, which explains every key.

    An editor with a YAML language server completes and checks keys by them: a comment at the top of a file names its
    schema. 'opgen check' says when they are out of date.

    \b
    opgen schema
    """  # noqa: D301 -- \b is the character that click reads
    stale = stale_files(root)
    for path, text in stale.items():
        file = root / path
        if file.resolve() != root.resolve() / path:
            raise Refusal(f"{path} leads to {file.resolve()}; remove the link")
        try:
            if text is None:
                file.unlink()
            else:
                write_atomically(file, text.encode())
        except OSError as error:
            raise Refusal(f"{path} cannot be written: {error.strerror}; let it be written") from None
        tell_file(path, is_removed=text is None)
    click.echo(f"{len(stale)} files changed")
