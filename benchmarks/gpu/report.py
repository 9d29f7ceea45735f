"""The page of the documentation, written from the results alone: no figure in it is written by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median

from ..markdown import fold, markdown, mean_text
from .causes import CAUSES
from .results import COMPILED, LIBRARIES, PEERS, Loading, Results, Row, Start, bytes_text, size_text
from .table import figure, micros, number

# Below these an op is named as slow: beside a peer, the same at the largest size, where memory leaves less to chance,
# and beside a copy of as many elements.
SLOW_RATIO = 0.9
SLOW_LARGE_RATIO = 0.97
SLOW_SHARE = 0.8

_INTRODUCTION = """\
# Benchmarks on a GPU

Every family of ops beside PyTorch and CuPy, on the same data, in the same stream, in one run on {gpu}. A ratio above 1
means that tallow is faster.
"""

_METHOD = """\
All figures on this page and in the plots come from this command; `make bench-gpu` runs it again:

{command}

- A time is the median of several rounds, measured with events on the device; the libraries take turns. The result's
  allocation belongs to the call, and each library has a caching allocator.
- GB/s count what an op must read and write by definition, each element once, whatever the implementation does. matmul,
  conv2d and attention of all tokens, of which causality leaves half, are in TFLOP/s.
- "Ceiling" is the share of the copy ceiling: the fastest copy of as many elements within the device.
- f32 is full f32 in all libraries, never TF32. Indexes are i64.
- "Own kernels" are tallow's kernels for attention and matmul, which otherwise are cuDNN's and cuBLAS's; PyTorch uses
  its flash attention and cuBLAS there.
- PyTorch's conv2d runs as it does by default, with torch.backends.cudnn.benchmark off.
- PyTorch's scatter_add and index_add add with atomics, so their sums may differ from run to run; tallow's have the same
  bits on every run.
- A result is compared with PyTorch's, in f64 where rounding differs, before it is timed. Wrong results are not timed,
  and are listed at the top.
