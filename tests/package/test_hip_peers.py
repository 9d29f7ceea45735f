"""Copies between two devices over HIP: the way that they take, and what fails."""

from __future__ import annotations

import pytest

pytest.importorskip("hip")

IMPORTS = """
import numpy as np
from hip_runtime import Host
from tallow import Tensor
from tallow.rocm_backend.hip import HipError
"""
USE = (
    IMPORTS
    + """
host = Host()
host.keep_log(True)
tensor = Tensor.from_numpy(np.arange(100.0), "rocm:0")
Tensor.zeros(1, device="rocm:1")
moved = lambda: (tensor.to("rocm:1").numpy() == np.arange(100.0)).all()
def calls(name):
    return [{key: entry[key] for key in entry if key != "call"} for entry in host.take_log() if entry["call"] == name]
"""
)


@pytest.fixture(autouse=True)
def on_the_cpu(host):
    """These read the log of the runtime for the CPU."""


def test_the_direct_way_is_opened_once_and_taken(run_forked):
    run_forked(
        USE
        + """
from tallow.rocm_backend.hip import HipDevice
assert moved() and moved()
log = host.take_log()
enabled = [(entry["device"], entry["peer"]) for entry in log if entry["call"] == "hipDeviceEnablePeerAccess"]
copied = [entry for entry in log if entry["call"] == "hipMemcpyPeer"]
assert enabled == [(0, 1)], enabled
assert [(entry["bytes"], entry["from"], entry["to"], entry["direct"]) for entry in copied] == [(800, 0, 1, 1)] * 2
# Somebody else, such as PyTorch, may have opened it before.
assert HipDevice(0).let_reach(HipDevice(1))
""",
        HIP_HOST_DEVICES="2",
        HIP_HOST_PEERS="1",
    )


def test_without_a_direct_way_the_runtime_finds_another(run_forked):
    run_forked(
        USE
        + """
assert moved()
assert [entry["direct"] for entry in calls("hipMemcpyPeer")] == [0]
""",
        HIP_HOST_DEVICES="2",
    )


@pytest.mark.parametrize(
    ("call", "nth"),
    [
        ("hipDeviceCanAccessPeer", 1),
        ("hipDeviceEnablePeerAccess", 1),
        ("hipMemcpyPeer", 1),
        *((call, nth) for call in ("hipEventCreate", "hipEventRecord", "hipStreamWaitEvent") for nth in (1, 2)),
    ],
)
@pytest.mark.parametrize("lazy", [pytest.param("0", marks=pytest.mark.full), "1"])
def test_a_call_that_fails_is_named_and_the_next_one_works(run_forked, call, nth, lazy):
    run_forked(
        USE
        + f"""
host.fail("{call}", {nth})
try:
    moved()
except HipError as error:
    assert error.call.startswith("{call}") and "rocm:" in str(error), error
else:
    raise AssertionError("no error")
assert moved()
""",
        HIP_HOST_DEVICES="2",
        HIP_HOST_PEERS="1",
        HIP_HOST_LAZY=lazy,
    )
