"""Functions that all of these measurements share."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
from tallow import Device
from tallow import distributed as dist


def write(lines: Iterable[str], output: Path | None) -> None:
    """Print lines as they come, on rank 0, and write them to a file at the end."""
    group = dist.init()
    collected = []
    for line in lines:
        collected.append(line)
        if group.rank == 0:
            click.echo(line)
    if group.rank == 0 and output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text("\n".join(collected) + "\n", encoding="utf-8")


def slowest_seconds(call: Callable[[], object], calls: int, synchronize: Callable[[], None]) -> float:
    """Return the seconds of one of `count` calls, on the slowest rank."""
    synchronize()
    dist.barrier()
    started = time.perf_counter()
    for _ in range(calls):
        call()
    synchronize()
    mine = (time.perf_counter() - started) / calls
    return max(dist.init().exchange("seconds", mine))


def join_torch(device: Device) -> Any:
    """Make the same ranks PyTorch's default group, and return its device. ImportError where PyTorch is missing."""
    import torch

    group = dist.init()
    is_gpu = device.backend in ("cuda", "rocm")
    torch_device = torch.device("cuda", device.ordinal) if is_gpu else torch.device("cpu")
    port = group.exchange("port", _free_port() if group.rank == 0 else None)[0]
    store = torch.distributed.TCPStore("127.0.0.1", port, group.size, group.rank == 0)
    if is_gpu:
        torch.cuda.set_device(torch_device)
    torch.distributed.init_process_group(
        "nccl" if is_gpu else "gloo", store=store, rank=group.rank, world_size=group.size
    )
    return torch_device


def torch_synchronize(torch_device: Any) -> None:
    """Wait for a device of PyTorch."""
    if torch_device.type == "cuda":
        import torch

        torch.cuda.synchronize(torch_device)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
