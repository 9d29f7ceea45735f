"""The contents of entries of the API reference: the docstring in reStructuredText, then dtypes, gradient and names."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opgen.matrix import op_cells
from opgen.model.methods import Method
from opgen.model.spec import Spec
from opgen.project import read_spec

from docs.site import api, attributes, names, observed

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_ROOT = Path(__file__).parents[2]
_CODE = re.compile(r"`([^`]*)`")
_NAME = re.compile(r"[A-Za-z_][\w.]*")
# Marks of reStructuredText that mean themselves in docstrings.
_MARKS = re.compile(r"([\\*|_])")
# Replacements in signatures: parameters that only refuse calls, defaults that mean "required", enum members, and unions
# that have a name.
_SIGNATURE = {
    r"(?:, )?\*{1,2}\w+: (?:typing\.)?Never": "",
    r" ?= ?<required>": "",
    r"<(DType\.\w+): '\w+'>": r"\1",
    r"DType \| str \| np\.dtype\[Any\] \| type\[np\.generic\]": "DTypeLike",
}
# The sets of dtypes of the spec that readers know.
_SETS = ("all", "number", "real", "integer", "float", "complex")


def setup(application: Sphinx) -> dict[str, bool]:
    """Connect the functions that write entries."""
    application.connect("autodoc-process-docstring", _docstring)
    application.connect("autodoc-process-signature", _signature)
    return {"parallel_read_safe": True}


def _signature(_: Sphinx, what: str, name: str, *values: Any) -> tuple[str | None, str | None]:
    """Show what callers may pass, and the class instead of `Self`."""
    del what
    signature, result = (text and re.sub(r"\bSelf\b", name.split(".")[-2], text) for text in values[-2:])
    for pattern, text in _SIGNATURE.items():
        signature = signature and re.sub(pattern, text, signature)
    return signature and signature.replace("(, ", "("), result


def _docstring(_: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]) -> None:
    """Replace a docstring by reStructuredText, with the facts of the entry below it."""
    del value, options
    if what == "attribute":
        owner, attribute = api.owner_of(name.removeprefix(f"{api.PACKAGE}."))
        text = attributes.docstring_of(owner, attribute) if inspect.isclass(owner) else ""
        lines[:] = text.splitlines() or lines
    lines[:] = restructured(lines)
    lines += ["", *facts(name.removeprefix(f"{api.PACKAGE}.")), ""]


def restructured(lines: Sequence[str]) -> list[str]:
    """A docstring in reStructuredText: sessions unchanged, indented lines as code, everything else as text."""
    output: list[str] = []
    kind = ""
    for line in lines:
        before, kind = kind, _kind(line, kind)
        if kind == "code" and before == "blank":
            output += [".. code-block:: python", ""]
        output.append(_text(line) if kind == "text" else line)
    return output


def _kind(line: str, before: str) -> str:
    if not line:
        return "blank"
    if line.startswith(">>>") or before == "session":
        return "session"
    return "code" if line.startswith("    ") and before != "text" else "text"


def _text(line: str) -> str:
    """A line of text: identifiers in backticks become links where they resolve, other code literals."""
    return "".join(
        _code(part) if position % 2 else _MARKS.sub(r"\\\1", part) for position, part in enumerate(_CODE.split(line))
    )


def _code(text: str) -> str:
    if text in _public():
        return f"`{text} <{api.PACKAGE}.{text}>`"
    # Sphinx resolves names of the class that a docstring belongs to.
    return f"`{text}`" if _NAME.fullmatch(text) else f"``{text}``"


@cache
def _public() -> set[str]:
    return {name for page in api.pages() for name in page.names}


def facts(name: str) -> Iterator[str]:
    """The dtypes and the gradient of an entry, and what other libraries call it, as a list of fields."""
    owner, _, method = name.rpartition(".")
    if owner == "Tensor":
        yield from _tensor_facts(method)
    for key, own in names.of(name).items():
        if own and key != "candle":
            yield f":{names.LIBRARIES[key]}: {', '.join(f'``{key}.{each}``' for each in own)}"


def _tensor_facts(name: str) -> Iterator[str]:
    taken, gradient, link = {*observed.dtypes_of(name)}, observed.gradient_of(name), ""
    text = "yes" if gradient is not None and gradient.exists else "none"
    if name in _methods():
        method, op = _methods()[name]
        taken |= {*(_spec().op_dtypes(method, op) or ())}
        link = f"; :doc:`on each backend </reference/ops/{name}>`"
        text = _gradient(method, op, text)
    if taken:
        yield f":Dtypes: {', '.join(words(taken))}{link}"
    if gradient is not None:
        yield f":Gradient: {text}"


def words(dtypes: set[str]) -> list[str]:
    """Summarise dtypes by the largest sets of the spec that they cover."""
    covered, left = [], {*dtypes}
    for name in _SETS:
        own = {*_spec().sets[name]}
        if own <= dtypes and own & left:
            covered.append(name)
            left -= own
    return [*covered, *(name for name in _spec().sets["all"] if name in left)]


@cache
def _spec() -> Spec:
    return read_spec(_ROOT)


@cache
def _methods() -> dict[str, tuple[Method, str | None]]:
    """The methods of tensors of the spec, and ops of them, by the names of ops or methods."""
    spec = _spec()
    return {
        op or method.name: (method, op)
        for method in spec.methods
        for op in spec.ops(method)
        if method.operands and not method.holds_blocks
    }


def _gradient(method: Method, op: str | None, observed: str) -> str:
    if method.custom_class is not None:
        return "that of the op, if it defines `bwd`"
    if any(cell.gradient for cell in op_cells(_spec(), method, op)):
        return "yes" if observed == "yes" else "zero"
    none = method.gradient.none if method.gradient is not None else None
    return f"none: {none}" if none else "none"
