"""Plans: a call looks for its plan first, and for what is wrong with its arguments only if it has none."""

from __future__ import annotations

import numpy as np
import pytest
import tallow as tl
from tallow.runtime.backends.plan import Call, by_plan, planned_by

LAYOUT = tl.Layout.contiguous((2,))


def storage() -> tl.Storage:
    return tl.Device.cpu().storage(np.ones(2, "f4"))


@pytest.mark.parametrize(
    ("rhs", "layout", "name"),
    [(None, LAYOUT, "rhs"), (2.0, LAYOUT, "rhs"), (storage(), (2,), "rhs_layout"), (storage(), None, "rhs_layout")],
)
def test_an_argument_of_a_wrong_class_is_named(rhs: tl.Storage, layout: tl.Layout, name: str) -> None:
    with pytest.raises(tl.InvalidArgument, match=name):
        storage().binary_impl(tl.BinaryOp.ADD, rhs, LAYOUT, layout)


def test_an_op_that_has_no_hash_is_named() -> None:
    with pytest.raises(tl.InvalidArgument, match="op"):
        storage().unary_impl(["exp"], LAYOUT)  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [AttributeError, TypeError])
def test_an_error_of_the_look_up_is_not_taken_for_one_of_the_arguments(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: tl.Layout) -> int:
        raise error("a bug")

    x = storage()
    monkeypatch.setattr(tl.Layout, "number", property(fail))
    with pytest.raises(error, match="a bug"):
        x.unary_impl(tl.UnaryOp.EXP, LAYOUT)


def test_a_plan_takes_other_storages_and_numbers() -> None:
    inner = storage().inner
    found = []

    @by_plan
    def noted(*made_of: object) -> object:
        return lambda *given: found.append((made_of, given))

    call = Call(1, noted, ("op", (inner, LAYOUT), 0.5), {})
    assert call.quicker is not None
    call.quicker("x", 2.0)
    assert found == [(("op", (inner, LAYOUT), 0.5), ("x", 2.0))]
    assert call.operands(("op", (inner, LAYOUT), 0.5)) == [inner, 0.5]


def test_a_function_without_a_plan_for_a_call_makes_it_again() -> None:
    @planned_by(lambda *_: None)
    def add(x: object, number: float) -> tuple[object, float]:
        return x, number

    inner = storage().inner
    call = Call(1, add, (inner, 0.5), {})
    assert call.quicker is None
    assert call("other", 2.0) == ("other", 2.0)
    assert call.parts[0] is not inner
