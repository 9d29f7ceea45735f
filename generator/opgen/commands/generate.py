"""opgen generate."""

from pathlib import Path

import click

from opgen.cache.up_to_date import Outputs, Run
from opgen.commands.options import lock, patience, root_option, tell_file, tell_outputs
from opgen.folders import OUTPUT


@click.command()
@root_option
@click.option("--force", is_flag=True, help="Overwrite files that were edited by hand.")
def generate(root: Path, force: bool) -> None:
    """Write generated/ from spec/ and templates/.

    Only files that change are written; generated files that the spec no longer has are removed.

    \b
    opgen generate
    opgen generate --force     overwrite manual edits in generated/
    """  # noqa: D301 -- \b is the character that click reads
    known = Run(root).outputs
    if known is not None:
        tell_outputs(known, "0 changed")
        return
    # Of a project that has not changed, most of opgen is not needed.
    from opgen.commands.code_objects import out_of_date_kernels
    from opgen.project import resumed_project
    from opgen.write import write

    output = root / OUTPUT
    # Held from before the spec is read, so that what is written last is what was read last.
    with lock(output):
        with patience("generating"):
            project = resumed_project(root)
            changed = project.changes(output)
        write(changed, output, force=force)
    copies = [change for change in changed if change.mount is not None and not (output / change.path).is_symlink()]
    for change in copies:
        click.echo(f"links cannot be created here: generated/{change.path} is a copy; edit runtime/", err=True)
    for change in changed:
        tell_file(f"{OUTPUT}/{change.path}", is_removed=change.new is None)
    remarks = tuple(out_of_date_kernels(root, project.spec))
    tell_outputs(Outputs(len(project.outputs), remarks), f"{len(changed)} changed")
