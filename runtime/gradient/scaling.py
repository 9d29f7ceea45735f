"""Scaling of gradients: by their norm, and of a loss whose gradients are f16."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from ...dtype import DType
from ..base.bounded_cache import BoundedCache
from ..base.error import GradientError, InvalidArgument, describe, type_name
from ..core.argument import integer, real
from ..core.layout import Layout
from ..helpers.batches import batches
from ..tensor import Gradients, Tensor, stack
from ..tensor.base import require_tensors
from .optimizers import Optimizer
from .parameters import number_setting
from .state import require_same

# The most elements of gradients that are scaled together: a launch takes no time compared with more than these.
_MAX_TOGETHER: Final = 1 << 24


class LossScaler:
    """Keeps small gradients of f16 from becoming 0: the loss is multiplied by a scale, and gradients are divided by it.

        scaler = tl.optim.LossScaler()
        with tl.autocast("f16"):
            loss = loss_of(weights, x)
        scaler.step(optimizer, scaler.backward(loss))

    A step with gradients that are infinite or NaN is left out, and multiplies the scale by `backoff`; after `interval`
    steps in a row that were taken, the scale is multiplied by `growth`. To know which of both it is, a step waits for
    the device, so it cannot be captured in a graph. bf16 needs no scale.

    >>> w = tl.Var(tl.Tensor([1.0, 2.0]))
    >>> optimizer, scaler = tl.optim.SGD([w], 0.1), tl.optim.LossScaler(4.0)
    >>> grads = scaler.backward((w * w).sum())
    >>> grads[w]
    Tensor([2., 4.], dtype=f32)
    >>> scaler.step(optimizer, grads), scaler.scale
    (True, 4.0)
    >>> scaler.step(optimizer, scaler.backward((w / 0.0).sum())), scaler.scale
    (False, 2.0)
    """

    def __init__(self, scale: float = 2.0**16, growth: float = 2.0, backoff: float = 0.5, interval: int = 2000) -> None:
        op = "LossScaler"
        self.scale = _positive(op, "scale", scale)
        """The factor of the loss."""
        self.growth = _positive(op, "growth", growth)
        self.backoff = _positive(op, "backoff", backoff)
        self.interval = integer(op, "interval", interval)
        if self.growth < 1 or self.backoff >= 1 or self.interval < 1:
            reason = "growth is 1 or more, backoff below 1, and interval 1 or more"
            raise InvalidArgument(op, f"{reason}, not {describe(growth)}, {describe(backoff)} and {describe(interval)}")
        self._taken = 0

    def backward(self, loss: Tensor) -> Gradients:
        """Return the gradients of a loss, worked out with the scale, and without it in them."""
        require_tensors("LossScaler.backward", loss=loss)
        gradients = (loss.to_dtype(loss.dtype.compute) * self.scale).backward()
        _Gradients("LossScaler.backward", gradients).scale(1 / self.scale)
        return gradients

    def step(self, optimizer: Optimizer, gradients: Gradients) -> bool:
        """Take a step of an optimiser if all gradients are finite, and adapt the scale; return whether it was taken."""
        if not math.isfinite(_Gradients("LossScaler.step", gradients).norm().item()):
            self.scale *= self.backoff
            self._taken = 0
            return False
        optimizer.step(gradients)
        self._taken += 1
        if self._taken == self.interval:
            self.scale *= self.growth
            self._taken = 0
        return True

    def state(self) -> dict[str, Tensor]:
        """The scale and the number of steps since it last changed, for `save_safetensors`."""
        return {"scale": Tensor(self.scale, dtype=DType.F64), "steps": Tensor(self._taken, dtype=DType.I64)}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from a state that `state` gave."""
        require_same("load_state", self.state(), tensors, "load one of a LossScaler")
        self.scale, self._taken = float(tensors["scale"].item()), int(tensors["steps"].item())

    def __repr__(self) -> str:
        return f"LossScaler(scale={self.scale:g})"


def _positive(op: str, name: str, value: float) -> float:
    number = real(op, name, value)
    if not 0 < number < math.inf:
        raise InvalidArgument(op, f"{name} is above 0, not {describe(value)}")
    return number


