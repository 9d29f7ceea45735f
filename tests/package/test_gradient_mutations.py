"""Gradients in which one thing is another are not what differences say: those of spec/storage, and the rules' own.

A mutant is Python: an expression of a method is lowered by opgen, and what comes of it records instead of what the
package has; a function of the rules is compiled in its place. Then the cases run that use it, until one fails.

Each function and each expression is a test, which names the mutants that no case shows, and their lines:
`pytest --full tests/package/test_gradient_mutations.py -k padded`. To find which cases use it takes half a minute.
"""

from __future__ import annotations

import ast
import cProfile
import functools
import importlib
import inspect
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import own_spec
import pytest
from _pytest.mark import ParameterSet
from tallow import Device, Tensor, distributed
from tallow.runtime.distributed import calls
from tallow.runtime.gradient import row_formulas, rules
from tallow.runtime.gradient.node import Rule
from tallow.runtime.ranks.group import Group
from tallow.runtime.ranks.mpi import Alone
from tallow.runtime.tensor.layouts import paddings

from . import (
    test_complex_gradients,
    test_gradient,
    test_gradient_edges,
    test_gradient_examples,
    test_gradient_methods,
    test_recurrent,
    test_row_formulas,
    test_tensor_padding,
    test_tensor_rearranging,
)
from .gradcheck import CLOSE, Gradcheck, gradients, slopes
from .mutants import Mutant, mutants
from .ranks import Collectives

if TYPE_CHECKING:
    from opgen.model.methods import Family, Method
    from opgen.problem import Problem
    from opgen.sources import Sources

