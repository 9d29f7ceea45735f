"""The life of a call in docs/architecture.md: each hop is where the page says, and calls take the hops in order."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
import tallow as tl

ROOT = Path(__file__).parents[2]
SECTION = re.compile(r"^## The life of a call\n(.*?)^#", re.MULTILINE | re.DOTALL)
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
    """The files of the package whose functions a call enters, each where it is first entered."""
    entered: dict[str, None] = {}

    def note(frame, event, _):
        if event == "call":
            path = frame.f_code.co_filename.replace("generated/tallow/runtime/", "runtime/")
            entered[path.removeprefix(f"{ROOT}/")] = None

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return list(entered)


def test_calls_take_the_hops_in_order(gpu) -> None:
    x = tl.Tensor.from_numpy(np.ones(5, "f4"), tl.Device(gpu))
    # A module of ops is imported when it is first asked for.
    x.exp()
    gpu.plans.clear()
    # The driver of a backend stands below the class that the page names.
    expected = [(is_short, path) for is_short, _, path in hops() if not path.endswith("gpu_driver.py")]
    first = files_of_calls(x.gelu)
    assert [path for path in first if path in [path for _, path in expected]] == [path for _, path in expected]
    x.gelu()
    later = files_of_calls(x.gelu)
    assert [path for path in later if path in [path for _, path in expected]] == [p for short, p in expected if short]


@pytest.mark.parametrize("path", sorted({path for *_, path in hops()}))
def test_files_are_named_once_each(path: str) -> None:
    assert [own for *_, own in hops()].count(path) == 1
