"""Optimisers: what changes variables by their gradients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

from ...device import Device
from ...dtype import DType
from ..base.error import DeviceMismatch, DTypeMismatch, GradientError, InvalidArgument, ShapeMismatch, type_name
from ..base.unpicklable import Unpicklable
from ..core.argument import REQUIRED, DefaultFloat, boolean, by_other_name
from ..tensor import Gradients, Tensor
from ..tensor import names as familiar
from ..tensor.base import require_tensors
from .node import unwrap
from .parameters import RATE, SHORT_RATE, ParameterBatch, Parameters, betas_setting, number_setting, parameter_groups
from .recording import no_grad
from .state import load, require_same
from .variable import Var

# Their defaults differ from the same numbers in a call, which has one of two names.
_RATE_OF_SGD: Final = DefaultFloat(0.01)
_RATE_OF_ADAM: Final = DefaultFloat(1e-3)
_STEPS: Final = "steps"
_NESTEROV: Final = "nesterov"


# A copy would change nothing, as the state of an optimiser belongs to its own parameters.
_COPY_ADVICE: Final = "copy the parameters, make an optimiser of them, and give its load_state() this one's state()"


class Group(Unpicklable):
    """Parameters of an optimiser that share their settings.

    >>> weight, bias = tl.Var(tl.ones((2, 2))), tl.Var(tl.ones(2))
    >>> groups = [{"parameters": [weight]}, {"parameters": [bias], "learning_rate": 0.5}]
    >>> optimizer = tl.optim.SGD(groups, 0.1)
    >>> [group.learning_rate for group in optimizer.groups]
    [0.1, 0.5]
    """

    _copy_advice = _COPY_ADVICE

    def __init__(self, op: str, batches: Sequence[ParameterBatch], settings: Mapping[str, Any]) -> None:
        self._op = op
        self._batches = batches
        self.settings = dict(settings)
        """The learning rate and the others, as last passed."""

    @property
    def learning_rate(self) -> float:
        """The factor of a step; it is in the device's memory, where a graph that was captured sees what is set."""
        rate: float = self.settings[RATE]
        return rate

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        rate = self._settable_rate(value)
        if rate != self.settings[RATE]:
            self.settings[RATE] = rate
            for batch in self._batches:
                batch.set_number(0, rate)

    lr = learning_rate

    def _settable_rate(self, value: float) -> float:
        """Return a learning rate as a float, or refuse it before anything is set."""
        for batch in self._batches:
            # Each replay would set it again, to the same.
            batch.numbers._storage.inner.device.refuse_in_capture(
                "a learning rate that is set", "set it before the capture, and again between replays"
            )
        return number_setting(self._op, RATE, value)

    @property
    def variables(self) -> list[Var]:
        """The parameters of the group."""
        return [variable for batch in self._batches for variable in batch.variables]