RANKS = 2
REPOSITORY = Path(__file__).parents[2]
MODULES = (
    test_gradient_examples,
    test_gradient_methods,
    test_gradient,
    test_gradient_edges,
    test_recurrent,
    test_complex_gradients,
    test_tensor_padding,
    test_tensor_rearranging,
    test_row_formulas,
)
# What gives the same gradients, and why.
NO_DIFFERENCE = {
    "a sum has its terms in any order": [
        "spec/storage/recurrent.yaml: lstm_cell.all: recurrent.cell('lstm_cell', g, self, products, bias, cell, "
        "of_bias=node.takes(2)) -> recurrent.cell('lstm_cell', g, products, self, bias, cell, of_bias=node.takes(2))",
        *(
            "spec/storage/recurrent_gradient.yaml: lstm_cell_gradient.self: recurrent.lstm_cell_gradient("
            "(self, layout), (products, products_layout), (bias, bias_layout), (cell, cell_layout), "
            f"(gradient, gradient_layout)) -> recurrent.lstm_cell_gradient({terms}, (cell, cell_layout), "
            "(gradient, gradient_layout))"
            for terms in (
                "(products, products_layout), (self, layout), (bias, bias_layout)",
                "(self, layout), (bias, bias_layout), (products, products_layout)",
            )
        ),
        "spec/storage/network.yaml: rope.cos: rules.rope_table(g, self, cos_layout, positions, interleaved, "
        "is_sine=False) -> rules.rope_table(self, g, cos_layout, positions, interleaved, is_sine=False)",
        *(
            f"spec/storage/row.yaml: {name}.residual: row_formulas.row_of_sum(_{name}, (self, layout), (residual, "
            f"residual_layout), {others}, (0, 1), (eps,), (eps,)) -> row_formulas.row_of_sum(_{name}, (residual, "
            f"residual_layout), (self, layout), {others}, (0, 1), (eps,), (eps,))"
            for name, others in (
                ("rms_norm", "((weight, weight_layout),)"),
                ("layer_norm", "((weight, weight_layout), (bias, bias_layout))"),
            )
        ),
    ],
    "both have these dims": [
        *(
            f"spec/storage/reduce.yaml: {name}.self: rules.at_positions(g, others[0], layout, dim) -> "
            "rules.at_positions(g, others[0], g, dim)"
            for name in ("cummax", "cummin")
        ),
        "rules.at_positions: zeros(widened(g), layout).reshape(layout.shape) -> zeros(widened(g), layout)",
        "rules.at_positions: zeros(widened(g), layout) -> zeros(widened(g), g)",
        "rules.product_left: _ones(layout) -> _ones(g)",
        "rules.attention: (queries, keys, values) -> (queries, values, keys)",
        "rules.attention: (queries, keys, values, mask) -> (queries, values, keys, mask)",
        "rules.det: g.unsqueeze(-1).unsqueeze(-1) -> g.unsqueeze(-1).unsqueeze(-2)",
    ],
    "where both strides are 1, either order is that of the elements": [
        *(
            f"rules.product_right: layout.strides[-2] == 1 and layout.strides[-1] != 1 -> {other}"
            for other in (
                "layout.strides[-2] == 1 or layout.strides[-1] != 1",
                "layout.strides[-1] != 1",
                "layout.strides[-2] == 1",
            )
        ),
        "rules.product_right: layout.strides[-1] -> layout.strides[1]",
        "rules.product_right: layout.strides[-1] != 1 -> layout.strides[-1] != 2",
    ],
    "in the end a gradient is given the shape of its variable": [
        "rules.in_order: lines.scatter_add(Tensor._new(positions, g._layout.dense), g, -1).reshape(layout.shape) -> "
        "lines.scatter_add(Tensor._new(positions, g._layout.dense), g, -1)",
    ],
    "a matrix alone is one that is repeated once": [
        "rules._is_repeated: layout.rank > 2 and all((layout.strides[dim] == 0 or layout.shape[dim] == 1 for dim in "
        "batch)) -> all((layout.strides[dim] == 0 or layout.shape[dim] == 1 for dim in batch))",
        "rules._is_repeated: layout.rank > 2 -> layout.rank >= 2",
    ],
    "differences and tolerances do not show the digits of f32, nor the roundings of short floats": [
        "rules.interpolated: _interpolation(method, wide, shape[2], g.shape[2], align_corners, scale_h).t()"
        ".matmul(wide) -> "
        "_interpolation(method, wide, shape[2], g.shape[2], align_corners, scale_h).t().matmul(g)",
        "rules.interpolated: _interpolation(method, wide, shape[2], g.shape[2], align_corners, scale_h) -> "
        "_interpolation(method, g, shape[2], g.shape[2], align_corners, scale_h)",
        "rules.interpolated: _interpolation(method, wide, shape[3], g.shape[3], align_corners, scale_w) -> "
        "_interpolation(method, g, shape[3], g.shape[3], align_corners, scale_w)",
        "rules.last_put: indexes._new_full(layout.shape, dtype=DType.I64) -> indexes._new_full(layout.shape)",
        "rules.rope_table: zeros(part, table) -> zeros(g, table)",
        *(
            f"spec/storage/row_gradient.yaml: {name}_gradient.self: (residual, residual_layout, -0.0) -> "
            "(residual, residual_layout, 0.0)"
            for name in ("rms_norm", "layer_norm")
        ),
    ],
    "truth values are numbers, and `and` takes them in any order": [],
    "the spec gives this argument at each call": [
        "rules.changed_by: isinstance(op, UserOp) -> op",
    ],
    "which operands a rule reads is said in any order": [
        f"spec/storage/row.yaml: {name}.residual: (0, 1) -> (1, 0)" for name in ("rms_norm", "layer_norm")
    ],
    "types do not say that it is there, nor that its elements lie in their order": [
        "rules.both_gradients: DERIVATIVES[of] or {} -> DERIVATIVES[of]",
        "rules.both_gradients: it.function(g, *[known[name] for name in it.takes]).contiguous() -> it.function(g, "
        "*[known[name] for name in it.takes])",
    ],
    "gradients never take the memory of operands on the CPU": [
        *(
            f"spec/storage/loss.yaml: {name}.self: walk.owns(node, 0, handle) -> walk.owns(node, 1, handle)"
            for name in ("cross_entropy", "smoothed_cross_entropy", "nll_loss")
        ),
        "rules.of_op: (*operands, result) -> (result, *operands)",
        "rules.of_op: (*operands, result) -> (result,)",
        "rules.of_op: (*operands, result) -> (*operands,)",
        "rules.of_op: unwrap(tensor._storage)[0].inner.share() -> pass",
        "rules.of_op: unwrap(tensor._storage)[0].inner.share() -> unwrap(tensor._storage)[0].inner",
    ],
    "to find where a call was made only takes time": [
        "row_formulas.row_of_sum: record(total, _add, of_sum, (layout.shape,), needs_site=False) -> "
        "record(total, _add, of_sum, (layout.shape,))",
        "row_formulas.row_of_sum: record(total, _add, of_sum, (layout.shape,), needs_site=False) -> "
        "record(total, _add, of_sum, (layout.shape,), needs_site=True)",
    ],
}


