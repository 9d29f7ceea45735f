"""The limits of launches on a device."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

Dim3: TypeAlias = tuple[int, int, int]
Function: TypeAlias = Callable[[int, bytes], None]
"""Enqueues a kernel: called with a number of blocks and the packed bytes of the kernel's one struct."""


class LaunchLimits(NamedTuple):
    """The most that a launch may have; of a device or, where it allows less, of a kernel."""

    threads: int
    """Of a block."""
    block: Dim3
    """Threads in each dim of a block."""
    grid: Dim3
    """Blocks in each dim of a grid."""
    shared_bytes: int
    """Of shared memory for a block, on top of what the kernel declares."""
    along_dim: int = sys.maxsize
    """Threads in each dim of a grid, those of all its blocks."""

    def refusal(self, grid: Dim3, block: Dim3, shared_bytes: int) -> str:
        """Why a launch is more than this; empty where it is not."""
        (x, y, z), (block_x, block_y, block_z) = grid, block
        max_x, max_y, max_z = self.grid
        long_x, long_y, long_z = self.block
        if (
            0 < x <= max_x
            and 0 < y <= max_y
            and 0 < z <= max_z
            and 0 < block_x <= long_x
            and 0 < block_y <= long_y
            and 0 < block_z <= long_z
            and block_x * block_y * block_z <= self.threads
            and max(x * block_x, y * block_y, z * block_z) <= self.along_dim
            and 0 <= shared_bytes <= self.shared_bytes
        ):
            return ""
        if not 0 <= shared_bytes <= self.shared_bytes:
            return f"{shared_bytes} bytes of shared memory per block; at most {self.shared_bytes} are left for it"
        if min(*grid, *block) < 1:
            return f"grid {grid} of blocks {block} is empty; launch nothing for no elements"
        if math.prod(block) > self.threads:
            return f"blocks {block} have {math.prod(block)} threads; at most {self.threads} are possible"
        if any(size > limit for size, limit in zip(block, self.block, strict=True)):
            return f"blocks {block} are too large; at most {self.block} threads are possible"
        if any(size > limit for size, limit in zip(grid, self.grid, strict=True)):
            return f"grid {grid} is too large; at most {self.grid} blocks are possible"
        most = f"has more than {self.along_dim} threads in a dim"
        return f"grid {grid} of blocks {block} {most}; use fewer blocks, each in a loop"


class Launcher(NamedTuple):
    """The data of launches of a kernel with any parameters: a driver call, alike for all vendors, and its arguments.

    That is `function`, the blocks along each axis, the threads of a block, the bytes of shared memory, `stream`, the
    parameters and `extra`. It gives a tuple of its status. Nothing but the driver checks it.
    """

    limits: LaunchLimits
    parameter_sizes: tuple[int, ...] | None
    """The bytes of each parameter, where the driver knows."""
    call: Callable[..., tuple[Any]]
    function: Any
    stream: Any
    extra: Any
    parameters: Callable[[int], Any]
    """Returns the argument of `call` for an array of the parameters' addresses, from that array's address."""
    call_again: Callable[..., None]
    """Takes the status of a call and what varies in it: calls again where that may help, else raises DriverError."""
