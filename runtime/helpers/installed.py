"""Which packages are installed, and what installs those that are not."""

import shlex
from collections.abc import Iterable
from importlib.util import find_spec


def installed(module: str) -> bool:
    """Whether `module` can be imported, without importing it."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def pip_install(requirements: Iterable[str]) -> str:
    """Return the command that installs requirements from an index, or nothing where there are none.

    It names what a package requires and never the package: no index has that, and anyone could register its name.
    """
    names = [each.partition(";")[0].strip() for each in requirements]
    return shlex.join(("pip", "install", *names)) if names else ""


def missing(requirements: Iterable[str]) -> str:
    """Return the reason why a backend is not available whose requirements are not installed."""
    command = pip_install(requirements)
    return f"its packages are not installed; {command}" if command else "its packages are not installed"
