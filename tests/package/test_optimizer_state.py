"""Every optimiser of `tallow.optim`: random programs that are interrupted and resumed, and calls that are refused.

Optimisers come from the module and their settings from their signatures, so a new one is tested at once.
"""

from __future__ import annotations

import copy
import inspect
import pickle
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tallow as tl
from tallow import Device, DType, InvalidArgument, Tensor, Var, optim
from tallow.runtime.base.error import TallowError

Bits = dict[str, bytes]
Kind = type[optim.Optimizer]

CLASSES = [it for name in optim.__all__ if inspect.isclass(it := getattr(optim, name)) and not inspect.isabstract(it)]
OPTIMIZERS = [it for it in CLASSES if issubclass(it, optim.Optimizer)]
SHAPES = (), (3,), (2, 5), (17,)
DTYPES = "f32", "f32", "bf16", "f64"
LACKED_BY_METAL = DType.F64, DType.COMPLEX64, DType.COMPLEX128


@pytest.fixture(params=OPTIMIZERS, ids=lambda kind: kind.__name__)
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param


def settings(kind: Kind, chance: random.Random) -> dict[str, Any]:
    """Random settings of an optimiser, of the types of their defaults."""

    def value(default: Any) -> Any:
        if isinstance(default, bool):
            return chance.random() < 0.5
        if isinstance(default, tuple):
            return tuple(chance.choice((0.0, 0.5, 0.9)) for _ in default)
        return chance.choice((default, 0.0625, 0.5))

    parameters = inspect.signature(kind).parameters.values()
    return {it.name: value(it.default) for it in parameters if it.default is not it.empty and chance.random() < 0.7}


@dataclass
class Program:
    """Steps of parameters in groups, some of which have no gradient in some steps."""

    starts: list[Tensor]
    groups: list[tuple[list[int], dict[str, Any]]]
    settings: dict[str, Any]
    steps: list[list[Tensor | None]]
    recorded: list[bool]
    """Whether the gradients of a step come from backward."""
    rates: list[float | None]
    cut: int

    @classmethod
    def draw(cls, kind: Kind, seed: int, device: Device) -> Program:
        chance, numbers = random.Random(seed), np.random.default_rng(seed)
        devices = [device, device, Device.cpu()]
        dtypes = DTYPES[:3] if device.is_metal() else DTYPES
        count, length = chance.randint(1, 6), chance.randint(2, 9)
        starts = [
            Tensor(numbers.normal(size=chance.choice(SHAPES)), chance.choice(dtypes), chance.choice(devices))
            for _ in range(count)
        ]

        def gradient(start: Tensor) -> Tensor:
            return Tensor(numbers.normal(size=start.shape), start.dtype, start.device)

        steps: list[list[Tensor | None]] = []
        while len(steps) < length:
            step = [gradient(start) if chance.random() < 0.6 else None for start in starts]
            if any(step_of is not None for step_of in step):
                steps.append(step)
        indices = [chance.randrange(3) for _ in starts]
        members = [[number for number, of in enumerate(indices) if of == group] for group in range(3)]
        groups = [(numbers_of, settings(kind, chance)) for numbers_of in members if numbers_of]
        return cls(
            starts, groups, settings(kind, chance), steps,
            [chance.random() < 0.5 for _ in steps],
            [chance.choice((None, None, 0.25)) for _ in steps],
            chance.randint(0, length),
        )  # fmt: skip

    def optimizer(self, kind: Kind, variables: Sequence[Var]) -> optim.Optimizer:
        groups = [
            {"parameters": {f"p{number}": variables[number] for number in members}, **own}
            for members, own in self.groups
        ]
        return kind(groups, **self.settings)

    def run(self, optimizer: optim.Optimizer, variables: Sequence[Var], begin: int, end: int) -> None:
        order = [number for members, _ in self.groups for number in members]
        for step, recorded, rate in list(zip(self.steps, self.recorded, self.rates, strict=True))[begin:end]:
            if rate is not None:
                optimizer.learning_rate = rate
            if not recorded:
                optimizer.step([step[number] for number in order])
                continue
            products = [(w * g).sum().to_dtype("f32") for w, g in zip(variables, step, strict=True) if g is not None]
            optimizer.step(sum(it.to(products[0].device) for it in products).backward())


