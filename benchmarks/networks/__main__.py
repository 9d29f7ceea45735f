"""The command line."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchmarks.cpu.report import sections_of
from benchmarks.results import write_page

from . import report
from .results import BATCHES, COMPILED, DTYPES, INFERENCE, TRAINING, Results, Task

if TYPE_CHECKING:
    from benchmarks.training.measure import Machine

_RESULTS, _PAGE = "networks.json", "networks.md"
_PACKAGES = ("tallow", "torch", "onnxruntime", "numpy")
_NAMES = ("resnet18", "mobilenet-v3-large", "unet", "detector", "recogniser", "lstm")

_device = click.option("--device", default="cpu", show_default=True, help="The device, as tallow labels it.")
_small = click.option("--small", "is_small", is_flag=True, help="Inputs of a few pixels, as in a test.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Benchmark networks on tallow against PyTorch and onnxruntime, with the same weights and checked results.

    \b
    python -m benchmarks.networks list
    python -m benchmarks.networks run resnet18 --threads 1 --dtype f32
    python -m benchmarks.networks run all --device cuda --output build/benchmarks
    python -m benchmarks.networks profile unet --phase training --batch 4
    python -m benchmarks.networks render build/benchmarks/networks.json docs
    """  # noqa: D301 -- \b is the character that click reads


@main.command("list")
def list_networks() -> None:
    """List the networks and the shapes of their inputs."""
    from .networks import NETWORKS

    for name, network in NETWORKS.items():
        click.echo(f"{name:<20} {' x '.join(map(str, network.shape))}")


@main.command()
@click.argument("names", nargs=-1, required=True, type=click.Choice((*_NAMES, "all")))
@_device
@click.option("--phase", "phases", type=click.Choice((INFERENCE, TRAINING)), multiple=True, help="May be repeated.")
@click.option("--batch", "batches", type=click.IntRange(1), multiple=True, help="Instead of 1, 8, 64, and 32 to train.")
@click.option("--dtype", "dtypes", type=click.Choice(DTYPES), multiple=True, default=DTYPES, show_default=True)
@click.option(
    "--threads",
    type=click.IntRange(1),
    multiple=True,
    default=(1, 2, 16),
    show_default=True,
    help="Of each library, on the CPU; may be repeated.",
)
@click.option("--only", metavar="REGEX", default="", help="Only variants that it matches from their beginning.")
@click.option("--compiled/--no-compiled", default=True, help=f"Whether to take '{COMPILED}', which takes minutes.")
@_small
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help=f"The folder for {_RESULTS} and {_PAGE}; without it, results are only printed.",
)
def run(
    names: tuple[str, ...],
    device: str,
    phases: tuple[str, ...],
    batches: tuple[int, ...],
    dtypes: tuple[str, ...],
    threads: tuple[int, ...],
    only: str,
    compiled: bool,
    is_small: bool,
    output: Path | None,
) -> None:
    """Check and time networks. Exit code 1 if a result is wrong or a variant fails.

    \b
    python -m benchmarks.networks run lstm recogniser --threads 2
    python -m benchmarks.networks run all --device cuda --no-compiled --phase training
    """  # noqa: D301 -- \b is the character that click reads
    from .measure import measure, variants_of

    machine = _machine(device)
    is_cpu = machine.device.backend == "cpu"
    wanted = [name for name in _NAMES if name in names or "all" in names]
    tasks = [
        Task(name, phase, batch, dtype, count)
        for name in wanted
        for phase in phases or tuple(BATCHES)
        for batch in batches or BATCHES[phase]
        for count in (threads if is_cpu else (None,))
        for dtype in dtypes
    ]
    variants = [
        variant
        for variant in variants_of(machine.device)
        if re.match(only, variant) and (compiled or variant != COMPILED)
    ]
    results = Results(_environment(machine), _title(machine))
    click.echo(report.HEAD)
    reasons: set[str] = set()
    for rows in measure(machine, _announced(tasks), variants, is_small):
        results.rows += rows
        for row in rows:
            # What is missing is said once.
            if row.failed or row.reason not in reasons:
                click.echo(report.line(row, results))
            if row.reason and not row.failed:
                reasons.add(row.reason)
        if output is not None:
            results.write(output / _RESULTS)
    if output is not None:
        _render([results], output)
    if results.failures:
        raise SystemExit(1)


