"""Builds the runtime, and makes hip-python find it: it reads ROCM_PATH when a library is first called."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("hip", reason="hip-python is not installed")

FOLDER = Path(__file__).parent
BUILD = FOLDER.parents[1] / "build" / "hip_host"

subprocess.run([FOLDER / "build.sh", BUILD], check=True)
os.environ["ROCM_PATH"] = str(BUILD)

from hip_runtime import Host  # noqa: E402

HostRun = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def host() -> Iterator[Host]:
    host = Host()
    host.fail(None)
    yield host
    host.fail(None)
    host.keep_log(False)


@pytest.fixture
def run_script() -> HostRun:
    """Runs Python code in a process of its own, since the runtime reads its settings once."""

    def run(code: str, **settings: str) -> subprocess.CompletedProcess[str]:
        prelude = "from hip_host_driver import *\nfrom hip_runtime import Host\nimport struct\n"
        return subprocess.run(
            [sys.executable, "-c", prelude + code],
            env={**os.environ, "PYTHONPATH": f"{FOLDER}{os.pathsep}{FOLDER.parent}", **settings},
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run
