"""opgen compile."""

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from opgen.code_objects import remove_orphans, remove_stale
from opgen.commands.code_objects import project_code_objects
from opgen.commands.options import check_names, complete, lock, root_option
from opgen.folders import OUTPUT
from opgen.model.spec import Spec
from opgen.project import read_spec
from opgen.resources import table
from opgen.streams import is_terminal

if TYPE_CHECKING:
    from opgen.compile import Result


@click.command(name="compile")
@root_option
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="NAME",
    help="Only this target; may be repeated.",
    shell_complete=complete(lambda project: _targets(project.spec)),
)
@click.option(
    "--family",
    "families",
    multiple=True,
    metavar="NAME",
    help="Only this family; may be repeated.",
    shell_complete=complete(lambda project: (family.name for family in project.spec.kernels if family.kernels)),
)
@click.option(
    "--host",
    is_flag=True,
    help="Only kernels of the host, if a compiler for it is installed; NumPy computes without them.",
)
@click.option("--all", "is_all", is_flag=True, help="With --host, what other machines run too.")
@click.option("--jobs", type=click.IntRange(min=1), help="How many compilers run at once; as many as cores by default.")
@click.option("--stats", is_flag=True, help="Print what each kernel takes, the worst first; fail where one spills.")
def compile_kernels(
    root: Path,
    targets: tuple[str, ...],
    families: tuple[str, ...],
    host: bool,
    is_all: bool,
    jobs: int | None,
    stats: bool,
) -> None:
    """Compile the kernels to code objects, one for each target and family.

    Exit code 1 if one fails, or no compiler here builds a target that --target names, or any target.

    Only what has changed is compiled. What fails keeps its old code object, and the others go on. Targets that no
    compiler here builds are left out, and named with what to install. With --host, that is the best target that this
    machine runs, or the targets of --target, and what is out of date of other machines' targets is removed.

    \b
    opgen compile
    opgen compile --target gfx90a --family unary --family cast
    opgen compile --host
    opgen compile --host --all
    opgen compile --stats | head -30
    """  # noqa: D301 -- \b is the character that click reads
    if is_all and not host:
        raise click.UsageError("--all belongs to --host; without both, opgen compiles for every target")
    start = time.monotonic()
    jobs = jobs or os.cpu_count() or 1
    with lock(root / OUTPUT):
        results, fixes = _compile(root, targets, families, host, is_all, jobs)
    if stats:
        usages = [(result.object.target, usage) for result in results for usage in result.usages]
        click.echo("\n".join(table(usages)))
    for result in results:
        if result.status == "failed":
            click.echo(f"{click.style(result.object.name, bold=True)}: {result.messages}", err=True)
    # Targets that were not named are left out where nothing builds them; nothing at all is a failure.
    is_missing = bool(fixes) and not host and (bool(targets) or not results)
    for fix in fixes:
        click.secho(fix, fg="red" if is_missing else "yellow", err=True)
    spilling = sum(usage.is_spilled for result in results for usage in result.usages) if stats else 0
    if spilling:
        click.secho(f"{spilling} kernels spill registers", fg="red", err=True)
    counts = Counter(result.status for result in results)
    states = ", ".join(f"{counts[status]} {status}" for status in ("compiled", "up to date", "failed"))
    click.echo(f"{len(results)} code objects in {time.monotonic() - start:.1f} s: {states}", err=stats)
    if is_missing or spilling or counts["failed"]:
        raise SystemExit(1)


def _targets(spec: Spec) -> Iterator[str]:
    for backend in spec.backends:
        yield from backend.code_objects.targets if backend.code_objects is not None else ()


def _compile(
    root: Path, targets: Sequence[str], families: Sequence[str], host: bool, is_all: bool, jobs: int
) -> "tuple[list[Result], list[str]]":
    """Compile the requested code objects; return the results, and what to install for those that have no compiler."""
    # No other command runs processes, for which asyncio takes a tenth of a check's time to import.
    from opgen.compile import choose_compilers, compile_objects, for_this_machine

    spec = read_spec(root)
    every, code = project_code_objects(root, spec)
    check_names("target", targets, dict.fromkeys(code_object.target for code_object in every))
    check_names("family", families, dict.fromkeys(code_object.family for code_object in every))
    remove_orphans(every, code)
    wanted = [
        code_object
        for code_object in every
        if code_object.target in (targets or (code_object.target,))
        and code_object.family in (families or (code_object.family,))
        and (code_object.is_host or not host)
    ]
    compilers, fixes = choose_compilers(spec, wanted, root / "build", jobs)
    possible = [code_object for code_object in wanted if code_object.target in compilers]
    if host and possible:
        # Targets that are other machines need compilers that few have.
        fixes = []
        if not is_all and not targets:
            possible, others = for_this_machine(spec, possible, compilers)
            remove_stale(others)
            if not possible:
                fixes = [f"this machine is none of {', '.join(compilers)}; NumPy does the work"]
    with click.progressbar(
        length=len(possible), label="compiling", file=sys.stderr, item_show_func=lambda name: name
    ) as bar:

        def show(result: "Result") -> None:
            bar.update(1, result.object.name)
            # Elsewhere than on a terminal the bar is its label alone.
            if result.status == "compiled" and not is_terminal(sys.stderr):
                click.echo(f"compiled {result.object.name}, {bar.pos} of {bar.length}", err=True)

        results = compile_objects(possible, compilers, jobs, show)
    return results, fixes
