"""A dict of bounded size, for results that a program which repeats itself needs again."""

from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class BoundedCache(dict[Key, Value]):
    """Values by key, cleared when it holds `capacity` of them."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self._capacity = capacity

    def put(self, key: Key, value: Value) -> Value:
        """Store a value and return it; a full cache is cleared first."""
        if len(self) >= self._capacity:
            self.clear()
        self[key] = value
        return value
