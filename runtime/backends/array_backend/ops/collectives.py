"""Calls of all ranks of a group, on arrays of the host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .....dtype import Array
from .. import transfer
from .operand import Operand

if TYPE_CHECKING:
    from ....ranks.group import Group


def all_reduce(source: Operand, reduction: str, group: Group) -> Any:
    """The elements of all ranks joined."""
    return _stored(source, group.host.all_reduce(_host(source), reduction))


def all_gather(source: Operand, group: Group) -> Any:
    """The elements of all ranks, one behind the other."""
    return _stored(source, group.host.all_gather(_host(source)))


def reduce_scatter(source: Operand, reduction: str, group: Group) -> Any:
    """The part of this rank of the elements of all ranks joined."""
    return _stored(source, group.host.reduce_scatter(_host(source), reduction))


def broadcast(source: Operand, root: int, group: Group) -> Any:
    """The elements of one rank."""
    return _stored(source, group.host.broadcast(_host(source), root))


def reduce(source: Operand, reduction: str, root: int, group: Group) -> Any:
    """On one rank the elements of all ranks joined, on the others zeros."""
    return _stored(source, group.host.reduce(_host(source), reduction, root))


def all_to_all(source: Operand, group: Group) -> Any:
    """The part for this rank of each rank."""
    return _stored(source, group.host.all_to_all(_host(source)))


def send(source: Operand, target: int, group: Group) -> Any:
    """Give the elements to a rank; the result is empty."""
    given = _host(source)
    group.host.send(given, target)
    return _stored(source, given[:0])


def recv(like: Operand, source: int, group: Group) -> Any:
    """The elements that a rank gives, as many as `like` has."""
    return _stored(like, group.host.recv(np.empty(like.layout.elem_count, like.dtype.numpy), source))


def _host(operand: Operand) -> Array:
    operand.device.raise_errors()
    found = transfer.to_numpy(operand.library, operand.array, operand.dtype)
    return np.ascontiguousarray(found).reshape(-1)


def _stored(operand: Operand, array: Array) -> Any:
    device = operand.device
    own = transfer.from_numpy(operand.library, array, operand.dtype, device.handle)
    return device.storage_class(device, operand.dtype, own)
