"""The self-test of a device: `python -m tallow.selftest`."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Sequence
from typing import IO, Any, Final

from ..base.error import InvalidArgument
from ..core.argument import device_label
from ..doctor.machine import anonymous
from .report import FAILED, PASSED, SKIPPED, FamilyResult, SelftestReport, Text
from .worker import TIMES

PATIENCE: Final = 300.0
"""Seconds without a message after which the child process counts as hung."""
_LEAVING: Final = 10.0
"""Seconds that the child process has to end after its last message."""
_LINES_OF_ERRORS: Final = 4
_PACKAGE: Final = __name__.partition(".")[0]

_EXAMPLES: Final = """\
examples:
  python -m {package}.selftest                       test the best device that is here
  python -m {package}.selftest {device:20}  test one device
  python -m {package}.selftest --json > report.json  write the report for programs

exit codes:
  0    every family of kernels gives what NumPy gives
  1    at least one does not, and the report names it
  2    the device cannot be used, or the command line is wrong
  130  interrupted; the report has what was tried before

The kernels run in a process of their own: one that crashes or hangs is the failure of its family, and the others are
tried all the same. Kernels that no one has compiled yet are compiled, which takes a minute or two on a GPU. Nothing in
the report names the user or the host."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what the self-test of a device finds. Returns the exit code."""
    options = _parser().parse_args(arguments)
    has_colours = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    command = [sys.executable, "-m", f"{_PACKAGE}.runtime.selftest.worker"]
    test = Selftest(options.device or "", command, None if options.json else Text(has_colours=has_colours))
    try:
        with contextlib.suppress(KeyboardInterrupt):
            test.run()
        test.end()
        if options.json:
            print(json.dumps(test.report.as_dict(), indent=2))
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads it has seen enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return test.report.exit_code


