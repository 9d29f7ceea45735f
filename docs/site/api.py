"""The pages of the API reference. `api.yaml` says which names are on which page, and autodoc writes their entries."""

import inspect
import zlib
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import tallow
import yaml
from tallow.runtime.tensor.equivalents import EQUIVALENTS
from tallow.support_table import TABLE

PACKAGE = tallow.__name__
# The page whose classes have no members here: the pages of ops have them.
BARE = "internals"
_PAGES = Path(__file__).with_name("api.yaml")
_INDEX = f"""# API reference

Every public name of `{PACKAGE}`, by subject: its signature, what it does, its dtypes and gradient, an example, and its
names in NumPy and PyTorch. `help(tl.Tensor.reshape)` prints the same text in Python. The examples run as tests; all of
them begin with the imports below. Sets of dtypes are those of the [support matrix](../reference/matrix.md): `float` is
bf16, f16, f32, f64 and the floats of 8 bits, `real` these and the integers, `number` these and complex numbers, `all`
these and `bool`. Gradients have gradients themselves, of any order.

```python
import numpy as np
import {PACKAGE} as tl
```

"""


class Page(NamedTuple):
    """A page, and the names on it, which are attributes of the package."""

    key: str
    title: str
    doc: str
    names: tuple[str, ...]


class Entry(NamedTuple):
    """A public name, and the directive that documents it; the members of a class are below it."""

    name: str
    directive: str
    members: tuple["Entry", ...] = ()


@cache
def pages() -> tuple[Page, ...]:
    """The pages in their order."""
    pages = yaml.safe_load(_PAGES.read_text(encoding="utf-8"))
    return tuple(Page(key, own["title"], own["doc"].strip(), tuple(own["names"].split())) for key, own in pages.items())


def resolve(name: str) -> object:
    """Look a name up; an attribute of a class is returned as the class defines it, such as a property."""
    owner, attribute = owner_of(name)
    # A field may have no default, and so be no attribute of its class.
    return inspect.getattr_static(owner, attribute, None) if inspect.isclass(owner) else getattr(owner, attribute)


def owner_of(name: str) -> tuple[object, str]:
    """Split a name into the module or class that has the attribute, and the name of the attribute."""
    *path, attribute = name.split(".")
    owner: object = tallow
    for position, part in enumerate(path, 1):
        # The package may have a function of a module's name.
        value = getattr(owner, part, None)
        owner = value if inspect.isclass(value) else import_module(".".join([PACKAGE, *path[:position]]))
    return owner, attribute


@cache
def entries() -> dict[str, tuple[Entry, ...]]:
    """The entries of each page, by its key."""
    return {page.key: tuple(_entry(name, has_members=page.key != BARE) for name in page.names) for page in pages()}


@cache
def _classes() -> dict[object, str]:
    """The classes that have an entry, and the name of it."""
    classes: dict[object, str] = {}
    for page in pages():
        for name in page.names:
            if inspect.isclass(value := resolve(name)):
                classes.setdefault(value, name)
    return classes


def _entry(name: str, *, has_members: bool) -> Entry:
    value = resolve(name)
    if not inspect.isclass(value):
        return Entry(name, _directive(name))
    if _classes()[value] != name:
        return Entry(name, "data")
    if issubclass(value, BaseException):
        return Entry(name, "autoexception")
    # The methods of tensors are on the pages of their subjects.
    names = members(value) if has_members and value is not tallow.Tensor else ()
    return Entry(name, "autoclass", tuple(Entry(each, _directive(each)) for each in (f"{name}.{it}" for it in names)))


def members(owner: type) -> Iterator[str]:
    """The public attributes of a class that the package defines, without those of a base that has an entry."""
    bases = [base for base in owner.__mro__[1:] if base in _classes()]
    names = [*owner.__members__] if issubclass(owner, Enum) else []
    names += [each.name for each in fields(owner)] if is_dataclass(owner) else []
    for name in dict.fromkeys([*names, *dir(owner)]):
        home = next((each for each in owner.__mro__ if name in vars(each) or name in _annotations(each)), object)
        is_ours = home.__module__.partition(".")[0] == PACKAGE and not name.startswith("_")
        # Methods that return storages are documented on the pages of ops.
        makes_storages = _result(owner, name) in ("Storage", "QStorage")
        if is_ours and not makes_storages and not any(hasattr(base, name) for base in bases):
            yield name


