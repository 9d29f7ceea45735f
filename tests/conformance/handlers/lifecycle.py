"""try_clone, device, dtype."""

from __future__ import annotations

from .. import values
from ..bench import Bench
from ..comparison import assert_same
from ..layouts import VIEWS


def try_clone(bench: Bench) -> None:
    for case in VIEWS:
        where = bench.where(case)
        operand = bench.lay_out(values.mixed(bench.generator, bench.name, case.shape), case.placement)
        clone = operand.storage.try_clone(operand.layout)
        got = bench.read(clone, bench.name, operand.buffer.shape, where)
        assert_same(got, operand.buffer, where)
        clone.const_set(1.0, operand.layout)
        bench.assert_untouched(operand, f"{where}: after a write to the clone")


def device(bench: Bench) -> None:
    storage = bench.lay_out(values.modest(bench.generator, bench.name, (3,))).storage
    assert storage.device == bench.device, f"{storage.device} is not {bench.device}"
    assert storage.device.backend == bench.cell.backend


def dtype(bench: Bench) -> None:
    storage = bench.lay_out(values.modest(bench.generator, bench.name, (3,))).storage
    assert storage.dtype is bench.cell.dtype, f"{storage.dtype} is not {bench.cell.dtype}"


HANDLERS = {"try_clone": try_clone, "device": device, "dtype": dtype}
