"""Methods of which tests know their oracle alone: what their operands are, the spec says."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from tallow.examples import METHODS
from tallow.runtime.core.layout import Layout

from .. import oracle as oracle_modules
from .. import values
from ..bench import Bench
from ..comparison import assert_close, assert_equal_values, assert_same, tolerance
from ..layouts import Operand
from ..oracle.exact import ORACLES, Case
from ..oracle.formats import NO_ROW, NUMPY, Array
from .indexing import check_bad_indexes, draw_indexes

# How operands lie, by the least number of their dims.
PLACEMENTS = {
    0: ("contiguous", "offset"),
    1: ("narrowed columns", "broadcast all"),
    2: ("transposed", "rolled", "narrowed rows", "broadcast rows", "broadcast columns", "sliding"),
}


def check_exact(bench: Bench) -> None:
    """The examples of the spec in every layout, and the cases of the oracle, with indexes of every dtype."""
    method, oracle = METHODS[bench.cell.method], ORACLES[bench.cell.method]
    placed, index_names = [*_placed(bench)], [*NO_ROW] if indexed(bench) else ["u32"]
    for number, index_name in enumerate(index_names):
        # How operands lie has nothing to do with the dtype of indexes.
        for case in bench.some([*placed[number :: len(index_names)], *oracle.cases]):
            for draw in oracle.draws:
                _check_call(bench, case, getattr(values, draw), index_name)
        # They are looked at even where there is nothing to choose.
        empty = [case for case in oracle.cases if 0 in _shape(case, "self")[0]]
        for operand in indexed(bench):
            for case in (method.calls[0], *empty):
                _check_indexes(bench, case, operand, index_name)


def indexed(bench: Bench) -> list[str]:
    """The operands that are indexes."""
    return [name for name, operand in METHODS[bench.cell.method].operands.items() if operand.below is not None]


def _placed(bench: Bench) -> Iterator[Case]:
    """The examples but for the largest one, with operands in every layout; others lie in other ways than the first."""
    method = METHODS[bench.cell.method]
    for call in method.calls[:-1]:
        fitting = {
            name: [each for least, some in PLACEMENTS.items() if len(call[name]) >= least for each in some]
            for name in method.operands
            if call[name] is not None
        }
        for number in range(max(map(len, fitting.values()))):
            indices = {
                name: (call[name], some[(number + 3 * position) % len(some)])
                for position, (name, some) in enumerate(fitting.items())
            }
            yield {**call, **indices}


def _shape(case: Case, name: str) -> tuple[tuple[int, ...], str]:
    """The shape of an operand, and how it lies."""
    value = case[name]
    is_placed = len(value) == 2 and isinstance(value[1], str)
    return value if is_placed else (value, "contiguous")


def _operands(
    bench: Bench, case: Case, draw: Callable[..., Array], index_name: str, given: Mapping[str, Operand] = {}
) -> dict[str, Operand]:
    method, operands = METHODS[bench.cell.method], dict(given)
    for name, operand in method.operands.items():
        if name not in operands and case[name] is not None:
            shape, placement = _shape(case, name)
            if operand.below is None:
                operands[name] = bench.lay_out(draw(bench.generator, bench.name, shape), placement)
            else:
                indexes = draw_indexes(bench, index_name, shape, _bound(bench, case, name))
                operands[name] = bench.lay_out(indexes, placement, index_name)
    return operands


def _bound(bench: Bench, case: Case, name: str) -> int:
    """The number of elements that an operand chooses from."""
    operands = METHODS[bench.cell.method].operands
    below = operands[name].below
    assert below is not None
    layouts = {each.layout: Layout.contiguous(_shape(case, key)[0]) for key, each in operands.items() if case[key]}
    return below(**{key: layouts.get(key, case.get(key)) for key in inspect.signature(below).parameters})


def _call(bench: Bench, case: Case, operands: Mapping[str, Operand]) -> Any:
    method = METHODS[bench.cell.method]
    layouts = {each.layout: operands[name].layout for name, each in method.operands.items() if name in operands}
    storages = {name: operand.storage for name, operand in operands.items()}
    arguments = [{**case, **storages, **layouts}.get(name) for name in method.parameters]
    return getattr(operands["self"].storage, bench.cell.method)(*arguments)


def _check_call(bench: Bench, case: Case, draw: Callable[..., Array], index_name: str) -> None:
    method, oracle = METHODS[bench.cell.method], ORACLES[bench.cell.method]
    where = bench.where(case, draw.__name__, index_name)
    operands = _operands(bench, case, draw, index_name)
    for name in indexed(bench):
        if operands[name].values.size and not _bound(bench, case, name):
            _check_nothing(bench, case, operands, name, index_name, where)
            if NO_ROW[index_name] is None:
                return
    parameters = {name: case[name] for name in method.parameters if name in case and name not in method.operands}
    known = {"name": bench.name} if "name" in inspect.signature(oracle.compute).parameters else {}
    others = {name: operand.values for name, operand in operands.items() if name != "self"}
    expected = oracle.compute(operands["self"].values, **others, **parameters, **known)
    expected, slack = (expected, None) if oracle.is_exact else expected
    got = bench.read(_call(bench, case, operands), bench.name, expected.shape, where)
    if not oracle.is_exact:
        ulps = tolerance(bench.cell.method, bench.name)
        assert_close(bench.name, got, expected, ulps, where, {}, slack=slack, zero_sign=False)
    elif oracle.zero_sign:
        assert_same(got, expected, where)
    else:
        assert_equal_values(got, expected, where)
    for operand in operands.values():
        bench.assert_untouched(operand, where)


def _check_nothing(
    bench: Bench, case: Case, operands: Mapping[str, Operand], name: str, index_name: str, where: str
) -> None:
    """Any index but a mark into a dim without elements is an error."""
    zeros = bench.lay_out(np.zeros(operands[name].values.shape, NUMPY[index_name]), name=index_name)
    bench.raises_invalid_index(lambda: _call(bench, case, {**operands, name: zeros}), 0, 0, where)


def _check_indexes(bench: Bench, case: Case, name: str, index_name: str) -> None:
    """One that is out of range is an error."""
    shape, _ = _shape(case, name)
    if not np.prod(shape) or not _bound(bench, case, name):
        return
    others = _operands(bench, case, values.modest, index_name)

    def call(indexes: Operand, operands: Mapping[str, Operand] = others) -> object:
        return _call(bench, case, {**operands, name: indexes})

    check_bad_indexes(bench, index_name, shape, _bound(bench, case, name), call)


for found in pkgutil.iter_modules(oracle_modules.__path__):
    importlib.import_module(f"{oracle_modules.__name__}.{found.name}")
HANDLERS: dict[str, Callable[[Bench], None]] = dict.fromkeys(ORACLES, check_exact)
