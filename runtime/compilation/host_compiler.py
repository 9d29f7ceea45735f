"""The compilers of the kernels for the host, and the libraries that they compile."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from ...kernels.toolchains import PROBE, TOOLCHAINS, Toolchain
from ..kernels import code_object
from ..kernels.code_cache import CodeCache

if TYPE_CHECKING:
    from subprocess import Popen

# Those of `kernels.host_arguments`, whose import needs NumPy.
TARGETS: Final = tuple(dict.fromkeys(target for toolchain in TOOLCHAINS for target in toolchain.targets))
"""The targets of the kernels, the best one first."""
FAMILIES: Final = tuple(sorted(path.stem for path in code_object.SOURCES.glob("*.cpp")))
"""The families of kernels, each the name of a source."""

_PROBE_SOURCE: Final = "probe.cpp"
# A compiler that hangs must end at some time.
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

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags for the target, with placeholders."""
        return (*self.toolchain.flags, *self.toolchain.targets[self.target])

    def compile(self, text: str, name: str) -> bytes:
        """A library of a source that `name` is the name of. Raises CannotCompile."""
        import subprocess
        import tempfile

        with tempfile.TemporaryDirectory(prefix="tallow-") as folder:
            source, output = Path(folder, name), Path(folder, "code.so")
            source.write_text(text, encoding="utf-8")
            flags = [flag.replace("{target}", self.target) for flag in self.flags]
            # A compiler that is newer than the package may warn of more.
            flags += ["-w", *(f"-I{folder}" for folder in (code_object.SOURCES, *code_object.HEADERS))]
            command = [self.path, *self.toolchain.subcommand, *flags, str(source), "-o", str(output)]
            # What compilers put aside goes with the folder, even if they are killed.
            environment = {**os.environ, "TMPDIR": folder}
            limit = _SECONDS_TO_PROBE if name == _PROBE_SOURCE else _SECONDS_TO_COMPILE
            try:
                code, answer = _run(command, environment, limit)
                if code == 0:
                    return output.read_bytes()
                messages = answer.strip() or f"it ended with code {code}"
            except OSError as error:
                messages = f"{error.filename}: {error.strerror}"
            except subprocess.TimeoutExpired:
                messages = f"error: it had not ended after {limit} seconds, and was killed"
        lines = messages.splitlines()
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

    # pip installs compilers next to its Python, whose environment need not be active.
    folders = os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)])
    for toolchain in TOOLCHAINS:
        for name in toolchain.compilers if target in toolchain.targets else ():
            path = shutil.which(name, path=folders)
            if path is not None:
                yield Compiler(toolchain, path, target)


def advice() -> str:
    """The packages to install."""
    return f"install {', or '.join(toolchain.install for toolchain in TOOLCHAINS)}"


class HostCompiler:
    """The libraries in the cache of kernels, and what compiles those that are missing there."""

    def __init__(self, cache: CodeCache) -> None:
        self._cache = cache

    def target(self) -> str | None:
        """The best target of this machine; None if there is none. Raises CannotCompile if that cannot be determined."""

        def probe(target: str) -> bytes:
            return self._cache.get(made_of(PROBE, target), lambda: first_compiler(target)[1], bytes)

        return _best(probe)

    def known_target(self) -> str | None:
        """The best target that this machine is, among those that something was compiled for."""
        for target in TARGETS:
            code = self._cache.find(made_of(PROBE, target))
            if code is not None and _is_for_this_machine(code):
                return target
        return None

    def cached(self, family: str, target: str) -> bytes | None:
        """The library of a family if it was compiled before."""
        return self._cache.find(made_of(f"{family}.cpp", target))

    def compile_missing(self, target: str, jobs: int, done: Callable[[str], None] = lambda _: None) -> None:
        """Compile the families that neither the package nor the cache has, `jobs` at once. Raises CannotCompile.

        `done` is called with the name of each.
        """
        compiler, _ = first_compiler(target)

        def one(family: str) -> None:
            name = f"{family}.cpp"
            self._cache.get(made_of(name, target), lambda: compiler.compile(read_source(name), name), bytes)
            done(family)

        missing = [family for family in FAMILIES if not (current(target, family) or self.cached(family, target))]
        side_by_side(one, missing, jobs)


def current(target: str, family: str, checksums: code_object.Checksums | None = None) -> bytes | None:
    """The library of a family that the package has, if it is of the sources that are there."""
    return code_object.current(code_object.path_of(target, family), checksums)


def read_source(name: str) -> str:
    """The text of a family's source."""
    return (code_object.SOURCES / name).read_text(encoding="utf-8")


def side_by_side(compile_one: Callable[[str], None], families: Iterable[str], jobs: int) -> None:
    """Call a function for each family, the slowest to compile first, `jobs` calls at once."""
    from concurrent.futures import ThreadPoolExecutor

    # Large sources take longest.
    order = sorted(families, key=lambda family: len(read_source(f"{family}.cpp")), reverse=True)
    pool = ThreadPoolExecutor(jobs)
    calls = [pool.submit(compile_one, family) for family in order]
    try:
        for call in calls:
            call.result()
    except BaseException:
        # Ctrl-C reaches this process alone, and a compiler may take minutes. A thread may be about to start one.
        pool.shutdown(wait=False, cancel_futures=True)
        while not all(call.done() for call in calls):
            for process in list(_running):
                _kill(process)
            time.sleep(0.01)
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def native_target() -> str | None:
    """The best target of this machine, determined without a cache; None if there is none. Raises CannotCompile."""
    return _best(lambda target: first_compiler(target)[1])


def _best(probe: Callable[[str], bytes]) -> str | None:
    """The best target whose probe runs on this machine. Raises CannotCompile where no target has one."""
    trouble = None
    is_known = False
    for target in TARGETS:
        try:
            code = probe(target)
        except CannotCompile as error:
            trouble = trouble or error
            continue
        is_known = True
        if _is_for_this_machine(code):
            return target
    if trouble is not None and not is_known:
        raise trouble
    return None


def first_compiler(target: str) -> tuple[Compiler, bytes]:
    """The first compiler that builds a target, and its compiled probe. Raises CannotCompile if none does."""
    trouble = CannotCompile(f"no compiler was found that builds them for {target}; {advice()}")
    for number, compiler in enumerate(compilers(target)):
        try:
            return compiler, compiler.compile(f'#include "{PROBE}"\n', _PROBE_SOURCE)
        except CannotCompile as error:
            trouble = trouble if number else error
    raise trouble


def made_of(source: str, target: str) -> tuple[str, ...]:
    """The inputs of a library's compilation. Any compiler will do, like those that come with the package.

    Raises CannotCompile where a source is missing.
    """
    flags = [(toolchain.subcommand, toolchain.flags, toolchain.targets.get(target)) for toolchain in TOOLCHAINS]
    try:
        return (*code_object.sources(source).values(), target, repr(flags))
    except FileNotFoundError as error:
        raise CannotCompile(f"{error.filename} is missing; reinstall tallow") from error


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


def cores() -> int:
    """How many compilers may run at once."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
