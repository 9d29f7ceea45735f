"""Compiles the kernels for the host in a build of the package, as `opgen compile --host` does."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from ..helpers.atomic import replacing
from ..kernels import code_object
from .host_compiler import (
    FAMILIES,
    CannotCompile,
    Compiler,
    cores,
    current,
    first_compiler,
    native_target,
    read_source,
    side_by_side,
)

try:
    import fcntl
except ImportError:  # Windows, for which there are no kernels
    fcntl = None  # type: ignore[assignment]


@cache
def can_compile() -> bool:
    """Return True if a compiler here builds kernels for this machine."""
    try:
        return native_target() is not None
    except CannotCompile:
        return False


def compile_into(folder: Path, say: Callable[[str], object]) -> None:
    """Compile the kernels that the package lacks for this machine to a folder of code objects.

    `say` is called with a line for each step. Raises CannotCompile where no compiler is there, or one fails.
    """
    try:
        target = native_target()
        if target is None:
            say("this machine runs none of the targets of the kernels for the CPU; NumPy computes")
            return
        output = folder / target
        output.mkdir(parents=True, exist_ok=True)
        with _alone(output):
            _compile_missing(target, output, say)
    except OSError as error:
        raise CannotCompile(f"{error.filename}: {error.strerror}") from error


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let one build at a time compile for a folder, so that those that wait find what the first one left."""
    lock = os.open(folder, os.O_RDONLY)
    try:
        if fcntl is not None:
            with suppress(OSError):  # where files have no locks, two may compile at once
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _compile_missing(target: str, folder: Path, say: Callable[[str], object]) -> None:
    missing = [family for family in FAMILIES if not current(target, family)]
    if not missing:
        say(f"the kernels for the CPU ({target}) are up to date")
        return
    compiler, _ = first_compiler(target)
    version = _version(compiler)
    say(f"compiling kernels for the CPU ({target}) with {compiler.path}: {len(missing)} libraries")
    start, count = time.monotonic(), 0

    def compile_one(family: str) -> None:
        nonlocal count
        name = f"{family}.cpp"
        code = compiler.compile(read_source(name), name)
        # As `opgen compile` writes it, for which such a library is up to date.
        sources = {each: _checksum(text.encode()) for each, text in code_object.sources(name).items()}
        made_of = {"sources": sources, "target": target, "flags": list(compiler.flags), "compiler": version}
        record = {**made_of, "code": _checksum(code), "kernels": []}
        file = folder / f"{family}.co"
        # No record may ever describe another library than the one next to it.
        file.with_suffix(".json").unlink(missing_ok=True)
        for path, content in ((file, code), (file.with_suffix(".json"), json.dumps(record).encode())):
            with replacing(path) as stream:
                stream.write(content)
        count += 1
        say(f"compiled {family}, {count} of {len(missing)}, after {time.monotonic() - start:.0f} s")

    side_by_side(compile_one, missing, cores())


def _version(compiler: Compiler) -> str:
    """The version of a compiler, for the flags that `opgen compile` uses."""
    flags = [flag.replace("{target}", compiler.target) for flag in compiler.toolchain.flags]
    command = [compiler.path, *compiler.toolchain.subcommand, *flags, "--version"]
    answer = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60)
    return answer.stdout.strip()


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
