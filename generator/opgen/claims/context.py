"""The dtypes of a spec, and the evaluators and reducers of its formulas."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from opgen.claims.evaluation import Evaluator
from opgen.claims.formats import Format, Integers, format_of
from opgen.dtypes import DType
from opgen.formula.primitives import Primitives
from opgen.model.functors import Functor
from opgen.model.spec import Spec

# Values of parameters without a default. They ascend, as two bounds do.
_PARAMETERS = (0.75, 1.5, 2.25)


@dataclass
class Context:
    """A spec whose claims are evaluated."""

    spec: Spec
    primitives: Primitives
    reducers: dict[tuple[str, int], Any] = field(default_factory=dict)
    """Filled by `reductions.reducer_of`."""
    _integers: dict[Integers, Evaluator] = field(default_factory=dict)

    @cached_property
    def dtypes(self) -> Mapping[str, DType]:
        """The dtypes by name."""
        return {dtype.name: dtype for dtype in self.spec.dtypes}

    @cached_property
    def floats(self) -> Evaluator:
        """The evaluator of all floats."""
        return Evaluator(self.primitives)

    def format(self, name: str | None) -> Format | None:
        """Return the numbers of a dtype; None if they are not known here."""
        dtype = self.dtypes.get(name or "")
        return None if dtype is None else format_of(dtype)

    def evaluator(self, name: str) -> Evaluator | None:
        """Return the evaluator of the compute dtype of a dtype; None if its numbers are not known here."""
        dtype = self.dtypes.get(name)
        compute = None if dtype is None else self.format(dtype.compute)
        if isinstance(compute, Integers):
            return self._integers.setdefault(compute, Evaluator(self.primitives, compute))
        return None if compute is None else self.floats

    def formats(self, functor: Functor) -> Iterator[tuple[str, Format, Evaluator]]:
        """Yield the dtypes of an op whose numbers are known here, with their evaluators."""
        for name in self.spec.resolve(functor.dtypes):
            numbers, evaluator = self.format(name), self.evaluator(name)
            if numbers is not None and evaluator is not None:
                yield name, numbers, evaluator


def parameters_of(functor: Functor) -> Sequence[float]:
    """Return values of an op's parameters: defaults, or ascending numbers."""
    defaults = functor.parameters.values()
    others = iter(_PARAMETERS * (1 + len(defaults) // len(_PARAMETERS)))
    return [next(others) if default is None else default for default in defaults]
