"""Division of items into batches."""

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

T = TypeVar("T")


def batches(
    items: Iterable[T], kind_of: Callable[[T], Hashable], size_of: Callable[[T], int], most: int
) -> list[list[T]]:
    """Items in batches of one kind: as many as are of at most so much together, or one that is larger."""
    all_batches: list[list[T]] = []
    # By kind, the batch that is not full, and its size.
    filling: dict[Hashable, tuple[list[T], int]] = {}
    for item in items:
        kind, size = kind_of(item), size_of(item)
        batch, so_far = filling.get(kind, ([], most))
        if so_far + size > most:
            batch, so_far = [], 0
            all_batches.append(batch)
        batch.append(item)
        filling[kind] = batch, so_far + size
    return all_batches
