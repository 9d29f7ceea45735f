"""The gradients of scans.

With s[i] = combine(s[i - 1], e[i]), where e[i] is what element i contributes, the gradient a[i] of s[i] includes those
of all later sums: a[i] = g[i] + before(a[i + 1]), by the slope of `combine` at s[i] and e[i + 1]. That of e[i] is
own(a[i]), by the slope at s[i - 1] and e[i]. Nothing is divided: a quotient by 0 has no slope.
"""

from __future__ import annotations

from typing import Final

from ...gradients.functors import SCAN_RULES, SUM_OF_PREFIXES
from ...op import MethodOp
from ..base.bounded_cache import BoundedCache
from ..core.layout import Layout
from ..tensor import Tensor
from ..tensor.shape.joining import cat
from .products import conjugated

_DERIVATIVES: Final = ("finish", "direct", "before", "own")

# By the number of a layout, the dim, and the first and the last position. `narrow` checks more than is needed here.
_parts: Final[BoundedCache[tuple[int, ...], Layout]] = BoundedCache(1 << 12)


def scan_gradient(g: Tensor, op: MethodOp, x: Tensor, dim: int, reverse: bool, exclusive: bool = False) -> Tensor:
    """The gradient of the elements `x` of a scan, of which `g` is that of the results."""
    dtype = g.dtype
    g, x = (each.to_dtype(dtype.compute) for each in (g, conjugated(x)))
    return _Scan(op, x, dim, reverse, exclusive).gradient(g).to_dtype(dtype)


class _Scan:
    """A scan of some elements, which are not empty."""

    def __init__(self, op: MethodOp, x: Tensor, dim: int, reverse: bool, exclusive: bool) -> None:
        rule = SCAN_RULES[op]
        self._op, self._rule, self._derivatives = op, rule, rule.derivatives
        self._x, self._dim, self._reverse, self._exclusive = x, dim, reverse, exclusive
        self._size = x.shape[dim]

    def gradient(self, g: Tensor) -> Tensor:
        """The gradient of the elements."""
        if not self._size:
            return g
        adds_up = not self._takes("before")
        if adds_up and not self._rule.is_finished and SUM_OF_PREFIXES is not None:
            sums = g._scan(SUM_OF_PREFIXES, self._dim, not self._reverse, self._exclusive)
            return self._computed("contribution", sums, x=self._x)
        if self._reverse:
            g, self._x = g.flip(self._dim), self._x.flip(self._dim)
        gradient = self._in_order(g)
        return gradient.flip(self._dim) if self._reverse else gradient

    def _in_order(self, g: Tensor) -> Tensor:
        x = e = self._x
        if self._derivatives["element"] is not None:
            e = self._computed("element", x, x=x)
        needed = {name for derivative in _DERIVATIVES for name in self._takes(derivative)}
        prefixes = self._prefixes(e) if needed & {"x", "result"} else e
        earlier = self._shifted(prefixes)
        known = {"x": earlier if self._exclusive else prefixes, "element": x}
        if "number" in self._takes("finish") + self._takes("direct"):
            known["number"] = self._counts()
        sums = self._computed("finish", g, **known)
        if self._exclusive:
            # The last element is in no result: its slopes, which may be NaN, take no part.
            count = self._size - 1
            sums = self._part(sums, 1, self._size)
            x, e, earlier, prefixes = (self._part(each, 0, count) for each in (x, e, earlier, prefixes))
        sums = self._accumulated(sums, e, prefixes)
        of_own = self._computed("own", sums, x=earlier, y=e, result=prefixes)
        if self._rule.identity is None:
            # The first element is the result itself.
            of_own = cat([self._part(sums, 0, 1), self._part(of_own, 1, self._size)], self._dim)
        of_x = self._computed("contribution", of_own, x=x)
        if self._exclusive:
            of_x = cat([of_x, self._part(g, 0, 1).zeros_like()], self._dim)
        return of_x if self._derivatives["direct"] is None else of_x + self._computed("direct", g, **known)

    def _accumulated(self, sums: Tensor, e: Tensor, prefixes: Tensor) -> Tensor:
        """Return the gradients of the prefixes, with those of all later results."""
        if not self._takes("before") and SUM_OF_PREFIXES is not None:
            return sums._scan(SUM_OF_PREFIXES, self._dim, True, False)
        dim, size = self._dim, sums.shape[self._dim]
        if size <= 1:
            return sums
        before, later = self._part(prefixes, 0, size - 1), self._part(prefixes, 1, size)
        factors = self._computed("before", self._repeated(1.0, later), x=before, y=self._part(e, 1, size), result=later)
        distance = 1
        # Each step joins twice as many elements.
        while distance < size:
            remaining = size - distance
            added = self._part(sums, 0, remaining) + factors * self._part(sums, distance, size)
            sums = cat([added, self._part(sums, remaining, size)], dim)
            if remaining > distance:
                remaining -= distance
                factors = self._part(factors, 0, remaining) * self._part(factors, distance, distance + remaining)
            distance *= 2
        return sums

    def _prefixes(self, e: Tensor) -> Tensor:
        """Return the combination of all elements up to each."""
        if not self._rule.is_finished:
            options = (False,) if self._rule.identity is None else (False, False)
            return self._x._scan(self._op, self._dim, *options)
        distance = 1
        while distance < self._size:
            remaining = self._size - distance
            later = self._computed("combine", e, x=self._part(e, 0, remaining), y=self._part(e, distance, self._size))
            e = cat([self._part(e, 0, distance), later], self._dim)
            distance *= 2
        return e

    def _shifted(self, prefixes: Tensor) -> Tensor:
        """Return the prefix before each element; for the first, `identity`, or itself where there is none."""
        first = self._part(prefixes, 0, 1)
        if self._rule.identity is not None:
            first = self._repeated(self._rule.identity, first)
        return cat([first, self._part(prefixes, 0, self._size - 1)], self._dim)

    def _counts(self) -> Tensor:
        """Return the number of elements in each prefix."""
        shape = [self._size if at == self._dim else 1 for at in range(self._x.rank)]
        counts = Tensor.arange(self._size, device=self._x.device) + (0 if self._exclusive else 1)
        return counts.to_dtype(self._x.dtype).reshape(shape)

    def _part(self, x: Tensor, begin: int, end: int) -> Tensor:
        key = x._layout.number, self._dim, begin, end
        layout = _parts.get(key) or _parts.put(key, x._layout.narrow(self._dim, begin, end - begin))
        return x._view(layout)

    def _repeated(self, number: float, like: Tensor) -> Tensor:
        """Return a number for each element of a tensor, without a launch."""
        return Tensor._new(like._number(self._op.value, number), like._layout.repeated)

    def _takes(self, name: str) -> tuple[str, ...]:
        derivative = self._derivatives[name]
        return () if derivative is None else derivative.takes

    def _computed(self, name: str, g: Tensor, **known: Tensor) -> Tensor:
        derivative = self._derivatives[name]
        if derivative is None:
            return g.zeros_like()
        gradient: Tensor = derivative.function(g, *(known[taken] for taken in derivative.takes))
        return gradient
