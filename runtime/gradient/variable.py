"""Variables: tensors that get gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, Self

from ...gradients.storages import RecordedStorage
from ...storage import Storage
from ..base.error import GradientError, InvalidArgument, ShapeMismatch, TallowError, describe
from ..core.layout import Layout, layout_of
from ..helpers.public import publish
from ..storage.calls import RECORDED, live_batches
from ..tensor import Gradients, Tensor
from ..tensor.base import require_tensors
from ..tensor.batch import expanded, is_at, levels
from .node import Contributions, Node, recorded_of, rule, tracked, unwrap
from .recording import mode, no_grad, recorded
from .walk import depends_on_others

P = ParamSpec("P")


class Var(Tensor):
    """A tensor that gets gradients: a copy of a tensor, in row-major order or as it is channels last.

    Ops on it, or on what came of it, are recorded, so that `loss.backward()` gives the gradients of a result; what they
    give is an ordinary `Tensor`. Outside of `no_grad` a variable is written to by `set_` alone.

        w = tl.Var(tl.randn((3, 2)))
        grads = (x @ w).sqr().mean().backward()
        w.set_(w - 0.1 * grads[w])

    The gradient of a complex variable is the derivative by its real parts plus 1j times that by its imaginary parts,
    the direction in which the result grows fastest.

    `GradientError` for a dtype of integers.

    >>> w = tl.Var(tl.Tensor([1.0, 2.0]))
    >>> grads = (w * w).sum().backward()
    >>> grads[w]
    Tensor([2., 4.], dtype=f32)
    """

    __slots__ = ()

    _storage: RecordedStorage
    _result_class = Tensor

    def __init__(self, tensor: Tensor) -> None:
        require_tensors("Var", tensor=tensor)
        if not tensor.dtype.is_inexact:
            reason = f"a Var is of floats or complex numbers, and {tensor.dtype.value} has no gradients"
            raise GradientError("Var", f"{reason}; convert the tensor with to_dtype first")
        around, layout = live_batches and levels(), tensor._layout
        is_dense = layout.is_contiguous or around
        self._layout = layout.dense if is_dense else layout_of(layout.shape, layout.is_channels_last)
        value = tracked(_value_of(tensor, self._layout, around))
        node = Node.of(value, None)
        if not self._layout.is_contiguous:
            node.saved = (self._layout,)
        self._storage = recorded_of(value, node)  # type: ignore[assignment]

    @classmethod
    def _new(cls, storage: Storage, layout: Layout) -> Any:
        # What comes of a variable is an ordinary tensor.
        return Tensor._new(storage, layout)

    def set_(self, source: Tensor) -> Self:
        """Set the elements to those of a tensor of the same shape, as an optimiser does; nothing is recorded.

        They are converted as by `copy_`. Its memory stays where it is, so that a graph that was captured sees the new
        elements. The variable itself.
        """
        require_tensors("set_", source=source)
        if source.shape != self.shape:
            raise ShapeMismatch("set_", (self.shape, source.shape), "the shapes must be equal; make another Var")
        with no_grad():
            try:
                Tensor._new(self._storage, self._layout).copy_(source)
            except TallowError as error:
                error.rename("set_")
                raise
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return type(self)(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the elements and the device, to which they return, as a variable."""
        return type(self), (self.detach(),)


def _value_of(tensor: Tensor, layout: Layout, around: Sequence[Any]) -> Storage:
    """A copy of the elements in the order of a layout; inside of `vmap` that of each example, whose records further out
    stay."""
    if not around:
        with no_grad():
            value = tensor.detach()
            if not layout.is_contiguous:
                value = value.permute(layout.memory_order())
            return value.copy()._storage
    storage: Any = tensor._storage
    if storage.inner.kind == RECORDED and is_at(storage.value, around[-1]):
        storage = storage.value
    return expanded(Tensor._new(storage, tensor._layout).copy()._storage, around[-1])


def is_variable(tensor: Tensor) -> bool:
    """Tell whether a tensor shows the elements of a variable."""
    inner: Any = tensor._storage.inner
    return isinstance(inner, Node) and inner.rule is None


