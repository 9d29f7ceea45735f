"""What other libraries call the public names: a page of all of them, and lines for entries and pages of ops."""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import tallow
import yaml
from tallow.runtime.tensor.equivalents import EQUIVALENTS

LIBRARIES = {"numpy": "NumPy", "torch": "PyTorch", "candle": "Candle"}
Facts = Mapping[str, Mapping[str, Any]]


@cache
def facts() -> Facts:
    """What `ops.yaml` says of each op."""
    found: Facts = yaml.safe_load(Path(__file__).with_name("ops.yaml").read_text(encoding="utf-8"))
    return found


def public_name(op: str) -> str | None:
    """The function or method that is an op, or stands on it."""
    own: str = facts().get(op, {}).get("api", f"Tensor.{op}")
    ending = (name for name in EQUIVALENTS if name.endswith(f".{op}"))
    return next((name for name in (own, op, *ending) if name in EQUIVALENTS), None)


def of(name: str) -> dict[str, list[str]]:
    """The names of each library for one of ours."""
    found = {}
    for library, own in zip(("numpy", "torch"), EQUIVALENTS.get(name, ("", "")), strict=True):
        found[library] = own.split()
    candle = (own["candle"] for op, own in facts().items() if "candle" in own and public_name(op) == name)
    return {**found, "candle": [*dict.fromkeys(candle)]}


def line(name: str) -> str:
    """What the libraries call it, in Markdown; empty where none has it."""
    parts = [f"{LIBRARIES[key]} {_listed(own)}" for key, own in of(name).items() if own]
    return ", ".join(parts)


def page() -> str:
    """The table of all names, in MyST."""
    head = [tallow.__name__, *LIBRARIES.values()]
    table = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *_rows())]
    text = (
        "What tallow, NumPy, PyTorch and Candle call a function. NumPy's names are below `numpy`, PyTorch's below "
        "`torch`; Candle's are methods of `Tensor`, or paths below `candle_nn`. A dash means that there is no single "
        "function."
    )
    return "\n".join(["# Names in other libraries", "", text, "", *table, ""])


def _rows() -> Iterator[list[str]]:
    for name in EQUIVALENTS:
        columns = [_listed(own) or "–" for own in of(name).values()]
        yield [f"{{py:obj}}`{name} <{tallow.__name__}.{name}>`", *columns]


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
