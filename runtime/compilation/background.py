"""Compiles the kernels for the host in a process of its own, for the programs that start later."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

from ..helpers.checksum import sha256
from ..helpers.private import private_folder
from ..kernels.code_cache import CodeCache, cache_folder
from . import host_compiler
from .host_compiler import TARGETS, CannotCompile, HostCompiler, compilers, cores

_LOCK: Final = "compiling.lock"
# What the process may take in all, on a machine that is busy with other work.
_MAX_SECONDS: Final = 3600
# A failure may have been one of that day, such as a full disk.
_SECONDS_TO_NEXT_TRY: Final = 24 * 3600
_SECONDS_TO_START: Final = 10
_STANDALONE: Final = Path(__file__).with_name("standalone.py")


def open_cache() -> CodeCache:
    """The cache of compiled kernels. Raises CannotCompile if nothing can be cached there."""
    cache = CodeCache(cache_folder())
    trouble = cache.trouble()
    # To compile for a minute in each process would be worse than NumPy.
    if trouble is not None:
        raise CannotCompile(trouble)
    return cache


def compile_missing(cache: CodeCache, jobs: int, done: Callable[[str], None] = lambda _: None) -> str:
    """Compile what the package and the cache lack for this machine; return its target. Raises CannotCompile."""
    try:
        compiler = HostCompiler(cache)
        target = compiler.target()
        if target is None:
            raise CannotCompile(f"this machine runs none of {', '.join(TARGETS)}")
        compiler.compile_missing(target, jobs, done)
    except OSError as error:
        raise CannotCompile(f"{error.filename}: {error.strerror}") from error
    return target


def is_running(cache: CodeCache) -> bool:
    """Return True if a process compiles the kernels at this moment."""
    with cache.exclusive(_LOCK) as is_alone:
        return not is_alone


def failure(cache: CodeCache) -> str | None:
    """Why these sources could not be compiled by these compilers on this machine; None if that is not known."""
    import json  # most programs need none of it

    content = cache.find(_attempt())
    if content is None:
        return None
    record = json.loads(content)
    return str(record["reason"]) if time.time() - record["time"] < _SECONDS_TO_NEXT_TRY else None


def _attempt() -> tuple[str, ...]:
    """The inputs that decide whether a compilation succeeds: the sources and flags, the compilers, and the machine."""
    names = ("threads.hpp", *(f"{family}.cpp" for family in host_compiler.FAMILIES))
    sources = [sha256(repr(host_compiler.made_of(name, TARGETS[0])).encode()).hex() for name in names]
    statuses = {compiler.path: Path(compiler.path).stat() for target in TARGETS for compiler in compilers(target)}
    installed = [(path, status.st_size, status.st_mtime_ns) for path, status in sorted(statuses.items())]
    return ("why kernels were not compiled", *sources, repr(installed), _machine())


def _machine() -> str:
    """The kind of processor, with its instructions where the system lists them."""
    with suppress(OSError), Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.startswith(("flags", "Features")):
                return line
    return os.uname().machine if hasattr(os, "uname") else sys.platform


def start() -> None:
    """Start the process, and return at once. Raises CannotCompile where it cannot run.

    It outlives this process and belongs to none of its groups, so that nothing waits for it.
    """
    import json
    import subprocess

    # In a program that embeds Python, sys.executable may be that program.
    is_python = not hasattr(sys, "frozen") and Path(sys.executable or "").name.startswith(("python", "pypy"))
    if not (hasattr(os, "fork") and is_python):
        raise CannotCompile("its kernels are compiled by a Python that runs as a program of its own; start one")
    package = __name__.partition(".")[0]
    paths = [str(Path(path).absolute()) for path in sys.path]
    argument = json.dumps([package, [*sys.modules[package].__path__], paths])
    command = [sys.executable, "-I", str(_STANDALONE), argument]
    try:
        # The process forks at once, so that this is a short wait, and leaves no child process.
        subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
            timeout=_SECONDS_TO_START,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise CannotCompile(f"the process that compiles its kernels does not start: {error}") from error


def main() -> None:
    """Compile in a process that `start` began, unless another one does."""
    if os.fork():
        os._exit(0)
    _lower_priority()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _end)
    signal.signal(signal.SIGALRM, _give_up)
    signal.alarm(_MAX_SECONDS)
    cache = open_cache()
    with cache.exclusive(_LOCK) as is_alone:
        if is_alone:
            _compile(cache)


def _compile(cache: CodeCache) -> None:
    import json
    import shutil
    import tempfile

    attempt = _attempt()
    # A folder of one name, which this process empties of what a killed one left.
    name = sha256(str(cache_folder()).encode()).hex()[:16]
    scratch = Path(tempfile.gettempdir(), f"tallow-{os.getuid()}-{name}")
    try:
        private_folder(scratch)
        shutil.rmtree(scratch)
        tempfile.tempdir = str(private_folder(scratch))
        compile_missing(cache, max(cores() // 2, 1))
    except (CannotCompile, OSError) as error:
        cache.put(attempt, json.dumps({"reason": str(error), "time": time.time()}).encode())
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _lower_priority() -> None:
    """Give priority to every other process, and be the first to be killed if memory runs out."""
    os.nice(19)
    # Linux may share processors between sessions first, where the number above counts within a session only.
    for file, value in (("autogroup", "19"), ("oom_score_adj", "1000")):
        with suppress(OSError):
            Path("/proc/self", file).write_text(value, encoding="ascii")


def _end(*_: object) -> NoReturn:
    raise SystemExit(1)


def _give_up(*_: object) -> NoReturn:
    raise CannotCompile(f"compilers had not ended after {_MAX_SECONDS} seconds, and were stopped")