@functools.cache
def sources() -> Sources:
    from opgen.sources import Sources

    return Sources(REPOSITORY)


class Known(Gradcheck):
    """A check on the CPU that works out differences once: those of a case are of gradients that nobody changed."""

    def __init__(self) -> None:
        super().__init__(Device.cpu(), full=True)
        self.known: list[list[Any]] = []
        self.place = 0
        self.is_tracing = False

    def differences(self, function: Callable[..., Tensor], arrays: Sequence[Any], weights: Any) -> list[Any]:
        if self.is_tracing:
            result = gradients(function, [Tensor(it, dtype="f64") for it in arrays], weights)
            return [slopes(it, self.most) for it in result]
        if self.place == len(self.known):
            self.known.append(super().differences(function, arrays, weights))
        self.place += 1
        return self.known[self.place - 1]


def forget() -> None:
    """Drop what rules arranged, and numbers that all calls share: a mutant may have written to them."""
    paddings.clear()
    Device.cpu().inner.numbers.clear()


FIXTURES = {"device", "gradcheck", "monkeypatch"}


@dataclass
class Case:
    """A test of gradients, with what it is given."""

    function: Callable[..., None]
    given: Mapping[str, object]
    check: Known = field(default_factory=Known)
    seconds: float = 0
    is_known: bool = False

    def fails(self, changed: tuple[object, str, object], dtypes: Sequence[str] = ()) -> bool:
        """Whether it fails where an attribute of something is another one; as they are, it does not."""
        if not self.is_known:
            self.run()
            self.is_known = True
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(*changed)
            forget()
            try:
                self.run(dtypes)
            except (Exception, pytest.fail.Exception):
                return True
            finally:
                forget()
        return False

    def run(self, dtypes: Sequence[str] = ()) -> None:
        """Run it; those that it checks are of f64, and of some other dtypes."""
        self.check.dtypes, self.check.place = [*dtypes], 0
        with pytest.MonkeyPatch.context() as patch:
            fixtures = {"device": self.check.device, "gradcheck": self.check, "monkeypatch": patch}
            names = inspect.signature(self.function).parameters
            self.function(**{name: self.given[name] if name in self.given else fixtures[name] for name in names})

    @property
    def checks(self) -> bool:
        """Whether it compares with differences, in any dtype."""
        return "gradcheck" in inspect.signature(self.function).parameters

    def uses(self) -> set[CodeType]:
        """The code that it runs; none where it is skipped."""
        results = set()

        def note(frame: FrameType, *_: object) -> None:
            results.add(frame.f_code)

        self.check.is_tracing, began = True, time.perf_counter()
        # Of the threads that it starts, and of its own.
        threading.settrace(note)
        profile = cProfile.Profile(subcalls=False, builtins=False)
        profile.enable()
        try:
            self.run()
        except pytest.skip.Exception:
            return set()
        finally:
            profile.disable()
            threading.settrace(None)  # type: ignore[arg-type]
            self.check.is_tracing, self.seconds = False, time.perf_counter() - began
        return results | {it.code for it in profile.getstats() if isinstance(it.code, CodeType)}


def cases_of(function: Callable[..., None]) -> Iterator[Case]:
    """Those that the parameters of a test make."""
    each = []
    for mark in getattr(function, "pytestmark", ()):
        if mark.name == "parametrize":
            names, values = mark.args
            inputs = [names] if isinstance(names, str) and "," not in names else names
            unmarked = [value.values if isinstance(value, ParameterSet) else (value,) for value in values]
            rows = [value[0] if len(inputs) > 1 and len(value) == 1 else value for value in unmarked]
            each.append([dict(zip(inputs, row, strict=True)) for row in rows])
    given_names = {name for part in each for row in part for name in row}
    if not inspect.signature(function).parameters.keys() <= given_names | FIXTURES:
        return  # it has fixtures of its own
    for chosen in itertools.product(*each):
        yield Case(function, {name: value for part in chosen for name, value in part.items()})


