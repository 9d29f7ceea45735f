"""Reports on backends, as text for people and as JSON for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, Self

from ..core.argument import device_label
from ..core.extensions import extensions
from .finding import Finding, packages_of_modules
from .machine import System, anonymous, system

_MARKS: Final = {True: ("ok", 32), False: ("missing", 31), None: ("-", 33)}
_STATES: Final = {True: "ok", False: "missing", None: "optional"}
_BOLD: Final = 1


@dataclass(frozen=True)
class BackendReport:
    """The findings about one backend.

    >>> report = next(each for each in tl.doctor().backends if each.backend == "cpu")
    >>> report.is_available, all(finding.part for finding in report.findings)
    (True, True)
    """

    backend: str
    """The name of the backend."""
    is_available: bool
    """Whether its first device can be opened."""
    findings: tuple[Finding, ...]
    """The checks, with their results."""

    def lines(self, *, has_colours: bool = False) -> Iterator[str]:
        """Yield the name of the backend, and below it a line for each thing that was looked for."""

        def painted(text: str, colour: int) -> str:
            return f"\033[{colour}m{text}\033[0m" if has_colours else text

        state, colour = ("available", 32) if self.is_available else ("not available", 31)
        yield f"{painted(self.backend, _BOLD)}: {painted(state, colour)}"
        width = max((len(finding.part) for finding in self.findings), default=0)
        for part, is_present, text, fix, files in self.findings:
            mark, colour = _MARKS[is_present]
            source = f" ({files[0]}{f' and {len(files) - 1} more' if files[1:] else ''})" if files else ""
            line = f"{part:{width}}  {text}{source}{f'; {fix}' if fix else ''}"
            yield f"  {painted(f'{mark:7}', colour)}  {anonymous(line)}"

    def as_dict(self) -> dict[str, Any]:
        """Return the same in the types of JSON."""
        findings = [
            {
                "part": finding.part,
                "state": _STATES[finding.is_present],
                "text": anonymous(finding.text),
                "fix": anonymous(finding.fix),
                "files": [*map(anonymous, finding.files)],
            }
            for finding in self.findings
        ]
        return {"backend": self.backend, "available": self.is_available, "findings": findings}

    @classmethod
    def from_dict(cls, described: Mapping[str, Any]) -> Self:
        """Make a report of what `as_dict` gives."""
        states = {state: is_present for is_present, state in _STATES.items()}
        findings = [
            Finding(it["part"], states[it["state"]], it["text"], it["fix"], it["files"]) for it in described["findings"]
        ]
        return cls(described["backend"], described["available"], tuple(findings))


@dataclass(frozen=True, repr=False)
class Report:
    """The findings; `print` and Python's prompt show them as text.

    >>> report = tl.doctor()
    >>> "cpu" in [each.backend for each in report.backends]
    True
    """

    system: System
    """The versions of tallow and Python, and the machine."""
    backends: tuple[BackendReport, ...]
    """In the order of `Device.default()`."""

    def __repr__(self) -> str:
        return self.text()

    def text(self, *, has_colours: bool = False) -> str:
        """Return a line for each thing that was looked for, below its backend."""
        parts = ["\n".join(report.lines(has_colours=has_colours)) for report in self.backends]
        return "\n\n".join([str(self.system), *parts])

    def as_dict(self) -> dict[str, Any]:
        """Return the same in the types of JSON."""
        return {**system_dict(self.system), "backends": [report.as_dict() for report in self.backends]}


def system_dict(described: System) -> dict[str, Any]:
    """Return the description of a machine in the types of JSON."""
    return {
        "package": described.package,
        "python": described.python,
        "os": described.os,
        "cpu": described.cpu,
        "instructions": [*described.instructions],
    }


class DeviceClass(Protocol):
    """The class of a backend's devices: see `BackendDevice`."""

    def diagnose(self) -> Iterator[Finding]:
        """Yield what the backend needs or can use."""
        ...

    def is_available(self) -> bool:
        """Whether the first device can be opened."""
        ...


def doctor(*backends: str) -> Report:
    """Report what every backend needs, and what is here: modules, runtimes, devices, libraries, compilers, kernels.

    Opens the first device of each backend that is available, and compiles nothing. With `backends`, only
    these are checked; InvalidArgument for a name that none has. Raises nothing else: what an attempt raised is in the
    report, as the reason why something is missing.

    >>> report = tl.doctor()
    >>> [each.backend for each in report.backends if each.is_available and each.backend == "cpu"]
    ['cpu']
    """
    # Packages may have been installed since the last time.
    packages_of_modules.cache_clear()
    every = extensions.device_class.backends()
    names = [device_label(name, every)[0] for name in backends]
    return Report(
        system(), tuple(_examined(name, device) for name, device in every.items() if not names or name in names)
    )


def _examined(name: str, device: DeviceClass) -> BackendReport:
    findings: list[Finding] = []
    is_available = False
    try:
        findings.extend(device.diagnose())
        is_available = device.is_available()
    except Exception as error:  # whatever a broken installation raises is reported
        findings.append(Finding("runtime", False, f"{type(error).__name__}: {error}"))
    return BackendReport(name, is_available, tuple(findings))
