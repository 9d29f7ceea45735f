"""The key `gradient` of storage methods."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from opgen.decoder import Diagnostics
from opgen.model.expressions import Expression
from opgen.notes import Mark, Name
from opgen.problem import Location


@dataclass(frozen=True)
class Gradient:
    """The gradients of a storage method."""

    all: Annotated[Expression | None, "The expression of the gradients of all operands together, in their order."]
    instead: Annotated[
        Mapping[Name, Expression],
        Mark.OPTIONAL,
        "By operand, the call that is recorded instead of this one if the operand is not None.",
    ]
    none: Annotated[str | None, "Why the method has no gradients."]
    missing: Annotated[str | None, "Why the method cannot be recorded."]
    functions: Annotated[
        Mapping[Name, Expression],
        Mark.OTHERS,
        "An operand, and the expression of its gradient over `g`, which is the gradient of the result, `result`, the "
        "arguments, and functions of runtime/gradient as `module.function`. Of several `results`, `gradients` are "
        "those of all; without that name the first result alone has a gradient. `node` is the recorded call, and "
        "`handle` is true while a tensor still shows the first operand.",
    ]
    location: Location = field(compare=False)

    def diagnostics(self, what: str) -> Diagnostics:
        """Note that nothing is said, or more than one thing."""
        said = (self.none, self.missing, self.all or self.functions or self.instead or None)
        if sum(item is not None for item in said) != 1 or (self.all and self.functions):
            forms = "an expression for each operand, one for 'all', or why there are 'none' or they are 'missing'"
            yield "", f"{what} must have one of these: {forms}"

    def expressions(self) -> Iterator[tuple[str, Expression]]:
        """All expressions, each with its key."""
        yield from self.functions.items()
        yield from [] if self.all is None else [("all", self.all)]
        yield from self.instead.items()
