"""Compiles the kernels for the host where the package came without them: once, into the cache of kernels."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from ....kernels.host_arguments import TARGETS
from ....kernels.toolchains import PROBE, TOOLCHAINS, Toolchain
from ...kernels import code_object
from ...kernels.code_cache import CodeCache

if TYPE_CHECKING:
    from subprocess import Popen

_PROBE_SOURCE: Final = "probe.cpp"
# A compiler that hangs must not stop the program that met the first op.
_SECONDS_TO_PROBE: Final = 60
_SECONDS_TO_COMPILE: Final = 1800
_running: Final[set[Popen[str]]] = set()


class CannotCompile(Exception):
    """Why there are no kernels, and what to do about it."""


class Compiler(NamedTuple):
    """A compiler that is installed here, and what it compiles for."""

    toolchain: Toolchain
    path: str
    target: str

    def compile(self, text: str, name: str) -> bytes:
        """A library of a source that `name` is the name of. Raises CannotCompile."""
        import subprocess
        import tempfile

        with tempfile.TemporaryDirectory(prefix="tallow-") as folder:
            source, output = Path(folder, name), Path(folder, "code.so")
            source.write_text(text, encoding="utf-8")
            own = self.toolchain.targets[self.target]
            flags = [flag.replace("{target}", self.target) for flag in (*self.toolchain.flags, *own)]
            # A compiler that is newer than the package may warn of more.
            flags += ["-w", f"-I{code_object.SOURCES}", f"-I{code_object.HEADERS}"]
            command = [self.path, *self.toolchain.subcommand, *flags, str(source), "-o", str(output)]
            # What compilers put aside goes with the folder, even if they are killed.
            environment = {**os.environ, "TMPDIR": folder}
            limit = _SECONDS_TO_PROBE if name == _PROBE_SOURCE else _SECONDS_TO_COMPILE
            try:
                code, answer = _run(command, environment, limit)
                if code == 0:
                    return output.read_bytes()
                told = answer.strip() or f"it ended with code {code}"
            except OSError as error:
                told = f"{error.filename}: {error.strerror}"
            except subprocess.TimeoutExpired:
                told = f"error: it had not ended after {limit} seconds, and was killed"
        lines = told.splitlines()
        line = next((line for line in lines if "error" in line), lines[0])
        raise CannotCompile(f"{self.path} does not compile {name} for {self.target}: {line}; {advice()}")


def _run(command: Sequence[str], environment: Mapping[str, str], seconds: float) -> tuple[int, str]:
    """Run a compiler, and return its exit code and what it wrote. Raises OSError and subprocess.TimeoutExpired.

    Whatever ends the wait kills the compiler with every process that it has started.
    """
    import subprocess

    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    with process:
        _running.add(process)
        try:
            answer, _ = process.communicate(timeout=seconds)
        finally:
            _kill(process)
            _running.discard(process)
    return process.returncode, answer


def _kill(process: Popen[str]) -> None:
    # The leader of a group that has ended may have another one's number.
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def compilers(target: str) -> Iterable[Compiler]:
    """Those that are installed and may build a target, the preferred one first."""
    import shutil

    # pip puts compilers beside its Python, whose environment need not be active.
    folders = os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)])
    for toolchain in TOOLCHAINS:
        for name in toolchain.compilers if target in toolchain.targets else ():
            path = shutil.which(name, path=folders)
            if path is not None:
                yield Compiler(toolchain, path, target)


def advice() -> str:
    """What to install."""
    return f"install {', or '.join(toolchain.install for toolchain in TOOLCHAINS)}"


class HostCompiler:
    """The libraries in the cache of kernels, and what compiles those that are missing there."""

    def __init__(self, cache: CodeCache) -> None:
        self._cache = cache

    def target(self) -> str | None:
        """The best target that this machine is; None where it is none. Raises CannotCompile where nothing tells."""
        trouble = None
        is_known = False
        for target in TARGETS:
            try:
                code = self._cache.get(_made_of(PROBE, target), lambda target=target: _first(target)[1], bytes)  # type: ignore[misc]
            except CannotCompile as error:
                trouble = trouble or error
                continue
            is_known = True
            if _is_for_this_machine(code):
                return target
        if trouble is not None and not is_known:
            raise trouble
        return None

    def known_target(self) -> str | None:
        """The best target that this machine is, among those that something was compiled for."""
        for target in TARGETS:
            code = self._cache.find(_made_of(PROBE, target))
            if code is not None and _is_for_this_machine(code):
                return target
        return None

    def kept(self, family: str, target: str) -> bytes | None:
        """The library of a family if it was compiled before."""
        return self._cache.find(_made_of(f"{family}.cpp", target))

    def compiled(self, families: Iterable[str], target: str, done: Callable[[], None]) -> dict[str, bytes]:
        """The library of each family, compiled side by side; `done` is called after each. Raises CannotCompile."""
        from concurrent.futures import ThreadPoolExecutor

        compiler, _ = _first(target)

        def one(family: str) -> tuple[str, bytes]:
            name = f"{family}.cpp"
            text = (code_object.SOURCES / name).read_text(encoding="utf-8")
            code = self._cache.get(_made_of(name, target), lambda: compiler.compile(text, name), bytes)
            done()
            return family, code

        # Large sources take longest.
        order = sorted(
            families, key=lambda family: (code_object.SOURCES / f"{family}.cpp").stat().st_size, reverse=True
        )
        pool = ThreadPoolExecutor(_cores())
        try:
            return dict(pool.map(one, order))
        except BaseException:
            # Ctrl-C reaches this process alone, and a compiler may take minutes.
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(_running):
                _kill(process)
            raise
        finally:
            pool.shutdown(cancel_futures=True)


def _first(target: str) -> tuple[Compiler, bytes]:
    """The first compiler that builds a target, and the probe that it made. Raises CannotCompile where none does."""
    trouble = CannotCompile(f"no compiler was found that builds them for {target}; {advice()}")
    for number, compiler in enumerate(compilers(target)):
        try:
            return compiler, compiler.compile(f'#include "{PROBE}"\n', _PROBE_SOURCE)
        except CannotCompile as error:
            trouble = trouble if number else error
    raise trouble


def _made_of(source: str, target: str) -> tuple[str, ...]:
    """What a library is made of. Any compiler's will do, as those that come with the package do."""
    flags = [(toolchain.subcommand, toolchain.flags, toolchain.targets.get(target)) for toolchain in TOOLCHAINS]
    return (*code_object.sources(source).values(), target, repr(flags))


def load(codes: Mapping[str, bytes]) -> dict[str, ctypes.CDLL]:
    """Load libraries. OSError where one is not for this machine, or the folder of temporary files forbids it."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="tallow-") as folder:
        libraries = {}
        for name, code in codes.items():
            path = Path(folder, f"{name}.so")
            path.write_bytes(code)
            libraries[name] = ctypes.CDLL(str(path))
        return libraries


def is_supported(library: ctypes.CDLL) -> bool:
    """Whether this machine has the instructions that a library was compiled for."""
    function = library.is_supported
    function.restype = ctypes.c_bool
    return bool(function())


def _is_for_this_machine(probe: bytes) -> bool:
    with suppress(OSError):  # of a library for machines of another kind
        return is_supported(load({"probe": probe})["probe"])
    return False


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
