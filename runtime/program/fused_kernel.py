"""What `fuse` composes one kernel of: operands in memory, numbers, and elementwise ops in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...dtype import DType
from ..core.layout import Layout
from ..core.shape import Shape

if TYPE_CHECKING:
    from ...op import ElementwiseOp


class Step(NamedTuple):
    """One op of a kernel: names of operands are those of sources (x0), numbers (n0) and earlier steps (v0)."""

    name: str
    op: ElementwiseOp
    operands: tuple[str, ...]
    parameters: tuple[str, ...]
    operand_dtype: DType
    """That of the last operand, in which the op computes."""
    dtype: DType


class Source(NamedTuple):
    """An operand in memory: an argument of the function, by its place among the tensors, as a layout shows it."""

    place: int
    dtype: DType
    layout: Layout


class Number(NamedTuple):
    """A number: how it is worked out, and the dtype of the elements that it stands for."""

    find: Callable[[Sequence[float]], complex]
    dtype: DType
    known: complex | None = None
    """What it always is."""

    @property
    def words(self) -> int:
        """How many words of 64 bits its element takes."""
        return -(-self.dtype.itemsize // 8)


class FusedKernel:
    """What one kernel computes: results of one shape, each element of which depends on one of each source."""

    def __init__(
        self,
        name: str,
        shape: Shape,
        sources: dict[str, Source],
        numbers: dict[str, Number],
        steps: Sequence[Step],
        results: Sequence[tuple[str, DType]],
        tensors: int,
    ) -> None:
        self.name = name
        self.shape = shape
        self.layout = Layout.contiguous(shape)
        self.sources = sources
        self.numbers = numbers
        self.steps = tuple(steps)
        self.results = tuple(results)
        self.places = [source.place for source in sources.values()]
        self.takes_all = self.places == list(range(tensors))
        """Whether its sources are the tensors that the function is given, one after the other."""
        self.layouts = [source.layout for source in sources.values()]
        self.finds = [number.find for number in numbers.values()]
