"""The libraries of the kernels for the host: those that came with the package, or else compiled on this machine."""

from __future__ import annotations

import ctypes
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Final

from ....kernels.host_arguments import FAMILIES, TARGETS
from ...doctor.finding import Finding
from ...helpers.threads import get_threads
from ...kernels import code_object
from ...kernels.code_cache import CodeCache, cache_folder
from .host_compiler import CannotCompile, HostCompiler, advice, compilers, is_supported, load

POOL: Final = "span"
"""The family whose library has the threads too."""


def find() -> dict[str, ctypes.CDLL] | None:
    """The library of each family, for the best target that this machine is.

    None where there is none and none can be made, of which a warning tells, or where NumPy is to do everything. What
    is compiled here is kept for later processes; it takes up to a minute.
    """
    if get_threads() == 0:
        return None
    found = _shipped()
    if found is not None:
        return found[1]
    try:
        return _compiled()
    except CannotCompile as error:
        warnings.warn(
            f"NumPy does the CPU's work, for most ops many times slower: {error}", RuntimeWarning, stacklevel=2
        )
        return None


def _shipped() -> tuple[str, dict[str, ctypes.CDLL]] | None:
    """A target, and its libraries that `opgen compile` made."""
    for target in TARGETS:
        if all(_current(target, family) for family in FAMILIES):
            try:
                paths = {family: code_object.path_of(target, family) for family in FAMILIES}
                libraries = {family: ctypes.CDLL(str(path)) for family, path in paths.items()}
            except OSError:
                continue
            if is_supported(libraries[POOL]):
                return target, libraries
    return None


def _current(target: str, family: str) -> bytes | None:
    return code_object.current(code_object.path_of(target, family))


def _compiled() -> dict[str, ctypes.CDLL] | None:
    try:
        compiler = _compiler()
        target = compiler.target()
        if target is None:
            return None
        codes = {family: _current(target, family) or compiler.kept(family, target) for family in FAMILIES}
        missing = [family for family, code in codes.items() if code is None]
        if missing:
            codes |= compiler.compiled(missing, target, _progress(target, len(missing)))
        return load({family: code for family, code in codes.items() if code is not None})
    except FileNotFoundError as error:
        raise CannotCompile(f"{error.filename} is missing; reinstall tallow") from error
    except OSError as error:
        mend = "set TMPDIR to a folder that programs may run from"
        raise CannotCompile(f"what was compiled does not load: {error}; {mend}") from error


def _compiler() -> HostCompiler:
    cache = CodeCache(cache_folder())
    trouble = cache.trouble()
    # To compile for a minute in each process would be worse than NumPy.
    if trouble is not None:
        raise CannotCompile(trouble)
    return HostCompiler(cache)


def _progress(target: str, total: int) -> Callable[[], None]:
    """Say that a program waits, and why; the function is called whenever one of so many libraries is finished."""
    text = f"tallow compiles its kernels for the CPU ({target}), once on this machine"
    stream, finished = sys.stderr, 0
    is_terminal = stream is not None and stream.isatty()

    def tell() -> None:
        nonlocal finished
        if is_terminal:
            print(f"\r{text}: {finished} of {total}", end="" if finished < total else "\n", file=stream, flush=True)
        finished += 1

    if stream is not None and not is_terminal:
        print(f"{text}; it takes up to a minute", file=stream, flush=True)
    tell()
    return tell


def examine() -> Iterator[Finding]:
    """What there is of the kernels, and what makes those that are missing. Nothing is compiled."""
    if get_threads() == 0:
        yield Finding("kernels", None, "NumPy does everything, as TALLOW_THREADS=0 says")
        return
    found = _shipped()
    if found is not None:
        yield Finding("kernels", True, f"built ahead for {found[0]}, {get_threads()} threads")
        return
    built = [target for target in TARGETS if code_object.path_of(target, POOL).is_file()]
    stale = [target for target in built if not all(_current(target, family) for family in FAMILIES)]
    if stale:
        mend = "they are compiled anew at the first use; in a checkout run 'opgen compile --host'"
        yield Finding("kernels built ahead", False, f"out of date for {', '.join(stale)}: sources have changed", mend)
    else:
        state = f"none for this machine, only for {', '.join(built)}" if built else "none in the package"
        yield Finding("kernels built ahead", None, state)
    try:
        compiler = _compiler()
        target = compiler.known_target()
    except CannotCompile as error:
        yield Finding("kernels", False, f"NumPy does the work: {error}")
        return
    if target is not None and all(_current(target, family) or compiler.kept(family, target) for family in FAMILIES):
        yield Finding("kernels", True, f"compiled for {target}, in {cache_folder()}, {get_threads()} threads")
        return
    every = {each.path: each for wanted in TARGETS for each in compilers(wanted)}
    if not every:
        yield Finding("kernels", False, "NumPy does the work: no compiler was found to make them", advice())
        return
    path = next(iter(every))
    yield Finding("kernels", None, f"not compiled yet; {path} makes them at the first use, which takes up to a minute")
