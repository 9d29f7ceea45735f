"""Plans: a call looks for its plan first, and for what is wrong with its arguments only if it has none; observers."""

from __future__ import annotations

import ast
import inspect
import textwrap
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tallow as tl
from tallow.runtime.backends.plan import Key, Plan, Plans
from tallow.runtime.program.builder import OpCall

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
    def fail(*_: object) -> None:
        raise error("a bug")

    x = storage()
    monkeypatch.setattr(type(x.inner.device.plans), "get", fail)
    with pytest.raises(error, match="a bug"):
        x.unary_impl(tl.UnaryOp.EXP, LAYOUT)


def test_a_plan_takes_other_storages_and_numbers() -> None:
    x, y = storage(), tl.Device.cpu().storage(np.array([3, 4], "f4"))
    plans = x.inner.device.plans
    plans.clear()
    assert x.affine(LAYOUT, 2, 1).to_numpy().tolist() == [3, 3]
    (plan,) = plans.values()
    assert plan(y.inner, 3.0, -1.0).to_numpy().tolist() == [8, 11]
    assert y.affine(LAYOUT, 3, -1).to_numpy().tolist() == [8, 11]
    assert list(plans.values()) == [plan]


class Notes:
    """Notes the calls that it is shown, and each run of their plans, in a list that observers may share."""

    def __init__(self, name: str, notes: list[str]) -> None:
        self.name = name
        self.notes = notes

    def observed(self, key: Key, call: OpCall, plan: Plan, is_known: bool) -> Plan:
        self.notes.append(f"{self.name} sees {'a known' if is_known else 'a new'} call")

        def run(*operands: object) -> object:
            self.notes.append(self.name)
            return plan(*operands)

        return run


def planned() -> list[str]:
    """The storage methods that call plans."""
    methods = inspect.getmembers(tl.Storage, inspect.isfunction)
    return [name for name, method in methods if "plan(inner" in inspect.getsource(method)]


@pytest.mark.parametrize("name", planned())
def test_a_plan_takes_storages_in_the_order_of_their_kinds(name: str) -> None:
    """Optional storages are skipped wherever they are in the signature."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(getattr(tl.Storage, name))))
    keys = [
        node.value for node in ast.walk(tree) if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "key"
    ]
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "plan"]
    assert len(keys) == 1
    # Operands that are lists have a key of their own.
    kinds = inners(keys[0])
    passed = [[name for name in inners(call) if name in kinds] for call in calls]
    # A call of its own leaves out a storage that is None.
    assert max(passed, key=len) == kinds
    assert all(names == [name for name in kinds if name in names] for names in passed)


def inners(tree: ast.AST | None) -> list[str]:
    """The storages that an expression names, in order."""
    assert tree is not None
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id.endswith("inner")]
    names.sort(key=lambda node: (node.lineno, node.col_offset))
    return list(dict.fromkeys(node.id for node in names))


@pytest.fixture
def plans(device: tl.Device) -> Iterator[Plans]:
    plans: Plans = device.inner.plans
    plans.clear()
    yield plans
    assert plans.observers == ()


@pytest.fixture
def x(device: tl.Device) -> tl.Tensor:
    return tl.Tensor(np.arange(4, dtype="f4"), device=device)


def test_an_observer_takes_part_in_each_call(plans: Plans, x: tl.Tensor) -> None:
    notes: list[str] = []
    x.exp()
    with plans.observed_by(Notes("it", notes)):
        for _ in range(3):
            x.exp()
        (x + x).numpy()
    assert notes == ["it sees a known call", "it", "it", "it", "it sees a new call", "it"]
    x.exp()
    assert len(notes) == 6
    assert len(plans) == 2, "plans that were made meanwhile are kept"


def test_observers_see_what_those_before_them_made_of_a_plan(plans: Plans, x: tl.Tensor) -> None:
    notes: list[str] = []
    with plans.observed_by(Notes("outer", notes)):
        x.exp()
        with plans.observed_by(Notes("inner", notes)):
            x.exp()
            assert notes[2:] == ["outer sees a known call", "inner sees a known call", "inner", "outer"]
            notes.clear()
            x.exp()
            assert notes == ["inner", "outer"]
        notes.clear()
        x.exp()
        assert notes == ["outer sees a known call", "outer"]


def test_observers_come_and_go_in_any_order(plans: Plans, x: tl.Tensor) -> None:
    notes: list[str] = []
    first, second = (plans.observed_by(Notes(name, notes)) for name in ("first", "second"))
    first.__enter__()
    second.__enter__()
    x.exp()
    first.__exit__(None, None, None)
    notes.clear()
    x.exp()
    assert notes == ["second sees a known call", "second"]
    second.__exit__(None, None, None)
    x.exp()
    assert len(notes) == 2


def test_an_error_inside_leaves_the_plans_as_they_were(plans: Plans, x: tl.Tensor) -> None:
    x.exp()
    before = dict(plans)
    with pytest.raises(KeyboardInterrupt), plans.observed_by(Notes("it", [])):
        raise KeyboardInterrupt
    assert dict(plans) == before


def test_a_plan_of_observers_that_have_gone_is_not_kept(plans: Plans, x: tl.Tensor) -> None:
    notes: list[str] = []
    leaving = plans.observed_by(Notes("leaving", notes))

    class Leaving(Notes):
        def observed(self, key: Key, call: OpCall, plan: Plan, is_known: bool) -> Plan:
            leaving.__exit__(None, None, None)
            return super().observed(key, call, plan, is_known)

    leaving.__enter__()
    with plans.observed_by(Leaving("last", notes)):
        x.exp()
        assert len(plans) == 0
    assert len(plans) == 1
    notes.clear()
    x.exp()
    assert notes == []


def test_forgetting_plans_forgets_those_without_observers(plans: Plans, x: tl.Tensor) -> None:
    x.exp()
    notes: list[str] = []
    with plans.observed_by(Notes("it", notes)):
        plans.clear()
        x.exp()
    assert notes[0] == "it sees a new call"


def test_observers_come_and_go_while_threads_make_calls(plans: Plans, x: tl.Tensor) -> None:
    notes: list[str] = []
    expected = [(x * number).tolist() for number in range(20)]
    is_over = threading.Event()

    def work(_: int) -> int:
        calls = 0
        while not is_over.is_set():
            number = calls % 20
            assert (x * number).tolist() == expected[number]
            assert x[number % 4 :].sum().item() == sum(range(number % 4, 4))
            calls += 1
        return calls

    with ThreadPoolExecutor(4) as pool:
        working = pool.map(work, range(4))
        for number in range(200):
            with plans.observed_by(Notes(str(number), notes)), plans.observed_by(Notes("inner", notes)):
                x.exp()
        is_over.set()
        assert all(working)
    notes.clear()
    work_once = x.exp(), x * 2, x[1:].sum()
    assert len(work_once) == 3
    assert notes == [], "plans that observers made are not left behind"


def test_joining_again_needs_neither_checks_nor_the_method(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = tl.Tensor([1.0, 2.0]), tl.Tensor([3.0, 4.0])
    concatenated = [tl.cat([x, y, x]), tl.stack([x, y], 1), tl.cat([x])]
    monkeypatch.setattr(tl.Storage, "cat", None)
    again = [tl.cat([y, x, y]), tl.stack([y, x], 1), tl.cat([y])]
    assert [z.tolist() for z in concatenated] == [[1, 2, 3, 4, 1, 2], [[1, 3], [2, 4]], [1, 2]]
    assert [z.tolist() for z in again] == [[3, 4, 1, 2, 3, 4], [[3, 1], [4, 2]], [3, 4]]
