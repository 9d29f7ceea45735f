"""The command line."""

import atexit
import contextlib
import errno
import gc
import importlib
import os
import sys
from typing import Any

import click

from opgen import __version__
from opgen.commands.options import ROOT, ROOT_HELP, ROOT_KEY, Group, keep_root, print_errors
from opgen.problem import Refusal, SpecError

# By its name, the module and the name in it of each command, in the order of the help: only the one that runs is
# imported.
_COMMANDS = {
    "init": "init.init",
    "generate": "generate.generate",
    "watch": "watch.watch",
    "check": "check.check",
    "diff": "diff.diff",
    "explain": "explain.explain",
    "list": "list_outputs.list_outputs",
    "matrix": "matrix.matrix",
    "new": "new.new",
    "compile": "compile_kernels.compile_kernels",
    "schema": "schema.schema",
    "lsp": "lsp.lsp",
    "reference": "reference.reference",
}


class _Command(Group):
    """Prints the errors of a spec, and what cannot be written, as errors rather than as tracebacks."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Run as a program, which ends without freeing each object that it has read: that takes a tenth of its time."""
        gc.disable()
        try:
            return super().__call__(*arguments, **options)
        except SystemExit as end:
            atexit._run_exitfuncs()
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
            os._exit(code if _flush() else code or 1)

    def list_commands(self, _context: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, _context: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        module, _, attribute = _COMMANDS[name].partition(".")
        command: click.Command = getattr(importlib.import_module(f"opgen.commands.{module}"), attribute)
        return command

    def invoke(self, context: click.Context) -> object:
        if os.environ.get("NO_COLOR"):
            context.color = False
        # A command keeps what it reads to its end: to look for garbage in that takes a sixth of its time.
        collects_garbage = gc.isenabled()
        gc.disable()
        try:
            return super().invoke(context)
        except SpecError as error:
            print_errors(error, context.meta.get(ROOT_KEY))
        except Refusal as error:
            click.secho(str(error), fg="red", err=True)
        except OSError as error:
            # Of a reader that went away, click ends the program.
            if error.errno == errno.EPIPE:
                raise
            _tell_system_error(error)
        finally:
            if collects_garbage:
                gc.enable()
        raise SystemExit(1)


def _flush() -> bool:
    """Write what is buffered; False where that fails, as on a full disk."""
    try:
        for stream in (sys.stdout, sys.stderr):
            # A program may be started without them.
            if stream is not None and not stream.closed:
                stream.flush()
    except OSError:
        return False
    return True


def _tell_system_error(error: OSError) -> None:
    """Print what the system refused: a full disk, a folder that cannot be written to."""
    reason = error.strerror or str(error)
    with contextlib.suppress(OSError):  # of standard error itself
        click.secho(f"{error.filename}: {reason}" if error.filename else reason, fg="red", err=True)


@click.group(cls=_Command, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="opgen")
@click.option("--root", type=ROOT, callback=keep_root, expose_value=False, help=ROOT_HELP)
def main() -> None:
    """Generate a multi-backend tensor package from YAML op specs.

    \b
    opgen init mylib        begin a project of your own
    opgen check             is the spec right, and is generated/ what it says?
    opgen generate          write generated/
    opgen watch             check and generate whenever a file is saved
    opgen compile           compile the kernels for each target
    opgen matrix            what works where
    opgen explain           what a name is, and where it is written
    opgen diff              what the change of the spec means
    opgen new backend       the file of a backend on an array library
    opgen schema            JSON Schemas of the spec's files, for editors
    opgen lsp               what editors start to know the spec
    opgen reference         the pages of a reference for Sphinx

    Exit code 0 if all is well, 1 if there are errors or something cannot be done, 2 if the command itself is wrong.

    Completion: eval "$(_OPGEN_COMPLETE=bash_source opgen)" (or zsh_source, fish_source).
    """  # noqa: D301 -- \b is the character that click reads