def programs(kind: Kind, device: Device, count: int) -> Iterator[Program]:
    """Programs whose settings the optimiser accepts."""
    seed = 0
    while count:
        program, seed = Program.draw(kind, seed, device), seed + 1
        try:
            program.optimizer(kind, [*map(Var, program.starts)])
        except InvalidArgument:
            continue
        yield program
        count -= 1


def bits(optimizer: optim.Optimizer, variables: Sequence[Var]) -> Bits:
    """The bytes of all parameters and of the state."""
    tensors = {**optimizer.state(), **{f"{number}": each for number, each in enumerate(variables)}}
    return {name: tensor.detach().numpy().tobytes() for name, tensor in tensors.items()}


def test_a_resumed_program_has_the_bits_of_an_uninterrupted_one(
    kind: Kind, device: Device, full: bool, tmp_path: Path
) -> None:
    path, count = tmp_path / "state.safetensors", 400 if full else 25
    for program in programs(kind, device, count):
        complete = [*map(Var, program.starts)]
        reference = program.optimizer(kind, complete)
        program.run(reference, complete, 0, len(program.steps))
        first = [*map(Var, program.starts)]
        interrupted = program.optimizer(kind, first)
        program.run(interrupted, first, 0, program.cut)
        state, rates = interrupted.state(), [group.learning_rate for group in interrupted.groups]
        if state:
            tl.save_safetensors(state, path)
            state = tl.load_safetensors(path)
        saved = [each.detach().copy() for each in first]
        # What goes on after a state was taken does not change it.
        program.run(interrupted, first, program.cut, len(program.steps))
        second = [*map(Var, saved)]
        resumed = program.optimizer(kind, second)
        for group, rate in zip(resumed.groups, rates, strict=True):
            group.learning_rate = rate
        resumed.load_state(state)
        program.run(resumed, second, program.cut, len(program.steps))
        assert bits(resumed, second) == bits(reference, complete), program


def parameters(device: Device) -> list[Var]:
    """Parameters of several batches, in an order in which a step comes to each of them first or last."""
    numbers = np.random.default_rng(1)
    return [
        Var(Tensor(numbers.normal(size=shape), dtype, device)) for shape in ((2, 3), (5,)) for dtype in ("f32", "bf16")
    ]


def taken(kind: Kind, variables: Sequence[Var]) -> optim.Optimizer:
    """An optimiser of two groups that has taken a step."""
    optimizer = kind([{"parameters": variables[:2]}, {"parameters": variables[2:]}])
    optimizer.step([each.detach().copy() for each in variables])
    return optimizer


def test_a_refused_step_changes_nothing(kind: Kind, device: Device) -> None:
    variables = parameters(device)
    optimizer = taken(kind, variables)
    before = bits(optimizer, variables)
    right: list[Any] = [each.detach().copy() for each in variables]
    for number, gradient in enumerate(right):
        lacked = LACKED_BY_METAL if device.is_metal() else ()
        wrong: list[Any] = [gradient.to_dtype(dtype) for dtype in DType if dtype not in (gradient.dtype, *lacked)]
        wrong += [gradient.flatten()[:-1], gradient[None], gradient.sum(), gradient.numpy(), "gradient", 1.0, [1.0]]
        wrong += [gradient.to(each) for each in {Device.cpu()} - {device}]
        for bad in wrong:
            with pytest.raises(TallowError):
                optimizer.step([*right[:number], bad, *right[number + 1 :]])
            assert bits(optimizer, variables) == before, (number, bad)
    unfit: list[Any] = [right[:-1], [*right, right[0]], [None] * len(right), dict(enumerate(right)), iter(right), None]
    for gradients in unfit:
        with pytest.raises(TallowError):
            optimizer.step(gradients)
        assert bits(optimizer, variables) == before, gradients
    with pytest.raises(tl.GradientError):
        optimizer.step((Var(right[0]) * 2.0).sum().backward())
    assert bits(optimizer, variables) == before


