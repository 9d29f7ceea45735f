"""apply_op1..3 and inplace_op1..3 with ops written for these tests."""

from __future__ import annotations

import numpy as np
import pytest
from tallow.runtime.base.error import InvalidArgument

from .. import custom_ops, values
from ..bench import Bench
from ..comparison import assert_same
from ..layouts import VIEWS, WRITABLE, Case, Operand

_APPLIED = {1: custom_ops.Interleave1(), 2: custom_ops.Interleave2(), 3: custom_ops.Interleave3()}
_INPLACE = {1: custom_ops.Reverse(), 2: custom_ops.Replace(), 3: custom_ops.Blend()}


def apply_op(bench: Bench) -> None:
    count = int(bench.cell.method[-1])
    for case in VIEWS[::2]:
        where = bench.where(case)
        operands = _operands(bench, case, count)
        result, shape = getattr(operands[0].storage, bench.cell.method)(*_arguments(operands), _APPLIED[count])
        expected = custom_ops.interleave(*(operand.values for operand in operands))
        assert tuple(shape) == expected.shape, f"{where}: shape {shape}, expected {expected.shape}"
        assert_same(bench.read(result, bench.name, expected.shape, where), expected, where)
    if count == 1:
        _check_unwritten(bench, custom_ops.Unwritten1())


def inplace_op(bench: Bench) -> None:
    count = int(bench.cell.method[-1])
    for case in WRITABLE:
        where = bench.where(case)
        operands = _operands(bench, case, count)
        getattr(operands[0].storage, bench.cell.method)(*_arguments(operands), _INPLACE[count])
        expected = operands[0].buffer.copy()
        if count == 1:
            expected[operands[0].places] = operands[0].values.ravel()[::-1].reshape(case.shape)
        elif count == 2:
            expected[operands[0].places] = operands[1].values
        else:
            expected[operands[0].places] = custom_ops.blend(operands[1].values, operands[2].values)
        assert_same(bench.read(operands[0].storage, bench.name, expected.shape, where), expected, where)
        for operand in operands[1:]:
            bench.assert_untouched(operand, where)
    if count == 1:
        _check_unwritten(bench, custom_ops.UnwrittenInplace1())


def _operands(bench: Bench, case: Case, count: int) -> list[Operand]:
    placements = [case.placement, "contiguous", case.placement][:count]
    return [bench.lay_out(values.mixed(bench.generator, bench.name, case.shape), placement) for placement in placements]


def _arguments(operands: list[Operand]) -> list[object]:
    """layout1, storage2, layout2, storage3, layout3."""
    remaining = [argument for operand in operands[1:] for argument in (operand.storage, operand.layout)]
    return [operands[0].layout, *remaining]


def _check_unwritten(bench: Bench, op: object) -> None:
    """An op without a method for the backend says which one to write in its class."""
    operand = bench.lay_out(np.ones((3,), np.float32), name="f32")
    with pytest.raises(InvalidArgument, match=f"define {bench.cell.backend}_fwd\\(self, storage, layout\\)") as caught:
        getattr(operand.storage, bench.cell.method)(operand.layout, op)
    assert type(op).__name__ in str(caught.value)


HANDLERS = {
    **dict.fromkeys(["apply_op1", "apply_op2", "apply_op3"], apply_op),
    **dict.fromkeys(["inplace_op1", "inplace_op2", "inplace_op3"], inplace_op),
}
