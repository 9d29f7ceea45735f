"""Results share memory with operands only where the docs say so, and writes read operands first that share theirs."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tallow import Device, Layout, Tensor, Var, no_grad

from . import hostile
from .oracle.formats import NUMPY
from .test_broadcasting import cases, is_tensor

# What a docstring says of a result that has the memory of an operand.
SHARES = r"\bviews?\b|\b(itself|themselves)\b|\bshare[sd]?\b|\bin place\b|\bwithout a copy\b"
# Python asks for these two: `+x` is x, and a shallow copy has the elements of x.
OPERATORS = ("__pos__", "__copy__")


def gives_elements(call: hostile.Call) -> bool:
    """Whether the annotations say that tensors or arrays are given and come back, not for methods of other classes."""
    # A capsule is read by what takes it, and a stream is an address that nobody can check.
    if call.owner not in (None, "Tensor") or call.name == "Tensor.__dlpack__":
        return False
    function = call.find(Tensor)
    signature = inspect.signature(function)
    taken = "Self" if call.owner else str(signature.parameters.values())
    returned = call.name if isinstance(function, type) else str(signature.return_annotation)
    return all(re.search(r"\b(Tensor|Self|T|Any|\w*Array\w*|ndarray)\b", words) for words in (taken, returned))


CALLS = {name: call for name, call in (hostile.surface() | hostile.array_api_surface()).items() if gives_elements(call)}


@pytest.mark.parametrize("name", CALLS)
def test_a_result_shares_memory_only_where_the_docs_say_so(device: Device, full: bool, name: str) -> None:
    call = CALLS[name]
    is_documented = shares_memory(call)
    # What tensors share on a device follows from the same code above it.
    for example in examples(call, None if full else 3 if device.is_cpu() else 1):
        try:
            function, arguments, keywords = example.made(device)
            result = function(*arguments, **keywords)
            device.synchronize()
        except Exception:  # what other tests say of arguments that do not fit each other
            continue
        is_allowed = is_documented and not is_copy(call, keywords)
        operands = [*holders([getattr(function, "__self__", None), arguments, [*keywords.values()]])]
        for part in holders(result):
            repeats = isinstance(part, Tensor) and part.layout.overlaps_itself
            is_view = repeats or any(reaches(part, operand) for operand in operands)
            assert is_allowed or not is_view, f"{example}: a write to the result reaches an operand"


def is_copy(call: hostile.Call, keywords: dict[str, Any]) -> bool:
    """Whether a parameter `copy` asks for a copy."""
    default = next((parameter.default for parameter in call.parameters if parameter.name == "copy"), None)
    return keywords.get("copy", default) is True


def examples(call: hostile.Call, count: int | None) -> Iterator[hostile.Example]:
    """Calls that differ from one that fits in one argument, and in what a method is called on: `count` tensors."""
    base = hostile.base_of(call)
    owners = [base.of] if call.owner is None else [base.of, *hostile.FITTING[call.owner]]
    for of in owners[:count]:
        example = base._replace(of=of)
        yield example
        for parameter in call.parameters:
            fitting = hostile.fitting(call, parameter)
            if parameter.kind is parameter.VAR_POSITIONAL:
                # Sizes, dims and counts that leave a tensor as it is, or nearly so.
                alike = hostile.values("(); (1,); (1, 1); (1, 1, 1); (2, 1, 1); (1, 2, 3)")
                yield from (example._replace(arguments=(*base.arguments, value)) for value in [*alike, *fitting])
            elif parameter.kind is not parameter.VAR_KEYWORD:
                yield from (example.changed({parameter.name: value}) for value in fitting)


def holders(value: object) -> Iterator[Tensor | np.ndarray]:
    """The tensors and arrays among values."""
    if isinstance(value, Tensor | np.ndarray):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from holders(item)


def reaches(result: Tensor | np.ndarray, operand: Tensor | np.ndarray) -> bool:
    """Whether a write to a result changes an operand."""
    if isinstance(result, Var) or not result.size or (isinstance(result, np.ndarray) and not result.flags.writeable):
        return False
    seen = set()
    for number in (0, 1):
        if isinstance(result, Tensor):
            with no_grad():
                result.fill_(number)
        else:
            result[...] = number
        seen.add(np.array(operand).tobytes())
    return len(seen) > 1


def shares_memory(call: hostile.Call) -> bool:
    """Whether the docs of a call, or of the class that has it, say that a result may be a view or the operand."""
    name = call.name.rpartition(".")[2]
    if call.owner is None:
        return says_so(inspect.getdoc(call.find(None)))
    if name in OPERATORS or re.fullmatch(r"__i\w+__", name):
        return True
    defining = next(owner for owner in Tensor.__mro__ if name in vars(owner))
    documented = inspect.getdoc(getattr(Tensor, name))
    return says_so(documented) or (says_so(defining.__doc__) and not says_so(documented, r"\bcop(y|ies)\b"))


def says_so(documentation: str | None, words: str = SHARES) -> bool:
    """Whether a docstring has one of some words, or names a method whose docstring has."""
    if documentation is None:
        return False
    named = [getattr(Tensor, name, None) for name in re.findall(r"`(?:Tensor\.)?(\w+)`", documentation)]
    return any(re.search(words, text or "", re.IGNORECASE) for text in (documentation, *map(inspect.getdoc, named)))


WRITES = {
    name: call
    for name, call in hostile.surface().items()
    if re.fullmatch(r"Tensor\.(\w+[a-z]_|__i\w+__|__setitem__|slice_set)", name)
    and any(map(is_tensor, call.parameters))
}
ELEMENTS = 60


@pytest.mark.parametrize("name", WRITES)
def test_a_write_reads_operands_that_share_memory_as_copies_of_them(device: Device, full: bool, name: str) -> None:
    call = WRITES[name]
    example = hostile.base_of(call)
    names = [parameter.name for parameter in call.parameters if is_tensor(parameter)]
    target = example.of.make(Device.cpu())
    operands = [example.keywords[name].make(Device.cpu()) for name in names]
    shapes = [(2, 3)] * 2 if name in cases() else [tensor.shape for tensor in (target, *operands)]
    dtype = cases()[name].dtypes[0] if name in cases() else "i64"
    generator = np.random.default_rng(len(name))
    for _ in range(300 if full else 20):
        elements = generator.integers(0, 3, ELEMENTS).astype(NUMPY[dtype])
        layouts = [drawn(generator, shape, is_target=not index) for index, shape in enumerate(shapes)]
        results = []
        for is_copied in (False, True):
            complete = Tensor(elements, device=device)
            first, *remaining = [Tensor.from_storage(complete.storage, layout) for layout in layouts]
            inputs = {one: view.copy() if is_copied else view for one, view in zip(names, remaining, strict=True)}
            others = {one: value.make(device) for one, value in example.keywords.items() if one not in names}
            call.find(first)(**others, **inputs)
            results.append(complete.numpy())
        np.testing.assert_array_equal(*results, err_msg=f"{name} of {layouts}")


def drawn(generator: np.random.Generator, shape: tuple[int, ...], is_target: bool) -> Layout:
    """A layout within the elements; one that is written to has each element once."""
    strides, step = [0] * len(shape), int(generator.integers(1, 3))
    for dim in generator.permutation(len(shape)):
        strides[dim] = step if is_target or generator.integers(3) else int(generator.integers(0, 3))
        step = step * shape[dim] + int(generator.integers(0, 2))
    length = Layout(shape, strides).end
    return Layout(shape, strides, int(generator.integers(0, ELEMENTS - length + 1)))
