"""Shared options of commands: the project's folder, its lock, and names."""

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

import click

from opgen.cache.up_to_date import Outputs
from opgen.folders import PACKAGE_FILE, root_above
from opgen.problem import SpecError, did_you_mean, unknown_dtype
from opgen.streams import is_terminal

if TYPE_CHECKING:
    from opgen.project import Project

ROOT_KEY = "opgen.root"
"""By which the context of a command knows the project's folder."""
_PATIENCE = 1.0  # seconds


class Group(click.Group):
    """Commands whose error for an unknown name suggests the nearest one."""

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is named first; UsageError where there is none of that name."""
        name = arguments[0]
        is_unknown = not name.startswith("-") and self.get_command(context, name) is None
        if is_unknown and not context.resilient_parsing:
            raise click.UsageError(f"there is no command '{name}'{did_you_mean(name, self.list_commands(context))}")
        return super().resolve_command(context, arguments)


def keep_root(context: click.Context, _parameter: click.Parameter, value: Path | None) -> None:
    """Keep the folder that --root gives before the command, which _find_root prefers to the current one."""
    context.obj = value


def _find_root(context: click.Context, _parameter: click.Parameter, value: Path | None) -> Path:
    root = context.meta[ROOT_KEY] = _found(value or context.obj)
    return root


def _found(root: Path | None) -> Path:
    if root is not None:
        # A project may lack a file of its spec, which is an error like any other.
        if not (root / PACKAGE_FILE.parent).is_dir():
            raise click.UsageError(f"{root} is no project of opgen: it has no folder '{PACKAGE_FILE.parent}'")
        # Files that a watch names are absolute.
        return root.absolute()
    if (above := root_above(Path.cwd())) is None:
        raise click.UsageError(f"no {PACKAGE_FILE} here or above; change to the project's folder or give --root")
    return above


ROOT = click.Path(exists=True, file_okay=False, path_type=Path)
ROOT_HELP = "The folder with spec/, templates/, runtime/ and generated/; by default the nearest one above this folder."
root_option = click.option("--root", type=ROOT, callback=_find_root, help=ROOT_HELP)


def lock(output: Path) -> AbstractContextManager[None]:
    """A lock of `output`; says so where another run holds it."""
    # Where nothing is to be written it is not needed.
    from opgen.write import locked

    return locked(output, lambda: click.echo(f"another opgen writes to {output}; waiting for its end", err=True))


@contextlib.contextmanager
def patience(doing: str) -> Iterator[None]:
    """Say on a terminal that something goes on, if it does for more than a second."""
    begun = contextlib.ExitStack()

    def begin() -> None:
        # It takes long to import, and most commands end before.
        from rich.console import Console

        begun.enter_context(Console(stderr=True).status(f"{doing} ..."))

    timer = threading.Timer(_PATIENCE, begin)
    if is_terminal(sys.stderr) and not os.environ.get("NO_COLOR"):
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if timer.is_alive():
            timer.join()
        begun.close()


def check_names(what: str, names: Sequence[str], known: Iterable[str]) -> None:
    """Refuse a name that an option gives and nothing has."""
    for name in names:
        if name not in known:
            hint = (unknown_dtype if what == "dtype" else did_you_mean)(name, known)
            raise click.BadParameter(f"unknown {what} '{name}'{hint}", param_hint=f"--{what}")


def complete(names_in: Callable[["Project"], Iterable[str]]) -> Callable[..., list[str]]:
    """Complete an argument or an option in the shell with names of the project, if there is one without errors."""

    def completions(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
        from opgen.project import read_project

        try:
            project = read_project(context.params.get("root") or _found(context.obj))
        except (SpecError, click.UsageError, OSError):
            return []
        return sorted({name for name in names_in(project) if name.startswith(incomplete)})

    return completions


def ops(project: "Project") -> Iterable[str]:
    """The ops and the methods of a project, as 'opgen matrix' takes them."""
    from opgen.matrix import cells

    return dict.fromkeys(name for cell in cells(project.spec) for name in cell.names)


complete_op = complete(ops)
complete_backend = complete(lambda project: (backend.name for backend in project.spec.backends))
complete_dtype = complete(lambda project: (*project.spec.dtype_names, *project.spec.sets["blocks"]))


def tell_file(path: str | PurePath, *, is_removed: bool) -> None:
    """Print what became of a file."""
    verb, colour = ("removed", "red") if is_removed else ("wrote", "green")
    click.echo(f"{click.style(verb, fg=colour)} {path}")


def tell_outputs(outputs: Outputs, state: str) -> None:
    """Print how many outputs there are and in which state, and what else there is to say."""
    click.echo(f"{outputs.count} files, {state}")
    for remark in outputs.remarks:
        click.secho(remark, fg="yellow", err=True)


def print_errors(error: SpecError, root: Path | None) -> None:
    """Print the errors of a spec: on a terminal with the lines that they are in."""
    if root is not None and is_terminal(sys.stderr):
        from opgen.report import with_sources

        for text in with_sources(error.problems, root):
            click.echo(text, err=True)
    else:
        for problem in error.problems:
            click.echo(f"{click.style(str(problem.location), bold=True)}: {problem.message}", err=True)
    count = len(error.problems)
    folders = sorted({problem.location.folder for problem in error.problems})
    folders_text = " and ".join(f"the {folder}" for folder in folders)
    click.secho(f"{count} error{'s' if count > 1 else ''} in {folders_text}; nothing was written", fg="red", err=True)
