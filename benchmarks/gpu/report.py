"""The page of the documentation, made of the results alone: no figure in it is written by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median

from .results import COMPILED, LIBRARIES, PEERS, Loading, Results, Row, Start, bytes_text, size_text
from .table import figure, micros, number

# Below these an op is named as slow: beside a peer, the same at the largest size, where memory leaves less to chance,
# and beside a copy of as many elements.
SLOW_RATIO = 0.9
SLOW_LARGE_RATIO = 0.97
SLOW_SHARE = 0.8

_INTRODUCTION = """\
# Benchmarks on a GPU

Every family of ops beside PyTorch and CuPy, on the same data, in the same stream, in one run. All figures on this page
and in the plot come from this command; `make bench-gpu` runs it again:

{command}

- A time is the median of several rounds, measured with events on the device; the libraries take turns. The result's
  allocation belongs to the call, and each library has a caching allocator.
- GB/s count what an op must read and write by definition, each element once, whatever the implementation does. matmul,
  conv2d and attention of all tokens, of which causality leaves half, are in TFLOP/s.
- "Ceiling" is the share of the copy ceiling: the fastest copy of as many elements within the device.
- A ratio above 1 means that tallow is faster.
- f32 is full f32 in all libraries, never TF32. Indexes are i64.
- "Own kernels" are tallow's kernels for attention and matmul, which otherwise are cuDNN's and cuBLAS's; PyTorch uses
  its flash attention and cuBLAS there.
- PyTorch's conv2d runs as it does by default, with torch.backends.cudnn.benchmark off.
- PyTorch's scatter_add and index_add add with atomics, so their sums may differ from run to run; tallow's have the same
  bits on every run.
- A result is compared with PyTorch's, in f64 where rounding differs, before it is timed. Wrong results are not timed,
  and are listed at the top.
"""

# Of the ops that were slow on an H200. Times are in the tables alone.
_CAUSES = """\
What keeps them slow, as far as it is known, and what was tried. Shares of cycles are Nsight Compute's, of a call in
`ncu --clock-control none python -m benchmarks.gpu run --only '/mish$' --size 28 --dtype f32`, for example.

- scatter_add: each sum has the same bits on every run, so its elements are added one after the other in the order of
  their positions, where PyTorch adds with atomics. Lines that fit into shared memory are summed there, longer ones in
  the cache, where each step of a wave waits for the previous one. Votes in place of match.any took longer. The rows
  "both in any order" and "both deterministic" compare like with like. More than a thousand indexes are checked in a
  launch of their own, since nothing may be written if one is out of range.
- divide by a number: PyTorch multiplies by the reciprocal, which rounds twice; tallow divides. So does recip of
  halves, whose quotient in f32 takes a subroutine of the compiler for large and small numbers.
- linear of f32 at 2^16: the same kernel of cuBLAS as PyTorch's, in a profile of both. No cause was found.
- floor_divide: it takes the remainder by fmod, as Python does, which is exact for any quotient.
- Small calls: they wait for their launch, and then for the code of the kernel. One element for each thread of about
  as many blocks as there are multiprocessors took less time than whole packs in fewer blocks, and so did the code of
  few elements in front of that of many. What remains is the size of that code.
- gelu, gelu_erf, silu, sigmoid, rsqrt, sin, cos and tan in f32, and what halves share with them: they are accurate to
  4 units in the last place everywhere, which is more arithmetic. It shows where memory does not bound a call: at 2^20
  elements, which stay in the cache.
- mish in f32, sinh and hypot of halves, remainder of f16 and rand_normal at 2^28 are bound by instructions. Warps
  issue in 78 % of the cycles of rand_normal and in 84 % of those of sinh, whose two exponentials keep the unit of
  special functions busy for 70 %; in mish they did in 77 % when six blocks filled a multiprocessor. Kernels of one
  operand now use at most 32 registers, so that eight do: that took mish from 0.88 of PyTorch's speed to 0.94, atanh
  from 0.92 to 1.00 and log1p of bf16 from 0.94 to 1.01. With two operands div would spill. CuPy draws by XORWOW,
  which is shorter than Philox.
- index_select and index_add: each index is compared with the size and with the mark, and one out of range is
  recorded. Of many rows a thread has four accesses in flight, which took index_select from 0.90 of PyTorch's speed to
  0.99; of few rows that took longer.
- softmax and log_softmax, rows of 64: 4 or 8 threads take a row however many rows there are, so that the bits of a
  row do not depend on the others. 1,024 rows take 16 or 32 blocks, where PyTorch has 128.
- sum and max over the first dim of 2^10 elements: one block, whose threads join what they have of 4 or 8 columns in
  five or six steps through shared memory. rms_norm of a single row: one warp takes it, and writes it as well.
