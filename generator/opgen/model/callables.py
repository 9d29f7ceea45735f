"""Functions of the runtime as the spec may call them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Callable:
    """A function of a backend's ops."""

    parameters: tuple[str, ...]
    required: int  # how many of them have no default
    takes_more: bool  # any number of further arguments
    keywords: Mapping[str, bool]  # keyword-only parameters, and whether they have a default
    returns: str | None = None

    def __str__(self) -> str:
        star = ["*"] if self.keywords else []
        return ", ".join([*self.parameters, *star, *self.keywords])

    def fits(self, arguments: Sequence[str]) -> bool:
        """Whether it can be called with `arguments`, of which some are written `name=value`."""
        named = {name for name, is_named, _ in (text.partition("=") for text in arguments) if is_named}
        count = len(arguments) - len(named)
        remaining = self.parameters[count:]
        needed = {
            *self.parameters[count : self.required],
            *(name for name, is_optional in self.keywords.items() if not is_optional),
        }
        return needed <= named <= {*remaining, *self.keywords} and (self.takes_more or count <= len(self.parameters))


@dataclass(frozen=True)
class CheckFunction:
    """A function that checks arguments: its module, and the errors that it raises, itself or by what it calls."""

    module: str
    raised: frozenset[str]
