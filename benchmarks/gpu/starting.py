"""How long a small program of eight kernels takes from its start to its result, with kernels compiled and not.

python -m benchmarks.gpu starts --device cuda:0
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

from .results import Start

_ROUNDS = 5
EMPTY, FULL = "with an empty cache", "with a full cache"


def measure(device: str) -> list[Start]:
    """Every variant on a device, by the labels that tallow uses: the medians of several processes."""
    starts: dict[str, list[Start]] = {EMPTY: [], FULL: []}
    for _ in range(_ROUNDS):
        with tempfile.TemporaryDirectory() as cache:
            for variant, samples in starts.items():
                samples.append(_in_a_process(variant, device, cache))
    return [_middle(samples) for samples in starts.values()]


def _in_a_process(variant: str, device: str, cache: str) -> Start:
    begin = perf_counter()
    command = [sys.executable, "-m", "benchmarks.gpu.small_program", device]
    environment = os.environ | {"TALLOW_CACHE": cache}
    # The modules of Python are compiled by an installer, or where a tree is used by the first process, of several.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    taken = perf_counter() - begin
    if done.returncode:
        return Start(variant, reason=done.stderr.strip().splitlines()[-1])
    # What the package has compiled is not cached.
    shipped = not any(Path(cache).rglob("*.co"))
    return Start(f"{variant}, with code objects" if shipped else variant, taken, json.loads(done.stdout))


def _middle(starts: list[Start]) -> Start:
    failed = next((start for start in starts if start.reason), None)
    if failed is not None:
        return failed
    phases = {name: median(start.phases[name] for start in starts) for name in starts[0].phases}
    return Start(starts[0].variant, median(start.seconds or 0.0 for start in starts), phases)
