"""The sizes of a model, from the metadata of its GGUF file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from ..base.error import InvalidArgument, shown
from .decoders import MODULES

_OPERATION: Final = "ModelConfig"
_ARCHITECTURE: Final = "general.architecture"
# What models that do not say so were trained with.
_ROPE_BASE: Final = 10_000.0


@dataclass(frozen=True)
class ModelConfig:
    """The sizes of a decoder. `validate` is called on each that is made."""

    architecture: str
    layers: int
    width: int
    hidden: int
    heads: int
    key_heads: int
    head_dim: int
    context: int
    """How many tokens the model was made for."""
    epsilon: float
    rope_base: float = _ROPE_BASE
    rope_scale: float = 1.0
    """What positions are divided by."""

    def __post_init__(self) -> None:
        self.validate()

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Self:
        """The config that a file has below its architecture's name. InvalidArgument names the key that is wrong."""
        if not isinstance(metadata, Mapping):
            raise InvalidArgument(_OPERATION, f"metadata must be those of a GGUF file, not {shown(metadata)}")
        keys = _Keys(metadata)
        heads, width = keys.integer("attention.head_count"), keys.integer("embedding_length")
        head_dim = keys.integer("attention.key_length", width // max(heads, 1))
        keys.require("attention.value_length", head_dim, "other sizes of keys and values")
        keys.require("rope.dimension_count", head_dim, "heads of which a part is rotated")
        scaling = keys.text("rope.scaling.type", "none")
        if scaling not in ("none", "linear"):
            raise keys.refused("rope.scaling.type", f"is '{scaling}'; only none and linear can be run")
        context = keys.integer("context_length")
        window = keys.integer("attention.sliding_window", 0)
        if 0 < window < context:
            raise keys.refused("attention.sliding_window", f"is {window}; attention within a window cannot be run")
        return cls(
            architecture=keys.architecture,
            layers=keys.integer("block_count"),
            width=width,
            hidden=keys.integer("feed_forward_length"),
            heads=heads,
            key_heads=keys.integer("attention.head_count_kv", heads),
            head_dim=head_dim,
            context=context,
            epsilon=keys.real("attention.layer_norm_rms_epsilon"),
            rope_base=keys.real("rope.freq_base", _ROPE_BASE),
            rope_scale=keys.real("rope.scaling.factor", 1.0) if scaling == "linear" else 1.0,
        )

    @property
    def is_mha(self) -> bool:
        """Whether each head has keys of its own."""
        return self.key_heads == self.heads

    @property
    def is_mqa(self) -> bool:
        """Whether all heads have the same keys."""
        return self.key_heads == 1 < self.heads

    @property
    def is_gqa(self) -> bool:
        """Whether groups of heads share keys, and there are several groups."""
        return 1 < self.key_heads < self.heads

    def validate(self) -> None:
        """Raise InvalidArgument for an architecture that is not known, and for sizes that no decoder has."""
        if self.architecture not in MODULES:
            known = ", ".join(MODULES)
            raise InvalidArgument(_OPERATION, f"architecture '{self.architecture}' is not known; use one of {known}")
        for name in ("layers", "width", "hidden", "heads", "key_heads", "head_dim", "context"):
            if getattr(self, name) < 1:
                raise InvalidArgument(_OPERATION, f"{name} is {getattr(self, name)}, and must be 1 or more")
        if self.heads % self.key_heads:
            reason = f"key_heads is {self.key_heads}, and must divide the heads, which are {self.heads}"
            raise InvalidArgument(_OPERATION, reason)
        if self.head_dim % 2:
            raise InvalidArgument(_OPERATION, f"head_dim is {self.head_dim}, and must be even to be rotated in pairs")
        for name in ("epsilon", "rope_base", "rope_scale"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise InvalidArgument(_OPERATION, f"{name} is {getattr(self, name)}, and must be above 0")


class _Keys:
    """The values of an architecture's keys."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self._metadata = metadata
        found = metadata.get(_ARCHITECTURE)
        if not isinstance(found, str):
            raise InvalidArgument(_OPERATION, f"metadata: key '{_ARCHITECTURE}' is missing; this is no file of a model")
        self.architecture = found
        if found not in MODULES:
            raise InvalidArgument(
                _OPERATION, f"metadata: architecture '{found}' is not known; known are {', '.join(MODULES)}"
            )

    def refused(self, key: str, reason: str) -> InvalidArgument:
        """The error that what stands behind a key cannot be run."""
        return InvalidArgument(_OPERATION, f"metadata: key '{self.architecture}.{key}' {reason}; use another model")

    def integer(self, key: str, default: int | None = None) -> int:
        """An integer."""
        found: int = self._value(key, (int,), "an integer", default)
        return found

    def real(self, key: str, default: float | None = None) -> float:
        """A number."""
        return float(self._value(key, (int, float), "a number", default))

    def text(self, key: str, default: str) -> str:
        """A text."""
        found: str = self._value(key, (str,), "a text", default)
        return found

    def require(self, key: str, expected: int, what: str) -> None:
        """Refuse another integer than the expected one, which means what cannot be run."""
        if self.integer(key, expected) != expected:
            raise self.refused(key, f"is {self.integer(key)} and not {expected}: {what} cannot be run")

    def _value(self, key: str, kinds: tuple[type, ...], what: str, default: Any) -> Any:
        value = self._metadata.get(f"{self.architecture}.{key}", default)
        if value is None:
            raise self.refused(key, "is missing")
        if type(value) not in kinds:
            raise self.refused(key, f"must be {what}, not {shown(value)}")
        return value
