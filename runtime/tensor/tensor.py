"""The tensor, and the gradients that its `backward` gives: each of the classes names the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from ..base.error import (
    DeviceMismatch,
    DTypeMismatch,
    GradientError,
    InvalidArgument,
    ShapeMismatch,
    TallowError,
    describe,
)
from ..base.unpicklable import Unpicklable
from ..core import argument
from ..core.extensions import extensions
from ..helpers.public import assembled
from . import display, names
from .base import TensorBase, require_tensors
from .custom import CustomMethods
from .familiar import FamiliarMethods
from .math.sampling import SamplingMethods
from .network.attention import AttentionMethods
from .network.convolution import ConvolutionMethods
from .network.layers import LayerMethods
from .network.losses import LossMethods
from .network.pooling import PoolingMethods


class TensorType(type):
    """The metaclass of Tensor, whose `dir` hides names that exist only to name their replacement."""

    def __dir__(cls) -> list[str]:
        return [name for name in super().__dir__() if not isinstance(vars(Tensor).get(name), names.Elsewhere)]


@assembled
class Tensor(
    LayerMethods,
    LossMethods,
    SamplingMethods,
    FamiliarMethods,
    AttentionMethods,
    ConvolutionMethods,
    PoolingMethods,
    CustomMethods,
    metaclass=TensorType,
):
    """Elements of one dtype on one device, in at most `limits.MAX_RANK` dims.

    A tensor is a storage and a layout. Views share the storage, so what is written through one of them shows in all:
    only methods whose name ends in `_`, `slice_set`, statements such as `x += y` and `x[1:] = y`, and a user's in-place
    ops write. Operands broadcast by NumPy's rules and are on one device; those of different dtypes are promoted by one
    table, that of docs/promotion.md. `==` compares element by element, and tensors hash by identity. Wherever a dtype
    is expected, its name and NumPy's types and dtypes do too: DType.F16, "f16", "float16" and np.float16 are one thing.

    >>> tl.Tensor([[1.0, 2.0], [3.0, 4.0]])
    Tensor([[1., 2.],
            [3., 4.]], dtype=f32)
    >>> tl.Tensor([1, 2, 3], "f16")
    Tensor([1., 2., 3.], dtype=f16)
    >>> tl.Tensor(np.arange(3))
    Tensor([0, 1, 2], dtype=i64)
    """

    __slots__ = ()

    def backward(
        self, gradient: Self | None = None, *, keep: bool = False, create_graph: bool = False, share: bool = False
    ) -> Gradients:
        """Work out the gradients of this tensor, of one element, for every `Var` that it depends on.

        `grads = loss.backward()` gives them: `grads[w]` is that of w. Of a tensor of more elements it gives the
        gradients of `(x * gradient).sum()`; the gradient has the shape of the tensor. Tensors that the gradients need
        are released as soon as they have been used; `keep` retains them for a second call. With `create_graph` the
        gradients are recorded too, so that they have gradients themselves; this retains the tensors too.

        Each gradient has memory of its own. With `share` equal ones may share it, also with `gradient`, as those of
        PyTorch's `autograd.grad` do: of `x + y` one is computed for both. They are for reading alone then.

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
        if type(share) is not bool:
            share = argument.boolean("backward", "share", share)
        gradients: Gradients = extensions.backward(self, gradient, keep or create_graph, create_graph, share)
        return gradients

    def __repr__(self) -> str:
        return display.text_of(self)

    def _repr_html_(self) -> str:
        """Show in a notebook what `repr` does, with columns that line up."""
        from html import escape

        return f'<pre style="font-family: monospace; white-space: pre">{escape(display.text_of(self))}</pre>'

    def __dir__(self) -> list[str]:
        return dir(type(self))

    def __format__(self, spec: str) -> str:
        """Format the only element as a number; without a format, as `repr` does."""
        if not spec:
            return str(self)
        try:
            return format(self.item(), spec)
        except TallowError as error:
            error.rename("format")
            raise
        except ValueError as error:
            raise InvalidArgument("format", f"{error}; use a format of Python's numbers") from None


