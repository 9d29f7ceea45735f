"""What was found of all backends, and how people read it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .finding import Finding, packages_of_modules

if TYPE_CHECKING:
    from ..backends.backend import BackendDevice

_MARKS: Final = {True: ("ok", 32), False: ("missing", 31), None: ("-", 33)}
_BOLD: Final = 1


@dataclass(frozen=True)
class BackendReport:
    """What was found of one backend."""

    backend: str
    is_available: bool
    """Whether its first device can be opened."""
    findings: tuple[Finding, ...]


@dataclass(frozen=True, repr=False)
class Report:
    """What was found; `print` and Python's prompt show it as people read it."""

    system: str
    """The versions of tallow and Python, and the machine."""
    backends: tuple[BackendReport, ...]
    """In the order of `Device.default()`."""

    def __repr__(self) -> str:
        return self.text()

    def text(self, *, has_colours: bool = False) -> str:
        """A line for each thing that was looked for, below its backend."""
        return "\n".join(self._lines(has_colours))

    def _lines(self, has_colours: bool) -> Iterator[str]:
        def painted(text: str, colour: int) -> str:
            return f"\033[{colour}m{text}\033[0m" if has_colours else text

        yield self.system
        for report in self.backends:
            state, colour = ("available", 32) if report.is_available else ("not available", 31)
            yield f"\n{painted(report.backend, _BOLD)}: {painted(state, colour)}"
            width = max((len(finding.part) for finding in report.findings), default=0)
            for part, is_there, text, mend in report.findings:
                mark, colour = _MARKS[is_there]
                yield f"  {painted(f'{mark:7}', colour)}  {part:{width}}  {text}{f'; {mend}' if mend else ''}"


def doctor() -> Report:
    """What every backend needs, and what of it is here: modules, runtimes, devices, libraries, compilers, kernels.

    Opens the first device of each backend that is available, and compiles nothing. Raises nothing: what an attempt
    raised is in the report, as the reason why something is missing.
    """
    import platform

    from ... import __version__
    from ...device_base import DeviceBase

    # Packages may have been installed since the last time.
    packages_of_modules.cache_clear()
    system = f"tallow {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    return Report(system, tuple(_examined(name, device) for name, device in DeviceBase.backends().items()))


def _examined(name: str, device: type[BackendDevice]) -> BackendReport:
    findings: list[Finding] = []
    is_available = False
    try:
        findings.extend(device.examine())
        is_available = device.is_available()
    except Exception as error:  # whatever a broken installation raises is what to tell
        findings.append(Finding("runtime", False, f"{type(error).__name__}: {error}"))
    return BackendReport(name, is_available, tuple(findings))
