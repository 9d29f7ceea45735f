"""What the templates define by hand: names that the spec must keep clear of, and names that it may refer to."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from opgen.model import Method, Spec
from opgen.problem import Location, Problem, did_you_mean

_FUNCTION = re.compile(r"^def ([a-z]\w*)\(", re.MULTILINE)
_CLASS = re.compile(r"^class (\w+)\(", re.MULTILINE)
# A method of a class, and the names that instances have room for. Templates are read as text: not all are Python yet.
_METHOD = re.compile(r"^    (?:async )?def ([a-z]\w*)\(", re.MULTILINE)
_SLOTS = re.compile(r"^    __slots__ = \((.*)\)$", re.MULTILINE)


def check_templates(spec: Spec, package: Path, problems: list[Problem]) -> None:
    """Note the names of the spec that clash with those in the templates of the package, or that they lack."""
    functors = [functor for kind in spec.functors.values() for functor in kind.functors]
    fronts = [method for method in spec.storage_methods() if method.tensor is not None]
    tensor = [(functor.name, functor.location) for functor in functors]
    tensor += [(method.tensor.name, method.location) for method in fronts if method.tensor is not None]
    storage = [(method.name, method.location) for method in spec.storage_methods()]
    device = [(backend.name, Location(backend.path)) for backend in spec.backends]
    device += [(method.name, method.location) for method in spec.device_methods]
    _check_clear("a tensor", tensor, package, "tensor/*.py", problems)
    _check_clear("a storage", storage, package, "storage/base.py.j2", problems)
    _check_clear("a device", device, package, "device.py.j2", problems)
    _check_known(spec, package, problems)


def _check_clear(
    owner: str, names: Iterable[tuple[str, Location]], package: Path, pattern: str, problems: list[Problem]
) -> None:
    taken: dict[str, object] = {}
    for file in sorted(package.glob(pattern)):
        shown = Path("templates", file.relative_to(package.parent)).as_posix()
        taken.update(dict.fromkeys(_members(file), shown))
    for name, location in names:
        if name in taken:
            message = f"{owner} has '{name}' already, from {taken[name]}; choose another name"
            problems.append(Problem(location, message))
        taken.setdefault(name, location)


def _members(file: Path) -> Iterator[str]:
    text = _text(file)
    yield from _METHOD.findall(text)
    for slots in _SLOTS.findall(text):
        yield from re.findall(r"\w+", slots)


def _text(file: Path) -> str:
    """A template's text; nothing where it cannot be read, which `render` notes."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _check_known(spec: Spec, package: Path, problems: list[Problem]) -> None:
    """Note checks and errors of methods that the package does not have."""
    checks = _FUNCTION.findall(_text(package / "check.py"))
    errors = _CLASS.findall(_text(package / "error.py"))
    methods: tuple[Method, ...] = (*spec.storage_methods(), *spec.device_methods)
    for method in methods:
        for item in method.checks:
            if checks and item.call.name not in checks:
                message = f"unknown check '{item.call.name}' of method '{method.name}'"
                problems.append(Problem(item.location, message + did_you_mean(item.call.name, checks)))
        for name, location in method.errors.items():
            if errors and name not in errors:
                message = f"unknown error '{name}' of method '{method.name}'"
                problems.append(Problem(location, message + did_you_mean(name, errors)))
