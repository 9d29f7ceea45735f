"""Files of Chrome's trace events, which Perfetto opens.

The format is that of "Trace Event Format" by Nat Duca and Dean Sinclair (Google, 2016): times are microseconds.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
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
    devices: dict[str, int] = {}
    flows = 0

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
        for launch in call.launches:
            if launch.start_ns is None or launch.duration_ns is None:
                continue
            track = on_host
            if call.has_stream:
                if call.device not in devices:
                    devices[call.device] = _DEVICES + len(devices)
                    yield _named("process_name", devices[call.device], 0, call.device)
                    yield _named("thread_name", devices[call.device], 0, "stream")
                track = {"pid": devices[call.device], "tid": 0}
                flows += 1
                yield {**_flow("s", flows, at(call.start_ns)), **on_host}
                yield {**_flow("f", flows, at(launch.start_ns)), "bp": "e", **track}
            yield {
                **_slice(launch.name, "kernel", at(launch.start_ns), launch.duration_ns),
                **track,
                "args": _launch_arguments(launch),
            }
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
