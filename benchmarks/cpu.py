"""How long ops take on the CPU beside PyTorch with the same number of threads, and beside NumPy, timed in the same run.

python -m benchmarks.cpu run --threads 1 --threads 2
python -m benchmarks.cpu render build/benchmarks/cpu.json docs
"""

from __future__ import annotations

import json
import platform
import statistics
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter, sleep
from typing import Any, NamedTuple

import click
import numpy as np
import tallow as tl
from rich.progress import track

_TURNS = 4
_TURN = 0.025
_PAUSE = 0.01
_FILE, _PAGE = "cpu.json", "cpu.md"
Call = Callable[[], Any]


class Case(NamedTuple):
    """The same on tallow, PyTorch and NumPy; None of one that has no such call."""

    name: str
    tallow: Call
    torch: Call | None
    numpy: Call | None


def cases(exponent: int, dtype: str) -> Iterator[Case]:
    """The ops on square matrices of 2**exponent elements, and on images of as many."""
    torch = __import__("torch") if find_spec("torch") else None
    side = 1 << exponent // 2
    generator = np.random.default_rng(0)
    arrays = [generator.standard_normal((side, side), np.float32) for _ in range(2)]
    a, b = arrays
    x, y = (tl.Tensor(array).to_dtype(tl.DType(dtype)) for array in arrays)
    kind = getattr(torch, {"f32": "float32", "bf16": "bfloat16"}[dtype], None)
    u, v = (torch.from_numpy(array).to(kind) for array in arrays) if torch else (None, None)
    rows = np.sort(generator.integers(0, side, side))
    at, ut = tl.Tensor(rows), torch.from_numpy(rows) if torch else None
    is_wide = dtype == "f32"

    def case(name: str, ours: Call, theirs: Call, numpy: Call | None = None) -> Case:
        return Case(name, ours, theirs if torch else None, numpy if is_wide else None)

    nn: Any = torch.nn.functional if torch else None
    yield case("add", lambda: x + y, lambda: u + v, lambda: a + b)
    yield case("add, one transposed", lambda: x + y.t(), lambda: u + v.t(), lambda: a + b.T)
    yield case("add a row", lambda: x + y[:1], lambda: u + v[:1], lambda: a + b[:1])
    yield case("affine", lambda: x.affine(2.0, 1.0), lambda: u * 2 + 1, lambda: a * np.float32(2) + np.float32(1))
    yield case("exp", lambda: x.exp(), lambda: u.exp(), lambda: np.exp(a))
    yield case("log of abs", lambda: x.abs().log(), lambda: u.abs().log(), lambda: np.log(np.abs(a)))
    yield case("sin", lambda: x.sin(), lambda: u.sin(), lambda: np.sin(a))
    yield case("tanh", lambda: x.tanh(), lambda: u.tanh(), lambda: np.tanh(a))
    yield case("gelu", lambda: x.gelu(), lambda: nn.gelu(u, approximate="tanh"))
    yield case("gelu_erf", lambda: x.gelu_erf(), lambda: nn.gelu(u))
    yield case("silu", lambda: x.silu(), lambda: nn.silu(u))
    yield case("lt", lambda: x.lt(y), lambda: u < v, lambda: a < b)
    mask, umask = x.lt(y), (u < v if torch else None)
    yield case("where", lambda: mask.where(x, y), lambda: torch.where(umask, u, v), lambda: np.where(a < b, a, b))
    yield case("cast to f16", lambda: x.to_dtype(tl.DType.F16), lambda: u.half(), lambda: a.astype(np.float16))
    yield case("sum", lambda: x.sum(), lambda: u.sum(), lambda: a.sum())
    yield case("sum of rows", lambda: x.sum(1), lambda: u.sum(1), lambda: a.sum(1))
    yield case("sum of columns", lambda: x.sum(0), lambda: u.sum(0), lambda: a.sum(0))
    yield case("max of rows", lambda: x.max(1), lambda: u.amax(1), lambda: a.max(1))
    yield case("argmax of rows", lambda: x.argmax(1), lambda: u.argmax(1), lambda: a.argmax(1))
    yield case("softmax", lambda: x.softmax(1), lambda: u.softmax(1))
    ones = tl.Tensor(np.ones(side, np.float32)).to_dtype(tl.DType(dtype))
    uones = torch.ones(side, dtype=kind) if torch else None
    yield case("layer_norm", lambda: x.layer_norm(ones, ones), lambda: nn.layer_norm(u, (side,), uones, uones))
    yield case("index_select", lambda: x.index_select(at, 0), lambda: u[ut], lambda: a[rows])
    yield case("index_add", lambda: x.index_add(at, y, 0), lambda: u.index_add(0, ut, v))
    places = generator.integers(0, side, (side, side))
    among, uamong = tl.Tensor(places), torch.from_numpy(places) if torch else None
    yield case(
        "gather", lambda: x.gather(among, 1), lambda: u.gather(1, uamong), lambda: np.take_along_axis(a, places, 1)
    )
    yield case("scatter_add", lambda: x.scatter_add(among, y, 1), lambda: u.scatter_add(1, uamong, v))
    yield case("copy of a transposed", lambda: x.t().contiguous(), lambda: u.t().contiguous(), lambda: a.T.copy())
    yield case("cat", lambda: tl.cat([x, y], 1), lambda: torch.cat([u, v], 1), lambda: np.concatenate([a, b], 1))
    if exponent >= 16:
        image = (side // 64, 16, 64, side // 16)
        p, q = x.reshape(image), u.reshape(image) if torch else None
        yield case("max_pool2d", lambda: p.max_pool2d(2), lambda: nn.max_pool2d(q, 2))
        yield case("avg_pool2d", lambda: p.avg_pool2d(2), lambda: nn.avg_pool2d(q, 2))
        wide = 128, side // 8
        yield case("upsample_nearest2d", lambda: p.upsample_nearest2d(*wide), lambda: nn.interpolate(q, wide))
        yield case(
            "upsample_bilinear2d",
            lambda: p.upsample_bilinear2d(*wide, False),
            lambda: nn.interpolate(q, wide, mode="bilinear"),
        )
        kernel = generator.standard_normal((16, 16, 3, 3), np.float32) / 12
        k = tl.Tensor(kernel).to_dtype(tl.DType(dtype))
        w = torch.from_numpy(kernel).to(kind) if torch else None
        yield case("conv2d", lambda: p.conv2d(k, padding=1), lambda: nn.conv2d(q, w, padding=1))
    if exponent <= 22:
        yield case("matmul", lambda: x @ y, lambda: u @ v, lambda: a @ b)
    if is_wide:
        yield case(
            "rand",
            lambda: tl.Tensor.rand((side, side)),
            lambda: torch.rand(side, side),
            lambda: generator.random((side, side), np.float32),
        )
        yield case(
            "randn",
            lambda: tl.Tensor.randn((side, side)),
            lambda: torch.randn(side, side),
            lambda: generator.standard_normal((side, side), np.float32),
        )


def time_in_turns(calls: Sequence[Call | None]) -> list[float | None]:
    """The median time of each call in seconds; they take turns of several calls, so that a busy machine slows all.

    In the pause before a turn the threads of another library, which wait for more work for a while, fall asleep.
    """
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(_TURNS):
        for taken, call in zip(times, calls, strict=True):
            if call is None:
                continue
            sleep(_PAUSE)
            call()
            end = perf_counter() + _TURN
            while not taken or perf_counter() < end:
                start = perf_counter()
                call()
                taken.append(perf_counter() - start)
    return [statistics.median(taken) if taken else None for taken in times]


def differs(case: Case) -> bool:
    """Whether tallow's result is another one than PyTorch's."""
    if case.torch is None or case.name.startswith("rand"):
        return False
    ours = case.tallow().to_dtype(tl.DType.F32).numpy()
    theirs = case.torch().float().numpy()
    return not np.allclose(ours, theirs, rtol=2e-2, atol=2e-2 * float(np.abs(theirs).max()))


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Time tallow on the CPU beside PyTorch and NumPy."""


@main.command()
@click.option("--threads", type=click.IntRange(1), multiple=True, default=(1, 2), show_default=True)
@click.option("--size", "exponents", type=click.IntRange(8, 28), multiple=True, default=(24, 16, 10), show_default=True)
@click.option("--only", multiple=True, help="Only the ops whose name begins so.")
@click.option("--output", type=click.Path(path_type=Path), default=Path("build/benchmarks"), show_default=True)
def run(threads: tuple[int, ...], exponents: tuple[int, ...], only: tuple[str, ...], output: Path) -> None:
    """Time the ops, and write what was measured to a file."""
    torch = __import__("torch") if find_spec("torch") else None
    rows = []
    wanted = [(count, dtype, exponent) for count in threads for dtype in ("f32", "bf16") for exponent in exponents]
    for count, dtype, exponent in track(wanted, description="timing"):
        tl.set_threads(count)
        if torch is not None:
            torch.set_num_threads(count)
        for case in cases(exponent, dtype):
            if only and not case.name.startswith(only):
                continue
            if exponent <= 16 and differs(case):
                raise click.ClickException(f"{case.name} of {dtype}, 2**{exponent}: the results differ")
            seconds = time_in_turns(case[1:])
            rows.append([count, dtype, exponent, case.name, *seconds])
    cpu: Any = tl.Device.cpu().inner
    machine = {
        "processor": _processor(),
        "cores": len(__import__("os").sched_getaffinity(0)),
        "versions": {
            "tallow": tl.__version__,
            "NumPy": np.__version__,
            "PyTorch": getattr(torch, "__version__", None),
            "oneDNN": None if cpu.onednn is None else version("onednn-cpu-gomp"),
        },
        "kernels": cpu.kernels is not None,
    }
    output.mkdir(parents=True, exist_ok=True)
    command = " ".join(["python -m benchmarks.cpu run", *(f"--threads {count}" for count in threads)])
    (output / _FILE).write_text(json.dumps({"command": command, "machine": machine, "rows": rows}), encoding="utf-8")
    click.echo(_page([output / _FILE]))


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


@main.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.argument("folder", type=click.Path(path_type=Path))
def render(files: tuple[Path, ...], folder: Path) -> None:
    """Write the page of FILES, each of one machine, to FOLDER."""
    (folder / _PAGE).write_text(_page(files), encoding="utf-8")


def _page(files: Sequence[Path]) -> str:
    lines = ["# Ops on the CPU", "", _ABOUT]
    for file in files:
        found = json.loads(file.read_text(encoding="utf-8"))
        machine, rows = found["machine"], found["rows"]
        versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items() if number)
        lines += [
            "",
            f"## {machine['processor']}, {machine['cores']} cores",
            "",
            f"`{found['command']}`: {versions}.",
            "",
        ]
        lines += [
            "| threads | dtype | elements | beside PyTorch | beside NumPy |",
            "| ---: | --- | ---: | ---: | ---: |",
        ]
        for key in dict.fromkeys((count, dtype, exponent) for count, dtype, exponent, *_ in rows):
            own = [row for row in rows if tuple(row[:3]) == key]
            means = [_mean([row[other] / row[4] for row in own if row[other]]) for other in (5, 6)]
            lines.append(f"| {key[0]} | {key[1]} | 2^{key[2]} | {means[0]} | {means[1]} |")
        columns = list(dict.fromkeys((count, dtype) for count, dtype, *_ in rows))
        for exponent in dict.fromkeys(row[2] for row in rows):
            lines += ["", f"2^{exponent} elements, us (PyTorch's time over tallow's, NumPy's over tallow's):", ""]
            lines.append("| op | " + " | ".join(f"{dtype}, {count} thr." for count, dtype in columns) + " |")
            lines.append("| --- |" + " ---: |" * len(columns))
            for name in dict.fromkeys(row[3] for row in rows if row[2] == exponent):
                cells = [
                    _cell(next((row for row in rows if row[:4] == [*column, exponent, name]), None))
                    for column in columns
                ]
                lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


_ABOUT = """Each op is timed beside PyTorch with the same number of threads, and in f32 beside NumPy where it has the op
in one or two calls: they take turns of several calls, with a pause before each, and the medians are compared. A factor
above 1 says that tallow is quicker. The ratios of the first table are geometric means. `make bench` measures this
machine; `python -m benchmarks.cpu render` makes the page.

What is behind PyTorch, and why:

- Without oneDNN, conv2d and products of bf16 multiply floats: instructions for pairs of bf16 do twice as many.
- scatter_add and index_add look at all indexes before they write, and add in their order.
- Sums of f32 are made of doubles, those of columns too, where NumPy adds floats.
- The table for 16 cores is older than the memory that large results take over from released ones, and than the present
  softmax, norms, max of rows, scatters, randn, argmax, sums, casts to f16 and calls on small tensors.
- Elementwise functions of 2^16 elements of bf16 compute as those of f32 do, and are converted in passes of their own.
- A call on 2^10 elements takes 0.7 us and more. Those of several steps in Python take longer than PyTorch's: joins,
  scatter_add, which copies first, and rand."""


def _mean(ratios: Sequence[float]) -> str:
    return f"{statistics.geometric_mean(ratios):.2f}" if ratios else ""


def _cell(row: list[Any] | None) -> str:
    if row is None:
        return ""
    ours, *others = row[4:]
    ratios = ", ".join(f"{other / ours:.2f}" for other in others if other is not None)
    time = f"{ours * 1e6:.{0 if ours >= 1e-5 else 1}f}"
    return f"{time} ({ratios})" if ratios else time


if __name__ == "__main__":
    main()
