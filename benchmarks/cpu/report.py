"""The page, in Markdown: a head, and a section for each machine."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from ..gpu.table import number
from ..markdown import fold, markdown, mean_text
from .results import CALLS, Results, Row

# Below it an op is named as slow beside a peer at the largest size.
SLOW_RATIO = 0.97

_ABOUT = """\
# Ops on the CPU

Every op beside PyTorch with as many threads, and in f32 beside NumPy, on each machine that was measured. A ratio above
1 means that tallow is faster. The tables of a machine begin with the geometric means of the ratios.
"""
_METHOD = """\
Each op runs in tallow and in PyTorch with the same number of threads. In f32 it also runs in NumPy, if NumPy has the
op in one or two calls. NumPy's BLAS has as many threads. The libraries take turns of several calls, with a pause before
each turn. The figures are the medians of these calls.

The operands are square matrices, or images of as many elements. At 2^24 elements a matrix is multiplied by 256 columns
only, because a square product takes seconds. Results of 2^16 elements and fewer are compared before they are timed, and
the run stops where tallow's differ from those of another library. Calls of programs and networks, with
`python -m benchmarks.cpu run --calls`, have operands of other shapes; on one thread, processor time is measured.

`make bench` measures the machine at hand. `python -m benchmarks.cpu render` writes this page. It replaces the sections
of the machines in the files, and leaves the others unchanged.
"""
_CAUSES = """\
Some ops are slower than those of PyTorch or NumPy, for these reasons:

- Without oneDNN, large products of f32 are those of NumPy's BLAS. MKL, which PyTorch uses, is up to a fifth faster on
  Intel's processors.
- Products and attention of bf16 of more than 8 rows, or 4 queries, convolutions of more than 8 channels of results,
  and LSTMs and GRUs of 8 steps and more use AMX where the processor has it, which takes numbers below 2^-126 for zero,
  as oneDNN's products of more than 8 rows may. To pack both sides into tiles takes half the time, on one thread, of a
  product of 256 rows, columns and terms. The gradients of conv2d in bf16, and all of these on other processors, are
  products of floats. oneDNN computes products, convolutions and their gradients instead, but not attention.
- sort and topk also return positions, and NumPy's sort does not.
- scatter_add and index_add check all indexes before they write. They add in the order of the indexes.
- Sums and products of f32 accumulate doubles, also in the sums of columns, where NumPy adds floats. An AMD EPYC
  converts four floats in a cycle: for 2^16 of them that takes longer than PyTorch's whole sum of floats. On a Xeon with
  AVX-512 a loop that converts and adds 2^16 floats takes 4.4 to 4.7 us, from the nearest cache too: the sum of
  4 x 32 x 16 x 32 over dims 1 and 2 takes 7.2 us with what a call costs, and PyTorch's 5.6.
- On one thread of the AMD EPYC, pow, adding in place and argmax take up to a fifth more time than NumPy's. The latter
  two wait for memory.
- `powf` computes any exponent alike, and PyTorch multiplies for 2.
- log_softmax and cross_entropy take the logarithm of a double for each row.
- On Intel's processors PyTorch has exp, log and tanh of f32 from MKL, which takes less time for 2^16 elements on one
  thread. gelu_erf is within 4 units in the last place far below 0 too, where PyTorch's 1 + erf(x) has lost its digits.
- Elementwise functions of 2^16 elements of bf16 compute as those of f32 do. The conversions take passes of their own.
- A call on 2^10 elements takes 0.7 us or more. full, sort and topk are two calls.
"""
_SECTION = "\n## "


def page(sections: Mapping[str, str]) -> str:
    """The page with these sections, by their titles."""
    parts = [
        _ABOUT,
        fold("How it was measured", _METHOD.strip()),
        fold("Why some ops are slower", _CAUSES.strip()),
        *(f"## {title}\n\n{text}" for title, text in sections.items()),
    ]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def sections_of(text: str) -> dict[str, str]:
    """The sections of a page, by their titles."""
    sections = (section.partition("\n") for section in text.split(_SECTION)[1:])
    return {title: body.strip("\n") for title, _, body in sections}


def section(results: Results, families_plot: str | None = None, plot: str | None = None) -> str:
    """The text of a machine's section; the plots are the names of those of the families and of every op."""
    versions = ", ".join(f"{name} {number}" for name, number in results.machine.versions.items() if number)
    without = "" if results.machine.kernels else " tallow had no compiled kernels and used NumPy."
    head = f"`{results.command}`: {versions}.{without}"
    parts = [head, *(_sizes(results, families_plot, plot) if results.exponents else [])]
    if any(row.exponent == CALLS for row in results.rows):
        peers = "PyTorch's time over tallow's; of matrices and Fourier transforms, NumPy's"
        parts += [f"Calls of programs and networks, us ({peers}):", _times(results, CALLS)]
    return "\n\n".join(parts)


