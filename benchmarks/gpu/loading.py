"""How fast a safetensors file in the page cache comes to a GPU, and how much host memory that takes.

Each variant runs in a process of its own, which says how far its memory grew beyond what it had before.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import tallow as tl

from .results import Loading

# As many tensors as a small model has, of the sizes that they have there.
_TENSORS = {f"layer.{layer}.weight": 1 << 24 for layer in range(62)} | {f"layer.{i}.bias": 4096 for i in range(62)}
_ROUNDS = 7
_PINNED_BYTES = 1 << 30

_PINNED = "a copy from pinned memory"
_VARIANTS = (_PINNED, "tallow.load_safetensors", "safetensors.torch.load_file")


def measure(device: str) -> list[Loading]:
    """Every variant on a device, by the labels that tallow uses."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        generator = np.random.default_rng(0)
        tl.save_safetensors(
            {name: tl.Tensor(_halves(generator, count)) for name, count in _TENSORS.items()},
            path,
        )
        # Else the system writes it to the disk while it is read.
        os.sync()
        return [_in_a_process(variant, device, path) for variant in _VARIANTS]


def _halves(generator: np.random.Generator, count: int) -> np.ndarray[tuple[int], np.dtype[np.float16]]:
    return generator.integers(0, 1 << 14, count, np.uint16).view(np.float16)


def _in_a_process(variant: str, device: str, path: Path) -> Loading:
    command = [sys.executable, "-m", __name__, variant, device, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return Loading(variant, reason=done.stderr.strip().splitlines()[-1])
    return Loading(variant, **json.loads(done.stdout))


def _main(variant: str, device: str, path: str) -> None:
    if variant == _PINNED:
        nbytes, seconds = _copy_pinned(device)
        print(json.dumps({"nbytes": nbytes, "seconds": seconds}))
        return
    load = _tallow(device) if variant.startswith("tallow") else _torch(device)
    # What opening the device and the first load of a process take is no part of it.
    small = str(Path(path).with_name("small.safetensors"))
    tl.save_safetensors({"x": tl.Tensor.zeros((1 << 10,))}, small)
    load(small)
    before = _memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak
    times = []
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        load(path)
        times.append(time.perf_counter() - start)
    grown = _memory("VmHWM") - before
    print(json.dumps({"nbytes": Path(path).stat().st_size, "seconds": median(times), "host_bytes": grown}))


def _tallow(label: str) -> Callable[[str], None]:
    device = tl.Device.parse(label)

    def load(path: str) -> None:
        tensors = tl.load_safetensors(path, device)
        device.synchronize()
        del tensors

    return load


def _torch(label: str) -> Callable[[str], None]:
    import torch
    from safetensors.torch import load_file

    device = f"cuda:{tl.Device.parse(label).ordinal}"

    def load(path: str) -> None:
        tensors = load_file(path, device=device)
        torch.cuda.synchronize()
        del tensors

    return load


def _copy_pinned(label: str) -> tuple[int, float]:
    import torch

    source = torch.empty(_PINNED_BYTES, dtype=torch.uint8, pin_memory=True)
    target = torch.empty_like(source, device=f"cuda:{tl.Device.parse(label).ordinal}")
    times = []
    for _ in range(_ROUNDS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        target.copy_(source, non_blocking=True)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return _PINNED_BYTES, median(times)


def _memory(name: str) -> int:
    """Bytes of this process, by the name that Linux has for them."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    _main(*sys.argv[1:])
