"""The command line."""

import gc
import os

import click

from opgen import __version__
from opgen.commands.check import check
from opgen.commands.compile_kernels import compile_kernels
from opgen.commands.diff import diff
from opgen.commands.explain import explain
from opgen.commands.generate import generate
from opgen.commands.init import init
from opgen.commands.list_outputs import list_outputs
from opgen.commands.lsp import lsp
from opgen.commands.matrix import matrix
from opgen.commands.new import new
from opgen.commands.options import ROOT, ROOT_HELP, ROOT_KEY, keep_root, tell_mistakes
from opgen.commands.reference import reference
from opgen.commands.schema import schema
from opgen.commands.watch import watch
from opgen.problem import Refusal, SpecError


class _Command(click.Group):
    """Prints the mistakes of a spec, and what cannot be written, as errors rather than as tracebacks."""

    def invoke(self, context: click.Context) -> object:
        if os.environ.get("NO_COLOR"):
            context.color = False
        # A command keeps what it reads to its end: to look for garbage in that takes a sixth of its time.
        gc.disable()
        try:
            return super().invoke(context)
        except SpecError as error:
            tell_mistakes(error, context.meta.get(ROOT_KEY))
        except Refusal as error:
            click.secho(str(error), fg="red", err=True)
        finally:
            gc.enable()
        raise SystemExit(1)


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

    Exit code 0 if all is well, 1 if there are mistakes or something cannot be done, 2 if the command itself is wrong.

    Completion: eval "$(_OPGEN_COMPLETE=bash_source opgen)" (or zsh_source, fish_source).
    """  # noqa: D301 -- \b is the character that click reads


for command in (
    init,
    generate,
    watch,
    check,
    diff,
    explain,
    list_outputs,
    matrix,
    new,
    compile_kernels,
    schema,
    lsp,
    reference,
):
    main.add_command(command)
