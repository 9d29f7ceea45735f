"""Names of public functions in other libraries: the page that lists them, and lines for entries and pages of ops."""

import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any

import tallow
import yaml
from tallow.runtime.tensor.equivalents import EQUIVALENTS
from tallow.runtime.tensor.names import as_call

LIBRARIES = {"numpy": "NumPy", "torch": "PyTorch", "candle": "Candle"}
Facts = Mapping[str, Mapping[str, Any]]


@cache
def facts() -> Facts:
    """Return the contents of `ops.yaml`, by op."""
    by_op: Facts = yaml.safe_load(Path(__file__).with_name("ops.yaml").read_text(encoding="utf-8"))
    return by_op


def public_name(op: str) -> str | None:
    """Return the public function or method for an op; None if there is none."""
    own: str = facts().get(op, {}).get("api", f"Tensor.{op}")
    ending = (name for name in EQUIVALENTS if name.endswith(f".{op}"))
    return next((name for name in (own, op, *ending) if name in EQUIVALENTS), None)


def of(name: str) -> dict[str, list[str]]:
    """Return the names in each library of a public name."""
    numpy, torch = EQUIVALENTS.get(name, ("", ""))
    candle = (own["candle"] for op, own in facts().items() if "candle" in own and public_name(op) == name)
    return {"numpy": numpy.split(), "torch": torch.split(), "candle": [*dict.fromkeys(candle)]}


def line(name: str) -> str:
    """Return a line of Markdown with the names in other libraries; empty if there are none."""
    parts = [f"{LIBRARIES[key]} {_listed(own)}" for key, own in of(name).items() if own]
    return ", ".join(parts)


def page() -> str:
    """Return the table of all names, in MyST."""
    head = [tallow.__name__, *LIBRARIES.values()]
    table = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *_rows())]
    text = (
        "What tallow, NumPy, PyTorch and Candle call a function. NumPy's names are below `numpy`, PyTorch's below "
        "`torch`; Candle's are methods of `Tensor`, or paths below `candle_nn`. A dash means that there is no single "
        "function."
    )
    return "\n".join(["# Names in other libraries", "", text, "", *table, ""])


def differing(library: str) -> str:
    """The table of a library's names that nothing public has, and what does the same, for the guide of its users."""
    ours: dict[str, list[str]] = {}
    for name, own in EQUIVALENTS.items():
        for theirs in getattr(own, library).split():
            ours.setdefault(theirs, []).append(name)
    rows: dict[str, list[str]] = {}
    for theirs in sorted(ours, key=str.lower):
        is_alias = getattr(tallow, theirs, None) in [attrgetter(name)(tallow) for name in ours[theirs]]
        if not is_alias and theirs.rpartition(".")[2] not in {name.rpartition(".")[2] for name in ours[theirs]}:
            rows.setdefault(_listed([_call(name) for name in ours[theirs]]), []).append(theirs)
    head = [f"| {LIBRARIES[library]} | {tallow.__name__} |", "| --- | --- |"]
    return "\n".join([*head, *(f"| {_listed(theirs)} | {call} |" for call, theirs in rows.items())])


def _call(name: str) -> str:
    """The call of a public function, or of a method of `x` or an object named as its class; of a class its name."""
    owner, _, attribute = name.rpartition(".")
    value = attrgetter(name)(tallow)
    if inspect.isclass(value):
        return f"tl.{name}"
    if owner == "Tensor":
        return as_call(f"x.{attribute}", value)
    if owner and inspect.isclass(attrgetter(owner)(tallow)):
        return as_call(f"{owner.lower()}.{attribute}", value)
    return as_call(f"tl.{name}", value)


def _rows() -> Iterator[list[str]]:
    for name in EQUIVALENTS:
        columns = [_listed(own) or "–" for own in of(name).values()]
        yield [f"{{py:obj}}`{name} <{tallow.__name__}.{name}>`", *columns]


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
