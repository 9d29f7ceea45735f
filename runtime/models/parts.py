"""The part of a weight that one of several ranks has."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from ...storage import QStorage
from ..base.error import InvalidArgument, ShapeMismatch
from ..files.gguf import GgufTensor
from ..quantized import QTensor
from ..ranks.group import Group
from ..tensor import Tensor
from .config import ModelConfig

Source: TypeAlias = GgufTensor | Tensor | QTensor
"""A weight, in a file or on the device."""


def config_of_part(config: ModelConfig, group: Group) -> ModelConfig:
    """The sizes of what a rank computes: its heads and hidden units. InvalidArgument where ranks cannot share these."""
    shared = {name: getattr(config, name) for name in ("heads", "key_heads", "hidden")}
    for name, size in shared.items():
        if size % group.size:
            reason = f"{group.size} ranks cannot share {name}, which are {size}; use a number that divides them"
            raise InvalidArgument("ExecutionPlan", reason)
    return replace(config, **{name: size // group.size for name, size in shared.items()})


def part_of(tensor: Source, dim: int, group: Group) -> Source:
    """The part of this rank of a tensor whose dim the ranks divide, of which nothing else is read from a file."""
    rank, ranks = group.rank, group.size
    if isinstance(tensor, GgufTensor):
        return tensor.part(dim, rank, ranks)
    if isinstance(tensor, Tensor):
        size = tensor.shape[dim] // ranks
        return tensor.narrow(dim, rank * size, size)
    shape = list(tensor.shape)
    blocks = tensor.data.reshape(shape[0], shape[1] // tensor.dtype.block_size, -1)
    if blocks.shape[dim] % ranks:
        reason = f"{blocks.shape[dim]} blocks of {tensor.dtype.block_size} weights have no {ranks} equal parts"
        raise ShapeMismatch("ExecutionPlan", (tensor.shape,), f"{reason}; use fewer ranks")
    size = blocks.shape[dim] // ranks
    own = blocks[(slice(None),) * dim + (slice(rank * size, (rank + 1) * size),)]
    shape[dim] //= ranks
    return QTensor(QStorage.from_data(own.tobytes(), tensor.device, tensor.dtype), shape)
