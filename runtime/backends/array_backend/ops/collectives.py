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
    """Reduce the elements of all ranks."""
    return _stored(source, group.host.all_reduce(_host(source), reduction))


def all_gather(source: Operand, group: Group) -> Any:
    """Concatenate the elements of all ranks."""
    return _stored(source, group.host.all_gather(_host(source)))


def reduce_scatter(source: Operand, reduction: str, group: Group) -> Any:
    """Reduce the elements of all ranks, and return the part of this rank."""
    return _stored(source, group.host.reduce_scatter(_host(source), reduction))


def broadcast(source: Operand, root: int, group: Group) -> Any:
    """The elements of one rank."""
    return _stored(source, group.host.broadcast(_host(source), root))


def reduce(source: Operand, reduction: str, root: int, group: Group) -> Any:
    """Reduce the elements of all ranks on one of them; return zeros on the others."""
    return _stored(source, group.host.reduce(_host(source), reduction, root))


def all_to_all(source: Operand, group: Group) -> Any:
    """The part for this rank of each rank."""
    return _stored(source, group.host.all_to_all(_host(source)))


def send(source: Operand, target: int, group: Group) -> Any:
    """Send the elements to a rank; the result is empty."""
    sent = _host(source)
    group.host.send(sent, target)
    return _stored(source, sent[:0])


def recv(like: Operand, source: int, group: Group) -> Any:
    """The elements that a rank gives, as many as `like` has."""
    return _stored(like, group.host.recv(np.empty(like.layout.elem_count, like.dtype.numpy), source))


def _host(operand: Operand) -> Array:
    operand.device.raise_errors()
    elements = transfer.to_numpy(operand.library, operand.array, operand.dtype)
    return np.ascontiguousarray(elements).reshape(-1)


def _stored(operand: Operand, array: Array) -> Any:
    device = operand.device
    own = transfer.from_numpy(operand.library, array, operand.dtype, device.handle)
    return device.storage_class(device, operand.dtype, own)