- sum over the last dim of 2^20 elements: each of 1,024 rows takes a block, whose 8 warps join their sums through
  shared memory. They issue in 66 % of the cycles, and a thread reads one access alone.
- sum over all: a second launch adds up what the blocks of the first one have. The last block could do that in one.
- attention of one token each at 2^28: one block of 181 registers a thread fills a multiprocessor, and memory is busy
  for 85 % of the time.
- attention of one token: a third of the time is not spent reading keys: it is the launch, and the last block joining
  the splits, which waits for what the others write, for their counter and for its own reads. Halves go from memory
  straight to the registers of products on matrix cores, which takes a fifth less time than dot products of what comes
  through shared memory. More splits, two blocks for each multiprocessor, keys fetched ahead into the cache and
  accesses that bypass the nearest one took longer. In f32 there are no matrix cores, since they round to TF32.
- attention by own kernels: groups of four warps multiply by Hopper's wgmma, as cuDNN's does, and take turns: one
  makes weights while the other multiplies. The weights take most of what warps issue; the tensor cores wait for them:
  in bf16 they work in 52 % of the cycles of an H100, and a scheduler issues in 39 %.
- attention in f32: tiles of 128 rows leave multiprocessors without a block in small calls, where a warp takes 8 rows:
  the units of multiply-add are not what it keeps busiest. At 2^28 elements these work in 59 % of the cycles, and a
  scheduler issues in 77 %. Lanes side by side that share columns, which take two thirds of the time to read shared
  memory, made no difference. Scores and results take 233 registers, so that one block of 8 warps fits a
  multiprocessor, and no other block works while it waits at its barriers.
- matmul of halves by own kernels: groups of warps multiply by wgmma, as cuBLAS does. Threads copy the operands, where
  cuBLAS has one thread copy tiles for several multiprocessors at once. With sides of 8,192 the tensor cores work in
  81 % of the cycles; then warps wait for each other between the steps. Sides of 1,024 and less make fewer tiles of
  128 by 128 than there are multiprocessors; tiles of 128 by 64 take a fifth less time there. Nobody shares the depth.
- matmul of f32 by own kernels: 512 of the 604 instructions of a step multiply; the rest read shared memory, find
  addresses and wait. A scheduler issues in 79 % of the cycles, and a multiply-add in 65 %. Half of the time of these
  reads went with lanes side by side that share columns (4 -> 2 cycles a read). Tiles of 256 by 128 took 5 % longer
  with one block a multiprocessor than two blocks with tiles of 128 by 128; addresses kept in registers made no
  difference. Few tiles are of 64 by 64, each thread of which reads shared memory twice as often for what it
  multiplies.
- On the host: about half of a small call is the vendor's call that enqueues the kernel, made through Python. The rest
  is the key of its plan, the memory and the object of the result. matmul and linear also pay for what nvmath-python
  checks, and random numbers for a lock around their counter.
