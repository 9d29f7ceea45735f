"""Finds the compilers that are installed, and which of them builds which target."""

import asyncio
import contextlib
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

from opgen.process import SECONDS_TO_ANSWER, run
from opgen.toolchains import DeviceLibraries, Toolchain


@dataclass(frozen=True)
class Compiler:
    """A toolchain's compiler on this machine."""

    toolchain: Toolchain
    path: str
    version: str
    environment: Mapping[str, str]
    device_libraries: Path | None

    def command(self, target: str, source: Path, output: Path, folders: Sequence[Path] = ()) -> list[str]:
        """Return the command that compiles `source`, whose headers are in `folders`, to a code object."""
        flags = _filled(self.flags(target), target=target, device_libraries=str(self.device_libraries))
        return [
            self.path,
            *_subcommand(self.toolchain),
            *flags,
            *(f"-I{folder}" for folder in folders),
            str(source),
            "-o",
            str(output),
        ]

    def flags(self, target: str) -> tuple[str, ...]:
        """The flags for a target, with placeholders."""
        return (*self.toolchain.flags, *self.toolchain.targets.get(target, ()))


def _subcommand(toolchain: Toolchain) -> list[str]:
    return [] if toolchain.subcommand is None else [toolchain.subcommand]


def _filled(texts: Sequence[str], **values: str) -> list[str]:
    """The texts with the value of each placeholder; other braces stay as they are."""
    filled = list(texts)
    for name, value in values.items():
        filled = [text.replace(f"{{{name}}}", value) for text in filled]
    return filled


def find_native(
    compilers: Mapping[str, Compiler], targets: Sequence[str], probe: str, folders: Sequence[Path]
) -> str | None:
    """Return the first target that this machine supports, as a library of the header `probe` reports."""
    with tempfile.TemporaryDirectory(prefix="opgen-") as scratch:
        source = Path(scratch, "probe.cpp")
        source.write_text(f'#include "{probe}"\n', encoding="utf-8")
        for target in targets:
            library = Path(scratch, target)
            compiler = compilers[target]
            command = compiler.command(target, source, library, folders)
            answer = asyncio.run(run(command, compiler.environment, SECONDS_TO_ANSWER))
            if answer.code == 0 and _is_supported(library):
                return target
    return None


def _is_supported(library: Path) -> bool:
    import ctypes

    with contextlib.suppress(OSError, AttributeError):  # of a library for machines of another kind
        function = ctypes.CDLL(str(library)).is_supported
        function.restype = ctypes.c_bool
        return bool(function())
    return False


def choose(
    toolchains: Sequence[Toolchain], targets: Sequence[str], build: Path, jobs: int
) -> tuple[dict[str, Compiler], AbstractSet[str]]:
    """The compiler of each target that has one: the first toolchain that is installed and can build it.

    With the names of all toolchains that are installed.

    Libraries that are built for compilers lie below `build`. At most `jobs` compilers run at once.
    """
    if not targets:
        return {}, set()
    with tempfile.TemporaryDirectory(prefix="opgen-") as scratch:
        return asyncio.run(_choose(toolchains, targets, build, Path(scratch), jobs))


async def _choose(
    toolchains: Sequence[Toolchain], targets: Sequence[str], build: Path, scratch: Path, jobs: int
) -> tuple[dict[str, Compiler], AbstractSet[str]]:
    available = [
        compiler
        for toolchain in toolchains
        for path, misleading in locate(toolchain.compilers, os.environ)
        if (compiler := await _examine(toolchain, path, misleading, targets[0], build))
    ]
    empty = scratch / "empty.hip"
    empty.touch()
    limit = asyncio.Semaphore(jobs)

    async def first(target: str) -> Compiler | None:
        async with limit:
            for compiler in filter(lambda compiler: compiler.toolchain.may_build(target), available):
                command = compiler.command(target, empty, scratch / target)
                if (await run(command, compiler.environment, SECONDS_TO_ANSWER)).code == 0:
                    return compiler
        return None

    async with asyncio.TaskGroup() as group:
        tasks = {target: group.create_task(first(target)) for target in targets}
    chosen = {target: compiler for target, task in tasks.items() if (compiler := task.result())}
    return chosen, {compiler.toolchain.name for compiler in available}


