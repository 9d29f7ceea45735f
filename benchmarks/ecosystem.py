"""How long SciPy, scikit-learn and einops take on tensors, beside CuPy's arrays, or on the CPU beside NumPy's."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

# SciPy reads it when it is imported.
os.environ["SCIPY_ARRAY_API"] = "1"

import click
import einops
import einops.array_api
import numpy as np
import tallow as tl
from scipy import special, stats
from sklearn import config_context, metrics
from sklearn.decomposition import PCA
from sklearn.linear_model import Ridge
from sklearn.metrics import pairwise
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from benchmarks.arrays import time_both

HEADING = "\n## Times\n"


def of(x: object) -> ModuleType:
    """The functions of einops for x: CuPy's arrays have no namespace, and einops knows CuPy by name."""
    return einops.array_api if hasattr(x, "__array_namespace__") else einops


def cases(scale: float) -> Iterator[tuple[str, list[np.ndarray], Callable[..., object]]]:
    """The name of a call, its arrays, and the call."""
    generator = np.random.default_rng(0)

    def normal(rows: int, columns: int) -> np.ndarray:
        return generator.standard_normal((max(int(rows * scale), 128), columns), np.float32)

    tall, wide, square = normal(1 << 20, 64), normal(1 << 14, 4096), normal(1 << 13, 256)
    images = generator.standard_normal((max(int(64 * scale), 1), 64, 128, 128), np.float32)
    target = tall @ generator.standard_normal(64, np.float32)
    yield "zscore", [tall], stats.zscore
    yield "skew", [tall], stats.skew
    yield "logsumexp", [wide], lambda x: special.logsumexp(x, axis=1)
    yield "softmax", [wide], lambda x: special.softmax(x, axis=1)
    yield "StandardScaler", [tall], lambda x: StandardScaler().fit_transform(x)
    yield "PolynomialFeatures", [square], lambda x: PolynomialFeatures(2).fit_transform(x[:, :64])
    yield "PCA, covariance_eigh", [tall], lambda x: PCA(8, svd_solver="covariance_eigh").fit_transform(x)
    yield "PCA, full", [square], lambda x: PCA(8, svd_solver="full").fit_transform(x)
    yield "Ridge, svd", [square, target[: len(square)]], lambda x, y: Ridge(solver="svd").fit(x, y).predict(x)
    yield "euclidean_distances", [square, square], pairwise.euclidean_distances
    yield "rbf_kernel", [square, square], pairwise.rbf_kernel
    yield "cosine_similarity", [square, square], pairwise.cosine_similarity
    yield "mean_squared_error", [target, target[::-1].copy()], metrics.mean_squared_error
    yield "rearrange", [images], lambda x: of(x).rearrange(x, "b c (h i) (w j) -> b (c i j) h w", i=2, j=2)
    yield "reduce", [images], lambda x: of(x).reduce(x, "b c (h 2) (w 2) -> b c h w", "mean")


def beside(device: tl.Device) -> tuple[str, Callable[[np.ndarray], Any], Callable[[], object]]:
    """The library beside which a device is timed: its name, what makes its arrays, and what waits for it."""
    if device.backend == "cpu":
        return f"NumPy {np.__version__}", np.asarray, lambda: None
    import cupy

    return f"CuPy {cupy.__version__}", cupy.asarray, cupy.cuda.Device().synchronize


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Time SciPy, scikit-learn and einops on tensors, beside the same calls on arrays of CuPy, on the CPU of NumPy.

    \b
    python -m benchmarks.ecosystem run --device cuda --output build/benchmarks/ecosystem.md
    python -m benchmarks.ecosystem render build/benchmarks/ecosystem.md docs/ecosystem.md
    """  # noqa: D301 -- \b is the character that click reads


@main.command()
@click.option("--device", "label", default="cuda", show_default=True, help="The device, as tallow labels it.")
@click.option("--scale", default=1.0, show_default=True, help="What the numbers of rows are multiplied by.")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="The file for the tables; else stdout.")
def run(label: str, scale: float, output: Path | None) -> None:
    """Time the calls in turns: the median time of each, with the wait for the device.

    \b
    python -m benchmarks.ecosystem run --device cpu --scale 0.01
    """  # noqa: D301
    device = tl.Device.parse(label)
    library, array_of, wait = beside(device)
    facts = {
        "command": " ".join(["python -m benchmarks.ecosystem", *sys.argv[1:]]),
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "device": device.inner.driver.name if hasattr(device.inner, "driver") else device.label,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "packages": ", ".join(f"{name} {version(name)}" for name in ("scipy", "scikit-learn", "einops")),
        "tallow": tl.__version__,
    }
    lines = ["|  |  |", "| --- | --- |", *(f"| {key} | {value} |" for key, value in facts.items()), ""]
    lines += [
        f"| call, in f32 | elements | tallow, ms | {library}, ms | ratio |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    with config_context(array_api_dispatch=True):
        for name, arrays, call in cases(scale):
            tensors = [tl.from_numpy(array, device) for array in arrays]
            others = [array_of(array) for array in arrays]
            ours, theirs = time_both(
                lambda call=call, tensors=tensors: (call(*tensors), device.synchronize()),
                lambda call=call, others=others: (call(*others), wait()),
            )
            lines.append(f"| {name} | {arrays[0].size} | {ours * 1e3:.3f} | {theirs * 1e3:.3f} | {ours / theirs:.2f} |")
            click.echo(lines[-1], err=output is None)
            # At once: a run that is stopped keeps what it has measured.
            if output is not None:
                output.parent.mkdir(parents=True, exist_ok=True)
                output.write_text("\n".join(lines) + "\n", encoding="utf-8")
    if output is None:
        click.echo("\n".join(lines))


@main.command()
@click.argument("tables", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("page", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def render(tables: Path, page: Path) -> None:
    """Put the tables at the end of a page, replacing those of an earlier run.

    \b
    python -m benchmarks.ecosystem render build/benchmarks/ecosystem.md docs/ecosystem.md
    """  # noqa: D301
    text = page.read_text(encoding="utf-8").partition(HEADING)[0]
    note = (
        "Both libraries take turns in one run; the times are medians, with the wait for the device. A ratio below 1\n"
        "means that tallow is faster.\n"
    )
    page.write_text("\n".join([text + HEADING, note, tables.read_text(encoding="utf-8")]), encoding="utf-8")


if __name__ == "__main__":
    main()
