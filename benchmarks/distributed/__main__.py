"""The command line."""

from __future__ import annotations

from pathlib import Path

import click

_BACKEND = click.option(
    "--backend", default="cuda", show_default=True, help="That of the devices, of which each rank has one."
)
_OUTPUT = click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), help="A file for the table, which is printed too."
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Benchmark collective calls, training steps and models of ranks, one GPU each, against PyTorch if it is installed.

    \b
    python -m tallow.launch -n 2 -m benchmarks.distributed collectives --output build/benchmarks/collectives.md
    python -m tallow.launch -n 4 -m benchmarks.distributed step --batch 32
    python -m benchmarks.distributed copies cuda:0 cuda:1
    python -m benchmarks.distributed write-model /tmp/model.gguf --format BF16
    python -m tallow.launch -n 2 -m benchmarks.distributed model /tmp/model.gguf
    """  # noqa: D301 -- \b is the character that click reads


@main.command()
@_BACKEND
@click.option("--dtype", "dtypes", multiple=True, default=("f32", "bf16"), show_default=True, help="Of the elements.")
@click.option("--most", type=click.IntRange(1024), default=1 << 30, help="The largest size in bytes (1 GiB).")
@_OUTPUT
def collectives(backend: str, dtypes: tuple[str, ...], most: int, output: Path | None) -> None:
    """Time collective calls, and a step with averages of its gradients.

    \b
    python -m tallow.launch -n 2 -m benchmarks.distributed collectives --output build/benchmarks/collectives.md
    """  # noqa: D301 -- \b is the character that click reads
    from .collectives import report
    from .ranks import write

    write(report(backend, dtypes, most), output)


@main.command()
@_BACKEND
@click.option("--model", default="gpt2", show_default=True, help="The decoder: gpt2, example, small or tiny.")
@click.option("--batch", type=click.IntRange(1), default=32, show_default=True, help="Texts that all ranks share.")
@click.option("--length", type=click.IntRange(1), default=1024, show_default=True, help="Tokens of each.")
@click.option("--dtype", type=click.Choice(["bf16", "f16", "f32"]), default="bf16", show_default=True)
@click.option("--steps", type=click.IntRange(1), default=20, show_default=True, help="Steps until the last loss.")
@_OUTPUT
def step(backend: str, model: str, batch: int, length: int, dtype: str, steps: int, output: Path | None) -> None:
    """Time the training step of a decoder whose batch the ranks share.

    \b
    python -m tallow.launch -n 4 -m benchmarks.distributed step
    python -m tallow.launch -n 2 -m benchmarks.distributed step --backend cpu --model tiny --batch 4 --length 16
    """  # noqa: D301 -- \b is the character that click reads
    from .ranks import write
    from .step import report

    write(report(backend, model, batch, length, dtype, steps), output)


@main.command()
@click.argument("first", default="cuda:0")
@click.argument("second", default="cuda:1")
@click.option("--most", type=click.IntRange(1024), default=1 << 30, help="The largest size in bytes (1 GiB).")
@_OUTPUT
def copies(first: str, second: str, most: int, output: Path | None) -> None:
    """Time copies from one device to another, and in both directions at once, in one process.

    \b
    python -m benchmarks.distributed copies cuda:0 cuda:1
    """  # noqa: D301 -- \b is the character that click reads
    from .copies import report
    from .ranks import write

    write(report(first, second, most), output)


@main.command()
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--format", default="BF16", show_default=True, help="The format of the matrices, such as Q4K.")
@click.option("--layers", type=click.IntRange(1), default=32, show_default=True, help="How many layers.")
def write_model(path: Path, format: str, layers: int) -> None:
    """Write a llama of 8 billion random weights to a GGUF file.

    \b
    python -m benchmarks.distributed write-model /tmp/model.gguf --format Q4K
    """  # noqa: D301 -- \b is the character that click reads
    from .model import write_model

    write_model(path, format, layers)
    click.echo(f"{path}: {path.stat().st_size / 1e9:.1f} GB")


@main.command()
@click.argument("path", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@_BACKEND
@click.option(
    "--logits", type=click.Path(dir_okay=False, path_type=Path), help="Where one rank leaves its logits for more ranks."
)
def model(path: Path, backend: str, logits: Path | None) -> None:
    """Time prefill and decode of a model that ranks share, and compare their logits with one rank's.

    \b
    python -m tallow.launch -n 1 -m benchmarks.distributed model /tmp/model.gguf --logits /tmp/one.npy
    python -m tallow.launch -n 2 -m benchmarks.distributed model /tmp/model.gguf --logits /tmp/one.npy
    """  # noqa: D301 -- \b is the character that click reads
    from .model import report
    from .ranks import write

    write(report(path, backend, logits), None)


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.distributed")
