"""The report of a self-test, as text for people and as JSON for programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ..doctor.report import BackendReport

SCHEMA: Final = 1
"""The version of the JSON, which changes when a key is renamed, dropped or means something else."""

PASSED: Final = "passed"
FAILED: Final = "failed"
SKIPPED: Final = "skipped"
UNUSABLE: Final = "unusable"
INTERRUPTED: Final = "interrupted"

_COLOURS: Final = {PASSED: 32, FAILED: 31, SKIPPED: 33}


@dataclass
class FamilyResult:
    """The result of a family of kernels."""

    family: str
    status: str
    """passed, failed or skipped."""
    tried: int = 0
    """The number of cells that were tried."""
    supported: int = 0
    """The number of cells that the backend supports."""
    seconds: float = 0.0
    failed: int = 0
    failures: list[dict[str, str]] = field(default_factory=list)
    """The names of the first cells that failed, with the reasons."""
    reason: str = ""
    """Why it was skipped."""


@dataclass
class SelftestReport:
    """The results of a self-test so far."""

    reports_to: str
    """Where to send it."""
    device: str = ""
    """The label of the device."""
    description: str = ""
    """The device: for a GPU its name, target, waves and memory."""
    system: dict[str, Any] = field(default_factory=dict)
    backend: dict[str, Any] = field(default_factory=dict)
    """The findings of the doctor on the backend."""
    families: list[FamilyResult] = field(default_factory=list)
    times: list[dict[str, Any]] = field(default_factory=list)
    result: str = INTERRUPTED
    reason: str = ""
    """Why the device is not usable, or why times are missing."""

    def finish(self) -> None:
        """Let the result follow from those of the families."""
        self.result = FAILED if any(family.status == FAILED for family in self.families) else PASSED

    def lose(self, families: Iterable[str], reason: str) -> None:
        """Record that the device was lost before the remaining ones of these families were tried."""
        tried = {family.family for family in self.families}
        self.reason = reason
        if not any(family.status != SKIPPED for family in self.families):
            self.result = UNUSABLE
            return
        self.finish()
        self.families += [
            FamilyResult(name, SKIPPED, reason="the device was lost before") for name in families if name not in tried
        ]

    @property
    def exit_code(self) -> int:
        """The exit code of the program."""
        return {PASSED: 0, FAILED: 1, UNUSABLE: 2, INTERRUPTED: 130}[self.result]

    def as_dict(self) -> dict[str, Any]:
        """Return the report in the types of JSON."""
        return {
            "schema": SCHEMA,
            "result": self.result,
            "reason": self.reason,
            "device": self.device,
            "description": self.description,
            **{key: self.system.get(key, "") for key in ("package", "python", "os", "cpu")},
            "instructions": self.system.get("instructions", []),
            "backend": self.backend,
            "families": [vars(family) for family in self.families],
            "times": self.times,
            "reports_to": self.reports_to,
        }


class Text:
    """The lines of a report, each as soon as its part is known."""

    def __init__(self, *, has_colours: bool) -> None:
        self._has_colours = has_colours

    def head(self, report: SelftestReport) -> Iterator[str]:
        """Yield the machine and the findings of the doctor."""
        system = report.system
        yield f"{system['package']}, {system['python']}, {system['os']}"
        yield f"CPU: {system['cpu']}; {' '.join(system['instructions'])}".rstrip("; ")
        yield ""
        yield from BackendReport.from_dict(report.backend).lines(has_colours=self._has_colours)

    def families(self, report: SelftestReport) -> Iterator[str]:
        """Yield the heading of the families."""
        # The CPU has no other description than its label.
        names = dict.fromkeys((report.device, report.description))
        yield f"\nkernels on {', '.join(names)}, compared with NumPy:"

    def family(self, result: FamilyResult) -> Iterator[str]:
        """Yield the lines of a family."""
        if result.status == SKIPPED:
            yield f"  {self._mark(SKIPPED)}  {result.family:20}  {result.reason}"
            return
        tried = f"{result.tried} of {result.supported} cells"
        yield f"  {self._mark(result.status)}  {result.family:20}  {tried:18}  {result.seconds:6.1f} s"
        for failure in result.failures:
            yield f"             {failure['name']}: {failure['text']}".replace("\n", "\n               ")
        if result.failed > len(result.failures):
            yield f"             and {result.failed - len(result.failures)} more"

    def times(self) -> Iterator[str]:
        """Yield the heading of the times."""
        yield "\ntimes, and which part of the speed of a copy on the device they reach:"

    def time(self, time: Mapping[str, Any]) -> Iterator[str]:
        """Yield the line of a kernel's time."""
        line = f"  {time['kernel']:26}  {1e3 * time['seconds']:9.3f} ms"
        if time["teraflops"] is not None:
            yield f"{line}  {time['teraflops']:9.3f} TFLOP/s"
        else:
            yield f"{line}  {time['gigabytes_per_second']:9.1f} GB/s  {time['of_copy']:6.0%}"

    def end(self, report: SelftestReport) -> Iterator[str]:
        """Yield the result, and where to send the report."""
        tried = [family for family in report.families if family.status != SKIPPED]
        failed = [family.family for family in tried if family.status == FAILED]
        reason = f" ({report.reason})" if report.reason else ""
        yield ""
        if report.result == UNUSABLE:
            yield f"{self._painted('not usable', 31)}: {report.reason or 'see above'}"
        elif failed:
            yield f"{self._painted('FAILED', 31)}: {len(failed)} of {len(tried)} families: {', '.join(failed)}{reason}"
        elif report.result == INTERRUPTED:
            yield f"interrupted: {len(tried)} families passed before"
        else:
            yield f"{self._painted('passed', 32)}: all {len(tried)} families{reason}"
        yield f"If something is wrong, send this report {report.reports_to}."

    def _mark(self, status: str) -> str:
        word = {PASSED: "ok", FAILED: "FAILED", SKIPPED: "-"}[status]
        return self._painted(f"{word:7}", _COLOURS[status])

    def _painted(self, text: str, colour: int) -> str:
        return f"\033[{colour}m{text}\033[0m" if self._has_colours else text
