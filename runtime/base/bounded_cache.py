"""What a program that repeats itself finds again."""

from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class BoundedCache(dict[Key, Value]):
    """Values by key, of which a program that never repeats itself keeps no more than `most`."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def keep(self, key: Key, value: Value) -> Value:
        """Keep a value, which is returned; those kept so far go where they are too many."""
        if len(self) >= self._most:
            self.clear()
        self[key] = value
        return value
