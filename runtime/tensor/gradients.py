"""Gradients of what was computed of variables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from ..core import argument
from ..core.extensions import extensions
from .base import TensorBase

if TYPE_CHECKING:
    from ..gradient.backward import Gradients


class GradientMethods(TensorBase):
    """Gradients: what an op makes of a `Var`, or of what came of one, knows how it was made."""

    __slots__ = ()

    @property
    def is_recorded(self) -> bool:
        """Whether ops on this tensor are recorded for `backward`: it is a `Var`, or was computed from one.

        >>> w = tl.Var(tl.ones(2))
        >>> (w + 1).is_recorded, tl.ones(2).is_recorded
        (True, False)
        """
        return self._storage.is_recorded

    def detach(self) -> Self:
        """Return a tensor that shares the memory of this one and is not recorded, so no gradient flows through it.

        >>> w = tl.Var(tl.ones(2))
        >>> (w * 2).detach().is_recorded
        False
        """
        storage: Any = self._storage
        if not storage.is_recorded:
            return self
        plain = storage.value
        plain.is_shown = True
        return self._new(plain, self._layout)

    def backward(self, gradient: Self | None = None, *, keep: bool = False, create_graph: bool = False) -> Gradients:
        """Work out the gradients of this tensor, of one element, for every `Var` that it depends on.

        `grads = loss.backward()` gives them: `grads[w]` is that of w. Of a tensor of more elements it gives the
        gradients of `(x * gradient).sum()`; the gradient has the shape of the tensor. What the gradients need is let go
        of as soon as it has been used; `keep` keeps it for a second time. With `create_graph` the gradients are
        recorded too, so that they have gradients themselves; that keeps it too.

        `GradientError` for a tensor that depends on no `Var`, the second time without `keep`, and where something that
        a gradient needs was overwritten. `ShapeMismatch` for more than one element without a gradient.

        >>> w = tl.Var(tl.Tensor(3.0))
        >>> grads = (w**2).backward()
        >>> grads[w].item()
        6.0
        """
        if type(create_graph) is not bool:
            create_graph = argument.boolean("backward", "create_graph", create_graph)
        if type(keep) is not bool:
            keep = argument.boolean("backward", "keep", keep)
        gradients: Gradients = extensions.backward(self, gradient, keep or create_graph, create_graph)
        return gradients