def _sizes(results: Results, families_plot: str | None, plot: str | None) -> list[str]:
    """The parts on ops by their sizes."""
    parts = []
    largest = max(results.exponents)
    rows = [row for row in results.rows if row.exponent == largest]
    if len({row.family for row in rows}) > 1:
        parts += [f"By family at 2^{largest} elements, how many times as fast as the peer:", _by_family(rows)]
    counts = _listed(str(count) for count in dict.fromkeys(row.threads for row in results.rows))
    if families_plot:
        alternative = f"Speed relative to PyTorch at 2^{largest} elements, by family and dtype, with {counts} threads"
        parts.append(f"![{alternative}]({families_plot})")
    parts += ["By number of threads, dtype and size:", _means(results)]
    slow = sorted((row for row in rows if _least(row) < SLOW_RATIO), key=_least)
    title = f"Below {SLOW_RATIO} of a peer at 2^{largest} elements"
    parts.append(fold(f"{title}: {len(slow)} rows", _slow(slow)) if slow else f"{title} is no op.")
    if plot:
        alternative = f"Speed relative to PyTorch at 2^{largest} elements, by op and dtype, with {counts} threads"
        parts.append(fold("Every op in one plot", f"![{alternative}]({plot})"))
    for exponent in results.exponents:
        title = f"2^{exponent} elements, us (PyTorch's time over tallow's, NumPy's over tallow's):"
        parts.append(fold(f"Every op with 2^{exponent} elements", title, _times(results, exponent)))
    return parts


def _by_family(rows: Sequence[Row]) -> str:
    threads = list(dict.fromkeys(row.threads for row in rows))
    peers = {"PyTorch": lambda row: row.to_torch, "NumPy": lambda row: row.to_numpy}
    head = ["family", *(f"{peer}, {count} thr." for peer in peers for count in threads)]
    body = []
    for family in dict.fromkeys(row.family for row in rows):
        own = [row for row in rows if row.family == family]
        means = [
            mean_text(ratio(row) for row in own if row.threads == count)
            for ratio in peers.values()
            for count in threads
        ]
        body.append([family, *means])
    return markdown(head, body)


def _slow(rows: Iterable[Row]) -> str:
    head = ["op", "dtype", "threads", "of PyTorch", "of NumPy", "tallow, us"]
    return markdown(
        head,
        [
            [row.op, row.dtype, str(row.threads), number(row.to_torch, 2), number(row.to_numpy, 2), _micros(row)]
            for row in rows
        ],
    )


def _least(row: Row) -> float:
    return min((ratio for ratio in (row.to_torch, row.to_numpy) if ratio), default=math.inf)


def _means(results: Results) -> str:
    head = ["threads", "dtype", "elements", "beside PyTorch", "beside NumPy"]
    body = []
    for key in dict.fromkeys(row[:3] for row in results.rows if row.exponent != CALLS):
        rows = [row for row in results.rows if row[:3] == key]
        threads, dtype, exponent = key
        means = mean_text(row.to_torch for row in rows), mean_text(row.to_numpy for row in rows)
        body.append([str(threads), dtype, f"2^{exponent}", *means])
    return markdown(head, body)


def _times(results: Results, exponent: int) -> str:
    by_case = {row[:4]: row for row in results.rows}
    columns = list(dict.fromkeys((row.threads, row.dtype) for row in results.rows))
    lines = [
        "| op | " + " | ".join(f"{dtype}, {threads} thr." for threads, dtype in columns) + " |",
        "| --- |" + " ---: |" * len(columns),
    ]
    for op in results.ops(exponent):
        cells = [_cell(by_case.get((threads, dtype, exponent, op))) for threads, dtype in columns]
        lines.append(f"| {op} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(row: Row | None) -> str:
    if row is None:
        return ""
    ratios = ", ".join(f"{ratio:.2f}" for ratio in (row.to_torch, row.to_numpy) if ratio)
    return f"{_micros(row)} ({ratios})" if ratios else _micros(row)


def _micros(row: Row) -> str:
    return f"{row.tallow * 1e6:.{0 if row.tallow >= 1e-5 else 1}f}"


def _listed(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