"""


def page(results: Results, plot: str) -> str:
    """The page, in Markdown; `plot` is the name of the plot beside it."""
    sizes = sorted({row.elements for row in results.rows}, reverse=True)
    parts = [
        _INTRODUCTION.format(command=f"    {results.environment.get('command', '')}"),
        *_failures(results),
        markdown(["", ""], results.environment.items()),
        "## The copy ceiling",
        _ceilings(results),
        "## What is slow",
        *_slow(results, sizes),
        f"![Share of the copy ceiling and speed relative to PyTorch, by op and dtype]({plot})",
    ]
    for elements in sizes:
        rows = [row for row in results.rows if row.elements == elements and not row.failure]
        # Only operands that are larger than any cache say how well memory is used.
        tables = _rates(results, rows) if elements == sizes[0] else _times(rows)
        parts += [f"## {size_text(elements)} elements", *tables]
    parts += _compiled([row for row in results.rows if COMPILED in row.libraries and not row.failure])
    parts += _host([row for row in results.rows if row.libraries["tallow"].host_seconds is not None])
    parts += _starts(results.starts)
    parts += _launches(results.launches)
    parts += _loading(results.loading)
    parts += _reasons(results)
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def summary(results: Results) -> list[str]:
    """What to read last in a terminal: the ceiling, what is slow, and what failed."""
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
    parts = []
    for elements in sizes:
        least = SLOW_LARGE_RATIO if elements == sizes[0] else SLOW_RATIO
        slow = _slow_rows((row for row in results.rows if row.elements == elements), least)
        if slow:
            head = ["op", "dtype", *(f"of {title}" for title in PEERS.values()), *_titles("us")]
            rows = [[row.op, row.dtype, *_both(row.ratio), *_device(row, *LIBRARIES)] for row in slow]
            parts += [f"Below {least} of a peer at {size_text(elements)} elements:", markdown(head, rows)]
        else:
            parts.append(f"At {size_text(elements)} elements no op is below {least} of a peer.")
    parts += _below_ceiling(results, sizes)
    slow_host = sorted((row for row in results.rows if _least(row.host_ratio) < SLOW_RATIO), key=_least_host)
    if slow_host:
        head = ["op", "dtype", *(f"of {title}" for title in PEERS.values()), *_titles("us")]
        rows = [[row.op, row.dtype, *_both(row.host_ratio), *_on_host(row)] for row in slow_host]
        parts += [f"Below {SLOW_RATIO} of a peer on the host, in small calls:", markdown(head, rows)]
    if slow_host or _slow_rows(results.rows):
        parts.append(_CAUSES)
    return parts


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
    title = f"Below {SLOW_SHARE} of the copy ceiling at {size_text(sizes[0])} elements:"
    return [title, markdown(["op", "dtype", *LIBRARIES.values()], rows)]


def _rates(results: Results, rows: Sequence[Row]) -> list[str]:
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
    return parts


def _compiled(rows: Sequence[Row]) -> list[str]:
    """The rows beside PyTorch's two ways, the slowest first."""
    if not rows:
        return []

    def least(row: Row) -> float:
        return min(found for way in ("torch", COMPILED) if (found := row.ratio(way)) is not None)

    head = ["op", "dtype", "tallow", "PyTorch", COMPILED, "ratio to the faster"]
    body = [
        [row.op, row.dtype, *(figure(row.rate(name)) for name in ("tallow", "torch", COMPILED)), number(least(row), 2)]
        for row in sorted(rows, key=least)
    ]
    return [
        f"## Beside {COMPILED}",
        f"In GB/s at {rows[0].size} elements. What is compiled is one call, for its shapes alone.",
        markdown(head, body),
    ]


def _times(rows: Sequence[Row]) -> list[str]:
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
    return (
        ["Microseconds on the device; operands of this size stay in its cache.", markdown(head, body)] if body else []
    )


def _host(rows: Sequence[Row]) -> list[str]:
    if not rows:
        return []
    found = {name: [row.libraries[name].host_seconds for row in rows] for name in LIBRARIES}
    medians = {name: [seconds for seconds in times if seconds is not None] for name, times in found.items()}
    words = [f"{LIBRARIES[name]} {micros(median(times))} us" for name, times in medians.items() if times]
    head = ["op", "dtype", *_titles("us"), *(f"ratio to {title}" for title in PEERS.values())]
    body = [[row.op, row.dtype, *_on_host(row), *_both(row.host_ratio)] for row in rows]
    return [
        "## Host time of a small call",
        f"To enqueue one call at {rows[0].size} elements, without waiting for it. In the middle: {', '.join(words)}.",
        markdown(head, body),
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
            start.way,
            _cell(start.reason) or _millis(start.seconds),
            *(_millis(start.phases.get(name)) for name in phases),
        ]
        for start in starts
    ]
    return ["way", "process, ms", *(f"{name}, ms" for name in phases)], rows


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


def _loading(ways: Sequence[Loading]) -> list[str]:
    if not ways:
        return []
    most = ways[0].rate
    rows = []
    for way in ways:
        share = way.rate / most if way.rate and most else None
        grown = None if way.host_bytes is None else way.host_bytes / (1 << 20)
        size = bytes_text(way.nbytes) if way.nbytes else _cell(way.reason)
        rows.append([way.way, size, figure(way.rate), number(share, 2), figure(grown)])
    return [
        "## Loading a safetensors file",
        "From the page cache to the GPU, until it is all there; each way in a process of its own.",
        markdown(["way", "bytes", "GB/s", "of pinned", "growth of the host's memory, MiB"], rows),
    ]


def _reasons(results: Results) -> list[str]:
    """What every dash of a library means."""
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
    return ["## What a dash means", markdown(["library", "reason", "where"], rows)]


def _slow_rows(rows: Iterable[Row], least: float = SLOW_RATIO) -> list[Row]:
    return sorted((row for row in rows if _least(row.ratio) < least), key=lambda row: _least(row.ratio))


def _least(ratio: Callable[[str], float | None]) -> float:
    return min((found for peer in PEERS if (found := ratio(peer)) is not None), default=float("inf"))


def _least_host(row: Row) -> float:
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


def markdown(head: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    """A table whose columns of numbers are set to the right."""
    body = [list(row) for row in rows]
    is_number = [
        bool(body) and all(row[column].replace(".", "", 1).isdecimal() or row[column] == "–" for row in body)
        for column in range(len(head))
    ]
    rule = ["---:" if right else "---" for right in is_number]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *body))
