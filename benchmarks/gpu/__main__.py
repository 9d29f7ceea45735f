"""The command line."""

from __future__ import annotations

import re
import sys
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import Progress

from . import plot, report, table
from .results import ITEM_SIZES, Results, size_text

if TYPE_CHECKING:
    from .libraries import Libraries
    from .work import Op

_RESULTS, _PAGE, _PLOT = "benchmarks.json", "benchmarks.md", "benchmarks.svg"
_FAMILIES_PLOT = "benchmarks-families.svg"


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Benchmark tallow on a GPU against PyTorch and CuPy, on the same data and with device events.

    \b
    python -m benchmarks.gpu run --output build/benchmarks
    python -m benchmarks.gpu run --only 'sum|gather' --size 28 --dtype f16
    python -m benchmarks.gpu launches
    python -m benchmarks.gpu starts
    python -m benchmarks.gpu render build/benchmarks/benchmarks.json docs
    python -m benchmarks.gpu sources
    """  # noqa: D301 -- \b is the character that click reads


@main.command()
@click.option("--device", default="cuda:0", show_default=True, help="The device, as tallow labels it.")
@click.option(
    "--size",
    "exponents",
    type=click.IntRange(8, 30),
    multiple=True,
    default=(28, 20, 16, 10),
    show_default=True,
    help="The elements of an operand, as a power of two; may be repeated.",
)
@click.option(
    "--dtype",
    "dtypes",
    type=click.Choice(list(ITEM_SIZES)),
    multiple=True,
    default=tuple(ITEM_SIZES),
    show_default=True,
    help="The dtype of the elements; may be repeated.",
)
@click.option("--only", metavar="REGEX", default="", help="Only the ops whose 'family/name' it matches somewhere.")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help=f"The folder for {_RESULTS}, {_PAGE} and {_PLOT}; without it, results are only printed.",
)
@click.option("--resume", is_flag=True, help=f"Go on with the run that {_RESULTS} in --output is of, on the same GPU.")
def run(
    device: str, exponents: tuple[int, ...], dtypes: tuple[str, ...], only: str, output: Path | None, resume: bool
) -> None:
    """Check and time the ops. Exit code 1 if a result is wrong or a call fails.

    Each result is compared with PyTorch's, in f64 where rounding differs, before it is timed; the other cases go on.

    \b
    python -m benchmarks.gpu run
    python -m benchmarks.gpu run --output build/benchmarks
    python -m benchmarks.gpu run --only '^unary/' --size 28 --size 10
    python -m benchmarks.gpu run --output build/benchmarks --resume
    """  # noqa: D301 -- \b is the character that click reads
    try:
        from . import launches, loading, starting
        from .libraries import NoDevice, open_libraries
        from .measure import environment
        from .ops import OPS
    except ImportError as error:
        raise click.ClickException(
            f"{error}; results are checked against PyTorch's, so install torch for your GPU (and cupy, if you like)"
        ) from error
    ops = [op for op in OPS if re.search(only, f"{op.family}/{op.name}")]
    if not ops:
        raise click.BadParameter(f"no op matches; there are {', '.join(op.name for op in OPS)}", param_hint="--only")
    command = " ".join(["python -m benchmarks.gpu", *sys.argv[1:]])
    try:
        with open_libraries(device) as libraries:
            results = Results(environment(libraries, command))
            if resume and output is not None and (output / _RESULTS).exists():
                results = _resumed(output / _RESULTS, results)
            _measure_all(libraries, ops, exponents, dtypes, results, output)
            if not only:
                results.launches = launches.measure(libraries.device)
                results.starts = starting.measure(device)
                click.echo("loading a safetensors file", err=True)
                results.loading = loading.measure(device)
                if output is not None:
                    results.write(output / _RESULTS)
    except NoDevice as error:
        raise click.ClickException(str(error)) from error
    if output is not None:
        _render(results, output)
    for text in report.summary(results):
        click.echo(text)
    if results.failures:
        raise SystemExit(1)


def _resumed(path: Path, begun: Results) -> Results:
    """The results of a run that was cut short, if it was on the same machine and of the same sources."""
    earlier = Results.read(path)
    for name in begun.environment.keys() - {"command", "date"}:
        here, there = begun.environment[name], earlier.environment.get(name)
        if here != there:
            raise click.ClickException(f"{path} is of another run ({name}: {there}, here {here}); leave out --resume")
    return earlier


def _measure_all(
    libraries: Libraries,
    ops: list[Op],
    exponents: tuple[int, ...],
    dtypes: tuple[str, ...],
    results: Results,
    output: Path | None,
) -> None:
    from .libraries import Data
    from .measure import measure
    from .timing import copy_rates

    console = Console(highlight=False, soft_wrap=True)
    # The largest first: they say most, should the run be cut short.
    measured = {(row.family, row.op, row.dtype, row.elements) for row in results.rows}
    groups = {
        (exponent, dtype): [
            op for op in ops if dtype in op.dtypes and (op.family, op.name, dtype, 1 << exponent) not in measured
        ]
        for exponent, dtype in product(sorted(exponents, reverse=True), dtypes)
    }
    console.print(table.HEAD, style="bold")
    with Progress(console=console, transient=True) if console.is_terminal else nullcontext() as progress:
        task = progress.add_task("", total=sum(map(len, groups.values()))) if progress else None
        for (exponent, dtype), left in groups.items():
            if not left:
                continue
            nbytes = ITEM_SIZES[dtype] << exponent
            if nbytes not in results.ceilings:
                results.ceilings[nbytes] = copy_rates(libraries, nbytes)
            data = Data(libraries, dtype, 1 << exponent)
            for op in left:
                if progress and task is not None:
                    progress.update(task, description=f"{op.name} {dtype} {size_text(data.elements)}")
                row = measure(op, data)
                results.rows.append(row)
                console.print(table.line(row, results), style="bold red" if row.failure else None, markup=False)
                if progress and task is not None:
                    progress.advance(task)
            del data
            libraries.free()
            if output is not None:
                results.write(output / _RESULTS)


@main.command("launches")
@click.option("--device", default="cuda:0", show_default=True, help="The device, as tallow labels it.")
def print_launches(device: str) -> None:
    """Time launches on the host: of a kernel of tallow's own, and of a user's. It needs no PyTorch.

    \b
    python -m benchmarks.gpu launches --device cuda:0
    """  # noqa: D301 -- \b is the character that click reads
    import tallow

    from . import launches

    for name, taken, ratio in report.launch_rows(launches.measure(tallow.Device.parse(device))):
        click.echo(f"{name:24} {taken:>8} us   {ratio} times tallow's own")


@main.command("starts")
@click.option("--device", default="cuda:0", show_default=True, help="The device, as tallow labels it.")
def print_starts(device: str) -> None:
    """Time a program of eight kernels from its start to its end, with an empty cache and a full one. No PyTorch needed.

    Code objects that `opgen compile` has built are used before any cache.

    \b
    python -m benchmarks.gpu starts --device cuda:0
    """  # noqa: D301 -- \b is the character that click reads
    from . import starting

    head, rows = report.start_table(starting.measure(device))
    for line in (head, *rows):
        click.echo("  ".join(f"{cell:>22}" for cell in line))


@main.command()
@click.argument("results", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
def render(results: Path, folder: Path) -> None:
    """Write the page and the plot of a run's file of results to a folder.

    \b
    python -m benchmarks.gpu render build/benchmarks/benchmarks.json docs
    """  # noqa: D301 -- \b is the character that click reads
    _render(Results.read(results), folder)


@main.command("sources")
def print_sources() -> None:
    """Print the checksum of tallow's sources, by which a page names what it measured."""
    # Imports tallow, which the page needs not.
    from . import sources

    click.echo(sources.checksum())


def _render(results: Results, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _PAGE).write_text(report.page(results, _PLOT, _FAMILIES_PLOT), encoding="utf-8")
    (folder / _PLOT).write_text(plot.draw(results), encoding="utf-8")
    (folder / _FAMILIES_PLOT).write_text(plot.draw_families(results), encoding="utf-8")


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.gpu")