class Gradients(Unpicklable):
    """The gradients of variables, which `backward` gives: `grads[w]` is that of w, in its shape and dtype.

    Each has memory of its own, so that `grads[w] += others[w]` sums up those of several losses.

    >>> w, unused = tl.Var(tl.ones(2)), tl.Var(tl.ones(2))
    >>> grads = (w * 3).sum().backward()
    >>> grads[w]
    Tensor([3., 3.], dtype=f32)
    >>> grads.get(unused) is None
    True
    """

    __slots__ = ("_of",)

    _copy_advice = "copy the tensor that grads[w] gives"

    def __init__(self, of: Mapping[Any, Tensor]) -> None:
        if type(of) is not dict and not isinstance(of, Mapping):
            raise InvalidArgument(
                "Gradients", f"of must be a mapping, not {describe(of)}; x.backward() gives gradients"
            )
        self._of: dict[Any, Tensor] = of if type(of) is dict else dict(of)

    def get(self, variable: Tensor) -> Tensor | None:
        """Return the gradient of a variable; None of one on which the result does not depend."""
        node = _variable_node(variable)
        gradient = self._of.get(node)
        if gradient is None:
            return None
        if gradient.shape != variable.shape:
            # Writes to it shall be visible to later lookups, also where a reshape takes a copy.
            gradient = self._of[node] = gradient.reshape(variable.shape)
        return gradient

    def __getitem__(self, variable: Tensor) -> Tensor:
        """Return the gradient of a variable; GradientError for one on which the result does not depend."""
        gradient = self.get(variable)
        if gradient is None:
            reason = f"the result does not depend on this Var of shape {variable.shape}"
            raise GradientError("grads", f"{reason}, or does so by ops without a gradient; grads.get(w) gives None")
        return gradient

    def __setitem__(self, variable: Tensor, gradient: Tensor) -> None:
        """Set the gradient of a variable, as `grads[w] += other` and `grads[w] = clipped` do."""
        require_tensors("grads", gradient=gradient)
        node = _variable_node(variable)
        if gradient.shape != variable.shape:
            shapes = variable.shape, gradient.shape
            raise ShapeMismatch("grads", shapes, "the gradient has the shape of the variable")
        if gradient.dtype is not variable.dtype:
            dtypes = variable.dtype, gradient.dtype
            reason = f"a gradient has the dtype of its variable, {dtypes[0].value}, not {dtypes[1].value}"
            raise DTypeMismatch("grads", dtypes, reason)
        if gradient.device != variable.device:
            raise DeviceMismatch("grads", (variable.device.label, gradient.device.label))
        self._of[node] = gradient

    def __contains__(self, variable: object) -> bool:
        try:
            return self._of.get(_variable_node(variable)) is not None
        except GradientError:
            return False

    def __len__(self) -> int:
        return len(self._of)

    def __repr__(self) -> str:
        return f"<gradients of {len(self._of)} variables>"


def _variable_node(variable: Any) -> Any:
    """Return the node of a variable, or of a tensor that shows all its elements in their order."""
    is_recorded = isinstance(variable, TensorBase) and variable._storage.is_recorded
    node: Any = variable._storage.inner if is_recorded else None
    if node is None or node.rule is not None:
        raise GradientError("grads", f"variable must be a Var, whose gradient was asked for, not {describe(variable)}")
    is_whole = variable._layout.is_contiguous and variable.elem_count == node.length
    if variable._layout.number != node.saved[0].number if node.saved else not is_whole:
        raise GradientError("grads", "variable must be a Var, not a view of it; take the view of the gradient")
    return node


for _name, _word in names.OF_TENSORS.items():
    # A package may have an op of this name.
    if not hasattr(Tensor, _name):
        setattr(Tensor, _name, names.Elsewhere("a Tensor", _name, _word))
