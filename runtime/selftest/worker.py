"""The process that runs kernels, of which another one reads what they gave.

It writes a JSON object a line. Where a kernel ends the process, the other one knows what was tried last.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import IO, TYPE_CHECKING, Any, Final

from ..base.error import TallowError
from ..doctor.machine import anonymous
from ..doctor.report import doctor
from . import plan, programs, speed, trial
from .examples import contiguous

if TYPE_CHECKING:
    from ...device import Device

PROGRAMS: Final = "programs"
VIEWS: Final = "views"
TIMES: Final = "times"
MOST_FAILURES: Final = 5
"""So many failures of a family are reported with their text."""

Check = tuple[str, Callable[[], str | None]]
"""The name of what is tried, and what says how it failed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the self-test of a device, without the families that are named, and write what happens to stdout."""
    label, *done = sys.argv[1:] if arguments is None else arguments
    # The process that reads this one ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with _messages() as send:
        run(label, frozenset(done), send)
    return 0


@contextlib.contextmanager
def _messages() -> Iterator[Callable[..., None]]:
    """What writes messages to the standard output of this process; what else is written there goes to stderr."""
    channel: IO[str]
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as channel:
        os.dup2(2, 1)

        def send(**message: Any) -> None:
            print(json.dumps(message), file=channel, flush=True)

        yield send


def run(label: str, done: frozenset[str], send: Callable[..., None]) -> None:
    """Send what the doctor finds, what each family gives that is not done yet, and the times of a few kernels."""
    from ...device import Device

    try:
        device = Device.parse(label) if label else Device.default()
    except TallowError as error:
        if not done:
            send(event="doctor", device=label, description="", **_findings(label))
        send(event="unusable", reason=anonymous(str(error)))
        return
    if not done:
        send(event="doctor", device=device.label, description=device.inner.description, **_findings(device.label))
    tried = _families(device)
    send(event="families", names=[name for name, *_ in tried], skipped=_skipped())
    for name, supported, checks in tried:
        if name not in done and not _run_family(device, name, supported, checks, send):
            return
    if TIMES not in done:
        send(event="begin", family=TIMES)
        for time in speed.times(device):
            send(event="time", **time._asdict())
    send(event="end")


def _findings(label: str) -> dict[str, Any]:
    report = doctor(label).as_dict()
    (backend,) = report.pop("backends")
    return {"system": report, "backend": backend}


def _skipped() -> dict[str, str]:
    package = trial.__name__.partition(".")[0]
    return {name: reason.format(package=package) for name, reason in plan.NOT_TRIED.items()}


def _families(device: Device) -> list[tuple[str, int, list[Check]]]:
    """By family, how many cells the backend supports, and what is tried."""
    trusted = trial.reference()
    lay = {VIEWS: trial.strided}
    found: list[tuple[str, int, list[Check]]] = []
    for family in (*plan.families(device.backend), plan.views(device.backend, VIEWS)):
        placed = lay.get(family.name, contiguous)
        checks: list[Check] = [
            (trial.name_of(cell), lambda cell=cell, placed=placed: trial.fault(cell, device, trusted, placed))  # type: ignore[misc]
            for cell in family.cells
        ]
        found.append((family.name, family.count, checks))
    runs: list[Check] = [
        (program.name, lambda program=program: programs.fault(program, device, trusted))  # type: ignore[misc]
        for program in programs.programs(device.backend)
    ]
    found.append((PROGRAMS, len(runs), runs))
    return found


def _run_family(device: Device, name: str, supported: int, checks: Sequence[Check], send: Callable[..., None]) -> bool:
    """Try all that a family has; return whether the device can be used afterwards."""
    send(event="begin", family=name, count=len(checks), supported=supported)
    begin = perf_counter()
    failures = []
    is_usable = True
    for label, check in checks:
        send(event="try", name=label)
        text = check()
        if text is not None:
            failures.append({"name": label, "text": anonymous(text)})
            is_usable = _is_usable(device)
            if not is_usable:
                break
    seconds = perf_counter() - begin
    send(event="done", family=name, seconds=seconds, failed=len(failures), failures=failures[:MOST_FAILURES])
    return is_usable


def _is_usable(device: Device) -> bool:
    """Whether the device still works in this process: some errors of kernels are the end of it."""
    try:
        device.synchronize()
    except Exception:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
