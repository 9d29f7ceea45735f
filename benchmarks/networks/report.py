"""The page, in Markdown: a head, and a section for each machine."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.gpu.table import number
from benchmarks.markdown import fold, markdown, mean_text
from benchmarks.results import joined, milliseconds, missing

from .results import ONNX, Results, Row, Task

_ABOUT = """\
# Networks

Networks in tallow and PyTorch, in one run with the same weights, on each machine that was measured. A ratio is
PyTorch's time over tallow's: above 1 tallow is faster.
"""
METHOD_TITLE = "How it was measured"
_METHOD = """\
The [networks](../benchmarks/networks/networks.py) are ResNet-18 and MobileNetV3-large on images of 224 x 224, a U-Net
on 128 x 128, the detector and the recogniser of an OCR program on 320 x 320 and 32 x 320, and two layers of LSTM over
100 steps. Each is one function, which is called with the layers of either library. A training step is forward, backward
and a step of SGD with momentum.

Outputs, losses and the gradients of all parameters are compared with those that PyTorch computes in f64. What is off by
more than twice PyTorch's own error is not timed, and the run fails. TF32 is off. tallow adds floats in the same order
in each run, except "in any order", which is compared with PyTorch after cudnn.benchmark.

"Fused" computes what follows each convolution in one kernel of `tl.fuse`. On a GPU it is channels last in bf16, where
depthwise convolutions, and others of more than 64 pixels before a ReLU or nothing, take an inference batch norm, the
residual and the activation as their epilogue (`x.conv2d(w, scale=...)`); the scale and the bias of each batch norm are
computed once, when the weights are loaded. The variants take turns, and a time is the median of the turns. On the CPU
the time of all threads together is in parentheses, the least of the turns, which other work on a machine disturbs less.

`python -m benchmarks.networks run all` measures the machine at hand, `python -m benchmarks.networks render` writes this
page, and `python -m benchmarks.networks profile NAME` shows where a network spends its time.
"""


def page(sections: Mapping[str, str]) -> str:
    """The page with these sections, by their titles."""
    bodies = [f"## {title}\n\n{text}" for title, text in sections.items()]
    return joined([_ABOUT, *bodies, f"## {METHOD_TITLE}", _METHOD])


def section(results: Results) -> str:
    """The text of a machine's section."""
    failures = [f"**{row.task}, {row.variant} failed**: {row.reason}" for row in results.failures]
    environment = fold("Versions", markdown(["what", "value"], results.environment.items()))
    absent = [part.replace("## ", "### ") for part in missing(results.rows)]
    return "\n\n".join([*failures, _means(results), _table(results), *absent, environment])


def _tasks(results: Results) -> list[Task]:
    return list(dict.fromkeys(row.task for row in results.rows))


def _ratios(results: Results, task: Task) -> list[tuple[str, float | None]]:
    """Of each pair of variants, and of onnxruntime on the CPU."""
    pairs = list(results.peers.items())
    if task.threads is not None:
        pairs.append((pairs[0][0], ONNX))
    rows = [(results.find(task, variant), variant, peer) for variant, peer in pairs]
    return [(peer if peer == ONNX else variant, row and results.ratio(row, peer)) for row, variant, peer in rows]


def _means(results: Results) -> str:
    groups = list(dict.fromkeys((task.phase, task.dtype, task.threads) for task in _tasks(results)))
    body = []
    for group in groups:
        tasks = [task for task in _tasks(results) if (task.phase, task.dtype, task.threads) == group]
        columns = zip(*[_ratios(results, task) for task in tasks], strict=True)
        means = [mean_text(ratio for _, ratio in column) for column in columns]
        body.append([*_cells(group), *means])
    return markdown(["phase", "dtype", *_threads_head(results), *_names(results)], body)


def _table(results: Results) -> str:
    variants = list(dict.fromkeys(row.variant for row in results.rows))
    head = ["network", "phase", "batch", "dtype", *_threads_head(results)]
    ratios = [[*_cells(task), *_texts(results, task)] for task in _tasks(results)]
    times = [[*_cells(task), *[_time(results.find(task, variant)) for variant in variants]] for task in _tasks(results)]
    parts = markdown([*head, *_names(results)], ratios), fold("Times in ms", markdown([*head, *variants], times))
    return "\n\n".join(parts)


def _time(row: Row | None) -> str:
    if row is None or row.wall_seconds is None:
        return "–"
    wall = milliseconds(row.wall_seconds, 3)
    return wall if row.threads is None else f"{wall} ({milliseconds(row.processor_seconds, 3)})"


def _texts(results: Results, task: Task) -> list[str]:
    return [number(ratio, 2) for _, ratio in _ratios(results, task)]


def _names(results: Results) -> list[str]:
    return [name if name == ONNX else name.removeprefix("tallow, ") for name, _ in _ratios(results, _tasks(results)[0])]


def _threads_head(results: Results) -> list[str]:
    return ["threads"] if any(row.threads is not None for row in results.rows) else []


def _cells(key: tuple[object, ...]) -> list[str]:
    return [str(part) for part in key if part is not None]


def line(row: Row, results: Results) -> str:
    """A row in the terminal: milliseconds of the clock and of all threads, PyTorch's times over both, and the error."""
    name = f"{row.task!s:<55} {row.variant:<42}"
    if row.reason:
        return f"{name} {'FAILED ' * row.failed} {row.reason}"
    peer = results.peers.get(row.variant, "")
    times = row.wall_seconds, row.processor_seconds
    cells = [
        f"{milliseconds(seconds, 3):>10} {number(results.ratio(row, peer, of_processor=of_processor), 2):>5}"
        for seconds, of_processor in zip(times, (False, True), strict=True)
    ]
    return f"{name} {' '.join(cells)} {'' if row.error is None else f'{row.error:9.1e}'}"


HEAD = f"{'task':<55} {'variant':<42} {'wall, ms':>10} {'ratio':>5} {'processor':>10} {'ratio':>5} {'error':>9}"
