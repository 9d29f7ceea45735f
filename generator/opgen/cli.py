"""The command line."""

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click

from opgen import __version__
from opgen.arrays import is_module
from opgen.code_objects import CodeObject, CompileError, code_objects, out_of_date, remove_orphans
from opgen.decoder import is_name
from opgen.matrix import cells, counts, laid_out, ways
from opgen.model import Spec
from opgen.problem import Refusal, SpecError, did_you_mean
from opgen.project import read_project, read_spec
from opgen.resources import table
from opgen.sources import HEADERS
from opgen.write import locked, write

if TYPE_CHECKING:
    from opgen.compile import Result

_MARKER = Path("spec/package.yaml")
_OUTPUT = "generated"


class _Command(click.Group):
    """Prints the mistakes of a spec, and what cannot be written, as errors rather than as tracebacks."""

    def invoke(self, context: click.Context) -> object:
        if os.environ.get("NO_COLOR"):
            context.color = False
        try:
            return super().invoke(context)
        except SpecError as error:
            for problem in error.problems:
                click.echo(f"{click.style(str(problem.location), bold=True)}: {problem.message}", err=True)
            count = len(error.problems)
            folders = sorted({problem.location.path.parts[0] for problem in error.problems})
            places = " and ".join(f"the {folder}" for folder in folders)
            click.secho(
                f"{count} mistake{'s' if count > 1 else ''} in {places}; nothing was written", fg="red", err=True
            )
        except Refusal as error:
            click.secho(str(error), fg="red", err=True)
        raise SystemExit(1)


def _keep_root(context: click.Context, _parameter: click.Parameter, value: Path | None) -> None:
    context.obj = value


def _find_root(context: click.Context, _parameter: click.Parameter, value: Path | None) -> Path:
    root: Path | None = value or context.obj
    if root is not None:
        # A project may lack a file of its spec, which is a mistake like any other.
        if not (root / _MARKER.parent).is_dir():
            raise click.UsageError(f"{root} is no project of opgen: it has no folder '{_MARKER.parent}'")
        return root
    for folder in (Path.cwd(), *Path.cwd().parents):
        if (folder / _MARKER).is_file():
            return folder
    raise click.UsageError(f"no {_MARKER} here or above; change to the project's folder or give --root")


_ROOT = click.Path(exists=True, file_okay=False, path_type=Path)
_ROOT_HELP = "The folder with spec/, templates/, runtime/ and generated/; found upwards from here by default."
_root = click.option("--root", type=_ROOT, callback=_find_root, help=_ROOT_HELP)


@click.group(cls=_Command, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="opgen")
@click.option("--root", type=_ROOT, callback=_keep_root, expose_value=False, help=_ROOT_HELP)
def main() -> None:
    """Generate a multi-backend tensor package from YAML op specs.

    \b
    opgen check             is the spec right, and is generated/ what it says?
    opgen generate          write generated/
    opgen compile           compile the kernels for each target
    opgen matrix            what works where
    opgen new backend       the file of a backend on an array library

    Completion: eval "$(_OPGEN_COMPLETE=bash_source opgen)" (or zsh_source, fish_source).
    """  # noqa: D301 -- \b is the character that click reads


def _locked(output: Path) -> AbstractContextManager[None]:
    return locked(output, lambda: click.echo(f"another opgen writes to {output}; waiting for its end", err=True))


@main.command()
@_root
@click.option("--force", is_flag=True, help="Overwrite files that were edited by hand.")
def generate(root: Path, force: bool) -> None:
    """Write generated/ from spec/ and templates/.

    Only files that change are written; generated files that the spec no longer has are removed.

    \b
    opgen generate
    opgen generate --force     lose edits made by hand in generated/
    """  # noqa: D301 -- \b is the character that click reads
    output = root / _OUTPUT
    # Held from before the spec is read, so that what is written last is what was read last.
    with _locked(output):
        project = read_project(root)
        found = project.changes(output)
        write(found, output, force=force)
    copies = [change for change in found if change.mount is not None and not (output / change.path).is_symlink()]
    for change in copies:
        click.echo(f"no link can be made here: generated/{change.path} is a copy; edit runtime/", err=True)
    for change in found:
        verb, colour = ("removed", "red") if change.new is None else ("wrote", "green")
        click.echo(f"{click.style(verb, fg=colour)} generated/{change.path}")
    click.echo(f"{len(project.outputs)} files, {len(found)} changed")
    _tell_out_of_date(root, project.spec)