"""


def page(results: Results, plot: str, families_plot: str) -> str:
    """The page, in Markdown; the names are those of the plots beside it, of every op and of the families."""
    sizes = sorted({row.elements for row in results.rows}, reverse=True)
    parts = [
        _INTRODUCTION.format(gpu=results.environment.get("GPU", "a GPU")),
        *_failures(results),
        "## Summary",
        *_summary(results, sizes),
        f"![Geometric means of each family: share of the copy ceiling and speed relative to PyTorch]({families_plot})",
        "## What is slow",
        *_slow(results, sizes),
        "## How it was measured",
        _METHOD.format(command=f"    {results.environment.get('command', '')}"),
        markdown(["", ""], results.environment.items()),
        "## The copy ceiling",
        _ceilings(results),
        "## Every op in one plot",
        fold(
            "The share of the copy ceiling and the speed relative to PyTorch, by op and dtype",
            f"![Share of the copy ceiling and speed relative to PyTorch, by op and dtype]({plot})",
        ),
    ]
    for elements in sizes:
        rows = [row for row in results.rows if row.elements == elements and not row.failure]
        parts.append(f"## {size_text(elements)} elements")
        # Only operands that are larger than any cache say how well memory is used.
        if elements == sizes[0]:
            parts += [_rates(results, family, own) for family, own in _by_family(rows)]
        else:
            parts.append("Microseconds on the device; operands of this size stay in its cache.")
            parts += [_times(family, own) for family, own in _by_family(rows)]
    parts += _compiled([row for row in results.rows if COMPILED in row.libraries and not row.failure])
    parts += _host([row for row in results.rows if row.libraries["tallow"].host_seconds is not None])
    parts += _starts(results.starts)
    parts += _launches(results.launches)
    parts += _loading(results.loading)
    parts += _reasons(results)
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _by_family(rows: Iterable[Row]) -> list[tuple[str, list[Row]]]:
    """The rows of each family, in the order of the first ones."""
    families: dict[str, list[Row]] = {}
    for row in rows:
        families.setdefault(row.family, []).append(row)
    return [*families.items()]


def _summary(results: Results, sizes: Sequence[int]) -> list[str]:
    """The geometric means of each family beside each peer, by size."""
    rows = [row for row in results.rows if not row.failure]

    def means(own: Sequence[Row]) -> list[str]:
        return [
            mean_text(row.ratio(peer) for row in own if row.elements == elements)
            for peer in PEERS
            for elements in sizes
        ]

    head = ["family", "ops", *(f"{title}, {size_text(elements)}" for title in PEERS.values() for elements in sizes)]
    body = [[family, str(len({row.op for row in own})), *means(own)] for family, own in _by_family(rows)]
    body.append(["**all**", str(len({row.op for row in rows})), *means(rows)])
    text = (
        "How many times as fast as each peer tallow is on the device: geometric means over the ops and dtypes of a"
        " family, by the number of elements."
    )
    return [text, markdown(head, body)]


def _family_title(family: str, rows: Sequence[Row]) -> str:
    """Return the summary of a fold of the rows of a family."""
    peers = ((title, [row.ratio(peer) for row in rows]) for peer, title in PEERS.items())
    means = [f"{mean_text(ratios)} times {title}'s speed" for title, ratios in peers if any(ratios)]
    return f"{family}: {', '.join([_counted(rows), *means])}"


def summary(results: Results) -> list[str]:
    """Return the end of a report in a terminal: the ceiling, the slow ops and the failures."""
    lines = [""]
    for nbytes, rates in results.ceilings.items():
        copies = ", ".join(f"{name} {figure(rate)} GB/s" for name, rate in rates.items())
        lines.append(f"copy of {bytes_text(nbytes)}: {copies}")
    slow = _slow_rows(results.rows)
    lines.append(f"{len(slow)} of {len(results.rows)} rows below {SLOW_RATIO} of a peer")
    lines += [f"  {_name(row)}: {_ratios(row)}" for row in slow]
    lines += [f"FAILED {_name(row)}: {row.failure}" for row in results.failures]
    return lines


def _failures(results: Results) -> list[str]:
    if not results.failures:
        return []
    rows = [[row.op, row.dtype, row.size, _cell(row.failure)] for row in results.failures]
    return [f"## **{len(rows)} FAILED**", markdown(["op", "dtype", "size", "what is wrong"], rows)]


def _ceilings(results: Results) -> str:
    names = list(dict.fromkeys(name for rates in results.ceilings.values() for name in rates))
    rows = [
        [bytes_text(nbytes), *(figure(rates.get(name)) for name in names)]
        for nbytes, rates in sorted(results.ceilings.items(), reverse=True)
    ]
    return markdown(["bytes copied", *(f"{name}, GB/s" for name in names)], rows)


def _slow(results: Results, sizes: Sequence[int]) -> list[str]:
    head = ["op", "dtype", *(f"of {title}" for title in PEERS.values()), *_titles("us")]
    parts = []
    for elements in sizes:
        is_largest = elements == sizes[0]
        least = SLOW_LARGE_RATIO if is_largest else SLOW_RATIO
        slow = _slow_rows((row for row in results.rows if row.elements == elements), least)
        rows = [[row.op, row.dtype, *_both(row.ratio), *_device(row, *LIBRARIES)] for row in slow]
        title = f"Below {least} of a peer at {size_text(elements)} elements"
        if not rows:
            parts.append(f"At {size_text(elements)} elements no op is below {least} of a peer.")
        elif is_largest:
            parts += [f"{title}:", markdown(head, rows)]
        else:
            parts.append(fold(f"{title}: {_counted(rows)}", markdown(head, rows)))
    parts += _below_ceiling(results, sizes)
    slow_host = sorted((row for row in results.rows if _least(row.host_ratio) < SLOW_RATIO), key=_min_host)
    if slow_host:
        rows = [[row.op, row.dtype, *_both(row.host_ratio), *_on_host(row)] for row in slow_host]
        title = f"Below {SLOW_RATIO} of a peer on the host, in small calls: {_counted(rows)}"
        parts.append(fold(title, markdown(head, rows)))
    if slow_host or _slow_rows(results.rows):
        parts.append(fold("What keeps them slow, and what was tried", CAUSES))
    return parts


def _counted(rows: Sequence[object]) -> str:
    return f"{len(rows)} row{'s' * (len(rows) != 1)}"


def _below_ceiling(results: Results, sizes: Sequence[int]) -> list[str]:
    if not sizes:
        return []
    shares = [(results.share(row), row) for row in results.rows if row.elements == sizes[0]]
    slow = sorted(((share, row) for share, row in shares if share is not None and share < SLOW_SHARE), key=_first)
    if not slow:
        return [f"At {size_text(sizes[0])} elements no op is below {SLOW_SHARE} of the copy ceiling."]
    rows = [
        [row.op, row.dtype, number(share, 2), *(number(results.share(row, peer), 2) for peer in PEERS)]
        for share, row in slow
    ]
    title = f"Below {SLOW_SHARE} of the copy ceiling at {size_text(sizes[0])} elements: {_counted(rows)}"
    return [fold(title, markdown(["op", "dtype", *LIBRARIES.values()], rows))]


def _rates(results: Results, family: str, rows: Sequence[Row]) -> str:
    head = ["op", "dtype", "shape", "tallow", "ceiling", "PyTorch", "ratio", "CuPy", "ratio"]
    parts = []
    for unit, title in (("GB/s", "In GB/s:"), ("TFLOP/s", "In TFLOP/s:")):
        body = []
        for row in rows:
            if row.unit == unit:
                peers = [text for peer in PEERS for text in (figure(row.rate(peer)), number(row.ratio(peer), 2))]
                share = number(results.share(row), 2)
                body.append([row.op, row.dtype, row.shape, figure(row.rate("tallow")), share, *peers])
        if body:
            parts += [title, markdown(head, body)]
    return fold(_family_title(family, rows), *parts)


def _compiled(rows: Sequence[Row]) -> list[str]:
    """The rows beside PyTorch's two variants, the slowest first."""
    if not rows:
        return []

    def least(row: Row) -> float:
        return min(ratio for variant in ("torch", COMPILED) if (ratio := row.ratio(variant)) is not None)

    head = ["op", "dtype", "tallow", "PyTorch", COMPILED, "ratio to the faster"]
    body = [
        [row.op, row.dtype, *(figure(row.rate(name)) for name in ("tallow", "torch", COMPILED)), number(least(row), 2)]
        for row in sorted(rows, key=least)
    ]
    return [
        f"## Beside {COMPILED}",
        f"In GB/s at {rows[0].size} elements. What is compiled is one call, for its shapes alone. Beside the faster of"
        f" the two, the geometric mean is {mean_text(map(least, rows))}.",
        fold(_counted(rows), markdown(head, body)),
    ]


