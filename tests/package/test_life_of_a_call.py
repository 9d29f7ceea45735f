"""The life of a call in docs/architecture.md: each hop is where the page says, and calls take the hops in order."""

from __future__ import annotations

import operator
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import tallow as tl

ROOT = Path(__file__).parents[2]
SECTION = re.compile(r"^## The life of a call\n(.*?)^#", re.MULTILINE | re.DOTALL)
# Modules of data: what ops there are, what their kernels' structs look like, by which calls a driver does what, what a
# program consists of, and a dict.
DATA = frozenset(
    {
        "generated/tallow/op.py",
        "generated/tallow/kernels/arguments.py",
        "generated/tallow/drivers/cuda.py",
        "generated/tallow/drivers/rocm.py",
        "runtime/program/values.py",
        "runtime/base/bounded_cache.py",
    }
)
HOP = re.compile(r"^\| (\**)`([\w.]+)`\** \| `([\w/.]+)` \|", re.MULTILINE)


def hops() -> list[tuple[bool, str, str]]:
    """For each hop whether a later call takes it, what it names, and its file."""
    section = SECTION.search((ROOT / "docs/architecture.md").read_text(encoding="utf-8"))
    assert section is not None
    return [(bool(stars), name, path) for stars, name, path in HOP.findall(section[1])]


def test_each_hop_is_in_its_file() -> None:
    assert len(hops()) >= 8
    for _, name, path in hops():
        text = (ROOT / path).read_text(encoding="utf-8")
        *_, last = name.split(".")
        assert re.search(rf"^ *(class|def) {last}\b", text, re.MULTILINE), (name, path)


def files_of_calls(call) -> list[str]:
    """The files of the package whose functions a call enters, in the order in which it enters them."""
    entered: list[str] = []

    def note(frame, event, _):
        if event == "call":
            path = frame.f_code.co_filename.replace("generated/tallow/runtime/", "runtime/")
            entered.append(path.removeprefix(f"{ROOT}/"))

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return [path for path in entered if path.startswith(("generated/", "runtime/"))]


def follow(call) -> tuple[list[str], int]:
    """The files that a reader opens to follow a call, and how often it goes from generated/ to runtime/ or back.

    A file counts if the call enters one of its functions, unless it is of DATA.
    """
    entered = [path for path in files_of_calls(call) if path not in DATA]
    is_emitted = [path.startswith("generated/") for path in entered]
    return list(dict.fromkeys(entered)), sum(map(operator.ne, is_emitted, is_emitted[1:]))


def test_calls_take_the_hops_in_order(gpu) -> None:
    x = tl.Tensor.from_numpy(np.ones(5, "f4"), tl.Device(gpu))
    # A module of ops is imported when it is first asked for.
    x.exp()
    gpu.plans.clear()
    expected = [(is_short, path) for is_short, _, path in hops()]
    first = list(dict.fromkeys(files_of_calls(x.gelu)))
    assert [path for path in first if path in [path for _, path in expected]] == [path for _, path in expected]
    x.gelu()
    later = list(dict.fromkeys(files_of_calls(x.gelu)))
    assert [path for path in later if path in [path for _, path in expected]] == [p for short, p in expected if short]


def test_a_first_call_is_short_to_read(gpu) -> None:
    device = tl.Device(gpu)
    x = tl.Tensor.from_numpy(np.ones(5, "f4"), device)
    # The code object of the family is loaded, and the allocator has memory.
    x.exp()
    gpu.plans.clear()
    gpu.kernels._functions.pop("gelu_f32_contiguous", None)
    files, changes = follow(x.gelu)
    # A stream of HIP checks more: test_cuda_driver.py counts on cuda.
    assert len(files) <= 17, files
    assert changes <= 3


@pytest.mark.parametrize("path", sorted({path for *_, path in hops()}))
def test_files_are_named_once_each(path: str) -> None:
    assert [own for *_, own in hops()].count(path) == 1
