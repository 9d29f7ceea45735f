"""Calls of all ranks, in a group of one. tests/package/test_distributed.py has groups of more."""

from __future__ import annotations

from tallow import DType
from tallow.runtime.ranks.group import Group

from .. import values
from ..bench import Bench
from ..comparison import assert_same
from ..layouts import VIEWS

_REDUCTIONS = ("sum", "prod", "min", "max", "mean")
_REDUCTIONS_OF = {"bool": ("min", "max"), "complex": ("sum", "mean"), "float": _REDUCTIONS}


def collective(bench: Bench) -> None:
    """A rank that is alone has its own elements, in row-major order."""
    method = bench.cell.method
    reductions = _REDUCTIONS_OF.get(DType(bench.name).kind, _REDUCTIONS[:-1])
    joins = method in ("all_reduce", "reduce_scatter", "reduce")
    for number, case in enumerate(VIEWS):
        if method in ("reduce_scatter", "all_to_all") and not case.shape:
            continue
        where, group = bench.where(case), Group.alone()
        operand = bench.lay_out(values.mixed(bench.generator, bench.name, case.shape), case.placement)
        arguments: list[object] = [reductions[number % len(reductions)]] if joins else []
        arguments += [0] if method in ("broadcast", "reduce", "send", "recv") else []
        if method == "recv":
            sender = bench.lay_out(operand.values, "contiguous")
            # Twice, because --replay receives on a copy first.
            for _ in range(2):
                assert sender.storage.send(sender.layout, 0, group).length == 0
        result = getattr(operand.storage, method)(operand.layout, *arguments, group)
        if method == "send":
            assert result.length == 0, where
            result = operand.storage.recv(operand.layout, 0, group)
        # What follows each other along the first dim has one.
        shape = case.shape or (1,) if method == "all_gather" else case.shape
        assert_same(bench.read(result, bench.name, shape, where), operand.values.reshape(shape), where)
        bench.assert_untouched(operand, where)


METHODS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "send", "recv")
HANDLERS = dict.fromkeys(METHODS, collective)
