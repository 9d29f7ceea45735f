"""Gradients of several ranks, each of which has learnt from other examples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ..base.error import InvalidArgument
from ..core import argument
from ..gradient.backward import Gradients
from ..gradient.node import Node
from ..gradient.recording import no_grad
from ..gradient.variable import Var
from ..ranks.group import Group
from ..tensor import Tensor, cat
from .calls import all_reduce, init

# A call of a few megabytes takes hardly longer, a byte, than one of many.
_BUCKET: Final = 25 << 20


def average_gradients(
    grads: Gradients, variables: Iterable[Var], *, group: Group | None = None, bucket_bytes: int = _BUCKET
) -> Gradients:
    """The means over all ranks of the gradients of variables, which every rank names in one order.

    They are joined in buckets of `bucket_bytes`, each by one call. Of a variable on which the result of a rank does not
    depend, that rank gives zeros. In a group of one, the gradients that were given.
    """
    group = group or init()
    if group.size == 1:
        return grads
    most = argument.integer("average_gradients", "bucket_bytes", bucket_bytes)
    if most < 1:
        raise InvalidArgument("average_gradients", f"bucket_bytes is {most}, and must be 1 or more")
    found: dict[Node, Tensor] = {}
    with no_grad():
        for bucket in _buckets(grads, variables, most):
            joined = all_reduce(cat([gradient.reshape(-1) for _, gradient in bucket]), "mean", group=group)
            begin = 0
            for variable, gradient in bucket:
                found[variable._storage.inner] = joined[begin : begin + gradient.elem_count].reshape(*variable.shape)
                begin += gradient.elem_count
    return Gradients(found)


def _buckets(grads: Gradients, variables: Iterable[Var], most: int) -> Iterator[list[tuple[Var, Tensor]]]:
    """The gradients of variables, as many of one dtype and device at a time as `most` bytes hold, or one."""
    bucket: list[tuple[Var, Tensor]] = []
    nbytes = 0
    for variable in variables:
        gradient = grads.get(variable)
        if gradient is None:
            gradient = variable.detach().zeros_like()
        size = gradient.elem_count * gradient.dtype.itemsize
        first = bucket[0][1] if bucket else gradient
        is_alike = gradient.dtype is first.dtype and gradient.device == first.device
        if bucket and (nbytes + size > most or not is_alike):
            yield bucket
            bucket, nbytes = [], 0
        bucket.append((variable, gradient))
        nbytes += size
    if bucket:
        yield bucket
