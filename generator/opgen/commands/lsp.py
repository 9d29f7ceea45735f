"""opgen lsp."""

import sys
from pathlib import Path

import click

from opgen.commands.options import ROOT
from opgen.problem import Refusal


@click.command()
@click.option("--root", type=ROOT, help="The project; that of the file which the editor opens by default.")
@click.option("--stdio", is_flag=True, help="Speak on standard input and output, as is done anyway: editors say so.")
@click.pass_context
def lsp(context: click.Context, root: Path | None, stdio: bool) -> None:  # noqa: ARG001 -- editors pass it
    """Serve an editor: errors as you type, completion, what keys and names mean, definitions, renaming.

    An editor starts it for the YAML files of spec/, and speaks to it on standard input and output. It needs what
    'pip install lsprotocol pygls' installs.

    \b
    opgen lsp
    opgen lsp --root path/to/project
    """  # noqa: D301 -- \b is the character that click reads
    try:
        from opgen.language_server.server import make_server
    except ImportError as error:
        if error.name not in ("pygls", "lsprotocol"):
            raise
        raise Refusal(
            f"the language server needs {error.name}; install it with: pip install lsprotocol pygls"
        ) from None
    if sys.stdin is None or sys.stdout is None:
        raise Refusal("the language server speaks on standard input and output, which are closed; let editors start it")
    make_server(root or context.obj).start_io()