def _announced(tasks: list[Task]) -> Iterator[Task]:
    """Tasks, each with a line in a terminal while it runs."""
    for number, task in enumerate(tasks, 1):
        if sys.stderr.isatty():
            click.echo(f"{number} of {len(tasks)}: {task} ...\r", err=True, nl=False)
        yield task


def _machine(device: str) -> Machine:
    # The page needs neither tallow nor PyTorch.
    import tallow

    from benchmarks.training.measure import Machine

    try:
        return Machine(device)
    except tallow.TallowError as error:
        raise click.ClickException(str(error)) from error


def _environment(machine: Machine) -> dict[str, str]:
    from benchmarks.gpu.machine import described

    command = " ".join(["python -m benchmarks.networks", *sys.argv[1:]])
    return described(command, machine.facts(), _PACKAGES)


def _title(machine: Machine) -> str:
    from benchmarks.processor import cores, processor

    if gpu := machine.facts().get("GPU"):
        return gpu
    onednn = " with oneDNN" if getattr(machine.device.inner, "onednn", None) else ""
    return f"{processor()}, {cores()} cores{onednn}"


@main.command()
@click.argument("name", type=click.Choice(_NAMES))
@_device
@click.option("--phase", type=click.Choice((INFERENCE, TRAINING)), default=INFERENCE, show_default=True)
@click.option("--batch", type=click.IntRange(1), default=8, show_default=True)
@click.option("--dtype", type=click.Choice(DTYPES), default="f32", show_default=True)
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True, help="On the CPU.")
@click.option("--fused", "is_fused", is_flag=True, help="Use tl.fuse for what follows each convolution.")
@_small
def profile(
    name: str, device: str, phase: str, batch: int, dtype: str, threads: int, is_fused: bool, is_small: bool
) -> None:
    """Print where a network spends its time, by op and by kernel.

    \b
    python -m benchmarks.networks profile detector --batch 1
    python -m benchmarks.networks profile resnet18 --phase training --device cuda --dtype bf16
    """  # noqa: D301 -- \b is the character that click reads
    import tallow as tl

    from .measure import set_threads, weights_of
    from .networks import NETWORKS
    from .results import FUSED, TALLOW
    from .tallow_variants import tallow_step

    machine, network = _machine(device), NETWORKS[name]
    is_cpu = machine.device.backend == "cpu"
    task = Task(name, phase, batch, dtype, threads if is_cpu else None)
    if is_cpu:
        set_threads(threads)
    inputs = network.inputs(batch, is_small)
    step = tallow_step(FUSED if is_fused else TALLOW, task, network, weights_of(network), inputs, machine.device)
    for _ in range(3):
        step()
    machine.device.synchronize()
    with tl.profile() as profile:
        step()
    click.echo(profile)


@main.command()
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
def render(files: tuple[Path, ...], folder: Path) -> None:
    """Write the page of FILES, each of one machine, to FOLDER; sections of other machines stay as they are.

    \b
    python -m benchmarks.networks render build/benchmarks/networks.json docs
    """  # noqa: D301 -- \b is the character that click reads
    _render([Results.read(file) for file in files], folder)


def _render(runs: list[Results], folder: Path) -> None:
    page = folder / _PAGE
    sections = sections_of(page.read_text(encoding="utf-8")) if page.exists() else {}
    sections.pop(report.METHOD_TITLE, None)
    sections |= {results.title: report.section(results) for results in runs}
    write_page(page, report.page(sections))


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.networks")