def _times(family: str, rows: Sequence[Row]) -> str:
    head = ["op", "dtype", "tallow", "PyTorch", "ratio", "CuPy", "ratio"]
    body = [
        [
            row.op,
            row.dtype,
            *_device(row, "tallow"),
            *(text for peer in PEERS for text in (*_device(row, peer), number(row.ratio(peer), 2))),
        ]
        for row in rows
    ]
    return fold(_family_title(family, rows), markdown(head, body))


def _host(rows: Sequence[Row]) -> list[str]:
    if not rows:
        return []
    times_of = {name: [row.libraries[name].host_seconds for row in rows] for name in LIBRARIES}
    medians = {name: [seconds for seconds in times if seconds is not None] for name, times in times_of.items()}
    words = [f"{LIBRARIES[name]} {micros(median(times))} us" for name, times in medians.items() if times]
    head = ["op", "dtype", *_titles("us"), *(f"ratio to {title}" for title in PEERS.values())]
    body = [[row.op, row.dtype, *_on_host(row), *_both(row.host_ratio)] for row in rows]
    return [
        "## Host time of a small call",
        f"To enqueue one call at {rows[0].size} elements, without waiting for it. In the middle: {', '.join(words)}.",
        fold(_counted(rows), markdown(head, body)),
    ]


def launch_rows(launches: Mapping[str, float]) -> list[list[str]]:
    """For each kernel whose it is, microseconds, and how many times those of tallow's own."""
    own = next(iter(launches.values()), 0.0)
    return [[name, micros(seconds), number(seconds / own, 2)] for name, seconds in launches.items()]


