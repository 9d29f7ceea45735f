"""The metadata of a model, of which every key is used, has no effect or is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..base.error import InvalidArgument, describe
from .decoders import MODULES

_OPERATION: Final = "ModelConfig"
_ARCHITECTURE: Final = "general.architecture"
_TYPE: Final = "general.type"
_PARTS: Final = "split.count"
# Keys that begin so are about a file, or about its tokens, which Tokenizer reads.
_ABOUT_FILES: Final = ("general.", "split.", "tokenizer.", "quantize.")
# Keys of an architecture that no result depends on.
_WITHOUT_EFFECT: Final = frozenset(
    {
        "attention.layer_norm_epsilon",
        # What windows repeat, which are refused.
        "attention.sliding_window_pattern",
        "pooling_type",
        # How yarn interpolates, which is refused.
        "rope.scaling.finetuned",
        "rope.scaling.original_context_length",
        "rope.scaling.yarn_beta_fast",
        "rope.scaling.yarn_beta_slow",
        "tensor_data_layout",
        "vocab_size",
    }
)
# Keys that change nothing where they have one of these values, and what cannot be run where they have another.
_NEUTRAL: Final[Mapping[str, tuple[Any, ...]]] = {
    **dict.fromkeys(
        (
            "attention.clamp_kqv",
            "attention.max_alibi_bias",
            "attention.shared_kv_layers",
            "attention.temperature_scale",
            "attn_logit_softcapping",
            "expert_count",
            "expert_feed_forward_length",
            "expert_group_count",
            "expert_group_used_count",
            "expert_shared_count",
            "expert_shared_feed_forward_length",
            "expert_used_count",
            "final_logit_softcapping",
            "leading_dense_block_count",
            "n_deepstack_layers",
            "nextn_predict_layers",
            "rope.scaling.yarn_log_multiplier",
            "router_logit_softcapping",
        ),
        (0,),
    ),
    **dict.fromkeys(
        (
            "attention.output_scale",
            "embedding_scale",
            "logit_scale",
            "residual_scale",
            "rope.scaling.alpha",
            "rope.scaling.attn_factor",
            "rope.scaling.yarn_attn_factor",
        ),
        (1,),
    ),
    "attention.causal": (True,),
    # A negative number asks for the default, which is 0 without yarn.
    "rope.scaling.yarn_ext_factor": (0, -1),
    "swin_norm": (False,),
    "use_parallel_residual": (False,),
}


class Keys:
    """The values of an architecture's keys. A key that was read is used; `unused` accounts for all others."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        if not isinstance(metadata, Mapping):
            raise InvalidArgument(_OPERATION, f"metadata must be those of a GGUF file, not {describe(metadata)}")
        self._metadata = metadata
        self._used: set[str] = set()
        architecture = metadata.get(_ARCHITECTURE)
        if not isinstance(architecture, str):
            raise InvalidArgument(_OPERATION, f"metadata: key '{_ARCHITECTURE}' is missing; this is no file of a model")
        self.architecture = architecture
        if architecture not in MODULES:
            raise InvalidArgument(
                _OPERATION, f"metadata: architecture '{architecture}' is not known; known are {', '.join(MODULES)}"
            )
        kind, parts = metadata.get(_TYPE, "model"), metadata.get(_PARTS, 1)
        if not (isinstance(kind, str) and kind == "model"):
            reason = f"key '{_TYPE}' is {describe(kind)} and not 'model'; open the file of the model itself"
            raise InvalidArgument(_OPERATION, f"metadata: {reason}")
        # Files that are not split may say 0.
        if not _is_any_of(parts, (0, 1)):
            reason = f"key '{_PARTS}' is {describe(parts)}, so this is part of a model; join with gguf-split --merge"
            raise InvalidArgument(_OPERATION, f"metadata: {reason}")

    def refused(self, key: str, reason: str) -> InvalidArgument:
        """Return the error that a model with this value of a key cannot be run."""
        return InvalidArgument(_OPERATION, f"metadata: key '{self.architecture}.{key}' {reason}; use another model")

    def __contains__(self, key: str) -> bool:
        return f"{self.architecture}.{key}" in self._metadata

    def integer(self, key: str, default: int | None = None) -> int:
        """Return an integer."""
        value: int = self._value(key, (int,), "an integer", default)
        return value

    def real(self, key: str, default: float | None = None) -> float:
        """Return a number as a float."""
        return float(self._value(key, (int, float), "a number", default))

    def text(self, key: str, default: str) -> str:
        """Return a text."""
        value: str = self._value(key, (str,), "a text", default)
        return value

    def require(self, key: str, expected: int, what: str) -> None:
        """Refuse another integer than the expected one, which means what cannot be run."""
        if self.integer(key, expected) != expected:
            raise self.refused(key, f"is {self.integer(key)} and not {expected}: {what} cannot be run")

    def unused(self) -> tuple[str, ...]:
        """Return the keys that change nothing, or refuse one that may change something."""
        prefix = f"{self.architecture}."
        unused = []
        for name, value in self._metadata.items():
            key = name.removeprefix(prefix)
            if key in self._used or name.startswith(_ABOUT_FILES):
                continue
            neutral = _NEUTRAL.get(key, ())
            if not name.startswith(prefix) or key in _WITHOUT_EFFECT or _is_any_of(value, neutral):
                unused.append(name)
            elif neutral:
                raise self.refused(key, f"is {describe(value)} and not {neutral[0]}, which cannot be run")
            else:
                raise self.refused(key, "is used by no step of the model")
        return tuple(unused)

    def _value(self, key: str, kinds: tuple[type, ...], what: str, default: Any) -> Any:
        self._used.add(key)
        value = self._metadata.get(f"{self.architecture}.{key}", default)
        if value is None:
            raise self.refused(key, "is missing")
        if type(value) not in kinds:
            raise self.refused(key, f"must be {what}, not {describe(value)}")
        return value


def _is_any_of(value: Any, numbers: tuple[Any, ...]) -> bool:
    return isinstance(value, bool | int | float) and value in numbers
