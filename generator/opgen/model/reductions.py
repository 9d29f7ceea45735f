"""Monoids: how reductions and scans combine elements."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from opgen.decoder import Cursor, Diagnostics
from opgen.formula.formula import Formula
from opgen.notes import Entry, Key, LocationOf, Mark, Name, Using, defines, exactly, names_of
from opgen.problem import Location
from opgen.reserved import no_cpp_word

# Identities that are no numbers: of the dtype of the elements.
BOUNDS = ("highest", "lowest")
# Identities of floats besides finite numbers.
_INFINITIES = ("inf", "-inf")


@dataclass(frozen=True)
class StatePart:
    """One number of a state."""

    name: Annotated[Name, no_cpp_word, Entry("part '{}'")]
    element: Annotated[Formula, "The formula of what an element `x` begins it with."]
    combine: Annotated[
        Formula,
        "The formula of what it is of two states `x` and `y` together, over their parts (`x.name`) and the parts of "
        "`let`.",
    ]


@dataclass(frozen=True)
class State:
    """The state of a reduction in kernels, where it is several numbers."""

    name: Annotated[Name, Entry("state '{}'"), defines("state")]
    doc: Annotated[str, "What the state is."]
    let: Annotated[
        Mapping[Name, Formula], Mark.OPTIONAL, "Named parts of `combine`, each a formula over those before it."
    ]
    parts: Annotated[tuple[StatePart, ...], "Numbers of the compute dtype by name, all 0 for no elements."]
    result: Annotated[Formula, "The formula of what the contributions come to, over the parts."]
    unit: Annotated[
        Formula | None,
        "The formula of the number by which the elements were divided whose contributions come to `result`, if it is "
        "not 1; over the parts. The `finish` of an op multiplies by it.",
    ]
    location: Location = field(compare=False)

    @property
    def formulas(self) -> tuple[Formula, ...]:
        """All its formulas."""
        of_parts = (formula for part in self.parts for formula in (part.element, part.combine))
        return (*self.let.values(), *of_parts, *self.results)

    @property
    def results(self) -> tuple[Formula, ...]:
        """The formulas of what is known of all elements."""
        return (self.result,) if self.unit is None else (self.result, self.unit)


_IDENTITY = Annotated[int | float | str, exactly("|".join((*BOUNDS, *_INFINITIES)))]


def _identity(cursor: Cursor) -> str:
    content = cursor.value.content
    is_number = isinstance(content, int | float) and not isinstance(content, bool) and math.isfinite(content)
    if is_number or str(content) in (*BOUNDS, *_INFINITIES):
        return str(content)
    cursor.no_value(f"{cursor.what} must be a number, 'inf', '-inf', 'highest' or 'lowest'")
    return "0"


@dataclass(frozen=True)
class Monoid:
    """How a reduction joins what its elements contribute."""

    identity: Annotated[
        str,
        Using(_identity, _IDENTITY),
        "What changes no result when it joins in. A number, which may be `inf` or `-inf` if the op has only floats, is "
        "the result of no elements. With the `highest` or the `lowest` of the dtype, no elements have no result "
        "(EmptyTensor).",
    ]
    element: Annotated[
        Formula | None,
        "The formula of what an element `x` contributes, if that is not `x` itself. It may contain the result of "
        "another reduction of all elements, such as `mean(x)`, which array libraries find first.",
    ]
    combine: Annotated[Formula, "The formula of what two contributions `x` and `y` join to."]
    accumulate: Annotated[
        str | None,
        names_of("dtype"),
        "The dtype in which array libraries join floats; kernels always join them in the compute dtype.",
    ]
    finish: Annotated[
        Formula | None,
        "The formula of the result, over the parameters and `x`, which is what `count` elements contribute together. "
        "Where these may be too large or too small, `x` is that of the elements divided by `unit`, which kernels have "
        "from the state, and array libraries from the largest magnitude. In a scan it is over `element` too, which is "
        "the element itself. Without the key, `x` is the result.",
    ]
    state: Annotated[
        str | None,
        names_of("state"),
        "What kernels know of some elements, if that is more than a number: one of `states`. With it kernels read each "
        "element once, where array libraries read them again.",
    ]
    row: Annotated[
        Formula | None,
        "The formula by which row formulas have the reduction, of other reductions of `x`, where contributions are "
        "combined by another formula than that of a sum, a maximum or a minimum.",
    ]
    identity_location: Annotated[Location, LocationOf("identity")] = field(compare=False)
    state_location: Annotated[Location, LocationOf("state")] = field(compare=False)

    def diagnostics(self, what: str) -> Diagnostics:
        """Note a state of which nothing would have no result."""
        if self.state is not None and self.identity in BOUNDS:
            yield "identity", f"'identity' of {what} must be a number: what its state results in of nothing"

    @property
    def number(self) -> float:
        """Its identity, where that is a number."""
        # A float would round a large integer.
        return int(self.identity) if self.identity.lstrip("-").isdecimal() else float(self.identity or 0)


@dataclass(frozen=True)
class Position:
    """A reduction whose result is where another one finds its element."""

    of: Annotated[
        str,
        Key("position"),
        names_of("op"),
        "Instead of `identity`, `element` and `combine`: the result is the position at which the reduction of this "
        "name finds its element, by the word of the op's own name.",
    ]


@dataclass(frozen=True)
class Prefixes:
    """A scan whose results are those of a reduction of the elements up to each."""

    of: Annotated[
        str,
        names_of("op"),
        "Instead of `identity`, `element`, `combine` and the other keys of a reduction: the op of reduce.yaml that "
        "reduces the elements up to each.",
    ]
    accumulate: Annotated[
        str | None,
        names_of("dtype"),
        "The dtype in which the host and array libraries join floats, if it is not the reduction's: they join what is "
        "no sum one after the other, so that rounding errors add up.",
    ]
