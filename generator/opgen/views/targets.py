"""The view of the facts of GPU architectures."""

import re
from collections.abc import Iterable, Mapping
from itertools import chain
from types import SimpleNamespace as View

from opgen.model.spec import Spec
from opgen.targets import Target
from opgen.views.python import quoted


def kernels_target(spec: Spec) -> View:
    """Return the definitions for each target of kernels; some have the same facts."""
    alike: dict[tuple[tuple[str, object], ...], list[Target]] = {}
    for target in chain.from_iterable(spec.targets.values()):
        alike.setdefault(tuple(_values(target).items()), []).append(target)
    return View(
        groups=[
            View(
                made_from=tuple(target.location for target in targets),
                first=_macro(targets[0]),
                others=[_macro(target) for target in targets[1:]],
                facts=facts,
            )
            for facts, targets in alike.items()
        ]
    )


def _values(target: Target) -> Mapping[str, object]:
    numbers = {"WAVE_SIZE": target.wave_size, "SHARED_BYTES": target.shared_bytes}
    products = {product: _word(name) for product, name in target.products.items()}
    return numbers | dict.fromkeys(target.flags, 1) | products


def kernels_targets(spec: Spec) -> View:
    """The targets of each backend as Python has them."""
    return View(
        backends=[
            View(name=quoted(backend), targets=[_target(target) for target in targets])
            for backend, targets in spec.targets.items()
        ]
    )


def _target(target: Target) -> View:
    lists = {name: _tuple(getattr(target, name)) for name in ("has", "serves") if getattr(target, name)}
    texts = {name: getattr(target, name) for name in ("reported", "generic", "override")}
    texts["taken_for"] = target.like if target.override else None
    return View(
        made_from=(target.location,),
        name=quoted(target.name),
        wave_size=target.wave_size,
        shared_bytes=target.shared_bytes,
        others=lists | {name: quoted(text) for name, text in texts.items() if text is not None},
    )


def _macro(target: Target) -> str:
    return "TARGET_" + re.sub(r"\W", "_", target.name)


def _tuple(texts: Iterable[str]) -> str:
    # Without a comma at the end it stays in one line.
    inner = ", ".join(map(quoted, texts))
    return f"({inner})" if "," in inner else f"({inner},)"


def _word(name: str) -> str:
    """A function's name, or an instruction as a string."""
    return name if name.isidentifier() else f'"{name}"'
