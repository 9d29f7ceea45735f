"""Calls that all ranks of a program make together: `python -m tallow.launch -n 4 program.py` starts four.

    group = tl.distributed.init()
    total = tl.distributed.all_reduce(x)

Each function takes the group as `group`, by default that of all ranks. In a group of one, a result is the operand
itself.
"""

from ..ranks.group import Group
from .calls import (
    all_gather,
    all_reduce,
    all_to_all,
    barrier,
    broadcast,
    device,
    init,
    recv,
    reduce,
    reduce_scatter,
    send,
)
from .training import average_gradients

__all__ = [
    "Group",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "average_gradients",
    "barrier",
    "broadcast",
    "device",
    "init",
    "recv",
    "reduce",
    "reduce_scatter",
    "send",
]
