"""Whatever a public call is given, it succeeds or raises one of tallow's errors, and the device goes on working."""

from __future__ import annotations

import itertools
import re
import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tallow
from hypothesis import HealthCheck, given, settings
from tallow import DType, Layout, TallowError, UnaryOp

from . import hostile

SURFACE = hostile.surface()
# What the protocols of Python and DLPack ask of these methods, besides errors of tallow.
PROTOCOL = {
    "Tensor.__array__": (TypeError, ValueError),
    "Tensor.__dlpack__": (BufferError,),
    "Tensor.__format__": (ValueError, TypeError),
}
ROOM = 1 << 30


def test_every_call_and_every_parameter_has_arguments_that_fit() -> None:
    assert {
        "cat",
        "Tensor",
        "Tensor.add",
        "Tensor.__getitem__",
        "Storage.matmul",
        "Device.parse",
        "Shape.dim",
    } <= SURFACE.keys()
    assert {"Layout.narrow", "ParamsConv2D", "load_safetensors", "set_print_options", "UnaryOp"} <= SURFACE.keys()
    owners = {call.owner for call in SURFACE.values() if call.owner is not None}
    assert owners <= hostile.FITTING.keys()
    lacking = [
        f"{call.name}({parameter})"
        for call in SURFACE.values()
        for parameter in call.parameters
        if not hostile.fitting(call, parameter) and not re.search("Never|Any|object", str(parameter.annotation))
    ]
    assert not lacking


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: tallow.Device) -> Iterator[None]:
    """A folder for files, and a limit of memory, beyond which results are too large."""
    monkeypatch.chdir(tmp_path)
    seed = device.get_current_seed()
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    used = (
        int(
            next(
                line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmData")
            ).split()[1]
        )
        * 1024
    )
    resource.setrlimit(resource.RLIMIT_DATA, (used + ROOM, hard))
    yield
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    tallow.set_print_options()
    device.set_seed(seed)


def check(example: hostile.Example, device: tallow.Device) -> None:
    for step in (lambda: example.run(device), device.synchronize):
        try:
            result = step()
            if isinstance(result, Iterator):
                list(itertools.islice(result, 3))
        except TallowError as error:
            assert str(error)
        except PROTOCOL.get(example.call.name, ()):
            pass
    vector = Layout.contiguous((3,))
    found = device.storage(np.array([1.0, -2.0, 3.0], np.float32)).unary_impl(UnaryOp.NEG, vector)
    assert found.to_numpy().tolist() == [-1.0, 2.0, -3.0]
    assert tallow.Tensor.zeros(2, dtype=DType.U8, device=device).tolist() == [0, 0]


fixtures = settings(suppress_health_check=list(HealthCheck))


@settings(fixtures, max_examples=400)
@given(example=hostile.examples(SURFACE))
def test_hostile_arguments_meet_errors_of_tallow(room: None, device: tallow.Device, example: hostile.Example) -> None:
    check(example, device)


@pytest.mark.full
@settings(fixtures, max_examples=20_000)
@given(example=hostile.examples(SURFACE))
def test_many_hostile_arguments_meet_errors_of_tallow(
    room: None, device: tallow.Device, example: hostile.Example
) -> None:
    check(example, device)