class Optimizer(Unpicklable, ABC):
    """The base of SGD, Adam and AdamW.

    The parameters are variables, in a list or by name, or groups of them with settings of their own; `lr` is PyTorch's
    name of `learning_rate`. `Group` has an example of groups.

    One call changes all parameters of a group that are on one device and of one dtype: on a GPU by one launch for every
    168 of them, and Adam has another one that counts the step. Parameters of short floats have a state in f32; each
    step is computed in f32 and rounded to the parameter once, and the optimizer has no copy of the parameter in f32.
    Where steps are smaller than the parameters' own precision, keep variables in f32, and convert them in the forward
    pass with `w.to_dtype("bf16")`: their gradients come back in f32.

    >>> w = tl.Var(tl.Tensor([1.0, 2.0]))
    >>> optimizer = tl.optim.Adam([w], 0.001)
    >>> optimizer.learning_rate = 0.01  # a schedule sets it before a step
    >>> optimizer.step((w * w).sum().backward())
    >>> sorted(optimizer.state())
    ['0.first_moment', '0.second_moment', '0.steps']
    """

    _copy_advice = _COPY_ADVICE
    _method: ClassVar[str]
    _kinds: ClassVar[tuple[str, ...]]
    _is_decoupled: ClassVar = False
    _steps_index: ClassVar[int | None] = None
    """Which of a batch's numbers counts its steps, if one does."""

    def __init__(self, parameters: Parameters, settings: Mapping[str, Any]) -> None:
        op = type(self).__name__
        self.groups: list[Group] = []
        """The groups of parameters, in their order: `optimizer.groups[1].learning_rate = 0.01`."""
        self._variables: dict[str, Var] = {}
        for named, own in parameter_groups(op, parameters, settings):
            for name, variable in named.items():
                self._add(op, name, variable)
            self._check(own)
            self.groups.append(Group(op, list(self._batches_of(named, own)), own))
        self._batches = [(group, batch) for group in self.groups for batch in group._batches]
        self._written = {id(storage.inner) for _, batch in self._batches for storage in batch.storages}

    def _add(self, op: str, name: str, variable: Var) -> None:
        if name in self._variables:
            raise InvalidArgument(
                op, f"two parameters are called '{name}'; names are those of the state, so rename one"
            )
        if any(variable._storage is other._storage for other in self._variables.values()):
            reason = f"parameter '{name}', a Var of shape {variable.shape}, is given twice; each is changed once a step"
            raise InvalidArgument(op, f"{reason}, so leave one out")
        self._variables[name] = variable

    def _batches_of(self, named: Mapping[str, Var], settings: Mapping[str, Any]) -> Iterator[ParameterBatch]:
        alike: dict[tuple[Device, DType], dict[str, Var]] = {}
        for name, variable in named.items():
            alike.setdefault((variable.device, variable.dtype), {})[name] = variable
        for (device, dtype), chosen in alike.items():
            numbers = Tensor(self._numbers(settings), dtype=dtype.compute, device=device)
            yield ParameterBatch([*chosen], [*chosen.values()], len(self._kinds_of(settings)), numbers)

    def _check(self, settings: dict[str, Any]) -> None:
        """Make settings Python's numbers, or refuse them."""
        op = type(self).__name__
        for name, value in settings.items():
            if isinstance(value, bool) or name == _NESTEROV:
                settings[name] = boolean(op, name, value)
            elif name == "betas":
                settings[name] = betas_setting(op, value)
            else:
                settings[name] = number_setting(op, name, value)

    @abstractmethod
    def _numbers(self, settings: Mapping[str, Any]) -> list[float]:
        """Return the numbers that a step depends on, the learning rate first."""

    def _kinds_of(self, settings: Mapping[str, Any]) -> tuple[str, ...]:
        """The kinds of numbers that the state of a group has for each element."""
        return self._kinds if settings.get("momentum", 1) else ()

    @property
    def learning_rate(self) -> float:
        """The learning rate, that of the first group; setting it sets that of all groups.

        A schedule is a function of the step: `optimizer.learning_rate = 0.1 * 0.99**step`. The device has it in memory,
        where a graph that was captured sees what is set. InvalidArgument for what is no number of 0 or more.
        """
        return self.groups[0].learning_rate

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        for group in self.groups:
            group._settable_rate(value)
        for group in self.groups:
            group.learning_rate = value

    lr = learning_rate

    def step(self, gradients: Gradients | Sequence[Tensor | None] = REQUIRED) -> None:
        """Change the parameters in place: `optimizer.step(loss.backward())`.

        Gradients may also be a tensor for each parameter, in their order, as `value_and_grad` gives them. A parameter
        on which the loss does not depend stays as it is, and so does its state, as in Candle; where that is so of all
        of them, GradientError. Nothing is recorded. InvalidArgument, ShapeMismatch, DTypeMismatch and DeviceMismatch
        for a gradient that does not fit its parameter: then nothing has changed.
        """
        if type(gradients) is Gradients:
            of = gradients._of
            gradients_of = [[of.get(node) for node in batch.nodes] for _, batch in self._batches]
        else:
            gradients_of = self._listed(gradients)
        is_taken = False
        for (group, batch), each in zip(self._batches, gradients_of, strict=True):
            is_taken |= batch.step(self._method, each, group.settings.get(_NESTEROV, self._is_decoupled))
        if not is_taken:
            reason = "the gradients are of none of the parameters; they are those of a loss that depends on these Vars"
            raise GradientError("step", reason)

    def _listed(self, gradients: Any) -> list[list[Tensor | None]]:
        """Those of a list, by the batches."""
        if gradients is REQUIRED:
            reason = "the gradients are missing, which no variable holds; pass them: optimizer.step(loss.backward())"
            raise InvalidArgument("step", reason)
        if not isinstance(gradients, Sequence) or isinstance(gradients, str):
            reason = "gradients are what loss.backward() gives, or a list with a tensor for each parameter"
            raise InvalidArgument("step", f"{reason}, not of type {type_name(gradients)}")
        if len(gradients) != len(self._variables):
            reason = f"{len(self._variables)} parameters need as many gradients, not {len(gradients)}"
            raise InvalidArgument("step", f"{reason}; None stands for one that is missing")
        named = {name: self._checked(name, gradient) for name, gradient in zip(self._variables, gradients, strict=True)}
        return [[named[name] for name in batch.names] for _, batch in self._batches]

    def _checked(self, name: str, gradient: Any) -> Tensor | None:
        """Return the gradient of a parameter, which must fit it, in memory that no step writes to."""
        if gradient is None:
            return None
        require_tensors("step", gradient=gradient)
        variable = self._variables[name]
        if gradient.shape != variable.shape:
            reason = "a gradient has the shape of its parameter; give them in the order of the parameters"
            raise ShapeMismatch("step", (variable.shape, gradient.shape), reason)
        if gradient.dtype is not variable.dtype:
            reason = f"parameter '{name}' is in {variable.dtype.value}, and its gradient in {gradient.dtype.value}"
            raise DTypeMismatch("step", (variable.dtype, gradient.dtype), reason)
        if gradient.device != variable.device:
            devices = variable.device.label, gradient.device.label
            raise DeviceMismatch(
                "step", devices, f"parameter '{name}' is on {devices[0]}, its gradient on {devices[1]}"
            )
        plain: Tensor = Tensor._new(unwrap(gradient._storage)[0], gradient._layout)
        return plain.copy() if id(plain._storage.inner) in self._written else plain

    def state(self) -> dict[str, Tensor]:
        """Return a copy of the optimizer's state by name, for `save_safetensors`, with the number of steps.

        The settings are not in it: they are those of the optimiser that loads it.
        """
        with no_grad():
            return {name: tensor.copy() for name, tensor in self._state().items()}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from a state that `state` gave, of the same parameters, on any device.

        InvalidArgument where names are missing or unknown, ShapeMismatch and DTypeMismatch where a tensor is not what
        it was: then nothing has changed.
        """
        own = self._state()
        require_same("load_state", own, tensors, "load one of the same parameters and kind of optimiser")
        if self._steps_index is not None:
            for _, batch in self._batches:
                _require_one_count(batch.names, tensors)
        load(own, tensors)

    def _state(self) -> dict[str, Tensor]:
        """Views of the state by name."""
        return {
            f"{name}.{kind}": part
            for group, batch in self._batches
            for kind, parts in self._parts_of(group, batch).items()
            for name, part in zip(batch.names, parts, strict=True)
        }

    def _parts_of(self, group: Group, batch: ParameterBatch) -> dict[str, list[Tensor]]:
        """Views of each kind of state, one for each parameter of a batch."""
        parts = {kind: batch.parts(number) for number, kind in enumerate(self._kinds_of(group.settings))}
        if self._steps_index is not None:
            parts[_STEPS] = [batch.numbers[self._steps_index]] * len(batch.names)
        return parts

    if not TYPE_CHECKING:
        # Only called for what is not there.
        def __getattr__(self, name: str) -> NoReturn:
            familiar.refuse(f"'{type(self).__name__}' object", name, self, familiar.OF_OPTIMIZERS.get(name))

    def __repr__(self) -> str:
        count = len(self._variables)
        return f"{type(self).__name__}({count} parameters, learning_rate={self.learning_rate:g})"


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum or without.

    With a gradient g and a velocity v, which is 0 at first, for each parameter x:

        g = g + weight_decay * x
        v = momentum * v + g
        x = x - learning_rate * (g + momentum * v if nesterov else v)

    as torch.optim.SGD does without dampening, after Sutskever, Martens, Dahl and Hinton, "On the importance of
    initialization and momentum in deep learning" (2013). `InvalidArgument` for what is no Var, a Var that is passed
    twice, numbers below 0, an unknown setting of a group, and nesterov without momentum. See `Optimizer` for groups.

    >>> w = tl.Var(tl.Tensor([1.0, 2.0]))
    >>> optimizer = tl.optim.SGD([w], 0.1)
    >>> optimizer.step((w * w).sum().backward())
    >>> w.detach()
    Tensor([0.8, 1.6], dtype=f32)
    """

    _method = "sgd_step"
    _kinds = ("velocity",)

    def __init__(
        self,
        parameters: Parameters,
        learning_rate: float = _RATE_OF_SGD,
        *,
        lr: float | None = None,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        settings = {"momentum": momentum, "weight_decay": weight_decay, _NESTEROV: nesterov}
        super().__init__(parameters, {RATE: _rate(type(self).__name__, learning_rate, lr), **settings})

    def _check(self, settings: dict[str, Any]) -> None:
        super()._check(settings)
        if settings[_NESTEROV] and not settings["momentum"]:
            raise InvalidArgument("SGD", "nesterov needs momentum, which is 0; pass a momentum such as 0.9")

    def _numbers(self, settings: Mapping[str, Any]) -> list[float]:
        return [settings[name] for name in (RATE, "momentum", "weight_decay")]


class Adam(Optimizer):
    """Adam, after Kingma and Ba, "Adam: A method for stochastic optimization" (2015), with L2 regularisation.

    With a gradient g, and moments m and v, which are 0 at first, for each parameter x in step t, counted from 1:

        g = g + weight_decay * x
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g**2
        x = x - learning_rate * (m / (1 - beta1**t)) / (sqrt(v / (1 - beta2**t)) + epsilon)

    The step is counted in the device's memory, for all parameters of a group together that are on one device and of
    one dtype. The settings are those of
    torch.optim.Adam. `InvalidArgument` for what is no Var, a Var that is passed twice, numbers below 0, betas that are
    not below 1, and an unknown setting of a group. See `Optimizer` for groups.

    >>> w = tl.Var(tl.Tensor([1.0, 2.0]))
    >>> optimizer = tl.optim.Adam([w], 0.1)
    >>> optimizer.step((w * w).sum().backward())
    >>> w.detach()
    Tensor([0.9, 1.9], dtype=f32)
    """

    _method = "adam_step"
    _kinds = ("first_moment", "second_moment")
    _steps_index = 5

    def __init__(
        self,
        parameters: Parameters,
        learning_rate: float = _RATE_OF_ADAM,
        *,
        lr: float | None = None,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        settings = {"betas": betas, "epsilon": epsilon, "weight_decay": weight_decay}
        super().__init__(parameters, {RATE: _rate(type(self).__name__, learning_rate, lr), **settings})

    def _numbers(self, settings: Mapping[str, Any]) -> list[float]:
        # Behind the settings the number of steps, and the two factors that follow from it and the betas.
        return [settings[RATE], *settings["betas"], settings["epsilon"], settings["weight_decay"], 0.0, 0.0, 0.0]


class AdamW(Adam):
    """Adam with decoupled weight decay, after Loshchilov and Hutter, "Decoupled weight decay regularization" (2019).

    As `Adam`, where the decay is no part of the gradient: x is first multiplied by 1 - learning_rate * weight_decay.
    The settings are those of torch.optim.AdamW and Candle.

    >>> w = tl.Var(tl.Tensor([1.0, 2.0]))
    >>> optimizer = tl.optim.AdamW([w], 0.1)
    >>> optimizer.step((w * w).sum().backward())
    >>> w.detach()
    Tensor([0.899, 1.898], dtype=f32)
    """

    _is_decoupled = True

    def __init__(
        self,
        parameters: Parameters,
        learning_rate: float = _RATE_OF_ADAM,
        *,
        lr: float | None = None,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(parameters, learning_rate, lr=lr, betas=betas, epsilon=epsilon, weight_decay=weight_decay)


def _rate(op: str, learning_rate: float, lr: float | None) -> float:
    """Return the learning rate, which a call gives by either name."""
    return learning_rate if lr is None else by_other_name(op, RATE, learning_rate, SHORT_RATE, lr)


def _require_one_count(names: Sequence[str], tensors: Mapping[str, Tensor]) -> None:
    """Check that a state has one number of steps for parameters whose steps are counted together."""
    counts = {name: tensors[f"{name}.{_STEPS}"].item() for name in names}
    first = names[0]
    for name, steps in counts.items():
        if not (steps >= 0 and steps % 1 == 0):
            raise InvalidArgument("load_state", f"'{name}.{_STEPS}' is {steps}, which counts nothing; save it again")
        if steps != counts[first]:
            reason = (
                f"'{first}' made {counts[first]:g} steps and '{name}' {steps:g}, and their group counts both as one"
            )
            raise InvalidArgument("load_state", f"{reason}; group parameters as they were when the state was saved")