@main.command()
@_root
@click.option("--diff", is_flag=True, help="Print what 'opgen generate' would change.")
def check(root: Path, diff: bool) -> None:
    """Check the spec, and that generated/ is what it says. Exit code 1 if not.

    \b
    opgen check
    opgen check --diff
    """  # noqa: D301 -- \b is the character that click reads
    project = read_project(root)
    outputs, found = project.outputs, project.changes(root / _OUTPUT)
    if diff:
        for change in found:
            for line in change.diff().splitlines():
                click.secho(line, fg={"+": "green", "-": "red", "@": "cyan"}.get(line[:1]))
    if not found:
        click.echo(f"{len(outputs)} files, all up to date")
        _tell_out_of_date(root, project.spec)
        return
    if not diff:
        for change in found:
            state = (
                "edited" if change.is_edit_lost
                else "missing" if change.old is None
                else "left over" if change.new is None
                else "differs"
            )  # fmt: skip
            click.echo(f"{click.style(state, fg='red')} generated/{change.path}")
    mend = "run 'opgen generate'"
    if any(change.is_edit_lost for change in found):
        mend = (
            "move what was edited by hand to templates/, runtime/ or spec/, or run 'opgen generate --force' to lose it"
        )
    click.secho(f"{len(found)} of {len(outputs)} files differ; {mend}", fg="red", err=True)
    raise SystemExit(1)


@main.command(name="list")
@_root
def list_outputs(root: Path) -> None:
    """List every file that is emitted and the template that it comes from.

    \b
    opgen list
    opgen list | grep storage
    """  # noqa: D301 -- \b is the character that click reads
    outputs = read_project(root).outputs
    width = max(len(str(output.path)) for output in outputs)
    for output in outputs:
        click.echo(f"generated/{output.path!s:<{width}}  {output.template}")


@main.command()
@_root
@click.argument("op", required=False)
@click.option("--backend", "backends", multiple=True, metavar="NAME", help="Only this backend; may be given again.")
@click.option("--dtype", "dtypes", multiple=True, metavar="NAME", help="Only this dtype; may be given again.")
@click.option("--format", "style", type=click.Choice(["table", "json", "markdown"]), default="table", show_default=True)
def matrix(root: Path, op: str | None, backends: Sequence[str], dtypes: Sequence[str], style: str) -> None:
    """Print what works where: of how many dtypes each backend has each op, and which have gradients.

    With OP, print how each backend does it, or why not.

    \b
    opgen matrix
    opgen matrix conv2d
    opgen matrix unary_impl --dtype f16 --dtype bf16
    opgen matrix --format json | jq '.[] | select(.status == "unsupported")'
    """  # noqa: D301 -- \b is the character that click reads
    spec = read_spec(root)
    every = cells(spec)
    _check_names("backend", backends, [backend.name for backend in spec.backends])
    _check_names("dtype", dtypes, dict.fromkeys(cell.dtype for cell in every if cell.dtype is not None))
    if op is not None:
        known = dict.fromkeys(name for cell in every for name in cell.names)
        if op not in known:
            raise click.BadParameter(f"unknown op '{op}'{did_you_mean(op, known)}", param_hint="OP")
    chosen = [
        cell
        for cell in every
        if (op is None or op in cell.names)
        and cell.backend in (backends or (cell.backend,))
        and cell.dtype in (dtypes or (cell.dtype,))
    ]
    if style == "json":
        names = ("method", "op", "backend", "dtype", "status", "via", "reason", "gradient")
        rows = ",\n".join(
            json.dumps({**{name: getattr(cell, name) for name in names}, "source": str(cell.source)}) for cell in chosen
        )
        click.echo(f"[\n{rows}\n]")
        return
    head, body = counts(chosen) if op is None else ways(chosen)
    for number, line in enumerate(laid_out(head, body, is_markdown=style == "markdown")):
        click.secho(line, bold=True if number == 0 and style == "table" else None)


@main.group(name="new")
def new() -> None:
    """Write a file of the spec for something new."""


@new.command(name="backend")
@_root
@click.argument("name")
@click.option("--family", required=True, help="The family of spec/families that the backend extends.")
@click.option("--module", required=True, help="The library, as Python imports it.")
def new_backend(root: Path, name: str, family: str, module: str) -> None:
    """Write spec/backends/NAME.yaml, a backend on an array library, with each choice marked.

    Where the library is installed, the words that it lacks are marked too.

    \b
    opgen new backend torch --family array --module torch
    opgen generate
    """  # noqa: D301 -- \b is the character that click reads
    # No other command imports what a person names.
    from opgen.new import new_backend as text_of

    spec = read_spec(root)
    families = {each.name: each for each in spec.backend_families}
    _check_names("family", [family], families)
    if not families[family].vocabulary:
        others = ", ".join(f"'{each.name}'" for each in families.values() if each.vocabulary)
        message = f"family '{family}' is not one of array libraries"
        raise click.BadParameter(f"{message}; give one of {others}" if others else message, param_hint="--family")
    if not is_name(name):
        raise click.BadParameter(f"'{name}' cannot be a name; use small letters, digits and underscores")
    if not is_module(module):
        raise click.BadParameter(f"'{module}' is no module; write what Python imports", param_hint="--module")
    path = Path("spec", "backends", f"{name}.yaml")
    text = text_of(spec, families[family], name, module)
    try:
        with (root / path).open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise Refusal(f"{path.as_posix()} is there already; choose another name, or remove it") from None
    except OSError as error:
        raise Refusal(f"{path.as_posix()} cannot be written: {error.strerror}; let it be written") from None
    click.echo(f"{click.style('wrote', fg='green')} {path.as_posix()}; look at its choices, then run 'opgen generate'")