@pytest.mark.parametrize(
    "laid_out",
    [
        pytest.param(lambda x: x.transpose(0, -1).contiguous().transpose(0, -1), id="transposed"),
        pytest.param(lambda x: x.sum().broadcast_as(x.shape), id="broadcast"),
        pytest.param(lambda x: x.flip(0).flip(0), id="flipped"),
        pytest.param(lambda x: Var(x) * 1.0, id="recorded"),
    ],
)
def test_a_gradient_may_have_any_layout(kind: Kind, laid_out: Callable[[Tensor], Tensor], device: Device) -> None:
    results = []
    for is_dense in (False, True):
        variables = parameters(device)
        gradients = [laid_out(each.detach().copy()) for each in variables]
        optimizer = taken(kind, variables)
        optimizer.step([each.detach().copy() for each in gradients] if is_dense else gradients)
        results.append(bits(optimizer, variables))
    assert results[0] == results[1]


def test_a_gradient_that_is_memory_of_a_parameter_is_read_first(kind: Kind, device: Device) -> None:
    results = []
    for is_copied in (False, True):
        numbers = np.random.default_rng(1).normal(size=(2, 70, 70))
        variables = [Var(Tensor(each, "f32", device)) for each in numbers]
        # Each is changed by the elements of the other, which is changed too, in an order that no kernel reads.
        gradients = [each.detach().transpose(0, 1) for each in reversed(variables)]
        optimizer = kind([{"parameters": each} for each in variables], learning_rate=0.5)
        optimizer.step([each.copy() for each in gradients] if is_copied else gradients)
        results.append(bits(optimizer, variables))
    assert results[0] == results[1]


def test_a_refused_state_changes_nothing(kind: Kind, device: Device) -> None:
    variables = parameters(device)
    optimizer = taken(kind, variables)
    other = kind([{"parameters": variables[:2]}, {"parameters": variables[2:]}])
    before, state = bits(optimizer, variables), other.state()
    wrong: list[Any] = [None, [*state.values()], {**state, "more": Tensor(0.0)}, {**state, 5: Tensor(0.0)}]
    for name, tensor in state.items():
        wrong.append({key: value for key, value in state.items() if key != name})
        bad = (tensor[None], tensor.to_dtype("f16"), tensor.to_dtype("i64"), tensor.numpy(), None)
        wrong += [{**state, name: each} for each in bad]
    for tensors in wrong:
        with pytest.raises(TallowError):
            optimizer.load_state(tensors)
        assert bits(optimizer, variables) == before, tensors


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps], ids=lambda it: it.__name__)
def test_what_copies_an_optimiser_says_what_to_do(kind: Kind, duplicate: Callable[[Any], Any], device: Device) -> None:
    optimizer = taken(kind, parameters(device))
    for each in (optimizer, optimizer.groups[0]):
        with pytest.raises(InvalidArgument, match=r"load_state\(\) .* state\(\)"):
            duplicate(each)
    with pytest.raises(InvalidArgument, match=r"state\(\)"):
        pickle.dumps({"optimizer": optimizer})
    with pytest.raises(InvalidArgument, match=r"state\(\)"):
        copy.deepcopy([optimizer])


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps], ids=lambda it: it.__name__)
def test_what_copies_gradients_says_what_to_do(duplicate: Callable[[Any], Any], device: Device) -> None:
    w = Var(Tensor([1.0, 2.0], device=device))
    with pytest.raises(InvalidArgument, match=r"grads\[w\]"):
        duplicate((w * w).sum().backward())
