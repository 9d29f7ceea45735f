"""Several processes of a program on this host: `python -m tallow.launch -n 4 program.py`."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

# Ranks that hear of one that failed end by themselves, and say why.
_SECONDS_TO_END: Final = 10.0
_SECONDS_BETWEEN: Final = 0.02


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
    parser.add_argument("rest", nargs=argparse.REMAINDER, metavar="...", help="what the program is given")
    options = parser.parse_args(arguments)
    if options.count < 1:
        parser.error(f"-n must be 1 or more, not {options.count}")
    program = ["-m", options.program] if options.module else [options.program]
    return start([sys.executable, *program, *options.rest], options.count)


def start(command: Sequence[str], count: int) -> int:
    """Run a command as so many ranks: by mpirun where MPI is installed, else one process after the other."""
    variables = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
    by_mpi = mpirun()
    if by_mpi is not None:
        flags = ["--allow-run-as-root"] if hasattr(os, "getuid") and os.getuid() == 0 else []
        flags += ["--map-by", ":OVERSUBSCRIBE", "--bind-to", "none"]
        return subprocess.run([by_mpi, *flags, "-n", str(count), *command], env=variables, check=False).returncode
    ranks = [
        subprocess.Popen(
            command,
            env={**variables, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count)},
        )
        for rank in range(count)
    ]
    return _wait(ranks)


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


def _wait(ranks: Sequence[subprocess.Popen[bytes]]) -> int:
    """Wait for all; where one fails, the others have some seconds to end too."""
    failed: int | None = None
    deadline = float("inf")
    try:
        codes: list[int | None] = [None]
        while None in codes and time.monotonic() <= deadline:
            time.sleep(_SECONDS_BETWEEN)
            codes = [rank.poll() for rank in ranks]
            first = next((number for number, code in enumerate(codes) if code), None)
            if failed is None and first is not None:
                failed = first
                deadline = time.monotonic() + _SECONDS_TO_END
                sys.stderr.write(f"tallow.launch: rank {first} {_ending(codes[first] or 0)}\n")
    finally:
        for rank in ranks:
            if rank.poll() is None:
                rank.kill()
            rank.wait()
    if failed is None:
        return 0
    code = ranks[failed].returncode
    return code if code > 0 else 128 - code


def _ending(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


if __name__ == "__main__":
    raise SystemExit(main())
