"""The command line."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

from benchmarks.results import write_page

from . import report
from .results import COMPILED, TOLERANCES, VARIANTS, Results, Row
from .weights import CONFIGS, random_weights

_RESULTS, _PAGE = "model.json", "model.md"

_device = click.option("--device", default="cuda:0", show_default=True, help="The device, as tallow labels it.")
_model = click.option("--model", type=click.Choice(list(CONFIGS)), default="gpt2", show_default=True, help="The sizes.")
_prompt = click.option(
    "--prompt", type=click.IntRange(1), default=1024, show_default=True, help="Tokens of the prompt."
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Time a decoder of GPT-2's size on tallow beside PyTorch, with the same weights.

    \b
    python -m benchmarks.model run --device cuda --output build/benchmarks
    python -m benchmarks.model run --only tallow --dtype f16 --batch 1
    python -m benchmarks.model profile --device cuda
    python -m benchmarks.model render build/benchmarks/model.json docs
    """  # noqa: D301 -- \b is the character that click reads


@main.command()
@_device
@_model
@_prompt
@click.option(
    "--dtype",
    "dtypes",
    type=click.Choice(list(TOLERANCES)),
    multiple=True,
    default=("f16", "bf16"),
    show_default=True,
    help="The dtype of the weights; may be repeated.",
)
@click.option(
    "--batch",
    "batches",
    type=click.IntRange(1),
    multiple=True,
    default=(1, 16),
    show_default=True,
    help="Prompts at once; may be repeated.",
)
@click.option("--only", metavar="REGEX", default="", help="Only the variants that it matches somewhere.")
@click.option(
    "--compiled/--no-compiled", default=True, help=f"Whether to take part in '{COMPILED}', which takes minutes."
)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help=f"The folder for {_RESULTS} and {_PAGE}; without it, results are only printed.",
)
def run(
    device: str,
    model: str,
    prompt: int,
    dtypes: tuple[str, ...],
    batches: tuple[int, ...],
    only: str,
    compiled: bool,
    output: Path | None,
) -> None:
    """Compare and time every variant. Exit code 1 if logits are wrong or a variant fails.

    \b
    python -m benchmarks.model run --output build/benchmarks
    python -m benchmarks.model run --no-compiled
    python -m benchmarks.model run --device cpu --model tiny --prompt 16 --dtype f32
    """  # noqa: D301 -- \b is the character that click reads
    # The page needs neither tallow nor PyTorch.
    import tallow

    from .measure import measure, opened
    from .variants import Data

    config = CONFIGS[model]
    if prompt >= config.context:
        raise click.BadParameter(f"at most {config.context - 1}, since a token follows", param_hint="--prompt")
    variants = [variant for variant in VARIANTS if re.search(only, variant) and (compiled or variant != COMPILED)]
    weights = random_weights(config)
    command = " ".join(["python -m benchmarks.model", *sys.argv[1:]])
    try:
        with opened(device) as machine:
            results = Results(machine.environment(command), prompt)

            def report_row(row: Row) -> None:
                results.rows.append(row)
                click.echo(report.line(row))

            click.echo(report.HEAD)
            for dtype in dtypes:
                for batch in batches:
                    data = Data.make(config, weights, dtype, batch, prompt, machine.device)
                    measure(machine, data, dtype, variants, report_row)
                    del data
                    machine.free()
                    if output is not None:
                        results.write(output / _RESULTS)
    except tallow.TallowError as error:
        raise click.ClickException(str(error)) from error
    if output is not None:
        _render(results, output)
    if results.failures:
        raise SystemExit(1)


@main.command()
@_device
@_model
@_prompt
@click.option("--dtype", type=click.Choice(list(TOLERANCES)), default="f16", show_default=True, help="Of the weights.")
@click.option("--batch", type=click.IntRange(1), default=1, show_default=True, help="Prompts at once.")
def profile(device: str, model: str, prompt: int, dtype: str, batch: int) -> None:
    """Print which ops of tallow's take the host's time in a decode step, op by op.

    \b
    python -m benchmarks.model profile --device cuda
    """  # noqa: D301 -- \b is the character that click reads
    import tallow

    from .host import op_times
    from .results import TALLOW
    from .variants import Data, tallow_calls

    config = CONFIGS[model]
    data = Data.make(config, random_weights(config), dtype, batch, prompt, tallow.Device.parse(device))
    calls = tallow_calls(TALLOW, data)
    calls.prefill()
    ops = op_times(calls.decode)
    click.echo(f"{'op':<16} {'calls':>6} {'us a call':>10} {'ms a step':>10}")
    for name, count, seconds in (*ops, ("in all", sum(op.calls for op in ops), sum(op.seconds for op in ops))):
        click.echo(f"{name:<16} {count:>6.0f} {1e6 * seconds / max(count, 1):>10.1f} {1e3 * seconds:>10.3f}")


@main.command()
@click.argument("results", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
def render(results: Path, folder: Path) -> None:
    """Write the page of a run's file of results to a folder.

    \b
    python -m benchmarks.model render build/benchmarks/model.json docs
    """  # noqa: D301 -- \b is the character that click reads
    _render(Results.read(results), folder)


def _render(results: Results, folder: Path) -> None:
    write_page(folder / _PAGE, report.page(results))


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.model")
