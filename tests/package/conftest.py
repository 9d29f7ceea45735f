"""What the tests of the GPU backends share: a device, and the controls of the HIP runtime for the CPU."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tallow.error import BackendUnavailable

from . import backend


def pytest_configure(config: pytest.Config) -> None:
    backend.choose(config.getoption("--device"))


class Host:
    """What only the HIP runtime for the CPU has: failures on demand, a log of calls, counts of live objects."""

    def __init__(self, library: ctypes.CDLL) -> None:
        library.hip_host_log_take.restype = ctypes.c_char_p
        library.hip_host_live.restype = ctypes.c_long
        library.hip_host_fail.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_int]
        self._library = library

    def fail(self, function: str | None, nth: int = 1, error: int = 0) -> None:
        self._library.hip_host_fail(function.encode() if function else None, nth, error)

    def keep_log(self, on: bool) -> None:
        self._library.hip_host_log_keep(int(on))

    def take_log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._library.hip_host_log_take().decode().splitlines()]

    def live(self, kind: str) -> int:
        return int(self._library.hip_host_live(kind.encode()))


@pytest.fixture
def gpu():
    """The first device of the backend that the tests run on."""
    backend.require_package()
    try:
        return backend.own("Device")(0)
    except BackendUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def rocm():
    """The first device of rocm, for tests of what rocm alone has."""
    pytest.importorskip("hip")
    from tallow.rocm_backend import RocmDevice

    try:
        return RocmDevice(0)
    except BackendUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def host(rocm) -> Iterator[Host]:
    library = ctypes.CDLL(str(Path(os.environ.get("ROCM_PATH", "/opt/rocm")) / "lib" / "libamdhip64.so"))
    if not hasattr(library, "hip_host_fail"):
        pytest.skip("only the HIP runtime for the CPU fails on demand")
    host = Host(library)
    host.keep_log(True)
    yield host
    host.fail(None)
    host.keep_log(False)


@pytest.fixture
def run_python() -> Callable[..., str]:
    """Runs a script in a process of its own, in which nothing is loaded, and returns what it printed."""

    def run(script: str, **settings: str) -> str:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | settings
        command = [sys.executable, "-W", "error", "-c", textwrap.dedent(script)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        assert not done.stderr, done.stderr
        assert done.returncode == 0
        return done.stdout

    return run
