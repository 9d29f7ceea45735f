"""Files of Chrome's trace events, which Perfetto opens.

The format is that of "Trace Event Format" by Nat Duca and Dean Sinclair (Google, 2016): times are microseconds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from ..backends.profiler import CallRecord, LaunchRecord

# Numbers of processes stay below it on every system.
_DEVICES: Final = 1 << 23


class MemorySample(NamedTuple):
    """How much memory of a device was in use at a time."""

    time_ns: int
    device: str
    nbytes: int


def events(
    calls: Iterable[CallRecord], memory: Iterable[MemorySample], threads: Mapping[int, str], origin_ns: int
) -> Iterator[dict[str, Any]]:
    """Yield the events of calls; times are counted from an origin."""
    process = os.getpid()
    calls = list(calls)

    def at(time_ns: int) -> float:
        return (time_ns - origin_ns) / 1e3

    yield _named("process_name", process, 0, "tallow")
    for thread, name in threads.items():
        yield _named("thread_name", process, thread, name)
    for call in calls:
        on_host = {"pid": process, "tid": call.thread}
        if call.plan_ns:
            begin = at(call.start_ns - call.plan_ns)
            yield {**_slice("make the plan", "call", begin, call.plan_ns), **on_host, "args": {"call": call.title}}
        yield {
            **_slice(call.title, "call", at(call.start_ns), call.duration_ns),
            **on_host,
            "args": _arguments(call),
        }
        for allocation in call.allocations:
            yield {
                "name": f"allocate {allocation.nbytes} bytes",
                "cat": "memory",
                "ph": "i",
                "s": "t",
                "ts": at(allocation.start_ns),
                **on_host,
                "args": {"device": call.device, "bytes": allocation.nbytes},
            }
        if not call.has_stream:
            for launch in call.launches:
                if launch.start_ns is not None and launch.duration_ns is not None:
                    slice_ = _slice(launch.name, "kernel", at(launch.start_ns), launch.duration_ns)
                    yield {**slice_, **on_host, "args": _launch_arguments(launch)}
    yield from _of_streams(calls, process, at)
    for sample in memory:
        yield {
            "name": f"memory of {sample.device}",
            "cat": "memory",
            "ph": "C",
            "ts": at(sample.time_ns),
            "pid": process,
            "tid": 0,
            "args": {"bytes": sample.nbytes},
        }


def _of_streams(calls: Iterable[CallRecord], process: int, at: Callable[[int], float]) -> Iterator[dict[str, Any]]:
    """Yield what asynchronous devices did, and arrows to it from the calls."""
    timed = [
        (launch.start_ns, launch.duration_ns, launch, call)
        for call in calls
        if call.has_stream
        for launch in call.launches
        if launch.start_ns is not None and launch.duration_ns is not None
    ]
    timed.sort(key=lambda each: each[0])
    tracks: dict[str, dict[str, int]] = {}
    ends: dict[str, int] = {}
    for number, (start_ns, duration_ns, launch, call) in enumerate(timed, 1):
        if call.device not in tracks:
            track = tracks[call.device] = {"pid": _DEVICES + len(tracks), "tid": 0}
            yield _named("process_name", track["pid"], 0, call.device)
            yield _named("thread_name", track["pid"], 0, "stream")
        track = tracks[call.device]
        # What a stream does never overlaps, but the clock of events is coarse.
        begin = max(start_ns, ends.get(call.device, start_ns))
        end = ends[call.device] = max(begin, start_ns + duration_ns)
        yield {**_flow("s", number, at(call.start_ns)), "pid": process, "tid": call.thread}
        yield {**_flow("f", number, at(begin)), "bp": "e", **track}
        slice_ = _slice(launch.name, "kernel", at(begin), end - begin)
        yield {**slice_, **track, "args": _launch_arguments(launch)}


def _slice(name: str, category: str, begin: float, duration_ns: int) -> dict[str, Any]:
    return {"name": name, "cat": category, "ph": "X", "ts": begin, "dur": duration_ns / 1e3}


def _flow(phase: str, number: int, time: float) -> dict[str, Any]:
    return {"name": "launch", "cat": "kernel", "ph": phase, "id": number, "ts": time, "args": {}}


def _named(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"name": what, "cat": "", "ph": "M", "ts": 0, "pid": process, "tid": thread, "args": {"name": name}}


def _arguments(call: CallRecord) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operands": list(call.operands),
        "device": call.device,
        "plan": "found" if call.is_planned else "made",
        "line": call.line,
    }
    if call.is_captured:
        described["captured"] = [launch.name for launch in call.launches]
    if call.error is not None:
        described["error"] = call.error
    return described


def _launch_arguments(launch: LaunchRecord) -> dict[str, Any]:
    described: dict[str, Any] = {"kind": launch.kind, "bytes": launch.nbytes}
    if launch.grid is not None:
        described["grid"] = launch.grid
    if launch.nbytes and launch.duration_ns:
        described["GB/s"] = round(launch.nbytes / launch.duration_ns, 3)
    return described