def _result(owner: type, name: str) -> str:
    result = getattr(getattr(owner, name, None), "__annotations__", {}).get("return")
    return result if isinstance(result, str) else getattr(result, "__name__", "")


def _annotations(owner: type) -> dict[str, object]:
    annotations: dict[str, object] = vars(owner).get("__annotations__", {})
    return annotations


def _directive(name: str) -> str:
    owner, attribute = owner_of(name)
    value = resolve(name)
    if isinstance(value, property):
        return "autoproperty"
    if inspect.isclass(owner) and (not callable(getattr(owner, attribute, None)) or inspect.isdatadescriptor(value)):
        return "autoattribute"
    return "automethod" if inspect.isclass(owner) else "autofunction"


def texts() -> Iterator[tuple[str, str]]:
    """The pages as MyST, by their paths."""
    listed = "\n".join(page.key for page in pages())
    yield "index.md", f"{_INDEX}```{{toctree}}\n:maxdepth: 1\n\n{listed}\narray-api\n```\n"
    for page in pages():
        own = entries()[page.key]
        lines = [f".. currentmodule:: {PACKAGE}", "", ".. autosummary::", "   :nosignatures:", ""]
        lines += [f"   {entry.name}" for entry in own if entry.directive != "data"]
        lines += ["", ".. rubric:: Details", ""]
        lines += [line for entry in own for line in _lines(entry)]
        head = [f"# {page.title}", "", f"% {_checksum(own):08x}", "", page.doc, "", "```{eval-rst}"]
        yield f"{page.key}.md", "\n".join([*head, *lines, "```", ""])
    yield "array-api.md", _standard()


def _checksum(shown: tuple[Entry, ...]) -> int:
    """Return a checksum of all that the entries are built from, so that Sphinx rereads a page when it changes."""
    texts = [source.read_text(encoding="utf-8") for source in sorted(Path(__file__).parent.glob("*.py"))]
    texts.append(TABLE)
    for entry in (each for one in shown for each in (one, *one.members)):
        value = resolve(entry.name)
        function = getattr(value, "fget", None) or getattr(value, "__func__", value)
        texts += [
            inspect.getdoc(function) or "",
            str(getattr(function, "__annotations__", "")),
            str(EQUIVALENTS.get(entry.name)),
        ]
        texts += [str(getattr(function, "__defaults__", "")), str(getattr(function, "__kwdefaults__", ""))]
    return zlib.crc32("\n".join(texts).encode())


def _lines(entry: Entry) -> Iterator[str]:
    if entry.directive == "data":
        original = _classes()[resolve(entry.name)]
        yield from (f".. py:data:: {PACKAGE}.{entry.name}", "", f"   Another name of :py:class:`{PACKAGE}.{original}`.")
    else:
        yield from (f".. {entry.directive}:: {PACKAGE}.{entry.name}", "")
        yield from (f"   {line}" if line else "" for member in entry.members for line in _lines(member))
    yield ""


def _standard() -> str:
    """List the functions of the array API standard, whose specification documents them."""
    lines = ["# The array API", "", "`tallow.array_api` has the functions of the"]
    lines += ["[array API standard](https://data-apis.org/array-api/latest/API_specification/), which documents them;"]
    lines += ["[the guide](../docs/array-api.md) says how to use it, and where it differs.", ""]
    package = import_module(f"{PACKAGE}.array_api")
    for name, module in (("array_api", package), ("linalg", package.linalg), ("fft", package.fft)):
        lines += [f"## `{PACKAGE}.{name}`", ""]
        if module is not package:
            lines += [f"The namespace has these functions too, as `{PACKAGE}.array_api.{name}`.", ""]
        lines += ["```{eval-rst}", f".. currentmodule:: {PACKAGE}.{name}", ""]
        for each in _functions(module):
            signature = inspect.signature(getattr(module, each))
            summary = (inspect.getdoc(getattr(module, each)) or "").partition("\n\n")[0]
            lines += [f".. py:function:: {each}{signature}", "", f"   {' '.join(summary.split())}", ""]
        lines += ["```", ""]
    return "\n".join(lines)


def _functions(module: object) -> list[str]:
    names = getattr(module, "__all__", None) or [name for name in dir(module) if not name.startswith("_")]
    return [name for name in names if callable(getattr(module, name)) and not inspect.isclass(getattr(module, name))]
