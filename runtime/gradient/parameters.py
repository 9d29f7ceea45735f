"""Parameters of an optimiser: their groups, as a user gives them, and the batches that one call changes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from ...storage import Storage
from ..base.error import InvalidArgument, describe, type_name
from ..core.argument import by_other_name, real
from ..core.layout import Layout
from ..core.optim import parts_of
from ..tensor import Tensor
from .node import Node
from .variable import Var

Variables: TypeAlias = "Iterable[Var] | Mapping[str, Var]"
Parameters: TypeAlias = "Variables | Iterable[Mapping[str, Any]]"

_PARAMETERS: Final = "parameters"
RATE: Final = "learning_rate"
# PyTorch's name of it.
SHORT_RATE: Final = "lr"


class ParameterBatch:
    """Parameters of a group that are on one device and of one dtype: one call takes a step of all of them."""

    def __init__(self, names: Sequence[str], variables: Sequence[Var], kinds: int, numbers: Tensor) -> None:
        self.names, self.variables, self.numbers = names, variables, numbers
        self._kinds = kinds
        self._offsets = parts_of(variable.elem_count for variable in variables)
        self._state = Tensor.zeros(kinds * self._offsets[-1], dtype=numbers.dtype, device=numbers.device)
        # A variable has one node for as long as it lives.
        self.nodes: list[Node] = [variable._storage.inner for variable in variables]
        self.storages: list[Storage] = [variable._storage.value for variable in variables]
        layouts = [variable._layout for variable in variables]
        self._shapes = [layout.shape for layout in layouts]
        # Elements are changed in the order in which they lie.
        self._orders = [None if layout.is_contiguous else layout.memory_order() for layout in layouts]
        ordered = [layout.ordered for layout in layouts]
        self._first_layout, self._others = ordered[0], (tuple(self.storages[1:]), tuple(ordered[1:]))

    def set_number(self, index: int, value: float) -> None:
        """Write one of the numbers, where graphs that were captured see it."""
        self.numbers._storage.const_set(value, Layout((1,), (1,), index))

    def parts(self, kind: int) -> list[Tensor]:
        """Return views of one kind of state, one for each parameter."""
        begin = kind * self._offsets[-1]
        return [
            Tensor._new(self._state._storage, Layout(variable.shape, variable._layout.strides, begin + offset))
            for variable, offset in zip(self.variables, self._offsets[:-1], strict=True)
        ]

    def step(self, method: str, gradients: Sequence[Tensor | None], choice: bool) -> bool:
        """Change the parameters that have gradients, and return whether there are any."""
        storages: list[Storage] = []
        layouts: list[Layout] = []
        for number, gradient in enumerate(gradients):
            if gradient is None:
                return self._step_some(method, gradients, choice)
            shape = self._shapes[number]
            if gradient._layout.shape != shape:
                gradient = gradient.reshape(shape)
            order = self._orders[number]
            if order is not None:
                gradient = gradient.permute(order)
            storages.append(gradient._storage)
            layouts.append(gradient._layout)
        operands = tuple(storages), tuple(layouts), self._state._storage, self.numbers._storage, choice
        first, *others = self.storages
        getattr(first, method)(self._first_layout, *self._others, *operands)
        # The method has noted the write to the first one.
        for storage in others:
            storage.written = first.written
        return True

    def _step_some(self, method: str, gradients: Sequence[Tensor | None], choice: bool) -> bool:
        """Change the parameters that have gradients alone; the state of the others stays as it is."""
        chosen = [number for number, gradient in enumerate(gradients) if gradient is not None]
        if not chosen:
            return False
        names, variables = [self.names[number] for number in chosen], [self.variables[number] for number in chosen]
        some = ParameterBatch(names, variables, self._kinds, self.numbers)
        kinds = range(self._kinds)
        own = [parts[number] for parts in map(self.parts, kinds) for number in chosen]
        copies = [part for kind in kinds for part in some.parts(kind)]
        for part, copy in zip(own, copies, strict=True):
            copy.copy_(part)
        some.step(method, [gradients[number] for number in chosen], choice)
        for part, copy in zip(own, copies, strict=True):
            part.copy_(copy)
        return True


def parameter_groups(
    op: str, parameters: Any, settings: Mapping[str, Any]
) -> Iterator[tuple[Mapping[str, Var], dict[str, Any]]]:
    """Give the parameters of each group by name, with its settings."""
    if isinstance(parameters, Var | str) or not isinstance(parameters, Iterable):
        raise InvalidArgument(
            op, f"parameters are a list of Vars, a dict of them or of groups, not {describe(parameters)}"
        )
    listed = parameters if isinstance(parameters, Mapping) else list(parameters)
    if not listed:
        raise InvalidArgument(op, "there are no parameters; give the Vars that it changes")
    groups = [{_PARAMETERS: listed}]
    if not isinstance(listed, Mapping) and any(isinstance(each, Mapping) for each in listed):
        groups = listed
    count = 0
    for group in groups:
        if not isinstance(group, Mapping) or _PARAMETERS not in group:
            reason = f"a group is a dict with '{_PARAMETERS}' and settings, not of type {type_name(group)}"
            raise InvalidArgument(op, reason)
        own = {name: value for name, value in group.items() if name != _PARAMETERS}
        if SHORT_RATE in own:
            own[RATE] = by_other_name(op, RATE, own.get(RATE), SHORT_RATE, own.pop(SHORT_RATE))
        for name in own:
            if name not in settings:
                reason = f"'{name}' is no setting of {op}; these are {', '.join(settings)}"
                raise InvalidArgument(op, reason)
        named = _by_name(group[_PARAMETERS], count)
        count += len(named)
        for name, variable in named.items():
            if not isinstance(name, str):
                reason = f"the name of a parameter must be a str, not {describe(name)}"
                raise InvalidArgument(op, f"{reason}; names are keys of the state, which is saved by them")
            if not isinstance(variable, Var):
                reason = f"parameter '{name}' must be a Var, not of type {type_name(variable)}"
                raise InvalidArgument(op, f"{reason}; make it with tallow.Var(tensor)")
        if not named:
            raise InvalidArgument(op, "a group has no parameters; leave it out")
        yield named, {**settings, **own}


def _by_name(variables: Any, count: int) -> Mapping[str, Var]:
    """Name the parameters of a group by their positions, `count` of which are taken, unless they have names."""
    if isinstance(variables, Mapping):
        return variables
    listed = [variables] if isinstance(variables, Var) else variables
    return {f"{number}": variable for number, variable in enumerate(listed, count)}


def number_setting(op: str, name: str, value: Any) -> float:
    """Return a setting as a float; InvalidArgument unless it is finite and 0 or more."""
    number = real(op, name, value)
    if not 0 <= number < math.inf:
        raise InvalidArgument(op, f"{name} is a finite number of 0 or more, not {number}")
    return number


def betas_setting(op: str, value: Any) -> tuple[float, float]:
    """Return the decay rates of moments; InvalidArgument unless they are two numbers in [0, 1)."""
    try:
        first, second = value
    except (TypeError, ValueError):
        raise InvalidArgument(op, f"betas are two numbers such as (0.9, 0.999), not {describe(value)}") from None
    betas = number_setting(op, "betas[0]", first), number_setting(op, "betas[1]", second)
    if max(betas) >= 1:
        raise InvalidArgument(op, f"betas are below 1, not {betas}: moments forget by them")
    return betas
