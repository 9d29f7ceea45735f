"""Fixtures of the GPU backends' tests: a device, and the controls of the HIP runtime for the CPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator

import pytest
from compilers import compile_host_kernels
from forks import Forks
from hip_runtime import Host
from tallow import Device
from tallow.runtime.backends.gpu_backend.driver.stream import release_finished
from tallow.runtime.base.error import BackendUnavailable

from . import backend
from .gradcheck import Gradcheck

# SciPy reads it when it is imported: with it, its functions ask arrays for their namespace.
os.environ["SCIPY_ARRAY_API"] = "1"


def pytest_configure(config: pytest.Config) -> None:
    backend.choose(config.getoption("--device"))
    compile_host_kernels()


@pytest.fixture
def gradcheck(device: Device, full: bool) -> Gradcheck:
    """A check of gradients on the device that the tests run on."""
    return Gradcheck(device, full)


@pytest.fixture
def gpu():
    """The first device of the backend that the tests run on."""
    backend.require_package()
    try:
        return backend.own("Device")(0)
    except BackendUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def objects(gpu):
    """The classes of handles of the backend that the tests run on."""
    return backend.objects()


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
    host = Host.found()
    if host is None:
        pytest.skip("only the HIP runtime for the CPU fails on demand")
    # What other tests copied without waiting is given back now, and does not meet a failure that is asked for.
    release_finished()
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
        return _output_of(subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300))

    return run


@pytest.fixture(scope="module")
def forks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """A process that has run the IMPORTS of a module of tests."""
    forks = Forks(request.module.IMPORTS, tmp_path_factory.mktemp("forks"), "-W", "error")
    yield forks
    forks.close()


@pytest.fixture
def run_forked(forks: Forks) -> Callable[..., str]:
    """Runs a script in a process of its own, which has the module's IMPORTS, and returns what it printed."""

    def run(script: str, **settings: str) -> str:
        return _output_of(forks.run(textwrap.dedent(script), settings))

    return run


def _output_of(done: subprocess.CompletedProcess[str]) -> str:
    """Return the output of a script that neither fails nor warns. A busy machine compiles outdated kernels slowly."""
    errors = re.sub("^tallow compiles kernels at their first use: .*\n", "", done.stderr, flags=re.MULTILINE)
    assert not errors, done.stdout + errors
    assert done.returncode == 0
    return done.stdout
