"""Calls of all ranks of a group: by the vendor's library, in the device's stream, else by way of the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .....dtype import Array, DType
from .....op import MethodOp
from . import copy, elementwise
from .operand import Operand, dense

if TYPE_CHECKING:
    from ....ranks.group import Group
    from ..collectives import Collectives
    from ..storage import GpuStorage


def all_reduce_by_library(library: Collectives, source: Operand, reduction: str, group: Group) -> GpuStorage:
    """The elements of all ranks joined."""
    given, count = _joinable(source), source.layout.elem_count
    result = source.device.empty(given.dtype, count)
    if count:
        library.all_reduce(group, given.dtype, reduction, given.address, result.memory.address, count)
    return _as(result, source.dtype)


def all_gather_by_library(library: Collectives, source: Operand, group: Group) -> GpuStorage:
    """The elements of all ranks, one behind the other."""
    source, count = copy.contiguous(source), source.layout.elem_count
    result = source.device.empty(source.dtype, count * group.size)
    if count:
        library.all_gather(group, source.address, result.memory.address, count * source.itemsize)
    return result


def reduce_scatter_by_library(library: Collectives, source: Operand, reduction: str, group: Group) -> GpuStorage:
    """The part of this rank of the elements of all ranks joined."""
    given, count = _joinable(source), source.layout.elem_count // group.size
    result = source.device.empty(given.dtype, count)
    if count:
        library.reduce_scatter(group, given.dtype, reduction, given.address, result.memory.address, count)
    return _as(result, source.dtype)


def broadcast_by_library(library: Collectives, source: Operand, root: int, group: Group) -> GpuStorage:
    """The elements of one rank."""
    source, count = copy.contiguous(source), source.layout.elem_count
    result = source.device.empty(source.dtype, count)
    if count:
        library.broadcast(group, root, source.address, result.memory.address, count * source.itemsize)
    return result


def reduce_by_library(library: Collectives, source: Operand, reduction: str, root: int, group: Group) -> GpuStorage:
    """On one rank the elements of all ranks joined, on the others zeros."""
    given, count = _joinable(source), source.layout.elem_count
    result = source.device.empty(given.dtype, count)
    if count:
        address = result.memory.address
        library.reduce(group, given.dtype, reduction, root, given.address, address, count)
        if root != group.rank:
            source.device.driver.zero(address, count * given.itemsize)
    return _as(result, source.dtype)


def all_to_all_by_library(library: Collectives, source: Operand, group: Group) -> GpuStorage:
    """The part for this rank of each rank."""
    source, count = copy.contiguous(source), source.layout.elem_count
    result = source.device.empty(source.dtype, count)
    if count:
        nbytes = count // group.size * source.itemsize
        library.all_to_all(group, source.address, result.memory.address, nbytes)
    return result


def send_by_library(library: Collectives, source: Operand, target: int, group: Group) -> GpuStorage | None:
    """Give the elements to a rank; the result is empty. None where that is this rank itself."""
    if target == group.rank:
        return None
    source = copy.contiguous(source)
    if source.layout.elem_count:
        library.send(group, target, source.address, source.layout.elem_count * source.itemsize)
    return source.device.empty(source.dtype, 0)


def recv_by_library(library: Collectives, like: Operand, source: int, group: Group) -> GpuStorage | None:
    """The elements that a rank gives, as many as `like` has. None where that is this rank itself."""
    if source == group.rank:
        return None
    count = like.layout.elem_count
    result = like.device.empty(like.dtype, count)
    if count:
        library.recv(group, source, result.memory.address, count * like.itemsize)
    return result


def all_reduce(source: Operand, reduction: str, group: Group) -> GpuStorage:
    """The elements of all ranks joined."""
    return _stored(source, group.host.all_reduce(_host(source), reduction))


def all_gather(source: Operand, group: Group) -> GpuStorage:
    """The elements of all ranks, one behind the other."""
    return _stored(source, group.host.all_gather(_host(source)))


def reduce_scatter(source: Operand, reduction: str, group: Group) -> GpuStorage:
    """The part of this rank of the elements of all ranks joined."""
    return _stored(source, group.host.reduce_scatter(_host(source), reduction))


def broadcast(source: Operand, root: int, group: Group) -> GpuStorage:
    """The elements of one rank."""
    return _stored(source, group.host.broadcast(_host(source), root))


def reduce(source: Operand, reduction: str, root: int, group: Group) -> GpuStorage:
    """On one rank the elements of all ranks joined, on the others zeros."""
    return _stored(source, group.host.reduce(_host(source), reduction, root))


def all_to_all(source: Operand, group: Group) -> GpuStorage:
    """The part for this rank of each rank."""
    return _stored(source, group.host.all_to_all(_host(source)))


def send(source: Operand, target: int, group: Group) -> GpuStorage:
    """Give the elements to a rank; the result is empty."""
    group.host.send(_host(source), target)
    return source.device.empty(source.dtype, 0)


def recv(like: Operand, source: int, group: Group) -> GpuStorage:
    """The elements that a rank gives, as many as `like` has."""
    given = np.empty(like.layout.elem_count, like.dtype.numpy)
    return _stored(like, group.host.recv(given, source))


def _joinable(source: Operand) -> Operand:
    """The elements in row-major order, in a dtype that has the bits of one that libraries join."""
    joined = source.dtype.joined_as
    if joined is source.dtype or joined.kind != source.dtype.kind:
        return copy.contiguous(source)
    return dense(elementwise.cast(MethodOp.TO_DTYPE, source, result=joined), source.shape)


def _as(storage: GpuStorage, dtype: DType) -> GpuStorage:
    """The elements of a storage in the dtype that was given."""
    if storage.dtype is dtype:
        return storage
    return elementwise.cast(MethodOp.TO_DTYPE, dense(storage, (storage.length,)), result=dtype)


def _host(operand: Operand) -> Array:
    """The elements, once the device has computed them."""
    operand = copy.contiguous(operand)
    found = np.empty(operand.layout.elem_count, operand.dtype.numpy)
    operand.device.read(found, operand.address)
    return found


def _stored(operand: Operand, array: Array) -> GpuStorage:
    """Elements of the host, on the device of an operand and of its dtype."""
    result = operand.device.empty(operand.dtype, array.size)
    operand.device.write(result.memory.address, array)
    return result