@main.command(name="compile")
@_root
@click.option("--target", "targets", multiple=True, metavar="NAME", help="Only this target; may be given again.")
@click.option("--family", "families", multiple=True, metavar="NAME", help="Only this family; may be given again.")
@click.option(
    "--host", is_flag=True, help="Only what runs on the host, if a compiler for it is here: there is a way without."
)
@click.option("--jobs", type=click.IntRange(min=1), help="How many compilers run at once; as many as cores by default.")
@click.option("--stats", is_flag=True, help="Print what each kernel takes, the worst first; fail where one spills.")
def compile_kernels(
    root: Path, targets: tuple[str, ...], families: tuple[str, ...], host: bool, jobs: int | None, stats: bool
) -> None:
    """Compile the kernels to code objects, one for each target and family.

    Exit code 1 if one fails, or no compiler here builds a target that --target names, or any target.

    Only what has changed is compiled. What fails keeps its old code object, and the others go on. Targets that no
    compiler here builds are left out, and named with what to install.

    \b
    opgen compile
    opgen compile --target gfx90a --family unary --family cast
    opgen compile --host
    opgen compile --stats | head -30
    """  # noqa: D301 -- \b is the character that click reads
    start = time.monotonic()
    jobs = jobs or os.cpu_count() or 1
    with _locked(root / _OUTPUT):
        results, mends = _compile(root, targets, families, host, jobs)
    if stats:
        usages = [(result.object.target, usage) for result in results for usage in result.usages]
        click.echo("\n".join(table(usages)))
    for result in results:
        if result.status == "failed":
            click.echo(f"{click.style(result.object.name, bold=True)}: {result.messages}", err=True)
    # What was not asked for by name is left out where nothing builds it; nothing at all is a failure.
    is_missing = bool(mends) and not host and (bool(targets) or not results)
    for mend in mends:
        click.secho(mend, fg="red" if is_missing else "yellow", err=True)
    spilling = sum(usage.is_spilled for result in results for usage in result.usages) if stats else 0
    if spilling:
        click.secho(f"{spilling} kernels spill registers", fg="red", err=True)
    counts = Counter(result.status for result in results)
    states = ", ".join(f"{counts[status]} {status}" for status in ("compiled", "up to date", "failed"))
    click.echo(f"{len(results)} code objects in {time.monotonic() - start:.1f} s: {states}", err=stats)
    if is_missing or spilling or counts["failed"]:
        raise SystemExit(1)


def _compile(
    root: Path, targets: Sequence[str], families: Sequence[str], host: bool, jobs: int
) -> "tuple[list[Result], list[str]]":
    """What became of the code objects that are asked for, and what to install for those that have no compiler."""
    # No other command runs processes, for which asyncio takes a tenth of a check's time to import.
    from opgen.compile import choose_compilers, compile_objects

    spec = read_spec(root)
    every, code = _code_objects(root, spec)
    _check_names("target", targets, dict.fromkeys(code_object.target for code_object in every))
    _check_names("family", families, dict.fromkeys(code_object.family for code_object in every))
    remove_orphans(every, code)
    wanted = [
        code_object
        for code_object in every
        if code_object.target in (targets or (code_object.target,))
        and code_object.family in (families or (code_object.family,))
        and (code_object.is_host or not host)
    ]
    compilers, mends = choose_compilers(spec, wanted, root / "build", jobs)
    possible = [code_object for code_object in wanted if code_object.target in compilers]
    if host and possible:
        # Targets that are other machines need compilers that few have.
        mends = []
    with click.progressbar(
        length=len(possible), label="compiling", file=sys.stderr, item_show_func=lambda name: name
    ) as bar:

        def show(result: "Result") -> None:
            bar.update(1, result.object.name)
            # Elsewhere than on a terminal the bar is its label alone.
            if result.status == "compiled" and not sys.stderr.isatty():
                click.echo(f"compiled {result.object.name}, {bar.pos} of {bar.length}", err=True)

        results = compile_objects(possible, compilers, jobs, show)
    return results, mends


def _code_objects(root: Path, spec: Spec) -> tuple[tuple[CodeObject, ...], Path]:
    kernels = root / _OUTPUT / spec.package.name / "kernels"
    return code_objects(spec, kernels, root / HEADERS, kernels / "code"), kernels / "code"


def _tell_out_of_date(root: Path, spec: Spec) -> None:
    """Name the targets whose kernels were compiled before the sources changed: the package does not use those."""
    try:
        old = out_of_date(_code_objects(root, spec)[0])
    except CompileError:  # a source is missing, which is told already
        return
    for is_host in (True, False):
        families: dict[str, list[str]] = {}
        for code_object in old:
            if code_object.is_host == is_host:
                families.setdefault(code_object.target, []).append(code_object.family)
        if families:
            names = ", ".join(sorted(set(chain.from_iterable(families.values()))))
            mend = f"run 'opgen compile{' --host' if is_host else ''}'"
            click.secho(f"kernels of {', '.join(families)} are out of date ({names}); {mend}", fg="yellow", err=True)


def _check_names(what: str, names: Sequence[str], known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise click.BadParameter(f"unknown {what} '{name}'{did_you_mean(name, known)}", param_hint=f"--{what}")