class FunctionCall:
    """A call of a function in which variables stand for some tensors, of which its derivatives are worked out."""

    __slots__ = ("is_recorded", "node", "op", "result", "sources", "variables")

    def __init__(
        self, op: str, sources: Sequence[Tensor], variables: Sequence[Var], function: Callable[[], Tensor]
    ) -> None:
        self.op = op
        self.sources = sources
        self.variables = variables
        around = mode()
        with recorded():
            result = function()
        require_tensors(op, result=result)
        # Elsewhere the caller has the gradient of a variable from this call.
        is_part = any(it.is_recorded and (around.is_inner or not is_variable(it)) for it in sources)
        value, self.node = unwrap(result._storage)
        """That of the result, None where it depends on no variable."""
        leaves = [each._storage.inner for each in variables]
        self.result = result
        is_wrapped = value.inner.kind < 0
        self.is_recorded = around.records and (
            is_part or (is_wrapped and value.is_recorded) or depends_on_others(self.node, leaves)
        )
        """Whether the results are recorded: they depend on other variables than those of this call."""

    def gradients(self, seed: Tensor | None = None, keep: bool = False, create_graph: bool = False) -> list[Tensor]:
        """Return the gradients of the variables, zeros of one on which the result does not depend.

        GradientError where it depends on no variable, ShapeMismatch where it is not one element and there is no seed.
        """
        if seed is None and self.result.elem_count != 1:
            raise ShapeMismatch(self.op, (self.result.shape,), "the function gives one element; sum up its result")
        grads: Gradients = self.result.backward(seed, keep=keep, create_graph=create_graph or self.is_recorded)
        gradients = [grads.get(each) for each in self.variables]
        return [
            each.detach().zeros_like() if grad is None else grad
            for each, grad in zip(self.variables, gradients, strict=True)
        ]

    def finished(self, derivatives: Sequence[Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The result and derivatives, which depend on what the variables stood for."""
        # The elements may be those of a variable.
        result = self.result.copy() if is_variable(self.result) else self.result
        if not self.is_recorded:
            result = result.detach()
            # Derivatives along what is recorded are so nevertheless.
            if not any(each.is_recorded for each in derivatives):
                return result, tuple(derivatives)
        for variable, source in zip(self.variables, self.sources, strict=True):
            leaf: Node = variable._storage.inner
            leaf.inputs = unwrap(source._storage)[1], source._layout
            leaf.rule = _argument
        return result, tuple(derivatives)


def value_and_grad(function: Callable[P, Tensor]) -> Callable[P, tuple[Tensor, tuple[Tensor, ...]]]:
    """Make a function of tensors give its result and the gradients of its tensors.

        loss, (of_w, of_b) = tl.value_and_grad(loss_of)(w, b)

    The function gives a tensor of one element. The gradients are those of all arguments that are tensors of floats or
    complex numbers, in their order, those passed by keyword last; of one on which the result does not depend the
    gradient is zeros.

    One such function may call another one. The result and the gradients are recorded if an argument came of a variable,
    or if the function uses other variables than its arguments; in a block of `no_grad` they never are.

    >>> value, grads = tl.value_and_grad(lambda x, y: (x * y).sum())(tl.Tensor([1.0, 2.0]), tl.Tensor([3.0, 4.0]))
    >>> value.item()
    11.0
    >>> grads[0]
    Tensor([3., 4.], dtype=f32)
    """

    if not callable(function):
        raise InvalidArgument("value_and_grad", f"function must be a function, not {describe(function)}")

    def call(*arguments: P.args, **named: P.kwargs) -> tuple[Tensor, tuple[Tensor, ...]]:
        sources: list[Tensor] = []
        variables: list[Var] = []

        def variable(argument: Any) -> Any:
            if not isinstance(argument, Tensor) or not argument.dtype.is_inexact:
                return argument
            sources.append(argument)
            variables.append(Var(argument))
            return variables[-1]

        positional = [variable(argument) for argument in arguments]
        by_name = {name: variable(argument) for name, argument in named.items()}
        if not variables:
            kinds = ", ".join(describe(argument) for argument in (*arguments, *named.values())) or "nothing"
            reason = f"no argument is a Tensor of floats, but {kinds}; give tensors as arguments of their own"
            raise InvalidArgument("value_and_grad", reason)
        it = FunctionCall("value_and_grad", sources, variables, lambda: function(*positional, **by_name))
        return it.finished(it.gradients())

    return call


@rule
def _argument(node: Node, g: Tensor) -> Contributions:
    """The gradient of an argument of `value_and_grad`, which was a variable while the function's were worked out."""
    yield 0, node.in_shape(g) if node.saved else g.reshape(node.inputs[1].shape)


publish(__name__.partition(".")[0], ("Var",), globals())
