"""The sizes of a model, from the metadata of its GGUF file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from ..base.error import InvalidArgument
from .decoders import MODULES
from .keys import Keys

_OPERATION: Final = "ModelConfig"
# What models that do not say so were trained with.
_ROPE_BASE: Final = 10_000.0


@dataclass(frozen=True)
class ModelConfig:
    """The sizes of a decoder. `validate` is called on every new one.

    >>> from tallow import models
    >>> config = models.ModelConfig("llama", 2, 64, 128, 4, 2, 16, 512, 1e-5)
    >>> config.layers, config.rope_base
    (2, 10000.0)
    """

    architecture: str
    """The name of the architecture, such as `llama`."""
    layers: int
    """The number of layers."""
    width: int
    """The size of the hidden state of a token."""
    hidden: int
    """The number of hidden units of a feed-forward network."""
    heads: int
    """The number of heads of queries."""
    key_heads: int
    """The number of heads of keys and values, which divides that of queries."""
    head_dim: int
    """The size of a head."""
    context: int
    """The number of tokens that the model was trained for."""
    epsilon: float
    """The number that normalisations add to the mean square."""
    rope_base: float = _ROPE_BASE
    """The base of the frequencies of rotary embeddings."""
    rope_scale: float = 1.0
    """The divisor of positions."""

    def __post_init__(self) -> None:
        self.validate()

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Self:
        """The config that a file has below its architecture's name.

        InvalidArgument names the key that is wrong, and one that stands for what cannot be run.
        """
        return cls.of(metadata)[0]

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> tuple[Self, tuple[str, ...]]:
        """As `from_metadata`, with the keys that have no effect."""
        keys = Keys(metadata)
        heads, width = keys.integer("attention.head_count"), keys.integer("embedding_length")
        head_dim = keys.integer("attention.key_length", width // max(heads, 1))
        keys.require("attention.value_length", head_dim, "other sizes of keys and values")
        keys.require("rope.dimension_count", head_dim, "heads of which a part is rotated")
        keys.require("embedding_length_out", width, "outputs of another size")
        scale = 1 / math.sqrt(max(head_dim, 1))
        if not math.isclose(keys.real("attention.scale", scale), scale, rel_tol=1e-6):
            raise keys.refused("attention.scale", f"is not {scale:.6g}; attention with another scale cannot be run")
        context = keys.integer("context_length")
        window = keys.integer("attention.sliding_window", 0)
        if 0 < window < context:
            raise keys.refused("attention.sliding_window", f"is {window}; attention within a window cannot be run")
        config = cls(
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
            rope_scale=_rope_scale(keys),
        )
        return config, keys.unused()

    @property
    def is_mha(self) -> bool:
        """Whether each query head has a key head of its own."""
        return self.key_heads == self.heads

    @property
    def is_mqa(self) -> bool:
        """Whether all query heads share one key head."""
        return self.key_heads == 1 < self.heads

    @property
    def is_gqa(self) -> bool:
        """Whether groups of query heads share key heads, and there are several groups."""
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


def _rope_scale(keys: Keys) -> float:
    """The divisor of positions. As in llama.cpp, a factor without a type is linear, and 0 stands for 1."""
    scaling = keys.text("rope.scaling.type", "linear")
    if scaling not in ("none", "linear"):
        raise keys.refused("rope.scaling.type", f"is '{scaling}'; only none and linear can be run")
    factors = {key: keys.real(key) for key in ("rope.scaling.factor", "rope.scale_linear") if key in keys}
    if not factors and "rope.scaling.type" in keys and scaling == "linear":
        raise keys.refused("rope.scaling.factor", "is missing, which linear scaling needs")
    scale, *others = [factor or 1.0 for factor in factors.values()] or [1.0]
    if others not in ([], [scale]):
        raise keys.refused("rope.scale_linear", f"is {others[0]}, and rope.scaling.factor {scale}")
    return 1.0 if scaling == "none" else scale
