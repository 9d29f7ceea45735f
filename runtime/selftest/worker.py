"""The child process that runs the kernels of a self-test, and reports to its parent in lines of JSON.

If a kernel ends the process, the parent knows which cell it was.
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
MAX_FAILURES: Final = 5
"""The number of failures of a family that are reported with their text."""

Check = tuple[str, Callable[[], str | None]]
"""A name, and a function that returns how it fails, or None."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the self-test of a device but for the families that are named, and report to stdout."""
    label, *done = sys.argv[1:] if arguments is None else arguments
    # Ctrl-C reaches both processes; the parent ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with _messages() as send:
        run(label, frozenset(done), send)
    return 0


@contextlib.contextmanager
def _messages() -> Iterator[Callable[..., None]]:
    """Yield a function that writes messages to stdout; whatever else writes there writes to stderr."""
    channel: IO[str]
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as channel:
        os.dup2(2, 1)

        def send(**message: Any) -> None:
            print(json.dumps(message), file=channel, flush=True)

        yield send


def run(label: str, done: frozenset[str], send: Callable[..., None]) -> None:
    """Send the findings of the doctor, the result of each family that is not done yet, and the times of kernels."""
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
    """Return each family: its name, how many cells the backend supports, and its checks."""
    trusted = trial.reference()
    families: list[tuple[str, int, list[Check]]] = []
    for family in (*plan.families(device.backend), plan.views(device.backend, VIEWS)):
        lay = trial.strided if family.name == VIEWS else contiguous
        checks: list[Check] = [
            (trial.name_of(cell), lambda cell=cell, lay=lay: trial.fault(cell, device, trusted, lay))  # type: ignore[misc]
            for cell in family.cells
        ]
        families.append((family.name, family.count, checks))
    runs: list[Check] = [
        (program.name, lambda program=program: programs.fault(program, device, trusted))  # type: ignore[misc]
        for program in programs.programs(device.backend)
    ]
    families.append((PROGRAMS, len(runs), runs))
    return families


def _run_family(device: Device, name: str, supported: int, checks: Sequence[Check], send: Callable[..., None]) -> bool:
    """Run the checks of a family; return whether the device can be used afterwards."""
    send(event="begin", family=name, supported=supported)
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
    send(event="done", family=name, seconds=seconds, failed=len(failures), failures=failures[:MAX_FAILURES])
    return is_usable


def _is_usable(device: Device) -> bool:
    """Return False if the device is unusable for this process after an error of a kernel."""
    try:
        device.synchronize()
    except Exception:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
