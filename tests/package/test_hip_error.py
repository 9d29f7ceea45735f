"""Errors of the HIP layer, and what it says when the runtime is missing, broken or too old."""

import inspect
import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("hip")

from hip import hip
from tallow.rocm_backend import hip as hip_package
from tallow.rocm_backend.hip import HipClosed, HipError, check, error_string, require_runtime
from tallow.runtime.backends.gpu_backend.driver.device import _start
from tallow.runtime.base.error import BackendUnavailable, InvalidArgument, TallowError

SUCCESS = hip.hipError_t.hipSuccess


def test_check_unpacks_what_a_call_returns():
    assert check("hipSetDevice", (SUCCESS,)) is None
    assert check("hipGetDevice", (SUCCESS, 3)) == 3
    assert check("hipMemGetInfo", (SUCCESS, 1, 2)) == (1, 2)


def test_check_raises_hips_own_name_and_code(monkeypatch):
    cleared = []
    monkeypatch.setattr(hip, "hipGetLastError", lambda: cleared.append(1))
    with pytest.raises(HipError, match=re.escape("hipMalloc (8 bytes): hipErrorOutOfMemory, code 2")) as caught:
        check("hipMalloc", (hip.hipError_t.hipErrorOutOfMemory, None), "8 bytes")
    error = caught.value
    assert (error.call, error.name, error.code, error.detail) == ("hipMalloc", "hipErrorOutOfMemory", 2, "8 bytes")
    assert error.recoverable
    assert error.out_of_memory
    assert isinstance(error, TallowError)
    assert isinstance(error, RuntimeError)
    assert cleared == [1], "the error stayed behind for the next library"


@pytest.mark.parametrize(
    ("name", "recoverable"),
    [
        ("hipErrorInvalidValue", True),
        ("hipErrorOutOfMemory", True),
        ("hipErrorNotFound", True),
        ("hipErrorNoBinaryForGpu", True),
        ("hipErrorIllegalAddress", False),
        ("hipErrorLaunchFailure", False),
        ("hipErrorLaunchTimeOut", False),
        ("hipErrorAssert", False),
        ("hipErrorECCNotCorrectable", False),
    ],
)
def test_what_can_be_recovered_from(name, recoverable):
    error = HipError("hipStreamSynchronize", name, int(hip.hipError_t[name]))
    assert error.recoverable is recoverable
    assert error.permanent is not recoverable
    assert ("start a new" in str(error)) is not recoverable


@pytest.mark.parametrize(
    "status", [2, hip.hipError_t.hipErrorOutOfMemory, HipError("hipMalloc", "hipErrorOutOfMemory", 2)], ids=type
)
def test_error_strings_are_hips_own_words(rocm, status):
    assert error_string(status) == "out of memory"
    assert error_string(700) == "an illegal memory access was encountered"


@pytest.mark.parametrize("status", [-1, 12345, "hipErrorOutOfMemory", None])
def test_there_is_no_error_string_of_what_is_no_status(rocm, status):
    with pytest.raises(InvalidArgument, match=r"error_string: .* is no code of HIP's; give one"):
        error_string(status)


def test_every_unrecoverable_name_is_one_of_hips():
    assert {status.name for status in hip.hipError_t} >= HipError.unrecoverable


@pytest.mark.parametrize("error", [HipError("hipFree", "hipErrorInvalidValue", 1, "rocm:0"), HipClosed("<HipStream>")])
def test_errors_survive_pickling(error):
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)


def test_closed_names_what_was_closed():
    assert str(HipClosed("<HipStream on rocm:0>")).startswith("<HipStream on rocm:0> is closed")
    assert issubclass(HipClosed, ValueError)


def test_every_public_name_of_hip_has_a_docstring():
    for name in hip_package.__all__:
        thing = getattr(hip_package, name)
        if not (inspect.isclass(thing) or inspect.isfunction(thing)):
            continue
        assert inspect.getdoc(thing), name
        for member, value in inspect.getmembers(thing):
            if not member.startswith("_") and (inspect.isroutine(value) or isinstance(value, property)):
                assert inspect.getdoc(value), f"{name}.{member}"


def unavailable(rocm: Path) -> str:
    """What a process says whose ROCM_PATH is `rocm`."""
    script = (
        "from tallow.rocm_backend.hip import device_count\n"
        "from tallow.runtime.base.error import BackendUnavailable\n"
        "try:\n    device_count()\n"
        "except BackendUnavailable as error:\n    print(error)\n"
    )
    environment = os.environ | {"ROCM_PATH": str(rocm), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", script]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_a_runtime_that_does_not_load(tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libamdhip64.so").write_bytes(b"no library")
    said = unavailable(tmp_path)
    assert "the HIP runtime does not load" in said
    assert "ROCM_PATH" in said


def test_a_runtime_that_is_too_old(tmp_path):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    (tmp_path / "lib").mkdir()
    source = tmp_path / "old.c"
    source.write_text("int hipGetDeviceCount(int *count) { *count = 1; return 0; }\n")
    library = tmp_path / "lib" / "libamdhip64.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    said = unavailable(tmp_path)
    assert f"the HIP runtime of {library} lacks" in said
    assert "ROCM_PATH" in said
    assert "hipMemcpyAsync" in said
    assert "hipGetDeviceCount" not in said


def test_a_missing_runtime_is_asked_for_again(monkeypatch):
    _start.cache_clear()
    monkeypatch.setattr(hip, "has_symbol", lambda name: name != "hipMalloc")
    with pytest.raises(BackendUnavailable, match="hipMalloc"):
        require_runtime()
    monkeypatch.undo()
    _start.cache_clear()
