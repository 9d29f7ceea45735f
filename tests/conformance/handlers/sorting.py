"""argsort."""

from __future__ import annotations

import numpy as np

from .. import values
from ..bench import Bench
from ..comparison import assert_same
from ..layouts import VIEWS, Operand
from ..oracle import sorting as oracle
from ..oracle.formats import NUMPY

# Around what threads of a block, and a block, sort at once, and lines that are sorted together.
SHAPES = ((300, 1), (90, 3), (3, 255), (2, 256), (2, 257), (1, 4096), (1, 4097), (3, 5000), (257, 5), (1, 9001))


def argsort(bench: Bench) -> None:
    for case in VIEWS:
        numbers = values.mixed(bench.generator, bench.name, case.shape)
        check_argsort(bench, bench.place(numbers, case.placement), bench.where(case))
    for shape in SHAPES:
        # The sizes are about where lines lie, and numbers about ties: --full has both at every size.
        kinds = (values.mixed, few_numbers) if bench.full or shape[-1] < 5000 else (few_numbers,)
        for kind in kinds:
            operand = bench.place(kind(bench.generator, bench.name, shape))
            check_argsort(bench, operand, bench.where(shape, kind.__name__))


def few_numbers(generator: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Many of each number."""
    return generator.integers(0, 5, shape).astype(NUMPY[name])


def check_argsort(bench: Bench, operand: Operand, where: str) -> None:
    length = operand.values.shape[-1] if operand.values.ndim else 1
    for descending in (False, True):
        expected = oracle.argsort(bench.name, operand.values, descending=descending)
        # All of them; and, of one order, a few, as many as are hardly few, and none.
        few = {min(length, 3), min(length, 70), 0} if descending or bench.full else set()
        for count in {length} | few:
            result = operand.storage.argsort(operand.layout, descending, count)
            first = np.atleast_1d(expected)[..., :count]
            got = bench.read(result, "u32", first.shape, where)
            assert_same(got, first, f"{where}, descending {descending}, {count} of each line", {"x": operand.values})
    bench.assert_untouched(operand, where)


HANDLERS = {"argsort": argsort}
