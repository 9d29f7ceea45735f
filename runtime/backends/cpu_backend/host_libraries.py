"""The libraries of the kernels for the host: those that came with the package, or were compiled on this machine."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

from ....kernels.host_arguments import FAMILIES, TARGETS
from ...base.error import BackendUnavailable
from ...compilation import background
from ...compilation.host_compiler import (
    CannotCompile,
    HostCompiler,
    advice,
    compilers,
    current,
    is_supported,
    load,
)
from ...doctor.finding import Finding
from ...helpers.threads import get_threads
from ...kernels import code_object
from ...kernels.code_cache import cache_folder

POOL: Final = "span"
"""The family whose library has the threads too."""


class Libraries(dict[str, ctypes.CDLL]):
    """The library of each family, which `load` loads at its first use."""

    def __init__(self, load: Callable[[str], ctypes.CDLL]) -> None:
        self._load = load

    def __missing__(self, family: str) -> ctypes.CDLL:
        return self.setdefault(family, self._load(family))


def find() -> Libraries | None:
    """The library of each family, for the best target that this machine is; None where NumPy computes.

    Nothing is compiled in this process. Where libraries are missing or out of date, a line on stderr says so, and a
    process in the background compiles them for later programs, if there is a compiler.
    """
    # A package may have none.
    if get_threads() == 0 or not FAMILIES:
        return None
    shipped = _shipped()
    if shipped is not None:
        return shipped[1]
    try:
        libraries = _compiled()
        if libraries is not None:
            return libraries
        text = f"{_compile_in_background()} compiles its kernels in the background, for programs that start later"
    except CannotCompile as error:
        text = str(error)
    if sys.stderr is not None:
        line = " ".join(f"tallow: NumPy computes in this process, for most ops many times slower: {text}".split())
        print(line, file=sys.stderr, flush=True)
    return None


def _shipped() -> tuple[str, Libraries] | None:
    """A target, and its libraries that came with the package."""
    checksums = code_object.Checksums()
    for target in TARGETS:
        expected = {family: code_object.recorded(code_object.path_of(target, family), checksums) for family in FAMILIES}
        if None in expected.values():
            continue
        libraries = Libraries(partial(_load_shipped, target, expected))
        with suppress(BackendUnavailable, OSError):
            if is_supported(libraries[POOL]):
                return target, libraries
    return None


def _load_shipped(target: str, expected: Mapping[str, str | None], family: str) -> ctypes.CDLL:
    path = code_object.path_of(target, family)
    if code_object.intact(path, expected[family]) is None:
        reason = f"{path} is damaged, or was replaced since the program began"
        raise BackendUnavailable("cpu", f"{reason}; start it again, or reinstall tallow ('opgen compile --host')")
    return ctypes.CDLL(str(path))


def _compiled() -> Libraries | None:
    """The libraries, of which some or all were compiled on this machine; None if one is missing."""
    try:
        _, codes = _in_cache(HostCompiler(background.open_cache()))
        if not all(codes.values()):
            return None
        libraries = load({family: code for family, code in codes.items() if code is not None})
        return Libraries(libraries.__getitem__)
    except OSError as error:
        fix = "set TMPDIR to a folder that programs may run from"
        raise CannotCompile(f"what was compiled does not load: {error}; {fix}") from error


def _in_cache(compiler: HostCompiler) -> tuple[str | None, dict[str, bytes | None]]:
    """The target that this machine is, as far as that is known, and the library of each family that there is."""
    target = compiler.known_target()
    if target is None:
        return None, dict.fromkeys(FAMILIES)
    return target, {family: current(target, family) or compiler.cached(family, target) for family in FAMILIES}


def _compile_in_background() -> str:
    """Let a process compile the kernels, if none does yet; return the compiler. Raises CannotCompile if none can."""
    path = _compiler_path()
    if path is None:
        raise CannotCompile(f"no compiler was found for its kernels; {advice()}")
    cache = background.open_cache()
    reason = background.failure(cache)
    if reason is not None:
        raise CannotCompile(reason)
    if not background.is_running(cache):
        background.start()
    return path


def _compiler_path() -> str | None:
    """The preferred one of the compilers that are installed."""
    return next((compiler.path for target in TARGETS for compiler in compilers(target)), None)


def diagnose() -> Iterator[Finding]:
    """Report which kernels there are, and what compiles those that are missing. Nothing is compiled."""
    if get_threads() == 0:
        yield Finding("kernels", None, "NumPy does everything, as TALLOW_THREADS=0 says")
        return
    shipped = _shipped()
    if shipped is not None and all(current(shipped[0], family) for family in FAMILIES):
        yield Finding("kernels", True, f"built ahead for {shipped[0]}, {get_threads()} threads")
        return
    built = [target for target in TARGETS if code_object.path_of(target, POOL).is_file()]
    stale = [target for target in built if not all(current(target, family) for family in FAMILIES)]
    if stale:
        fix = "they are compiled anew in the background; in a checkout run 'opgen compile --host'"
        yield Finding("kernels built ahead", False, f"out of date for {', '.join(stale)}: sources have changed", fix)
    else:
        state = f"none for this machine, only for {', '.join(built)}" if built else "none in the package"
        yield Finding("kernels built ahead", None, state)
    try:
        yield _diagnose_cache()
    except CannotCompile as error:
        yield Finding("kernels", False, f"NumPy computes: {error}")


def _diagnose_cache() -> Finding:
    """Report the kernels that are compiled on this machine. Raises CannotCompile where none can be."""
    cache = background.open_cache()
    target, codes = _in_cache(HostCompiler(cache))
    if all(codes.values()):
        return Finding("kernels", True, f"compiled for {target}, in {cache_folder()}, {get_threads()} threads")
    path = _compiler_path()
    if path is None:
        return Finding("kernels", False, "NumPy computes: no compiler was found for them", advice())
    if background.is_running(cache):
        return Finding("kernels", None, f"{path} compiles them at this moment; programs that start later have them")
    reason = background.failure(cache)
    if reason is not None:
        fix = "the next try is in a day, or when a compiler changes"
        return Finding("kernels", False, f"NumPy computes: {reason}", fix)
    return Finding("kernels", None, f"not compiled yet; {path} does it in the background as soon as a program computes")
