"""Products that are more than one of matrices, as products of matrices."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, Self, TypeAlias, TypeVar

import numpy as np

from ...base.error import InvalidArgument, ShapeMismatch, describe
from ...core import argument
from ...core.argument import LAST, PAIR
from ...core.extensions import extensions
from ...core.layout import Layout
from ...core.shape import Shape
from ...storage.calls import live_autocasts
from ..base import named, require_tensors
from ..promotion import common_dtype
from ..shape.joining import cat
from .arithmetic import ArithmeticMethods
from .linear import LinearMethods

T = TypeVar("T", bound="ContractionMethods")

# The largest number of differences that `cdist` has in memory at once.
_DIFFERENCES: Final = 1 << 24

_Labels: TypeAlias = tuple[str, ...]


class ContractionMethods(ArithmeticMethods, LinearMethods):
    """Sums of products along some dims of two tensors. The results are those of `matmul`, bit for bit."""

    __slots__ = ()

    @named
    def dot(self, other: Self) -> Self:
        """Return the dot product of two vectors of one length, a tensor of rank 0.

        >>> tl.Tensor([1, 2, 3]).dot(tl.Tensor([4, 5, 6])).item()
        32
        """
        require_tensors("dot", other=other)
        if (self.rank, other.rank) != (1, 1):
            raise ShapeMismatch("dot", (self.shape, other.shape), "both are vectors; use vecdot, or matmul")
        return self.matmul(other)

    @named
    def mv(self, vector: Self) -> Self:
        """Multiply a matrix (m, k) by a vector (k).

        >>> x = tl.Tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> x.mv(tl.Tensor([1.0, 1.0]))
        Tensor([3., 7.], dtype=f32)
        """
        require_tensors("mv", vector=vector)
        if (self.rank, vector.rank) != (2, 1):
            raise ShapeMismatch("mv", (self.shape, vector.shape), "a matrix is multiplied by a vector; use matmul")
        return self.matmul(vector)

    @named
    def cdist(self, other: Self, p: float = 2.0) -> Self:
        """Return the distance of each row of (.., m, k) to each row of (.., n, k): (.., m, n).

        `p` is 2 for the Euclidean distance, 1 for the sum of the magnitudes of the differences, or infinity for the
        largest of them. The first dims broadcast. Distances are computed from differences, not from a product of
        matrices, so close rows lose no digits.

        >>> x = tl.Tensor([[0.0, 0.0], [3.0, 4.0]])
        >>> x.cdist(tl.Tensor([[3.0, 0.0]]))
        Tensor([[3.],
                [4.]], dtype=f32)
        """
        require_tensors("cdist", other=other)
        order = argument.real("cdist", "p", p)
        if order not in (1, 2, math.inf):
            raise InvalidArgument("cdist", f"p is 1, 2 or infinity, not {order}")
        if min(self.rank, other.rank) < 2 or self.shape[-1] != other.shape[-1]:
            raise ShapeMismatch("cdist", (self.shape, other.shape), "both are rows (.., k) of one size k")
        dtype = common_dtype("cdist", self.dtype, other.dtype)
        rows, columns = self.to_dtype(dtype.compute), other.to_dtype(dtype.compute)
        count = max(_DIFFERENCES // max(other.elem_count, 1), 1)
        parts = [
            rows.narrow(-2, start, min(count, self.shape[-2] - start))._distances(columns, order)
            for start in range(0, max(self.shape[-2], 1), count)
        ]
        return (parts[0] if len(parts) == 1 else cat(parts, -2)).to_dtype(dtype)

    def _distances(self, other: Self, order: float) -> Self:
        differences = self.unsqueeze(-2).sub(other.unsqueeze(-3))
        if order == 2 or not differences.shape[-1]:
            return differences.norm(-1)
        magnitudes = differences.abs()
        return magnitudes.sum(-1) if order == 1 else magnitudes.max(-1)

    @named
    def vecdot(self, other: Self, dim: int = LAST, *, axis: int | None = None) -> Self:
        """Return the dot products of vectors along a dim; the other dims broadcast.

        >>> x = tl.Tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> x.vecdot(x)
        Tensor([5., 25.], dtype=f32)
        """
        if axis is not None:
            dim = argument.dim_of("vecdot", dim, axis)
        require_tensors("vecdot", other=other)
        left, right = (tensor._with_last("vecdot", dim) for tensor in (self, other))
        if left.shape[-1] != right.shape[-1]:
            raise ShapeMismatch("vecdot", (self.shape, other.shape), "both have one size along the dim; narrow one")
        return left.unsqueeze(-2).matmul(right.unsqueeze(-1)).squeeze(-1).squeeze(-1)

    def _with_last(self, op: str, dim: int) -> Self:
        """Move one of the dims to the end."""
        dim = self.shape.dim(op, dim)
        return self.permute(*[other for other in range(self.rank) if other != dim], dim)

    @named
    def tensordot(
        self,
        other: Self,
        dims: int | tuple[Sequence[int], Sequence[int]] = PAIR,
        *,
        axes: int | tuple[Sequence[int], Sequence[int]] | None = None,
    ) -> Self:
        """Sum up products along several dims of two tensors: a number of the last and the first ones, or pairs by name.

        The result has the other dims of this tensor, followed by those of `other`.

        >>> tl.ones((2, 3, 4)).tensordot(tl.ones((3, 4, 5)), dims=2).shape
        (2, 5)
        """
        require_tensors("tensordot", other=other)
        if axes is not None:
            dims = argument.by_other_name("tensordot", "dims", dims, "axes", axes)
        left, right = _paired(self.shape, other.shape, dims)
        free = [dim for dim in range(self.rank) if dim not in left]
        others = [dim for dim in range(other.rank) if dim not in right]
        length = math.prod(self.shape[dim] for dim in left)
        rows, columns = [self.shape[dim] for dim in free], [other.shape[dim] for dim in others]
        lhs = self.permute(*free, *left).reshape(math.prod(rows), length)
        rhs = other.permute(*right, *others).reshape(length, math.prod(columns))
        return lhs.matmul(rhs).reshape(*rows, *columns)

    def _diagonal(self, labels: _Labels) -> tuple[Self, _Labels]:
        """A view with each label once: the elements at which the dims with one label have one index."""
        layout, once = self._layout, tuple(dict.fromkeys(labels))
        if len(once) == len(labels):
            return self, labels
        strides = [
            sum(stride for stride, other in zip(layout.strides, labels, strict=True) if other == label)
            for label in once
        ]
        sizes = [self.shape[labels.index(label)] for label in once]
        return self._new(self._storage, Layout(sizes, strides, layout.start_offset)), once

    def _term(self, labels: _Labels, sizes: Mapping[str, int]) -> tuple[Self, _Labels]:
        """The tensor with each label once, and without those along which it is stretched."""
        tensor, once = self._diagonal(labels)
        dims = [dim for dim, label in enumerate(once) if tensor.shape[dim] == sizes[label]]
        return tensor.reshape([tensor.shape[dim] for dim in dims]), tuple([once[dim] for dim in dims])

    def _without(self, labels: _Labels, remaining: Collection[str]) -> tuple[Self, _Labels]:
        """Sum over all labels that do not remain."""
        summed = [dim for dim, label in enumerate(labels) if label not in remaining]
        if not summed:
            return self, labels
        dtype = self.dtype
        return self.sum(summed).to_dtype(dtype), tuple([label for label in labels if label in remaining])

    def _contracted(
        self, labels: _Labels, other: Self, others: _Labels, remaining: Collection[str]
    ) -> tuple[Self, _Labels]:
        """Sum the products of two tensors over all labels that do not remain."""
        lhs, labels = self._without(labels, {*remaining, *others})
        rhs, others = other._without(others, {*remaining, *labels})
        left = [label for label in labels if label not in others]
        right = [label for label in others if label not in labels]
        both = [label for label in labels if label in others and label in remaining]
        inner = [label for label in labels if label in others and label not in remaining]
        sizes = dict(zip((*labels, *others), (*lhs.shape, *rhs.shape), strict=True))
        parts = [math.prod([sizes[label] for label in part]) for part in (both, left, right, inner)]
        batch, rows, columns, length = parts
        lhs = lhs.permute([labels.index(label) for label in (*both, *left, *inner)]).reshape(batch, rows, length)
        rhs = rhs.permute([others.index(label) for label in (*both, *inner, *right)]).reshape(batch, length, columns)
        result = (*both, *left, *right)
        product = lhs.matmul(rhs) if inner else lhs.mul(rhs)
        return product.reshape([sizes[label] for label in result]), result


class _Plan(NamedTuple):
    """The contraction of an equation for tensors of some shapes."""

    terms: tuple[_Labels, ...]
    result: _Labels
    sizes: dict[str, int]
    path: tuple[tuple[int, ...], ...]
    """The terms to multiply at each step, by their positions; their product is appended to the remaining terms."""
    is_one_product: bool
    """Whether one op makes it all."""


@named
def einsum(equation: str, *operands: T) -> T:
    """Sum up products as an equation in NumPy's notation says: "bij,bjk->bik" multiplies batches of matrices.

    A label for each dim; those that the result lacks are summed up. `...` stands for any dims, which broadcast. A label
    that a tensor has twice is its diagonal. Each product of two tensors is one of matrices; of several, NumPy's greedy
    path chooses the order.

    >>> x = tl.Tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> tl.einsum("ij,jk->ik", x, x)
    Tensor([[ 7., 10.],
            [15., 22.]], dtype=f32)
    >>> tl.einsum("ii->", x).item()
    5.0
    """
    require_tensors("einsum", **{f"operands[{number}]": operand for number, operand in enumerate(operands)})
    if live_autocasts:
        operands = extensions.narrowed(*operands)
    plan = _planned(argument.text("einsum", "equation", equation), tuple([operand.shape for operand in operands]))
    dtype = common_dtype("einsum", *[operand.dtype for operand in operands])
    # Sums of sums and products of products are rounded once.
    wide = dtype if plan.is_one_product else dtype.compute
    widened = [operand.to_dtype(wide) for operand in operands]
    terms = [operand._term(labels, plan.sizes) for operand, labels in zip(widened, plan.terms, strict=True)]
    for positions in plan.path:
        first, *others = [terms[number] for number in positions]
        terms = [term for position, term in enumerate(terms) if position not in positions]
        for number, other in enumerate(others, 1):
            waiting = [labels for _, labels in (*terms, *others[number:])]
            remaining = set(plan.result).union(*waiting)
            first = first[0]._contracted(first[1], *other, remaining)
        terms.append(first)
    tensor, labels = terms[0][0]._without(terms[0][1], plan.result)
    result = tensor.permute([labels.index(label) for label in plan.result])
    # Sums of integers are in i64.
    return result.to_dtype(dtype) if wide is not dtype and dtype.is_float else result


@lru_cache(maxsize=1024)
def _planned(equation: str, shapes: tuple[Shape, ...]) -> _Plan:
    try:
        # Arrays of these shapes without memory: only the sizes count.
        path, _ = np.einsum_path(equation, *[np.broadcast_to(0.0, shape) for shape in shapes], optimize="greedy")
    except ValueError as error:
        reason = f"{error}; the equation is {describe(equation)}, of shapes {', '.join(map(str, shapes)) or 'none'}"
        raise InvalidArgument("einsum", reason) from None
    sources, arrow, target = equation.replace(" ", "").partition("->")
    parts = sources.split(",")
    terms = [
        _labels(part, len(shape) - len(part.replace("...", ""))) for part, shape in zip(parts, shapes, strict=True)
    ]
    stretched = max([[label for label in term if label.isdecimal()] for term in terms], key=len)
    if arrow:
        result = _labels(target, len(stretched))
    else:
        once = sorted(label for label in set(sources) if label.isalpha() and sources.count(label) == 1)
        result = (*stretched, *once)
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for label, size in zip(term, shape, strict=True):
            sizes[label] = size if sizes.get(label, 1) == 1 else sizes[label]
    alone = {label for label in set(itertools.chain(*terms)) - {*result} if sum(label in term for term in terms) == 1}
    return _Plan(tuple(terms), result, sizes, tuple(path[1:]), len(terms) == 1 or (len(terms) == 2 and not alone))


def _labels(part: str, dims: int) -> _Labels:
    """Return the labels of a term; the dims of `...`, `dims` many, are numbered from the last one on."""
    before, dots, after = part.partition("...")
    return (*before, *[str(number) for number in reversed(range(dims if dots else 0))], *after)


def _paired(left: Shape, right: Shape, dims: int | tuple[Sequence[int], Sequence[int]]) -> tuple[list[int], list[int]]:
    """The dims of two shapes that are summed up together."""
    if isinstance(dims, Sequence):
        pair = [dim if isinstance(dim, Sequence) else (dim,) for dim in dims]
        if len(pair) != 2:
            raise InvalidArgument(
                "tensordot", f"dims is a number of dims, or a pair of their lists, not {describe(dims)}"
            )
        pairs = [argument.integers("tensordot", "dims", part) for part in pair]
        named = [
            [shape.dim("tensordot", dim) for dim in part] for shape, part in zip((left, right), pairs, strict=True)
        ]
    else:
        count = argument.integer("tensordot", "dims", dims)
        if not 0 <= count <= min(len(left), len(right)):
            raise InvalidArgument("tensordot", f"dims is from 0 to {min(len(left), len(right))}, not {count}")
        named = [[*range(len(left) - count, len(left))], [*range(count)]]
    sizes = [[shape[dim] for dim in part] for shape, part in zip((left, right), named, strict=True)]
    if sizes[0] != sizes[1] or any(len(set(part)) != len(part) for part in named):
        reason = (
            f"dims {named[0]} of the first and {named[1]} of the second have the same sizes, and none is there twice"
        )
        raise ShapeMismatch("tensordot", (left, right), reason)
    return named[0], named[1]
