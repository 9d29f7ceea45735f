"""The values that a GGUF file has by key, read from its bytes."""

from __future__ import annotations

import struct
from typing import Final, Never, TypeAlias

import numpy as np

from ....dtype import Array
from ...base.error import InvalidArgument
from ..content import Content

Value: TypeAlias = "bool | int | float | str | Array | list[str] | list[Value]"
"""The value of a key: numbers of an array are a NumPy array, its texts a list."""

NUMBERS: Final = {
    kind: np.dtype(name).newbyteorder("<")
    for kind, name in enumerate(("u1", "i1", "u2", "i2", "u4", "i4", "f4", "?", None, None, "u8", "i8", "f8"))
    if name is not None
}
"""The dtypes of numbers by the kinds that stand in files."""
TEXT: Final = 8
ARRAY: Final = 9
SIZE: Final = struct.Struct("<Q")
KIND: Final = struct.Struct("<I")
ARRAY_HEAD: Final = struct.Struct("<IQ")

MEND: Final = "get the file again, or write it with save_gguf"
LARGEST_HEADER: Final = 1 << 27
"""The most bytes read of metadata and names: four times what the largest vocabularies take."""
MAX_NESTED: Final = 4
# How much is read at once.
_WINDOW: Final = 1 << 20


class Reader:
    """Reads what stands before the elements, from its begin to its end."""

    def __init__(self, content: Content) -> None:
        self._content = content
        self._window = b""
        self._at = 0
        self._end = 0  # of the window, in the file
        self.what = "the header"
        """The part that is being read: the subject of errors."""

    @property
    def offset(self) -> int:
        """The number of bytes of the file that were read."""
        return self._end - len(self._window) + self._at

    def refuse(self, reason: str) -> Never:
        """Raise the error that what is read is wrong."""
        raise self.refused(reason)

    def refused(self, reason: str) -> InvalidArgument:
        """The error that what is read is wrong."""
        return self._content.refused(f"{self.what} {reason}; {MEND}")

    def take(self, nbytes: int) -> bytes:
        """The next bytes."""
        if nbytes > len(self._window) - self._at:
            self._refill(nbytes)
        begin = self._at
        self._at = begin + nbytes
        return self._window[begin : self._at]

    def integer(self, form: struct.Struct) -> int:
        """The next integer."""
        value: int = form.unpack(self.take(form.size))[0]
        return value

    def text(self) -> str:
        """The next text: its length, and its bytes."""
        try:
            return self.take(self.integer(SIZE)).decode()
        except UnicodeDecodeError:
            raise self.refused("has a text that is not UTF-8") from None

    def texts(self, count: int) -> list[str]:
        """The next texts."""
        self.require_bytes(count, SIZE.size)
        texts: list[str] = []
        unpack, width = SIZE.unpack_from, SIZE.size
        while len(texts) < count:
            # A vocabulary has a hundred thousand texts: those that are completely in the window are taken without a
            # call each.
            window, at = self._window, self._at
            size = len(window)
            try:
                for _ in range(count - len(texts)):
                    begin = at + width
                    end = begin + unpack(window, at)[0]
                    if end > size:
                        break
                    texts.append(window[begin:end].decode())
                    at = end
            except struct.error:  # the window ends inside of a length
                pass
            except UnicodeDecodeError:
                raise self.refused(f"has a text that is not UTF-8, number {len(texts)}") from None
            self._at = at
            if len(texts) < count:
                texts.append(self.text())
        return texts

    def value(self) -> Value:
        """The next value: its kind, and what that says."""
        return self._value(self.integer(KIND), 0)

    def require_bytes(self, count: int, nbytes: int) -> None:
        """Raise the error for a count of items, of at least `nbytes` each, that the remaining file cannot hold."""
        left = self._content.size - self.offset
        if count * nbytes > left:
            self.refuse(f"counts {count} of what takes {nbytes} bytes or more each, where {left} bytes are left")

    def _value(self, kind: int, depth: int) -> Value:
        if kind in NUMBERS:
            number: Value = self._numbers(kind, 1)[0].item()
            return number
        if kind == TEXT:
            return self.text()
        if kind != ARRAY:
            self.refuse(f"has a value of kind {kind}; there are those up to {max(NUMBERS)}")
        if depth == MAX_NESTED:
            self.refuse(f"has arrays nested deeper than {MAX_NESTED}")
        kind, count = ARRAY_HEAD.unpack(self.take(ARRAY_HEAD.size))
        if kind in NUMBERS:
            return self._numbers(kind, count)
        if kind == TEXT:
            return self.texts(count)
        self.require_bytes(count, ARRAY_HEAD.size)
        return [self._value(kind, depth + 1) for _ in range(count)]

    def _numbers(self, kind: int, count: int) -> Array:
        dtype = NUMBERS[kind]
        self.require_bytes(count, dtype.itemsize)
        content = self.take(count * dtype.itemsize)
        if dtype == np.bool_ and content.strip(b"\0\1"):
            self.refuse("has a bool that is neither 0 nor 1")
        return np.frombuffer(content, dtype)

    def _refill(self, nbytes: int) -> None:
        begin = self.offset
        left = self._content.size - begin
        if nbytes > left:
            self.refuse(f"was cut short: it takes {nbytes} bytes more, and {left} are left")
        if begin + nbytes > LARGEST_HEADER:
            self.refuse(f"ends after the {LARGEST_HEADER} bytes that are read of metadata and names")
        window = bytearray(min(max(nbytes, _WINDOW), left))
        self._content.read_into(memoryview(window), begin)
        self._window, self._at, self._end = bytes(window), 0, begin + len(window)
