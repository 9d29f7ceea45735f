"""The command line."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

from benchmarks.results import write_page

from . import report
from .results import COMPILED, DECODER, NETWORKS, VARIANTS, Results

_RESULTS, _PAGE = "training.json", "training-steps.md"
_DTYPES = ("bf16", "f16", "f32")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Benchmark training steps of tallow against PyTorch, with the same weights.

    \b
    python -m benchmarks.training run --device cuda --output build/benchmarks
    python -m benchmarks.training run --device cpu --model example --batch 16 --length 64 --dtype f32
    python -m benchmarks.training render build/benchmarks/training.json docs
    python -m benchmarks.training recording
    python -m benchmarks.training turns --threads 1
    """  # noqa: D301 -- \b is the character that click reads


@main.command()
@click.option("--device", default="cuda:0", show_default=True, help="The device, as tallow labels it.")
@click.option("--model", default="gpt2", show_default=True, help="The decoder: gpt2, example, small or tiny.")
@click.option("--batch", type=click.IntRange(1), default=8, show_default=True, help="Texts at once.")
@click.option("--length", type=click.IntRange(1), default=1024, show_default=True, help="Tokens of each.")
@click.option(
    "--dtype", type=click.Choice(_DTYPES), default="bf16", show_default=True, help="Of the decoder's weights."
)
@click.option("--steps", type=click.IntRange(1), default=20, show_default=True, help="Steps until the last loss.")
@click.option(
    "--only", metavar="REGEX", default="", help="Only networks and variants, as 'decoder, tallow', that it matches."
)
@click.option("--compiled/--no-compiled", default=True, help=f"Whether to take '{COMPILED}', which takes minutes.")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help=f"The folder for {_RESULTS} and {_PAGE}; without it, results are only printed.",
)
def run(
    device: str,
    model: str,
    batch: int,
    length: int,
    dtype: str,
    steps: int,
    only: str,
    compiled: bool,
    output: Path | None,
) -> None:
    """Time every variant. Exit code 1 if one fails.

    \b
    python -m benchmarks.training run --output build/benchmarks
    python -m benchmarks.training run --no-compiled --only "decoder, tallow"
    python -m benchmarks.training run --device rocm --model tiny --batch 2 --length 16
    """  # noqa: D301 -- \b is the character that click reads
    # The page needs neither tallow nor PyTorch.
    import tallow

    from benchmarks.gpu.machine import described

    from .measure import Machine, measure, start_of
    from .sizes import CONFIGS

    if model not in CONFIGS:
        raise click.BadParameter(f"'{model}' is none of {', '.join(CONFIGS)}", param_hint="--model")
    config = CONFIGS[model]
    sizes = (
        f"{config.layers} layers, width {config.width}, {config.heads} heads, vocabulary {config.vocabulary:,},"
        f" batch {batch} x {length:,}, {dtype}"
    )
    command = " ".join(["python -m benchmarks.training", *sys.argv[1:]])
    try:
        machine = Machine(device)
    except tallow.TallowError as error:
        raise click.ClickException(str(error)) from error
    environment = described(command, machine.facts(), ("tallow", "torch", "triton", "numpy", "cuda.bindings"))
    results = Results(environment, sizes, steps)
    click.echo(report.HEAD)
    for network in NETWORKS:
        variants = [
            variant
            for variant in VARIANTS
            if re.search(only, f"{network}, {variant}") and (compiled or variant != COMPILED)
        ]
        start = start_of(network, model, batch, length) if variants else None
        for variant in variants:
            assert start is not None
            results.rows.append(
                measure(machine, network, variant, start, dtype if network == DECODER else "f32", steps)
            )
            click.echo(report.line(results.rows[-1]))
            if output is not None:
                results.write(output / _RESULTS)
    if output is not None:
        _render(results, output)
    if results.failures:
        raise SystemExit(1)


@main.command()
@click.option("--device", default="cpu", show_default=True, help="The device, as tallow labels it.")
def recording(device: str) -> None:
    """Time what recording adds to a call, in microseconds of the processor's time.

    \b
    python -m benchmarks.training recording
    """  # noqa: D301 -- \b is the character that click reads
    import tallow

    from .recording import measured

    click.echo(f"{'call':<20} {'tensor':>8} {'Var':>8} {'added':>8}")
    for call, plain, recorded in measured(tallow.Device.parse(device)):
        click.echo(f"{call:<20} {plain:8.2f} {recorded:8.2f} {recorded - plain:8.2f}")


@main.command()
@click.option("--model", default="example", show_default=True, help="The decoder: gpt2, example, small or tiny.")
@click.option("--batch", type=click.IntRange(1), default=16, show_default=True, help="Texts at once.")
@click.option("--length", type=click.IntRange(1), default=64, show_default=True, help="Tokens of each.")
@click.option("--threads", type=click.IntRange(1), default=2, show_default=True, help="Threads of either library.")
@click.option("--rounds", type=click.IntRange(1), default=40, show_default=True, help="Steps of each variant.")
def turns(model: str, batch: int, length: int, threads: int, rounds: int) -> None:
    """Time steps in f32 on the CPU, of tallow and PyTorch in turns, on a machine that does other work too.

    \b
    python -m benchmarks.training turns --threads 1
    """  # noqa: D301 -- \b is the character that click reads
    from .turns import measured

    click.echo(f"{'network':<10}  {'variant':<10} {'least wall, ms':>15} {'median wall, ms':>16} {'processor, ms':>14}")
    for row in measured(model, batch, length, threads, rounds):
        times = f"{row.min_wall * 1e3:15.3f} {row.median_wall * 1e3:16.3f} {row.min_processor * 1e3:14.3f}"
        click.echo(f"{row.network:<10}  {row.variant:<10} {times}")


@main.command()
@click.argument("results", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
def render(results: Path, folder: Path) -> None:
    """Write the page of a run's file of results to a folder.

    \b
    python -m benchmarks.training render build/benchmarks/training.json docs
    """  # noqa: D301 -- \b is the character that click reads
    _render(Results.read(results), folder)


def _render(results: Results, folder: Path) -> None:
    write_page(folder / _PAGE, report.page(results))


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.training")