class Threads(Alone):
    """What a group of threads does with arrays of the host."""

    def __init__(self, rank: int, board: list[Any], barrier: threading.Barrier) -> None:
        super().__init__()
        self.rank, self.board, self.barrier = rank, board, barrier

    def every(self, source: Any) -> list[Any]:
        """What each rank gives."""
        self.barrier.wait()
        self.board[self.rank] = source
        self.barrier.wait()
        return [*self.board]

    def all_reduce(self, source: Any, reduction: str) -> Any:
        concatenated = {"max": np.maximum}.get(reduction, np.add).reduce(self.every(source))
        return (concatenated / len(self.board) if reduction == "mean" else concatenated).astype(source.dtype)

    def reduce_scatter(self, source: Any, reduction: str) -> Any:
        return np.split(self.all_reduce(source, reduction), len(self.board))[self.rank]

    def all_gather(self, source: Any) -> Any:
        return np.concatenate(self.every(source))

    def all_to_all(self, source: Any) -> Any:
        return np.concatenate([np.split(each, len(self.board))[self.rank] for each in self.every(source)])

    def broadcast(self, source: Any, root: int) -> Any:
        return self.every(source)[root].copy()

    def reduce(self, source: Any, reduction: str, root: int) -> Any:
        concatenated = self.all_reduce(source, reduction)
        return concatenated if self.rank == root else np.zeros_like(source)


