"""The description of the machine and of the packages of a run, and a process that does not pause while it is timed."""

from __future__ import annotations

import gc
import platform
import shutil
import subprocess
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

from . import sources


def described(command: str, gpu: dict[str, str], packages: Sequence[str]) -> dict[str, str]:
    """Return the facts that a reader needs to repeat a run, with those of its GPU."""
    return {
        "command": command,
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        **gpu,
        "Python": platform.python_version(),
        **{package: _version(package) for package in packages},
        "sources of tallow": f"{sources.checksum()} (python -m benchmarks.gpu sources)",
    }


def driver() -> str:
    """The version of NVIDIA's driver."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return "unknown"
    query = [program, "--query-gpu=driver_version", "--format=csv,noheader", "--id=0"]
    return subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


def _version(package: str) -> str:
    try:
        return str(import_module(package).__version__)
    except ImportError:
        return "not installed"


def summary(error: Exception) -> str:
    """Describe an error and its location in a line."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text} ({Path(frame.filename).name}:{frame.lineno})"


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Collect garbage now, and none until the end of the block."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
