"""Gradients of several ranks, each of which has learnt from other examples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from ..base.error import GradientError, InvalidArgument, describe
from ..core import argument
from ..gradient.backward import backward
from ..gradient.node import Node
from ..gradient.variable import Var, is_variable
from ..gradient.walk import Watch
from ..helpers.batches import batches
from ..ranks.group import Group
from ..tensor import Gradients, Tensor, cat
from ..tensor.base import require_tensors
from .calls import all_reduce, begin_all_reduce, init

# A call of a few megabytes takes hardly longer, a byte, than one of many.
_BUCKET: Final = 25 << 20


def average_gradients(
    loss: Tensor,
    variables: Iterable[Var],
    gradient: Tensor | None = None,
    *,
    keep: bool = False,
    create_graph: bool = False,
    group: Group | None = None,
    bucket_bytes: int = _BUCKET,
) -> Gradients:
    """Run `loss.backward`, and return the means over all ranks of the gradients of variables.

    The gradients are reduced in buckets of `bucket_bytes`, each by one call, which begins when they are final and runs
    while others are computed. Buckets go from the last variable to the first, as backward does; every rank
    names the variables in one order. Of one on which the loss of a rank does not depend, that rank gives zeros.
    `create_graph` records the means as well, and waits for each. A group of one calls `loss.backward` and does no more.

    >>> w = tl.Var(tl.ones(2))
    >>> grads = tl.distributed.average_gradients((w * 2).sum(), [w])
    >>> grads[w]
    Tensor([2., 2.], dtype=f32)
    """
    group = group or init()
    if not isinstance(loss, Tensor):
        require_tensors("average_gradients", loss=loss)
    if group.size == 1:
        return loss.backward(gradient, keep=keep, create_graph=create_graph)
    most = argument.integer("average_gradients", "bucket_bytes", bucket_bytes)
    if most < 1:
        raise InvalidArgument("average_gradients", f"bucket_bytes is {most}, and must be 1 or more")
    averages = _Averages(variables, most, group, is_recorded=create_graph)
    backward(loss, gradient, keep or create_graph, create_graph, watch=Watch(tuple(averages.bucket_of), averages.take))
    return Gradients(dict(averages.finish()))


class _Bucket:
    """Variables of one dtype and device, whose gradients are reduced by one call."""

    def __init__(self, variables: Sequence[Var]) -> None:
        self.variables = variables
        self.gradients: dict[Node, Tensor] = {}
        """The gradients that are final."""

    def concatenated(self) -> Tensor:
        """All gradients, concatenated, in the dtype in which they travel."""
        parts = [self.gradients.pop(_node_of(variable)).reshape(-1) for variable in self.variables]
        return cat(parts).to_dtype(self.variables[0].dtype.joined_as)

    def divided(self, reduced: Tensor) -> Iterator[tuple[Node, Tensor]]:
        """The gradient of each variable among all."""
        reduced = reduced.to_dtype(self.variables[0].dtype)
        begin = 0
        for variable in self.variables:
            yield _node_of(variable), reduced[begin : begin + variable.elem_count].reshape(variable.shape)
            begin += variable.elem_count


class _Averages:
    """The means of gradients. A bucket begins when all its gradients are final and the buckets before it have begun."""

    def __init__(self, variables: Iterable[Var], most: int, group: Group, *, is_recorded: bool) -> None:
        self._group = group
        self._is_recorded = is_recorded
        self._buckets = _buckets(variables, most)
        self._begun: list[Callable[[], Tensor]] = []
        self.bucket_of = {_node_of(variable): bucket for bucket in self._buckets for variable in bucket.variables}

    def take(self, node: Node, gradient: Tensor | None) -> None:
        """Take the gradient of a variable, which is final; None is one of zeros."""
        bucket = self.bucket_of[node]
        if gradient is None:
            gradient = Tensor.zeros(node.length, dtype=node.dtype, device=bucket.variables[0].device)
        bucket.gradients[node] = gradient
        for bucket in self._buckets[len(self._begun) :]:
            if len(bucket.gradients) < len(bucket.variables):
                break
            self._begun.append(self._begin(bucket.concatenated()))

    def _begin(self, x: Tensor) -> Callable[[], Tensor]:
        if not self._is_recorded:
            return begin_all_reduce(x, "mean", self._group)
        result = all_reduce(x, "mean", group=self._group)
        return lambda: result

    def finish(self) -> Iterator[tuple[Node, Tensor]]:
        """Wait for what has begun, and give the mean of each variable."""
        for bucket, finished in zip(self._buckets, self._begun, strict=True):
            yield from bucket.divided(finished())


def _buckets(variables: Iterable[Var], most: int) -> list[_Bucket]:
    """Buckets of variables, the last first: as many of one dtype and device at a time as `most` bytes hold, or one."""
    backwards = reversed(list(dict.fromkeys(map(_required, variables))))

    size_of = lambda it: it.elem_count * it.dtype.itemsize  # noqa: E731
    return [_Bucket(each) for each in batches(backwards, lambda it: (it.dtype, it.device), size_of, most)]


def _required(variable: Var) -> Var:
    if not isinstance(variable, Tensor) or not is_variable(variable):
        raise GradientError("average_gradients", f"variables must be of class Var, not {describe(variable)}")
    return variable


def _node_of(variable: Var) -> Node:
    return variable._storage.inner
