"""What does not fit is refused, by the check that the spec names and with an error that the docs promise.

Each argument of the smallest valid call of each method is changed alone, in the ways in which one of its type may be
wrong. After which dtypes the call is valid too follows from the spec, but for some that accepted.txt lists, with all
other such changes; each other one is refused. With --update-golden
on the CPU the test writes the file. Read each change of it: a check that is gone from the spec shows there.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import own_spec
import pytest
import tallow
from tallow.op import MethodOp
from tallow.runtime.base.error import BackendUnavailable, InvalidArgument, InvalidIndex, InvalidLayout, ShapeMismatch

from . import matrix, refusals
from .calls import error_op

if TYPE_CHECKING:
    from opgen.model.methods import Method

ACCEPTED = Path(__file__).with_name("accepted.txt")
# What no argument brings about, and what other tests ask for of each cell.
ELSEWHERE = {"OutOfMemory", "UnsupportedDType"}
# These may find no result for elements that no small call has.
SEARCHING = ("eig", "eigh", "solve", "svd")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "method" in metafunc.fixturenames:
        backend = metafunc.config.getoption("--device").partition(":")[0]
        metafunc.parametrize("method", refusals.valid_calls(backend))


def accepted() -> dict[str, list[str]]:
    """The changes that are listed, by the label of a call."""
    results: dict[str, list[str]] = {}
    label = ""
    for line in ACCEPTED.read_text(encoding="utf-8").splitlines():
        if line.startswith("    "):
            argument, _, whats = line.strip().partition(": ")
            results[label] += [f"{argument} {what}" for what in whats.split(", ")]
        else:
            label = line.removesuffix(":")
            results[label] = []
    return results


def written(lists: Mapping[str, list[str]]) -> str:
    """The text of such a file."""
    lines = []
    for label, whats in sorted(lists.items()):
        lines.append(f"{label}:")
        by_argument: dict[str, list[str]] = {}
        for what in whats:
            argument, _, remaining = what.partition(" ")
            by_argument.setdefault(argument, []).append(remaining)
        lines += [f"    {argument}: {', '.join(remaining)}" for argument, remaining in by_argument.items()]
    return "\n".join(lines) + "\n"


def checks_of(method: str) -> list[str]:
    """The checks that the spec lists for a method."""
    return [item.call.name for item in method_of(method).checks]


def method_of(name: str) -> Method:
    """The method as the spec has it."""
    methods = (*own_spec.read().storage_methods(), *own_spec.read().device_methods)
    return next(method for method in methods if method.name == name)


def served_dtypes(method: str) -> set[str]:
    """The dtypes that the spec has for the only operand of a method, as changes.

    Those of several operands have to fit each other, which the lists say: that they need not any more shows there.
    """
    actual = method_of(method)
    if len(actual.operands) != 1:
        return set()
    return {f"self of {dtype}" for dtype in matrix.dtypes_of_operand(actual)}


def is_of_dtype(what: str) -> bool:
    """Whether a change is that of an operand's dtype."""
    dtype = re.search(r" of (\w+)$", what)
    return dtype is not None and dtype[1] in matrix.DTYPES


def test_a_method_refuses_what_does_not_fit(method: str, device: tallow.Device, pytestconfig: pytest.Config) -> None:
    valid_calls = refusals.valid_calls(device.backend)[method]
    known = accepted()
    raised, made_checks = set(), set()
    of_dtypes = served_dtypes(method)
    for valid in valid_calls:
        assert valid.refusal(device) is None, f"{valid.label}: the smallest call is valid"
        taken = []
        for change in refusals.changes(valid, device):
            where = f"{valid.label}: {change}"
            refusal = valid.refusal(device, change)
            if refusal is None:
                taken.append(str(change))
                continue
            error = refusal.error
            if refusal.is_of_class:
                continue
            raised.add(type(error).__name__)
            assert type(error).__name__ in refusals.promised(method), f"{where}: the docs do not list {error!r}"
            # A call inside of the method that refused would hide that a check is gone, but kernels of ops that consist
            # of others name their own index. DType.from_numpy names itself.
            is_named = getattr(error, "op", None) in (error_op(valid.cell), method, "dtype")
            assert is_named or isinstance(error, BackendUnavailable | InvalidIndex), (
                f"{where}: {error} names another op"
            )
            # That matrices have no decomposition depends on elements; of a layout it would hide that a check is gone.
            is_found_late = isinstance(error, InvalidArgument) and not refusal.is_check
            is_of_layout = method in matrix.DECOMPOSITIONS and isinstance(change.value, tallow.Layout)
            assert not (is_of_layout and is_found_late), f"{where}: no check refuses it"
            is_number = isinstance(change.value, int | float)
            assert not (is_number and isinstance(error, ShapeMismatch)), f"{where}: no shape is wrong: {error}"
            if refusal.is_listed:
                made_checks.add((refusal.function, refusal.line))
        # What follows from the dtypes of the only operand is not listed.
        derived = {what for what in of_dtypes - {f"self of {valid.cell.dtype}"} if is_there(what, device.backend)}
        follows = {what for what in taken if is_of_dtype(what)} == derived
        are_listed = any(map(is_of_dtype, known.get(valid.label, [])))
        # opgen makes the checks of functors alike, so those that are listed stand for others.
        is_alike = valid.label not in known and method in {op.value for op in MethodOp}
        if pytestconfig.getoption("--update-golden") and not is_alike:
            known[valid.label] = [what for what in taken if not (follows and is_of_dtype(what))]
        if follows and not are_listed:
            taken = [what for what in taken if not is_of_dtype(what)]
        there = [what for what in known.get(valid.label, []) if is_there(what, device.backend)]
        assert taken == there or is_alike, f"{valid.label}: what is accepted is not what {ACCEPTED.name} lists"
    if pytestconfig.getoption("--update-golden"):
        ACCEPTED.write_text(written(known), encoding="utf-8")
    # Several storages have several layouts, which no entry of the spec asks for.
    actual = sorted(function for function, _ in made_checks if function != "several_layouts")
    if {*matrix.dtypes_of(device.backend)} < {*matrix.DTYPES}:
        # What is refused for a dtype that the backend lacks cannot be asked for.
        assert {*actual} <= {*checks_of(method)}
        return
    elsewhere = ELSEWHERE | ({"InvalidArgument"} if method in SEARCHING else set())
    assert raised - elsewhere == refusals.promised(method) - elsewhere, "the docs list what is raised, and no more"
    assert actual == sorted(checks_of(method)), "each check refuses something by itself"


def test_a_method_takes_numbers_in_the_order_of_its_example(method: str) -> None:
    parameters = inspect.signature(refusals.function_of(method)).parameters
    for example in method_of(method).examples:
        numbers = [name for name, value in example.arguments.items() if isinstance(value, bool | int | float)]
        assert numbers == [name for name in parameters if name in numbers]


def test_a_storage_with_an_element_less_than_is_needed_is_refused(method: str, device: tallow.Device) -> None:
    for valid in refusals.valid_calls(device.backend)[method]:
        assert valid.refusal(device, room=None) is None, f"{valid.label}: the lengths are those that the call needs"
        for change in refusals.shortened(valid, device):
            refusal = valid.refusal(device, change, room=None)
            assert refusal is not None, f"{valid.label}: {change} is accepted"
            assert isinstance(refusal.error, InvalidLayout | InvalidArgument), (
                f"{valid.label}: {change}: {refusal.error}"
            )


def is_there(what: str, backend: str) -> bool:
    """Whether a backend has the dtype of a change."""
    return not is_of_dtype(what) or what.rpartition(" ")[2] in matrix.dtypes_of(backend)