def start_table(starts: Sequence[Start]) -> tuple[list[str], list[list[str]]]:
    """The head and the rows of a table in milliseconds: the whole process, and its phases."""
    phases = list(dict.fromkeys(phase for start in starts for phase in start.phases))
    rows = [
        [
            start.variant,
            _cell(start.reason) or _millis(start.seconds),
            *(_millis(start.phases.get(name)) for name in phases),
        ]
        for start in starts
    ]
    return ["variant", "process, ms", *(f"{name}, ms" for name in phases)], rows


def _starts(starts: Sequence[Start]) -> list[str]:
    if not starts:
        return []
    return [
        "## First results",
        "A program of eight kernels, in a process of its own: from its start to its end, and the phases between. With"
        " the code objects that `opgen compile` builds, which a wheel then has, no kernel is compiled.",
        "NVRTC takes about 55 ms for each kernel: a third in its front end, half in its optimiser, the rest in the"
        " assembler (--time); with precompiled headers (--pch) it took a tenth less, but a kernel's time to make them."
        " The driver takes 0.2 s to open a device, and to start and end the process of Python takes as long.",
        markdown(*start_table(starts)),
    ]


def _launches(launches: Mapping[str, float]) -> list[str]:
    if not launches:
        return []
    return [
        "## Host time of a launch",
        "To enqueue one kernel with four arguments, packed and checked, without waiting for it.",
        markdown(["kernel", "us", "times tallow's own"], launch_rows(launches)),
    ]


def _loading(variants: Sequence[Loading]) -> list[str]:
    if not variants:
        return []
    most = variants[0].rate
    rows = []
    for variant in variants:
        share = variant.rate / most if variant.rate and most else None
        grown = None if variant.host_bytes is None else variant.host_bytes / (1 << 20)
        size = bytes_text(variant.nbytes) if variant.nbytes else _cell(variant.reason)
        rows.append([variant.variant, size, figure(variant.rate), number(share, 2), figure(grown)])
    return [
        "## Loading a safetensors file",
        "From the page cache to the GPU, until it is all there; each variant in a process of its own.",
        markdown(["variant", "bytes", "GB/s", "of pinned", "growth of the host's memory, MiB"], rows),
    ]


def _reasons(results: Results) -> list[str]:
    """Explain every dash of a library."""
    where: dict[tuple[str, str], list[str]] = {}
    for row in results.rows:
        for name, measured in row.libraries.items():
            if measured.reason and not row.failure:
                where.setdefault((LIBRARIES.get(name, name), measured.reason), []).append(f"{row.op} {row.dtype}")
    if not where:
        return []
    rows = []
    for (library, reason), names in where.items():
        ops = dict.fromkeys(names)
        rows.append([library, _cell(reason), ", ".join(ops) if len(ops) < 8 else f"{len(ops)} ops"])
    return ["## What a dash means", fold(_counted(rows), markdown(["library", "reason", "where"], rows))]


def _slow_rows(rows: Iterable[Row], least: float = SLOW_RATIO) -> list[Row]:
    return sorted((row for row in rows if _least(row.ratio) < least), key=lambda row: _least(row.ratio))


def _least(ratio: Callable[[str], float | None]) -> float:
    return min((value for peer in PEERS if (value := ratio(peer)) is not None), default=float("inf"))


def _min_host(row: Row) -> float:
    return _least(row.host_ratio)


def _first(pair: tuple[float, Row]) -> float:
    return pair[0]


def _both(ratio: Callable[[str], float | None]) -> list[str]:
    return [number(ratio(peer), 2) for peer in PEERS]


def _device(row: Row, *libraries: str) -> list[str]:
    return [micros(row.libraries[name].seconds) for name in libraries]


def _on_host(row: Row) -> list[str]:
    return [micros(row.libraries[name].host_seconds) for name in LIBRARIES]


def _titles(unit: str) -> list[str]:
    return [f"{title}, {unit}" for title in LIBRARIES.values()]


def _name(row: Row) -> str:
    return f"{row.op} {row.dtype} {row.size}"


def _ratios(row: Row) -> str:
    ratios = ((title, row.ratio(peer)) for peer, title in PEERS.items())
    return ", ".join(f"{ratio:.2f} of {title}" for title, ratio in ratios if ratio is not None)


def _millis(seconds: float | None) -> str:
    return number(None if seconds is None else seconds * 1e3, 0)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