def test_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What each rank of `ranks.py` checks of gradients, in a thread for each."""
    groups, barrier, board = threading.local(), threading.Barrier(RANKS, timeout=2), [None] * RANKS
    errors: list[Exception] = []
    monkeypatch.setattr(calls, "init", lambda: groups.own)
    monkeypatch.setattr(distributed, "init", lambda: groups.own)

    def run(rank: int) -> None:
        groups.own = Group(range(RANKS), rank, rank, "threads", None, has_mpi=False)
        vars(groups.own)["host"] = Threads(rank, board, barrier)
        try:
            Collectives(Device.cpu()).check_gradients()
        except Exception as error:
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(RANKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@functools.cache
def recording() -> Mapping[str, ModuleType]:
    """By family, the module that records its methods."""
    return {
        family.name: importlib.import_module(f"tallow.gradients.{family.name}") for family in own_spec.read().families
    }


@functools.cache
def users() -> Mapping[str, Sequence[Case]]:
    """By the name of a function of the rules, and of a method that records, the cases that run it, short ones first."""
    results: dict[str, list[Case]] = {}
    files = {rules.__file__, row_formulas.__file__, *(module.__file__ for module in recording().values())}
    tests = [it for module in MODULES for name, it in vars(module).items() if name.startswith("test_")]
    cases = [case for function in (test_ranks, *tests) for case in cases_of(function)]
    for case in cases:
        for code in case.uses():
            if code.co_filename in files:
                results.setdefault(code.co_qualname.split(".<locals>")[0], []).append(case)
    return {
        name: sorted({id(it): it for it in each}.values(), key=lambda it: it.seconds) for name, each in results.items()
    }


@dataclass(frozen=True)
class Code:
    """A function of the rules, or an expression of a method in the spec."""

    name: str
    path: str
    line: int
    """That of its first line in the file."""
    tree: ast.AST
    user: str
    """What runs it, as `users` has it."""
    replaced: Callable[[ast.AST], tuple[object, str, object]]
    """Of what another tree makes which attribute what; SpecError where opgen refuses it."""

    def __str__(self) -> str:
        return self.name

    def named(self, mutant: Mutant) -> str:
        """A mutant, as NO_DIFFERENCE has it."""
        return f"{self.name}: {mutant}"

    def at(self, mutant: Mutant) -> str:
        """Where a mutant differs."""
        return f"{self.path}:{self.line + mutant.node.lineno - 1}"  # type: ignore[attr-defined]

    def survivors(self) -> list[Mutant]:
        """The mutants that opgen takes and that no case shows: in f64, nor in other dtypes."""
        from opgen.problem import SpecError

        cases, others = [*users().get(self.user, ())], [dtype for dtype in CLOSE if dtype != "f64"]
        survivors = []
        for mutant in mutants(self.tree):
            try:
                changed = self.replaced(mutant.tree)
            except (SpecError, SyntaxError):
                continue
            runs = itertools.chain(((it, ()) for it in cases), ((it, others) for it in cases if it.checks))
            shows = next((it for it, dtypes in runs if it.fails(changed, dtypes)), None)
            if shows is None:
                survivors.append(mutant)
            else:
                # It may show the next one, too.
                cases.remove(shows)
                cases.insert(0, shows)
        return survivors


def of_rules() -> Iterator[Code]:
    """Each function of the rules."""

    def replaced(tree: ast.AST, module: ModuleType) -> tuple[object, str, object]:
        assert isinstance(tree, ast.FunctionDef)
        results: dict[str, Any] = {}
        exec(compile(ast.Module([tree], []), str(module.__file__), "exec"), vars(module), results)
        before, after = getattr(module, tree.name), results[tree.name]
        if isinstance(before, Rule):
            return before, "gradients", after.gradients
        # Others may have imported the function itself.
        return before, "__code__", after.__code__

    for name, module in {"rules": rules, "row_formulas": row_formulas}.items():
        for function in ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8")).body:
            if isinstance(function, ast.FunctionDef):
                path, result = f"runtime/gradient/{name}.py", functools.partial(replaced, module=module)
                yield Code(f"{name}.{function.name}", path, 1, function, function.name, result)


def of_methods() -> Iterator[Code]:
    """Each expression of a gradient in the spec."""
    from opgen.views.gradients import class_of

    for family in own_spec.read().families:
        for method in family.methods:
            for key, expression in () if method.gradient is None else method.gradient.expressions():

                def replaced(
                    tree: ast.AST, family: Family = family, method: Method = method, key: str = key
                ) -> tuple[object, str, object]:
                    name = class_of(family)
                    changed = lowered(family, method, key, ast.unparse(tree))[name]
                    return getattr(recording()[family.name], name), method.name, vars(changed)[method.name]

                is_method = method.gradient is not None and key in method.gradient.instead
                user = f"{class_of(family)}.{method.name}" if is_method else f"_{method.name}"
                at, tree = expression.location, ast.parse(expression.text, mode="eval")
                if any(mutants(tree)):
                    yield Code(f"{family.path}: {method.name}.{key}", str(at.path), at.line, tree, user, replaced)


def lowered(family: Family, method: Method, key: str, text: str) -> dict[str, Any]:
    """What a family's module has where an expression is another one; SpecError where opgen refuses it."""
    from opgen.gradients import check_gradients
    from opgen.problem import SpecError
    from opgen.render import environment
    from opgen.views.gradients import recorded_module

    gradient = method.gradient
    assert gradient is not None
    if key in gradient.functions:
        gradient = replace(gradient, functions={**gradient.functions, key: replace(gradient.functions[key], text=text)})
    elif key in gradient.instead:
        gradient = replace(gradient, instead={**gradient.instead, key: replace(gradient.instead[key], text=text)})
    else:
        gradient = replace(gradient, **{key: replace(getattr(gradient, key), text=text)})
    family = replace(
        family, methods=tuple(replace(it, gradient=gradient) if it is method else it for it in family.methods)
    )
    changed = replace(own_spec.read(), families=(family,))
    problems: list[Problem] = []
    check_gradients(changed, sources(), problems)
    if problems:
        raise SpecError(problems)
    template = environment(sources()).get_template("tallow/gradients/{recorded}.py.j2")
    module = recording()[family.name]
    result = {"__name__": module.__name__, "__package__": module.__package__}
    exec(compile(template.render(view=recorded_module(changed, family)), module.__file__, "exec"), result)
    return result


CODE = [*of_methods(), *of_rules()]


@pytest.fixture(autouse=True)
def on_the_cpu(device: Device) -> None:
    if not device.is_cpu():
        pytest.skip("the rules are the same on all devices")
    if Device.cpu().inner.kernels is None:
        pytest.skip("NumPy takes less from the rules than kernels do")


def test_what_makes_no_difference_is_one_mutant_each() -> None:
    texts = [code.named(mutant) for code in CODE for mutant in mutants(code.tree)]
    assert [text for text in itertools.chain(*NO_DIFFERENCE.values()) if texts.count(text) != 1] == []


@pytest.mark.full
@pytest.mark.parametrize("code", CODE, ids=str)
def test_each_mutation_is_caught(code: Code) -> None:
    survivors = {code.at(it) + f": no case shows {it}": code.named(it) for it in code.survivors()}
    same = [it for it in itertools.chain(*NO_DIFFERENCE.values()) if it.startswith(f"{code}: ")]
    errors = [line for line, name in survivors.items() if name not in same]
    errors += [f"a case shows {name}" for name in same if name not in survivors.values()]
    if errors:
        pytest.fail("\n".join(errors), pytrace=False)
