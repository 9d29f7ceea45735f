"""Dtypes as the spec names them."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from opgen.decoder import Cursor
from opgen.notes import Form, Mark, names_of
from opgen.problem import Location


@dataclass(frozen=True)
class Names:
    """Dtypes as the spec names them: one group's name, or a list of dtypes and groups. `check` resolves them."""

    texts: tuple[str, ...]
    locations: tuple[Location, ...] = field(compare=False)
    listed: bool  # written as a list
    FORM: ClassVar = (
        Annotated[str, Mark.MAY_BE_EMPTY, Form(minLength=1), names_of("set")]
        | Annotated[tuple[Annotated[str, Mark.MAY_BE_EMPTY, names_of("dtype", "set")], ...], Form(minItems=1)]
    )

    @classmethod
    def decode(cls, cursor: Cursor) -> "Names":
        """A group's name, or a list."""
        content = cursor.value.content
        if not content or not isinstance(content, str | list):
            is_empty = content in ([], "")
            wrong = "is empty; write what it holds" if is_empty else "must be a group or a list of dtypes"
            cursor.no_value(f"{cursor.what} {wrong}")
            return cls((), (), listed=True)
        elements = cursor.elements(Mark.ONE_OR_MORE)
        locations = tuple(element.value.location for element in elements)
        return cls(tuple(element.scalar(str) or "" for element in elements), locations, isinstance(content, list))