def clip_by_norm(gradients: Gradients, max_norm: float) -> Tensor:
    """Scale gradients so that their norm, of all of them together, is at most `max_norm`; give the norm before.

    The norm is a tensor of rank 0 in the compute dtype, and nothing is read from the device. Gradients of one device.
    Small ones are concatenated first, so that their number hardly counts. Where the gradients are recorded, so are
    all results. InvalidArgument for a norm that is not above 0. As torch.nn.utils.clip_grad_norm_.

    >>> w = tl.Var(tl.Tensor([1.0, 2.0]))
    >>> grads = (w * w).sum().backward()
    >>> tl.optim.clip_by_norm(grads, 1.0).item()
    4.4721360206604
    >>> grads[w]
    Tensor([0.4472, 0.8944], dtype=f32)
    """
    op = "clip_by_norm"
    limit = number_setting(op, "max_norm", max_norm)
    if not limit:
        raise InvalidArgument(op, "max_norm is above 0; leave the step out to change nothing")
    together = _Gradients(op, gradients)
    norm = together.norm()
    # As in PyTorch, a norm of 0 divides nothing.
    together.scale((limit / (norm + 1e-6)).clamp(0.0, 1.0))
    return norm


class _Gradients:
    """Gradients of one device, of which small ones are concatenated."""

    def __init__(self, op: str, gradients: Gradients) -> None:
        if not isinstance(gradients, Gradients):
            raise InvalidArgument(op, f"gradients are what loss.backward() gives, not of type {type_name(gradients)}")
        if not gradients._of:
            raise GradientError(op, "there are no gradients; those of a loss that depends on a Var have some")
        self._gradients = gradients
        self._each = [it if it._layout.is_contiguous else it.contiguous() for it in gradients._of.values()]
        key = tuple([part for it in self._each for part in (it._layout.number, it._storage.inner.dtype)])
        parts = _batches.get(key) or _batches.put(key, _batches_of(self._each))
        self._batches = [(batch, batch.concatenate(self._each)) for batch in parts]

    def norm(self) -> Tensor:
        """The norm of all gradients together, in the widest of their compute dtypes."""
        compute = max((flat.dtype.compute for _, flat in self._batches), key=lambda dtype: dtype.itemsize)
        norms = [flat.to_dtype(flat.dtype.compute).norm().to_dtype(compute) for _, flat in self._batches]
        return stack(norms).norm() if len(norms) > 1 else norms[0]

    def scale(self, factor: Tensor | float) -> None:
        """Multiply the gradients, which are rounded once."""
        for batch, flat in self._batches:
            compute = flat.dtype.compute
            own = factor.to_dtype(compute) if isinstance(factor, Tensor) else factor
            product = (flat.to_dtype(compute) * own).to_dtype(flat.dtype)
            for position, layout in zip(batch.positions, batch.parts, strict=True):
                self._each[position] = Tensor._new(product._storage, layout)
        self._gradients._of = dict(zip(self._gradients._of, self._each, strict=True))


class _Concatenation(NamedTuple):
    """Gradients concatenated to one vector. A large one is alone, and is not copied."""

    positions: tuple[int, ...]
    """The positions of the gradients in the list."""
    first: Layout
    others: tuple[Layout, ...]
    layout: Layout
    """The layout of the vector."""
    parts: tuple[Layout, ...]
    """The layout of each gradient in the vector."""

    def concatenate(self, gradients: Sequence[Tensor]) -> Tensor:
        """Return the vector."""
        first, *others = [gradients[position]._storage for position in self.positions]
        return Tensor._new(first.cat(self.first, tuple(others), self.others, 0) if others else first, self.layout)


# By the layouts and the dtypes of gradients.
_batches: Final[BoundedCache[tuple[object, ...], tuple[_Concatenation, ...]]] = BoundedCache(1 << 6)


def _batches_of(gradients: Sequence[Tensor]) -> tuple[_Concatenation, ...]:
    def concatenation(positions: Sequence[int]) -> _Concatenation:
        tensors = [gradients[position] for position in positions]
        first, *others = flat = [tensor.flatten()._layout for tensor in tensors]
        vector = Layout.contiguous((sum(layout.elem_count for layout in flat),)) if others else first
        starts = itertools.accumulate((layout.elem_count for layout in flat), initial=0)
        parts = [Layout.contiguous(tensor.shape, start) for tensor, start in zip(tensors, starts, strict=False)]
        return _Concatenation(tuple(positions), first, tuple(others), vector, tuple(parts))

    sizes = [gradient.elem_count for gradient in gradients]
    dtypes = [gradient.dtype for gradient in gradients]
    together = batches(range(len(gradients)), dtypes.__getitem__, sizes.__getitem__, _MAX_TOGETHER)
    return tuple(map(concatenation, together))
