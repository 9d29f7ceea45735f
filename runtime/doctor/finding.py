"""The findings about a backend."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from ..base.error import BackendUnavailable, TallowError
from ..helpers.installed import installed, pip_install


class Finding(NamedTuple):
    """One thing that a backend needs, or can use."""

    part: str
    """A module, a runtime, a library, a compiler, or kernels."""
    is_present: bool | None
    """None for what is not needed: the backend works without it, or makes it when it is needed."""
    text: str
    """A description of it, or of what is missing."""
    fix: str = ""
    """The advice."""
    files: Sequence[str] = ()
    """The files that it was loaded from."""


def modules(names: Iterable[str], requires: Sequence[str]) -> Iterator[Finding]:
    """Yield the state of each module of Python; pip installs the missing ones by `requires`."""
    from importlib.metadata import version

    packages = packages_of_modules()
    for name in names:
        if not installed(name):
            yield Finding(name, False, "the module is not installed", pip_install(requires))
            continue
        providers = dict.fromkeys(packages.get(name.partition(".")[0], ()))
        versions = [f"{package} {version(package)}" for package in providers]
        yield Finding(name, True, ", ".join(versions) or "a module that no package brought")


@cache
def packages_of_modules() -> Mapping[str, Sequence[str]]:
    """The packages that brought each module at the top, which takes reading the lists of files of all of them."""
    from importlib.metadata import packages_distributions

    return packages_distributions()


def reason(error: TallowError) -> str:
    """Why something is missing, below the name of its backend."""
    return error.reason if isinstance(error, BackendUnavailable) else str(error)
