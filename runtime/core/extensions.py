"""The registry where upper layers attach functions that lower layers call but cannot import."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

_OF_GRADIENTS: Final = frozenset(
    ("backward", "mean_of_counted", "move", "note_write", "recorded_blocks", "recorded_storage")
)


class Extensions:
    """Functions that upper layers contribute: each attribute is set once, by `provide`, when its layer is imported."""

    __slots__ = (
        "_provided",
        "array_api",
        "array_namespace",
        "backward",
        "batched_calls",
        "composed",
        "device_class",
        "gradients",
        "is_cast",
        "mean_of_counted",
        "move",
        "narrowed",
        "note_write",
        "recorded_blocks",
        "recorded_storage",
        "widened",
        "without_autocast",
    )

    # Of the dispatch.
    device_class: Any
    """The class Device, which makes storages and is therefore defined after their classes."""

    # Of the gradients.
    note_write: Callable[[Any], None]
    """Notes that a storage is written to whose elements gradients need."""
    # The methods of these two classes take a call over if one of its operands is recorded.
    recorded_storage: Any
    recorded_blocks: Any
    # Of function transforms.
    batched_calls: Any
    """Its methods take a call over if one of its operands is batched: see `vmap`."""
    narrowed: Callable[..., tuple[Any, ...]]
    """Converts operands of products of matrices as a block of `autocast` says."""
    widened: Callable[..., tuple[Any, ...]]
    """Converts operands of what sums up as a block of `autocast` says."""
    is_cast: Callable[[], object]
    """Tells whether this code is in a block of `autocast`."""
    without_autocast: Callable[[], AbstractContextManager[None]]
    """Suspends `autocast`."""
    backward: Callable[..., Any]
    """Implements `Tensor.backward`."""
    move: Callable[..., Any]
    """Copies a recorded tensor to another device."""
    mean_of_counted: Callable[..., Any]
    """The mean of recorded losses, of which some count."""

    composed: Any
    """The module with the functions of storage methods that are composed of tensor methods."""

    # Of the package itself: few programs use these layers, so they are imported on first use.
    array_api: Callable[[str], ModuleType]
    """Imports a module of the array API."""
    array_namespace: Callable[[], ModuleType]
    """Imports the array API as users do: `tallow.array_api`."""
    gradients: Callable[[], ModuleType]
    """Imports the gradients, which then provide what is of them."""

    def __init__(self) -> None:
        self._provided: set[str] = set()

    def provide(self, **contributions: Any) -> None:
        """Attach what a layer contributes; RuntimeError for what is attached already."""
        for name, contribution in contributions.items():
            if name in self._provided:
                raise RuntimeError(f"{name} was provided before; each extension has one provider")
            self._provided.add(name)
            setattr(self, name, contribution)

    if not TYPE_CHECKING:
        # Only called for what is not attached.
        def __getattr__(self, name: str) -> Any:
            if name in _OF_GRADIENTS:
                self.gradients()
            return object.__getattribute__(self, name)


extensions: Final = Extensions()
