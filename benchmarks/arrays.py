"""Time backends on array libraries and the libraries themselves in the same run."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import numpy as np
import tallow as tl

from .markdown import fold, markdown
from .results import joined, write_page

SECONDS_PER_CASE = 1.0
SMALL, LARGE = 1 << 10, 1 << 24

HEAD = """# Backends on array libraries

The time of a call of tallow, and of the same call of the library that does its work, in f32. Both take turns in one
run, which waits for each call; the times are medians. A small call is nearly all overhead: tallow's, the library's, and
that of the wait. All figures on this page come from the commands below the tables, and

    python -m benchmarks.arrays render build/benchmarks/arrays docs

renders the page. metal is measured on MLX's CPU device, since nothing was run on Apple hardware; it
multiplies the large matrices once, because that takes minutes. The others are backends of one YAML file each, such as
that of [PyTorch](../tests/backends/torch.yaml)."""


def time_both(ours: Callable[[], object], library: Callable[[], object]) -> tuple[float, float]:
    """The median time of each in seconds; they take turns, so that a busy machine slows both."""
    times: tuple[list[float], list[float]] = [], []
    # Kernels may be compiled when they are first called.
    ours(), library()
    end = perf_counter() + SECONDS_PER_CASE
    # MLX's product on a CPU takes minutes.
    while perf_counter() < end or not times[0]:
        for taken, call in zip(times, (ours, library), strict=True):
            start = perf_counter()
            call()
            taken.append(perf_counter() - start)
    return statistics.median(times[0]), statistics.median(times[1])


def cases(device: tl.Device) -> Iterator[tuple[str, int, Callable[[], tl.Tensor], Callable[[], object]]]:
    """The name, the elements, the call of tallow and that of the library; each result is waited for."""
    words = device.inner.library
    generator = np.random.default_rng(0)

    def waited(make: Callable[[], object]) -> Callable[[], object]:
        def call() -> object:
            result = make()
            if words.start is not None:
                words.start(result)
            if words.synchronize is not None:
                words.synchronize(device.inner.handle)
            return result

        return call

    def synchronized(make: Callable[[], tl.Tensor]) -> Callable[[], tl.Tensor]:
        def call() -> tl.Tensor:
            result = make()
            device.synchronize()
            return result

        return call

    for count in (SMALL, LARGE):
        side = int(count**0.5)
        x, y = (tl.Tensor(generator.standard_normal((side, side), np.float32), device=device) for _ in range(2))
        a, b = (words.reshape(each.storage.inner.data, (side, side)) for each in (x, y))
        yield "add", count, synchronized(lambda x=x, y=y: x + y), waited(lambda a=a, b=b: a + b)
        yield "exp", count, synchronized(lambda x=x: x.exp()), waited(lambda a=a: words.xp.exp(a))
        yield "sum", count, synchronized(lambda x=x: x.sum()), waited(lambda a=a: words.xp.sum(a))
        yield "matmul", count, synchronized(lambda x=x, y=y: x @ y), waited(lambda a=a, b=b: words.xp.matmul(a, b))


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Compare backends on array libraries with the libraries themselves, in f32.

    \b
    python -m benchmarks.arrays run --device metal --output build/benchmarks/arrays
    python -m benchmarks.arrays render build/benchmarks/arrays docs
    """  # noqa: D301 -- \b is the character that click reads


@main.command()
@click.option("--device", "label", default="metal", show_default=True, help="The device, as tallow labels it.")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder for the results as JSON; else stdout.",
)
def run(label: str, output: Path | None) -> None:
    """Time the backend of a device and its library, in turns.

    \b
    TALLOW_METAL_CPU=1 python -m benchmarks.arrays run --device metal --output build/benchmarks/arrays
    python -m benchmarks.arrays run --device torch:0
    """  # noqa: D301
    device = tl.Device.parse(label)
    module = device.inner.library.xp
    results = {
        "command": " ".join(["python -m benchmarks.arrays", *sys.argv[1:]]),
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "device": f"{device.inner!r}",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "library": f"{module.__name__} {module.__version__}",
        "Python": platform.python_version(),
        "tallow": tl.__version__,
        "rows": [(name, count, *time_both(ours, library)) for name, count, ours, library in cases(device)],
    }
    text = json.dumps(results, indent=1)
    if output is None:
        click.echo(text)
    else:
        output.mkdir(parents=True, exist_ok=True)
        (output / f"{device.backend}.json").write_text(text + "\n", encoding="utf-8")
        click.echo(table(results))


@main.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("output", type=click.Path(file_okay=False, path_type=Path))
def render(folder: Path, output: Path) -> None:
    """Write the page of all results in a folder.

    \b
    python -m benchmarks.arrays render build/benchmarks/arrays docs
    """  # noqa: D301
    files = sorted(folder.glob("*.json"))
    write_page(output / "arrays.md", page({file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files}))


def page(runs: Mapping[str, dict[str, Any]]) -> str:
    """The page of runs, by the names of their backends."""
    parts = [HEAD]
    for name, results in runs.items():
        facts = {key: value for key, value in results.items() if key != "rows"}
        parts += [f"## {name}", table(results), fold("Command and versions", markdown(["", ""], facts.items()))]
    return joined(parts)


def table(results: dict[str, Any]) -> str:
    """The table of a run."""
    return markdown(
        ["op", "elements", "tallow, us", "the library, us", "ratio"],
        [
            [name, str(count), f"{ours * 1e6:.1f}", f"{library * 1e6:.1f}", f"{ours / library:.2f}"]
            for name, count, ours, library in results["rows"]
        ],
    )


if __name__ == "__main__":
    main()
