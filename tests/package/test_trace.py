"""The lines that TALLOW_TRACE prints."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
import tallow as tl
from tallow.runtime.profile.session import session
from tallow.runtime.profile.tracing import Trace

PROGRAM = """
import tallow as tl
x = tl.ones(3)
x + 1
x + 1
"""


def traced(level: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"TALLOW_TRACE": level}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=100, check=False
    )


def test_a_trace_has_lines_for_calls_launches_and_allocations() -> None:
    done = traced("2")
    assert (done.returncode, done.stdout) == (0, "")
    # Each call begins at the margin.
    *_, one, other = re.findall(r"^tallow: cpu  (.*\n(?:tallow:     .*\n)*)", done.stderr, re.MULTILINE)
    add = r"binary_impl add \(3,\) f32, \(3,\) f32 strides \(0,\)  \d+\.\d us"
    steps = r"tallow:     allocate 12 bytes\ntallow:     (kernel|host) \S+.*  28 bytes  \d+\.\d us.*\n"
    assert re.fullmatch(f"{add}  no plan  <string>:4\n{steps}", one)
    assert re.fullmatch(f"{add}  <string>:5\n{steps}", other)
    assert "\nbinary_impl add " in done.stderr, "the summary"
    assert "\033" not in done.stderr


def test_a_trace_of_level_1_has_calls_alone(device: tl.Device, capsys: pytest.CaptureFixture[str]) -> None:
    x = tl.ones((2, 3), device=device)
    device.inner.plans.clear()
    trace = Trace(1, has_colours=True)
    session.start(trace)
    try:
        x.exp()
    finally:
        trace.finish()
    line, *summary = capsys.readouterr().err.splitlines()
    shown = rf"tallow: {device.label}  unary_impl exp \(2, 3\) f32  \d+\.\d us\033\[33m  no plan\033\[0m"
    assert re.match(shown, line)
    assert summary[0] == f"1 call on {device.label}, 1 without a plan"


def test_the_levels_of_a_trace_are_named() -> None:
    done = traced("3")
    assert done.returncode == 1
    assert "TALLOW_TRACE: '3' is not a level; use 1 for calls, 2 for" in done.stderr
