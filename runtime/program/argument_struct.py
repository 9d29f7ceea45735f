"""The structs of kernels' arguments, whose fields may be values that each run finds."""

from __future__ import annotations

import re
import struct
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

from .values import Value

Number: TypeAlias = int | Value
"""A field that is no address."""


class PackedArguments(NamedTuple):
    """The bytes of a kernel's struct, with zeros for its values, and the values with their places in it."""

    template: bytes
    values: tuple[tuple[int, Value], ...] = ()

    def parts(self) -> tuple[str, list[bytes | Value]]:
        """The format and the fields that pack the struct: values, and the bytes in front of and behind each."""
        form, fields, end = "=", list[bytes | Value](), 0
        for place, value in self.values:
            if place > end:
                form += f"{place - end}s"
                fields.append(self.template[end:place])
            form += value.code
            fields.append(value)
            end = place + struct.calcsize(value.code)
        if end < len(self.template):
            form += f"{len(self.template) - end}s"
            fields.append(self.template[end:])
        return form, fields


class ArgumentStruct(struct.Struct):
    """The struct of a kernel's arguments."""

    def pack(self, *fields: Any) -> PackedArguments:  # type: ignore[override]
        """Pack fields, some of which may be values."""
        known, values = list(fields), []
        # Most fields are numbers.
        for position in [position for position, kind in enumerate(map(type, fields)) if kind is not int]:
            field = fields[position]
            if isinstance(field, Value):
                known[position] = 0
                values.append((self._places[position], field))
        return PackedArguments(super().pack(*known), tuple(values))

    @cached_property
    def _places(self) -> list[int]:
        """Where each field begins."""
        places, size = [], 0
        for count, code in re.findall(r"(\d*)([a-zA-Z])", self.format):
            for _ in range(int(count or 1)):
                if code != "x":
                    places.append(size)
                size += struct.calcsize(f"={code}")
        return places
