"""Start several processes of a program on this host: `python -m tallow.launch -n 4 program.py`."""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final

# Ranks that hear of one that failed end by themselves, and say why.
_SECONDS_TO_END: Final = 10.0
_SECONDS_BETWEEN: Final = 0.2
# The ranks are in sessions of their own, which no terminal and no batch system reaches.
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_OTHERS: Final = (signal.SIGUSR1, signal.SIGUSR2)


def main(arguments: Sequence[str] | None = None) -> int:
    """Start the ranks and wait for them. Returns the exit code of the first that failed, or 0."""
    parser = argparse.ArgumentParser(
        prog="python -m tallow.launch",
        description="Start a program several times, as the ranks of one group: see tallow.distributed.",
        epilog="example: python -m tallow.launch -n 4 examples/gpt.py --steps 100",
    )
    parser.add_argument("-n", dest="count", type=int, default=1, metavar="RANKS", help="how many processes (1)")
    parser.add_argument("-m", dest="module", action="store_true", help="PROGRAM is a module, as of `python -m`")
    parser.add_argument("program", metavar="PROGRAM", help="the path of a Python program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="the arguments of the program")
    options = parser.parse_args(arguments)
    if options.count < 1:
        parser.error(f"-n must be 1 or more, not {options.count}")
    program = ["-m", options.program] if options.module else [options.program]
    return start([sys.executable, *program, *options.arguments], options.count)


def start(command: Sequence[str], count: int) -> int:
    """Run a command as the ranks of one group: by mpirun where MPI is installed, else as `count` processes.

    Returns the exit code of the first that failed, or 0. SIGINT, SIGTERM, SIGHUP and, as SIGTERM, SIGQUIT go to the
    ranks, which have some seconds to end; the code is then 128 and the signal's number, as a shell's. SIGUSR1 and
    SIGUSR2 go to them, and end nothing by themselves.
    """
    variables = {"TALLOW_DISTRIBUTED_SECRET": secrets.token_hex(16), **os.environ}
    variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
    by_mpi = mpirun()
    if by_mpi is not None:
        flags = ["--allow-run-as-root"] if hasattr(os, "getuid") and os.getuid() == 0 else []
        flags += ["--map-by", ":OVERSUBSCRIBE", "--bind-to", "none"]
        return _Processes([([by_mpi, *flags, "-n", str(count), *command], variables)], "mpirun").wait()
    ranks = ({"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count)} for rank in range(count))
    return _Processes([(command, variables | rank) for rank in ranks], "rank").wait()


def mpirun() -> str | None:
    """The mpirun of this Python, or of the system; None where it or mpi4py is missing."""
    if find_spec("mpi4py") is None:
        return None
    own = Path(sys.executable).with_name("mpirun")
    return str(own) if own.exists() else shutil.which("mpirun")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


class _Processes:
    """Processes that begin and end together, each the leader of a session, so that all that it started ends too."""

    def __init__(self, commands: Iterable[tuple[Sequence[str], Mapping[str, str]]], name: str) -> None:
        self._name = name
        self._signal: int | None = None
        self._deadline = float("inf")
        self._processes: list[subprocess.Popen[bytes]] = []
        self._ends: SimpleQueue[tuple[int, int]] = SimpleQueue()
        self._previous = _take_over(self._forward)
        try:
            for number, (command, variables) in enumerate(commands):
                process = subprocess.Popen(command, env=variables, start_new_session=True)
                self._processes.append(process)
                waiter = threading.Thread(target=self._report_end, args=(number, process), daemon=True)
                waiter.start()
        except BaseException:
            self._end()
            raise

    def _report_end(self, number: int, process: subprocess.Popen[bytes]) -> None:
        self._ends.put((number, process.wait()))

    def _forward(self, number: int, _frame: object) -> None:
        """Give a signal to the processes; a second one that shall end them does so at once."""
        if number in _OTHERS:
            self._send(number)
            return
        self._deadline = time.monotonic() + (_SECONDS_TO_END if self._signal is None else 0.0)
        self._signal = self._signal or number
        # mpirun would leave its ranks at SIGQUIT.
        self._send(signal.SIGTERM if number == signal.SIGQUIT else number)

    def _send(self, number: int) -> None:
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)

    def wait(self) -> int:
        """Wait for all; where one fails, the others have some seconds to end too."""
        failed: int | None = None
        running = len(self._processes)
        try:
            while running and time.monotonic() <= self._deadline:
                try:
                    number, code = self._ends.get(timeout=_SECONDS_BETWEEN)
                except Empty:
                    continue
                running -= 1
                if code and failed is None:
                    failed = code
                    self._deadline = min(self._deadline, time.monotonic() + _SECONDS_TO_END)
                    if self._signal is None and self._name == "rank":
                        sys.stderr.write(f"tallow.launch: rank {number} {_ending(code)}\n")
        finally:
            self._end()
        if self._signal is not None:
            return 128 + self._signal
        if failed is None:
            return 0
        return failed if failed > 0 else 128 - failed

    def _end(self) -> None:
        """End what is left, processes that the ranks started included."""
        self._send(signal.SIGKILL)
        for process in self._processes:
            process.wait()
        for number, handler in self._previous.items():
            signal.signal(number, handler)


def _take_over(handler: Callable[[int, object], None]) -> dict[int, Any]:
    """Handle the signals that end ranks, except for those that are ignored, as SIGHUP is below nohup.

    Returns the handlers that there were.
    """
    if threading.current_thread() is not threading.main_thread():
        return {}
    previous: dict[int, Any] = {number: signal.getsignal(number) for number in (*_ENDING, *_OTHERS)}
    taken = {number: before for number, before in previous.items() if before not in (signal.SIG_IGN, None)}
    for number in taken:
        signal.signal(number, handler)
    return taken


def _ending(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


if __name__ == "__main__":
    raise SystemExit(main())