async def _examine(
    toolchain: Toolchain, path: str, misleading: AbstractSet[str], target: str, build: Path
) -> Compiler | None:
    """The compiler at `path` if it starts, and the libraries that it wants are installed."""
    environment = {name: value for name, value in os.environ.items() if name not in misleading}
    environment.update(toolchain.environment)
    # Some compilers look for a GPU unless the target is passed.
    flags = _filled(toolchain.flags, target=target, device_libraries="")
    answer = await run([path, *_subcommand(toolchain), *flags, "--version"], environment, SECONDS_TO_ANSWER)
    if answer.code != 0:
        return None
    libraries = None
    if toolchain.device_libraries is not None:
        folder = _library_folder(toolchain.device_libraries)
        if folder is None:
            return None
        libraries = await _complete(toolchain.device_libraries, folder, build, [path, answer.output], environment)
    return Compiler(toolchain, path, answer.output.strip(), environment, libraries)


def may_be_built(target: str, toolchains: Iterable[Toolchain]) -> bool:
    """Whether a compiler that is meant for a target is installed, with its libraries; none is started."""
    return any(
        toolchain.may_build(target)
        and locate(toolchain.compilers, os.environ)
        and (toolchain.device_libraries is None or _library_folder(toolchain.device_libraries) is not None)
        for toolchain in toolchains
    )


def locate(candidates: Sequence[str], environment: Mapping[str, str]) -> list[tuple[str, AbstractSet[str]]]:
    """Return those of `candidates` that are installed, each with the variables that its environment must not have.

    A variable leads a compiler to its own parts too, and must not mislead one that was located without it.
    """
    programs: dict[Path, tuple[str, AbstractSet[str]]] = {}
    # pip installs compilers next to its Python, whose environment need not be active.
    folders = os.pathsep.join([environment.get("PATH", os.defpath), str(Path(sys.executable).parent)])
    variables = {_expanded(candidate, environment)[0] for candidate in candidates} - {""}
    for candidate in candidates:
        variable, wanted = _expanded(candidate, environment)
        path = shutil.which(wanted, path=folders) if wanted else None
        if path is not None:
            programs.setdefault(Path(path).resolve(), (path, variables - {variable}))
    return list(programs.values())


def _expanded(candidate: str, environment: Mapping[str, str]) -> tuple[str, str]:
    """The variable that a path begins with, if any, and the path; no path where the variable is not set."""
    if not candidate.startswith("$"):
        return "", candidate
    variable, _, path = candidate[1:].partition("/")
    folder = environment.get(variable)
    return variable, str(Path(folder, path)) if folder else ""


def _library_folder(libraries: DeviceLibraries) -> Path | None:
    paths = (_expanded(folder, os.environ)[1] for folder in libraries.folders)
    return next((Path(path) for path in paths if path and Path(path).is_dir()), None)


async def _complete(
    libraries: DeviceLibraries, folder: Path, build: Path, compiler: list[str], environment: Mapping[str, str]
) -> Path:
    """Return `folder`, or if it lacks constants, a folder below `build` with them and links to everything else."""
    missing = {name: number for name, number in libraries.constants.items() if not (folder / name).exists()}
    if not missing:
        return folder
    path, version = compiler
    made_of = repr((folder, sorted(missing.items()), libraries.text, libraries.flags, version))
    target = build / "device_libraries" / hashlib.sha256(made_of.encode()).hexdigest()[:16]
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".opgen-", dir=target.parent) as temporary:
        complete_folder = Path(temporary, target.name)
        complete_folder.mkdir()
        for library in folder.iterdir():
            (complete_folder / library.name).symlink_to(library)
        for name, number in missing.items():
            text = Path(temporary, f"{name}.ll")
            (filled,) = _filled([libraries.text], constant=str(number))
            text.write_text(filled + "\n", encoding="utf-8")
            answer = await run(
                [path, *libraries.flags, str(text), "-o", str(complete_folder / name)], environment, SECONDS_TO_ANSWER
            )
            if answer.code != 0:
                return folder  # which serves the targets that need no such constant
        try:
            complete_folder.rename(target)
        except OSError:
            if not target.is_dir():  # else another opgen has created it meanwhile
                raise
    return target