def _parser() -> argparse.ArgumentParser:
    from ...device_base import DeviceBase

    names = [*DeviceBase.backends()]
    parser = argparse.ArgumentParser(
        prog=f"python -m {_PACKAGE}.selftest",
        description="Run every family of kernels of a device on small operands, compare the results with those of"
        " NumPy, and time a few kernels.",
        epilog=_EXAMPLES.format(package=_PACKAGE, device=f"--device {names[0]}"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--device",
        type=_device,
        help=f"{', '.join(names)}; NAME:1 is the second device (the best one that is here)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    return parser


def _device(label: str) -> str:
    from ...device_base import DeviceBase

    try:
        device_label(label, DeviceBase.backends())
    except InvalidArgument as error:
        raise argparse.ArgumentTypeError(error.reason) from error
    return label


def reports_to() -> str:
    """Where users send reports: the page `Issues` of the installed package, if its metadata have one."""
    from importlib.metadata import PackageNotFoundError, metadata

    with contextlib.suppress(PackageNotFoundError):
        for entry in metadata(_PACKAGE).get_all("Project-URL") or ():
            label, _, url = entry.partition(",")
            if label.strip() == "Issues":
                return f"to {url.strip()}"
    return f"to where you got {_PACKAGE} from"


class Selftest:
    """A self-test: `command` starts the child process that runs kernels, again after each crash."""

    def __init__(self, device: str, command: Sequence[str], text: Text | None) -> None:
        self.report = SelftestReport(reports_to(), device)
        self._command = command
        self._text = text
        self._progress = Progress(sys.stderr)
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        # The family and the cell that the child process is trying.
        self._family: FamilyResult | None = None
        self._cell = ""
        self._names: list[str] = []
        self._begun_times = False

    def run(self) -> None:
        """Run it; after KeyboardInterrupt the report has the results so far."""
        try:
            while self._run_once():
                pass
        finally:
            self._progress.clear()
            self._close()

    def end(self) -> None:
        """Print the result."""
        self._print(self._text.end(self.report) if self._text else ())

    def _run_once(self) -> bool:
        """Start the child process and handle its messages; return whether another one must continue after a crash."""
        done = [family.family for family in self.report.families]
        label = self.report.device
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
            process = subprocess.Popen(
                [*self._command, label, *done],
                stdout=subprocess.PIPE,
                stderr=errors,
                stdin=subprocess.DEVNULL,
                text=True,
            )
            self._process = process
            for message in self._messages(process):
                self._take(message)
                if message["event"] in ("end", "unusable"):
                    self._close(_LEAVING)
                    return False
            code = process.poll()
            self._close()
            errors.seek(0)
            return self._lose(code, errors.read(), len(done))

    def _messages(self, process: subprocess.Popen[str]) -> Iterable[dict[str, Any]]:
        """Yield messages until the process ends, or says nothing for too long and is killed."""
        lines: queue.Queue[str | None] = queue.Queue()
        assert process.stdout is not None

        def read(stream: IO[str]) -> None:
            for line in stream:
                lines.put(line)
            lines.put(None)

        self._reader = threading.Thread(target=read, args=(process.stdout,), daemon=True)
        self._reader.start()
        while True:
            try:
                line = lines.get(timeout=PATIENCE)
            except queue.Empty:
                return
            if line is None:
                process.wait()
                return
            with contextlib.suppress(json.JSONDecodeError):  # the last line of a process that was killed
                yield json.loads(line)

    def _take(self, message: dict[str, Any]) -> None:
        report = self.report
        match message:
            case {"event": "doctor", **facts}:
                report.device, report.description = facts["device"], facts["description"]
                report.system, report.backend = facts["system"], facts["backend"]
                self._print(self._text.head(report) if self._text else ())
            case {"event": "unusable", "reason": reason}:
                report.lose(self._names, reason)
            case {"event": "families", "names": names, "skipped": skipped}:
                if not self._names:
                    self._names = names
                    self._print(self._text.families(report) if self._text else ())
                    for name, reason in skipped.items():
                        self._add(FamilyResult(name, SKIPPED, reason=reason))
            case {"event": "begin", "family": family} if family == TIMES:
                self._family, self._cell = None, "times"
                self._begun_times = True
                self._print(self._text.times() if self._text else ())
            case {"event": "begin", "family": family, "supported": supported}:
                self._family = FamilyResult(family, FAILED, supported=supported)
            case {"event": "try", "name": name} if self._family:
                self._cell = name
                self._family.tried += 1
                tried = sum(family.status != SKIPPED for family in report.families)
                self._progress.show(f"{tried + 1} of {len(self._names)} families: {name}")
            case {"event": "done", "seconds": seconds, "failed": failed, "failures": failures} if self._family:
                self._family.seconds, self._family.failed, self._family.failures = seconds, failed, failures
                self._family.status = FAILED if failed else PASSED
                self._add(self._family)
                self._family = None
            case {"event": "time", **time}:
                report.times.append(time)
                self._print(self._text.time(time) if self._text else ())
            case {"event": "end"}:
                report.finish()

    def _add(self, result: FamilyResult) -> None:
        self.report.families.append(result)
        self._print(self._text.family(result) if self._text else ())

    def _lose(self, code: int | None, errors: str, before: int) -> bool:
        """Report how the child process was lost; return whether another one, with more families done, continues."""
        how = _how_it_ended(code)
        said = "\n".join(anonymous(errors).splitlines()[-_LINES_OF_ERRORS:])
        report = self.report
        if self._family is not None:
            text = f"the process that ran it {how}; what comes after it in the family was not tried"
            self._family.failed += 1
            self._family.failures.append({"name": self._cell, "text": f"{text}\n{said}".rstrip()})
            self._add(self._family)
            self._family = None
            return True
        if self._begun_times:
            report.finish()
            report.reason = f"times are missing, since the process that measured them {how}"
            return False
        if code == 0 and len(report.families) > before:
            # A kernel's error was the end of the device for that process.
            return True
        report.lose(self._names, f"the process that opened the device {how}{f': {said}' if said else ''}")
        return False

    def _close(self, seconds: float = 0.0) -> None:
        """End the process if it does not end by itself within a time, and close what it was read from."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self._reader is not None:
            self._reader.join()
        if process.stdout is not None:
            process.stdout.close()

    def _print(self, lines: Iterable[str]) -> None:
        self._progress.clear()
        for line in lines:
            print(line, flush=True)


class Progress:
    """A line on a terminal that the next one overwrites."""

    def __init__(self, stream: IO[str] | None) -> None:
        self._stream = stream if stream is not None and stream.isatty() else None
        self._is_shown = False

    def show(self, text: str) -> None:
        """Show a line that replaces the last one."""
        if self._stream is not None:
            print(f"\r\033[K{text[:78]}", end="", file=self._stream, flush=True)
            self._is_shown = True

    def clear(self) -> None:
        """Erase the line, so that others can be printed."""
        if self._stream is not None and self._is_shown:
            print("\r\033[K", end="", file=self._stream, flush=True)
            self._is_shown = False


def _how_it_ended(code: int | None) -> str:
    if code is None:
        return f"gave no answer within {PATIENCE:.0f} seconds and was ended"
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"was ended by {signal.Signals(-code).name}"
    return f"ended with code {code}"
