"""Defaults of public calls: defaults.txt lists the value of each, and leaving an argument out is the same as giving it.

With --update-golden the test writes the file. A changed line is a changed result for callers: read it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tallow import Device, DType, TallowError, Tensor

from . import hostile

DEFAULTS = Path(__file__).with_name("defaults.txt")
CALLS = hostile.surface() | hostile.array_api_surface()
COMPARED = [name for name, call in CALLS.items() if call.owner == "Tensor" or name.startswith(("Tensor.", "xp."))]


def defaults(call: hostile.Call) -> dict[str, Any]:
    """The default of each parameter that has one."""
    optional = (parameter for parameter in call.parameters if parameter.default is not inspect.Parameter.empty)
    return {parameter.name: parameter.default for parameter in optional}


def lines() -> Iterator[str]:
    """A line for each call that has defaults; None stands for no argument."""
    for name, call in sorted(CALLS.items()):
        values = {key: value for key, value in defaults(call).items() if value is not None}
        texts = [f"{key}={value if isinstance(value, DType) else repr(value)}" for key, value in values.items()]
        if texts:
            yield f"{name}: {', '.join(texts)}"


def test_defaults_are_those_that_are_listed(pytestconfig: pytest.Config) -> None:
    if pytestconfig.getoption("--update-golden"):
        DEFAULTS.write_text("\n".join(lines()) + "\n", encoding="utf-8")
    assert [*lines()] == DEFAULTS.read_text(encoding="utf-8").splitlines()


@pytest.fixture
def seeds(device: Device) -> Iterator[None]:
    """Seeds that the test may change."""
    before = [(seeded, seeded.get_current_seed()) for seeded in (device, Device.cpu())]
    yield
    for seeded, seed in before:
        seeded.set_seed(seed)


@pytest.mark.parametrize("name", COMPARED)
@pytest.mark.usefixtures("seeds")
def test_a_default_is_what_a_call_does_without_it(device: Device, name: str) -> None:
    base = hostile.base_of(CALLS[name])
    optional = defaults(CALLS[name])
    example = base._replace(keywords={key: value for key, value in base.keywords.items() if key not in optional})
    expected = outcome(example, device)
    for parameter, default in optional.items() if expected is not None else ():
        inputs = example.changed({parameter: hostile.Value(repr(default), lambda _, default=default: default)})
        assert outcome(inputs, device) == expected, f"{inputs} is not {example}"


def outcome(example: hostile.Example, device: Device) -> object:
    """What comes of a call, as values that compare; None where it is refused."""
    for seeded in (device, Device.cpu()):
        seeded.set_seed(7)
    try:
        result = comparable(example.run(device))
        device.synchronize()
    except TallowError:
        return None
    return result


def comparable(result: object) -> object:
    """The elements of tensors instead of tensors."""
    if isinstance(result, Tensor | np.ndarray):
        array = np.asarray(result)
        return array.shape, array.dtype.str, array.tobytes()
    if isinstance(result, tuple | list):
        return [comparable(part) for part in result]
    return result if isinstance(result, bool | int | float | str) else type(result)
