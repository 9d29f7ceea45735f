"""Builds the runtime, and makes hip-python find it: it reads ROCM_PATH when a library is first called."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("hip", reason="hip-python is not installed")

FOLDER = Path(__file__).parent
BUILD = FOLDER.parents[1] / "build" / "hip_host"

subprocess.run([FOLDER / "build.sh", BUILD], check=True)
os.environ["ROCM_PATH"] = str(BUILD)

from forks import Forks  # noqa: E402
from hip_runtime import Host  # noqa: E402

PRELUDE = "from hip_host_driver import *\nfrom hip_runtime import Host\nimport struct\n"
HostRun = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def host() -> Iterator[Host]:
    host = Host()
    host.fail(None)
    yield host
    host.fail(None)
    host.keep_log(False)


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """A process that has imported hip-python, and called none of it."""
    forks = Forks(PRELUDE, tmp_path_factory.mktemp("forks"))
    yield forks
    forks.close()


@pytest.fixture
def run_script(forks: Forks) -> HostRun:
    """Runs Python code in a process of its own, since the runtime reads its settings once."""
    return lambda code, **settings: forks.run(PRELUDE + code, settings)
