"""The command line."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import Progress

from . import plot, report
from .results import CALLS, Results, Row, write_text

if TYPE_CHECKING:
    from .cases import Case

_RESULTS, _PAGE = "cpu.json", "cpu.md"
_PEERS = {"torch": "PyTorch", "numpy": "NumPy"}
# Larger results take longer to compare than to compute.
_LARGEST_CHECKED = 16


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Benchmark tallow on the CPU against PyTorch and NumPy.

    \b
    python -m benchmarks.cpu run --threads 1 --threads 2
    python -m benchmarks.cpu run --only sum --only 'argsort of rows' --size 16
    python -m benchmarks.cpu render build/benchmarks/cpu.json docs
    """  # noqa: D301 -- \b is the character that click reads


@main.command()
@click.option(
    "--threads",
    type=click.IntRange(1),
    multiple=True,
    default=(1, 2),
    show_default=True,
    help="The number of threads; may be repeated.",
)
@click.option(
    "--size",
    "exponents",
    type=click.IntRange(8, 28),
    multiple=True,
    default=(24, 16, 10),
    show_default=True,
    help="The elements of an operand, as a power of two; may be repeated.",
)
@click.option("--calls", "are_calls", is_flag=True, help="Calls of programs and networks instead of the sizes.")
@click.option("--only", metavar="TEXT", multiple=True, help="Only the ops whose name begins so; may be repeated.")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("build/benchmarks"),
    show_default=True,
    help=f"The folder for {_RESULTS}.",
)
def run(
    threads: tuple[int, ...], exponents: tuple[int, ...], are_calls: bool, only: tuple[str, ...], output: Path
) -> None:
    """Check and time the ops, and write what was measured to a file. Exit code 1 if a result is wrong.

    \b
    python -m benchmarks.cpu run
    python -m benchmarks.cpu run --threads 1 --size 16 --only softmax
    python -m benchmarks.cpu run --threads 1 --calls --only 'cat of'
    """  # noqa: D301 -- \b is the character that click reads
    # The page needs neither tallow nor PyTorch.
    from .measure import this_machine

    torch = import_module("torch") if find_spec("torch") else None
    if are_calls:
        if torch is None:
            raise click.UsageError("--calls compares with PyTorch, which is not installed")
        exponents = (CALLS,)
    command = shlex.join(["python", "-m", "benchmarks.cpu", *sys.argv[1:]])
    results = Results(command, this_machine(torch), _measure_all(torch, threads, exponents, only))
    if not results.rows:
        raise click.BadParameter(f"no op begins with {' or '.join(only)}", param_hint="--only")
    results.write(output / _RESULTS)
    click.echo(f"{results.title}\n\n{report.section(results)}")


def _measure_all(torch: Any, threads: tuple[int, ...], exponents: tuple[int, ...], only: tuple[str, ...]) -> list[Row]:
    import tallow as tl
    from threadpoolctl import threadpool_limits

    from .cases import DTYPES, cases
    from .measure import time_in_turns

    rows = []
    groups = list(product(threads, DTYPES if exponents != (CALLS,) else DTYPES[:1], exponents))
    # What is printed is the page alone.
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=len(groups))
        for count, dtype, exponent in groups:
            tl.set_threads(count)
            # NumPy's products have threads of their own.
            threadpool_limits(count, "blas")
            if torch is not None:
                torch.set_num_threads(count)
            of_processor = exponent == CALLS and count == 1
            size = "calls" if exponent == CALLS else f"2^{exponent} elements"
            group = f"{plot.threads_text(count)}, {dtype}, {size}"
            for case in _calls() if exponent == CALLS else cases(exponent, dtype):
                if only and not case.name.startswith(only):
                    continue
                progress.update(task, description=f"{group}: {case.name}")
                if exponent <= _LARGEST_CHECKED:
                    _check(case, group)
                rows.append(
                    Row(
                        count,
                        dtype,
                        exponent,
                        case.name,
                        **time_in_turns(case.calls, of_processor=of_processor),
                        family=case.family,
                    )
                )
            progress.advance(task)
    return rows


def _calls() -> Iterator[Case]:
    # They need PyTorch, which sizes do not.
    from .calls import calls

    return calls()


def _check(case: Case, group: str) -> None:
    from .measure import differing

    names = [_PEERS[library] for library in differing(case)]
    if names:
        raise click.ClickException(f"{case.name}, {group}: the result is not that of {' or '.join(names)}")


@main.command()
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
def render(files: tuple[Path, ...], folder: Path) -> None:
    """Write the page and the plots of FILES, each of one machine, to FOLDER.

    Sections of other machines on the page are left unchanged. Without FILES only the introduction is written anew.

    \b
    python -m benchmarks.cpu render build/benchmarks/cpu.json docs
    """  # noqa: D301 -- \b is the character that click reads
    page = folder / _PAGE
    sections = report.sections_of(page.read_text(encoding="utf-8")) if page.exists() else {}
    plots = {}
    for file in files:
        results = Results.read(file)
        drawings = plot.draw_all(results)
        for name in drawings:
            others = [title for title, text in sections.items() if title != results.title and f"]({name})" in text]
            if others:
                raise click.ClickException(
                    f"{name} is the plot of '{others[0]}'; remove that section from {page} first"
                )
        sections[results.title] = report.section(results, *drawings)
        plots.update(drawings)
    for name, drawing in plots.items():
        write_text(folder / name, drawing)
    write_text(page, report.page(sections))


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.cpu")
