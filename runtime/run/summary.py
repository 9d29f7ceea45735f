"""The description of a model and of the memory that it takes, in two lines."""

from __future__ import annotations

import math
from collections import Counter
from typing import Final

from ..files.gguf import GgufFile
from ..models import ModelRuntime

_LARGE: Final = {10**12: "T", 10**9: "B", 10**6: "M", 10**3: "K"}
_BYTES: Final = {1 << 30: "GiB", 1 << 20: "MiB", 1 << 10: "KiB"}


def describe(file: GgufFile) -> str:
    """The name, the architecture, the parameters and the formats of the weights of a file."""
    architecture = str(file.metadata.get("general.architecture", "unknown"))
    name = file.metadata.get("general.name")
    counts: Counter[str] = Counter()
    for tensor in file.values():
        counts[tensor.dtype.name] += math.prod(tensor.shape)
    total, nbytes = counts.total(), sum(tensor.nbytes for tensor in file.values())
    # The norms of a quantized model are floats.
    formats = [dtype for dtype, count in counts.most_common() if count * 100 >= total]
    shown = f"{name} ({architecture})" if isinstance(name, str) and name else architecture
    bits = f"{8 * nbytes / max(total, 1):.1f} bits each"
    return f"model: {shown}, {_scaled(total, _LARGE)} parameters in {', '.join(formats)}, {bits}"


def describe_memory(runtime: ModelRuntime, devices: int) -> str:
    """The memory of the weights and of the context, and the device."""
    weights, context, most = runtime.total_weight_memory(), runtime.cache.max_seq_len, runtime.config.context
    of = f" of {most}" if context < most else ""
    beyond = f"; the model was trained for {most}, and may write nonsense after these" if context > most else ""
    each = f" on each of {devices} devices, here" if devices > 1 else " on"
    cache = f"{_scaled(runtime.cache.nbytes, _BYTES)} for a context of {context}{of} tokens"
    return f"memory: {_scaled(weights, _BYTES)} of weights and {cache}{each} {runtime.cache.device.label}{beyond}"


def _scaled(number: int, units: dict[int, str]) -> str:
    unit, name = next(((unit, name) for unit, name in units.items() if number >= unit), (1, ""))
    text = f"{number / unit:.3g}" if unit > 1 else str(number)
    return f"{text} {name}".rstrip()
