"""Calls of all ranks of a group: by the vendor's library, in the device's stream, else through the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import numpy as np

from ..... import results
from .....dtype import Array, DType
from .....kernels import arguments
from .....kernels.constants import BLOCK_SIZE, REDUCED_WORDS
from ....core.tensor_type import TensorType
from ....program.builder import ProgramBuilder
from ....program.values import Buffer, Operand, dense
from ..driver.grid import ceil_divide
from . import copy, elementwise, on_host

if TYPE_CHECKING:
    from ....ranks.group import Group
    from ..libraries.collectives import Collectives

# What travels at once.
_WORD: Final = 4


def all_reduce_by_peers(
    build: ProgramBuilder, library: Collectives, source: Operand, reduction: str, group: Group
) -> Buffer | None:
    """The sums or means of few elements of all ranks, by a kernel; None where a library has to join them."""
    dtype, count = source.dtype, source.layout.elem_count
    words = ceil_divide(count * dtype.itemsize, _WORD)
    # 8 bits travel as f32, with which a library has to do.
    has_kernel = dtype.kind == "float" and dtype.joined_as is dtype and dtype.itemsize <= _WORD
    if not has_kernel or reduction not in ("sum", "mean") or group.is_async or not 0 < words <= REDUCED_WORDS:
        return None
    peers = library.peers.of(group)
    if peers is None:
        return None
    source = copy.contiguous(build, source)
    result = build.empty(dtype, count)
    packed = arguments.all_reduce(
        result=result.address,
        source=source.address,
        buffers=peers.addresses,
        calls=peers.turns,
        stop=peers.stop,
        count=count,
        rank=group.rank,
        ranks=group.size,
        divisor=group.size if reduction == "mean" else 1,
    )
    build.launch("collective", f"all_reduce_{dtype}", ceil_divide(words, BLOCK_SIZE), packed)
    return result


def all_reduce_by_library(
    build: ProgramBuilder, library: Collectives, source: Operand, reduction: str, group: Group
) -> Buffer:
    """Reduce the elements of all ranks."""
    operand, count = _reducible(build, source), source.layout.elem_count
    result = build.empty(operand.dtype, count)
    if count:
        build.call(library.all_reduce, group, operand.dtype, reduction, operand.address, result.address, count)
    return _as(build, result, source.dtype)


def all_gather_by_library(build: ProgramBuilder, library: Collectives, source: Operand, group: Group) -> Buffer:
    """Concatenate the elements of all ranks."""
    source, count = copy.contiguous(build, source), source.layout.elem_count
    result = build.output(results.all_gather(source, group))
    if count:
        build.call(library.all_gather, group, source.address, result.address, count * source.itemsize)
    return result


def reduce_scatter_by_library(
    build: ProgramBuilder, library: Collectives, source: Operand, reduction: str, group: Group
) -> Buffer:
    """Reduce the elements of all ranks, and return the part of this rank."""
    operand, count = _reducible(build, source), source.layout.elem_count // group.size
    result = build.empty(operand.dtype, count)
    if count:
        build.call(library.reduce_scatter, group, operand.dtype, reduction, operand.address, result.address, count)
    return _as(build, result, source.dtype)


def broadcast_by_library(
    build: ProgramBuilder, library: Collectives, source: Operand, root: int, group: Group
) -> Buffer:
    """The elements of one rank."""
    source, count = copy.contiguous(build, source), source.layout.elem_count
    result = build.empty(source.dtype, count)
    if count:
        build.call(library.broadcast, group, root, source.address, result.address, count * source.itemsize)
    return result


def reduce_by_library(
    build: ProgramBuilder, library: Collectives, source: Operand, reduction: str, root: int, group: Group
) -> Buffer:
    """Reduce the elements of all ranks on one of them; return zeros on the others."""
    operand, count = _reducible(build, source), source.layout.elem_count
    result = build.empty(operand.dtype, count)
    if count:
        build.call(library.reduce, group, operand.dtype, reduction, root, operand.address, result.address, count)
        if root != group.rank:
            build.zero(result)
    return _as(build, result, source.dtype)


def all_to_all_by_library(build: ProgramBuilder, library: Collectives, source: Operand, group: Group) -> Buffer:
    """The part for this rank of each rank."""
    source, count = copy.contiguous(build, source), source.layout.elem_count
    result = build.empty(source.dtype, count)
    if count:
        nbytes = count // group.size * source.itemsize
        build.call(library.all_to_all, group, source.address, result.address, nbytes)
    return result


def send_by_library(
    build: ProgramBuilder, library: Collectives, source: Operand, target: int, group: Group
) -> Buffer | None:
    """Give the elements to a rank; the result is empty. None where that is this rank itself."""
    if target == group.rank:
        return None
    source = copy.contiguous(build, source)
    if source.layout.elem_count:
        build.call(library.send, group, target, source.address, source.layout.elem_count * source.itemsize)
    return build.output(results.send(source))


def recv_by_library(
    build: ProgramBuilder, library: Collectives, like: Operand, source: int, group: Group
) -> Buffer | None:
    """The elements that a rank gives, as many as `like` has. None where that is this rank itself."""
    if source == group.rank:
        return None
    count = like.layout.elem_count
    result = build.empty(like.dtype, count)
    if count:
        build.call(library.recv, group, source, result.address, count * like.itemsize)
    return result


def all_reduce(build: ProgramBuilder, source: Operand, reduction: str, group: Group) -> Buffer:
    """Reduce the elements of all ranks."""
    return _on_host(build, source, lambda array: group.host.all_reduce(array, reduction), results.all_reduce(source))


def all_gather(build: ProgramBuilder, source: Operand, group: Group) -> Buffer:
    """Concatenate the elements of all ranks."""
    return _on_host(build, source, group.host.all_gather, results.all_gather(source, group))


def reduce_scatter(build: ProgramBuilder, source: Operand, reduction: str, group: Group) -> Buffer:
    """Reduce the elements of all ranks, and return the part of this rank."""
    compute = lambda array: group.host.reduce_scatter(array, reduction)  # noqa: E731
    return _on_host(build, source, compute, results.reduce_scatter(source, group))


def broadcast(build: ProgramBuilder, source: Operand, root: int, group: Group) -> Buffer:
    """The elements of one rank."""
    return _on_host(build, source, lambda array: group.host.broadcast(array, root), results.broadcast(source))


def reduce(build: ProgramBuilder, source: Operand, reduction: str, root: int, group: Group) -> Buffer:
    """Reduce the elements of all ranks on one of them; return zeros on the others."""
    return _on_host(build, source, lambda array: group.host.reduce(array, reduction, root), results.reduce(source))


def all_to_all(build: ProgramBuilder, source: Operand, group: Group) -> Buffer:
    """The part for this rank of each rank."""
    return _on_host(build, source, group.host.all_to_all, results.all_to_all(source))


def send(build: ProgramBuilder, source: Operand, target: int, group: Group) -> Buffer:
    """Give the elements to a rank; the result is empty."""

    def give(array: Array) -> Array:
        group.host.send(array, target)
        return array[:0]

    return _on_host(build, source, give, results.send(source))


def recv(build: ProgramBuilder, like: Operand, source: int, group: Group) -> Buffer:
    """The elements that a rank gives, as many as `like` has."""
    received = results.recv(like)
    take = lambda: (group.host.recv(np.empty(received.elem_count, received.dtype.numpy), source),)  # noqa: E731
    return on_host.computed(build, take, (), received)[0]


def _on_host(build: ProgramBuilder, source: Operand, compute: Callable[[Array], Array], result: TensorType) -> Buffer:
    """Call all ranks with a flat array of the elements, through the host."""
    flat = copy.contiguous(build, source).as_strided((source.layout.elem_count,), (1,))
    return on_host.computed(build, lambda array: (compute(array),), (flat,), result)[0]


def _reducible(build: ProgramBuilder, source: Operand) -> Operand:
    """The elements in row-major order, in a dtype that has the bits of one that libraries join."""
    reduced = source.dtype.joined_as
    if reduced is source.dtype or reduced.kind != source.dtype.kind:
        return copy.contiguous(build, source)
    return elementwise.converted(build, source, reduced)


def _as(build: ProgramBuilder, buffer: Buffer, dtype: DType) -> Buffer:
    """Convert the elements of a buffer back to the dtype of the operand."""
    result: Buffer = elementwise.converted(build, dense(buffer, (buffer.length,)), dtype).storage
    return result
