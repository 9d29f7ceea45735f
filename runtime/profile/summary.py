"""The tables that sum up calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from ..backends.profiler import CallRecord, LaunchRecord

_MAX_ROWS: Final = 20
_BOLD: Final = 1
_DIM: Final = 2

Total = TypeVar("Total", "_Calls", "_Launches")


class _Calls:
    """Calls of one name."""

    def __init__(self) -> None:
        self.count = 0
        self.unplanned = 0
        self.plan_ns = 0
        self.host_ns = 0
        self.device_ns = 0

    def add(self, call: CallRecord) -> None:
        self.count += 1
        self.unplanned += not call.is_planned
        self.plan_ns += call.plan_ns
        self.host_ns += call.duration_ns
        self.device_ns += call.device_ns

    def row(self, name: str) -> list[str]:
        """The cells of the table."""
        return [
            name,
            str(self.count),
            str(self.unplanned) if self.unplanned else "",
            milliseconds(self.plan_ns) if self.plan_ns else "",
            milliseconds(self.host_ns),
            microseconds(self.host_ns / self.count),
            milliseconds(self.device_ns) if self.device_ns else "",
        ]


class _Launches:
    """Launches of one name."""

    def __init__(self) -> None:
        self.count = 0
        self.grids: set[int] = set()
        # Of those whose time is known.
        self.timed = 0
        self.nbytes = 0
        self.device_ns = 0

    def add(self, launch: LaunchRecord) -> None:
        self.count += 1
        if launch.grid is not None:
            self.grids.add(launch.grid)
        if launch.duration_ns is not None:
            self.timed += 1
            self.nbytes += launch.nbytes
            self.device_ns += launch.duration_ns

    def row(self, name: str, total: int) -> list[str]:
        """The cells of the table."""
        grid = "" if not self.grids else str(min(self.grids))
        if len(self.grids) > 1:
            grid += f"-{max(self.grids)}"
        row = [name, str(self.count), grid]
        if not self.timed:
            return [*row, "", "", "", ""]
        share = f"{self.device_ns / total:.0%}" if total else ""
        speed = f"{self.nbytes / self.device_ns:.1f}" if self.nbytes and self.device_ns else ""
        return [*row, milliseconds(self.device_ns), microseconds(self.device_ns / self.timed), share, speed]


class _Memory:
    """The memory of one device."""

    def __init__(self) -> None:
        self.count = 0
        self.nbytes = 0
        self.peak = 0


class Summary:
    """Sums of calls by their names, of launches by their kernels, and of allocations by their devices."""

    def __init__(self) -> None:
        self._calls: dict[str, _Calls] = {}
        self._launches: dict[str, _Launches] = {}
        self._memory: dict[str, _Memory] = {}

    def add(self, call: CallRecord, allocated: int | None) -> None:
        """Add a call, and how much memory its device had in use at its end."""
        self._calls.setdefault(call.name, _Calls()).add(call)
        for launch in call.launches:
            self._launches.setdefault(launch.name, _Launches()).add(launch)
        memory = self._memory.setdefault(call.device, _Memory())
        memory.count += len(call.allocations)
        memory.nbytes += sum([each.nbytes for each in call.allocations])
        memory.peak = max(memory.peak, allocated or 0)

    def text(self, *, has_colours: bool = False) -> str:
        """Return the tables, those with the longest times first."""
        return "\n".join(self._lines(has_colours))

    def _lines(self, has_colours: bool) -> Iterator[str]:
        calls, launches = self._calls, self._launches
        count = sum(each.count for each in calls.values())
        unplanned = sum(each.unplanned for each in calls.values())
        devices = ", ".join(self._memory)
        yield f"{number(count, 'call')} on {devices}, {unplanned} without a plan" if count else "no calls"
        if not count:
            return
        heads: tuple[str, ...] = ("call", "calls", "no plan", "plan ms", "host ms", "us per call", "device ms")
        ordered = _ordered(calls, lambda each: max(each.host_ns, each.device_ns))
        yield from _table(heads, [each.row(name) for name, each in ordered], has_colours)
        if launches:
            total = sum(each.device_ns for each in launches.values())
            heads = ("kernel", "launches", "grid", "ms", "us each", "share", "GB/s")
            rows = [each.row(name, total) for name, each in _ordered(launches, lambda each: each.device_ns)]
            yield from _table(heads, rows, has_colours)
        heads = ("memory", "allocations", "MiB allocated", "MiB in use at most")
        rows = [
            [device, str(each.count), mebibytes(each.nbytes), mebibytes(each.peak) if each.peak else ""]
            for device, each in self._memory.items()
        ]
        yield from _table(heads, rows, has_colours)


def _ordered(totals: dict[str, Total], measure: Callable[[Total], int]) -> list[tuple[str, Total]]:
    return sorted(totals.items(), key=lambda item: -measure(item[1]))


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], has_colours: bool) -> Iterator[str]:
    shown = [heads, *rows[:_MAX_ROWS]]
    widths = [max(len(row[column]) for row in shown) for column in range(len(heads))]

    def line(row: Sequence[str]) -> str:
        name, *cells = row
        parts = [f"{name:{widths[0]}}", *[f"{cell:>{width}}" for cell, width in zip(cells, widths[1:], strict=True)]]
        return "  ".join(parts).rstrip()

    yield ""
    yield painted(line(heads), _BOLD, has_colours)
    yield from map(line, shown[1:])
    if len(rows) > _MAX_ROWS:
        yield painted(f"and {len(rows) - _MAX_ROWS} more", _DIM, has_colours)


def painted(text: str, colour: int, has_colours: bool) -> str:
    """Return a text in a colour of terminals, or as it is."""
    return f"\033[{colour}m{text}\033[0m" if has_colours else text


def number(count: int, name: str) -> str:
    """Return a count with the name of what is counted."""
    return f"{count} {name}{'' if count == 1 else 's'}"


def milliseconds(nanoseconds: float) -> str:
    """Return a time in milliseconds."""
    return f"{nanoseconds / 1e6:.3f}"


def microseconds(nanoseconds: float) -> str:
    """Return a time in microseconds."""
    return f"{nanoseconds / 1e3:.1f}"


def mebibytes(nbytes: int) -> str:
    """Return a size in MiB."""
    return f"{nbytes / (1 << 20):.2f}"
