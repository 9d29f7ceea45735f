"""Finding out which packages are installed."""

from importlib.util import find_spec


def installed(module: str) -> bool:
    """Whether `module` can be imported, found out without importing it."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
