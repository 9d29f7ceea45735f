"""The compilation of code objects, side by side."""

import asyncio
import json
import tempfile
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass
from pathlib import Path

from opgen.code_objects import CodeObject, checksum
from opgen.compilers import Compiler, choose, find_native
from opgen.model.spec import Spec
from opgen.process import run
from opgen.resources import Usage, read_report, without_report
from opgen.toolchains import Toolchain
from opgen.write import write_atomically


@dataclass(frozen=True)
class Result:
    """The result of compiling a code object."""

    object: CodeObject
    status: str  # `compiled`, `up to date` or `failed`
    usages: tuple[Usage, ...] = ()
    messages: str = ""


def choose_compilers(
    spec: Spec, objects: Iterable[CodeObject], build: Path, jobs: int
) -> tuple[dict[str, Compiler], list[str]]:
    """The compilers of the objects' targets, and for targets that have none what to install."""
    wanted = {code_object.target for code_object in objects}
    compilers: dict[str, Compiler] = {}
    fixes = []
    for backend in spec.backends:
        if backend.code_objects is None:
            continue
        targets = [target for target in backend.code_objects.targets if target in wanted]
        toolchains = backend.code_objects.toolchains
        chosen, installed = choose(toolchains, targets, build, jobs)
        compilers |= chosen
        missing: dict[str, list[str]] = {}
        for target in targets:
            if target not in chosen:
                missing.setdefault(_advice(target, toolchains, installed), []).append(target)
        for advice, names in missing.items():
            fixes.append(f"no compiler here builds {', '.join(names)}; install one that does:{advice}")
    return compilers, fixes


def for_this_machine(
    spec: Spec, objects: Iterable[CodeObject], compilers: Mapping[str, Compiler]
) -> tuple[list[CodeObject], list[CodeObject]]:
    """The objects that this machine loads, of the first target that it is, and those that it cannot load."""
    ours: list[CodeObject] = []
    others: list[CodeObject] = []
    for backend in spec.backends:
        if backend.code_objects is None:
            continue
        own = [code_object for code_object in objects if code_object.target in backend.code_objects.targets]
        targets = [target for target in backend.code_objects.targets if target in compilers]
        if backend.code_objects.probe is not None and own:
            native = find_native(compilers, targets, backend.code_objects.probe, own[0].folders)
            for code_object in own:
                (ours if code_object.target == native else others).append(code_object)
    return ours, others


def _advice(target: str, toolchains: Iterable[Toolchain], installed: AbstractSet[str]) -> str:
    """Return the toolchains to install for a target, except those that are installed and do not build it."""
    useful = [toolchain for toolchain in toolchains if toolchain.may_build(target)]
    absent = [toolchain for toolchain in useful if toolchain.name not in installed]
    return "".join(f"\n  {toolchain.name}: {toolchain.install}" for toolchain in absent or useful)


def compile_objects(
    objects: Iterable[CodeObject], compilers: Mapping[str, Compiler], jobs: int, done: Callable[[Result], None]
) -> list[Result]:
    """Compile what is out of date, at most `jobs` at once, and call `done` after each.

    An object that fails keeps what was there before, and does not stop the others.
    """
    # The last to begin should be short. Large sources take longest.
    ordered = sorted(objects, key=lambda code_object: code_object.source.stat().st_size, reverse=True)
    with tempfile.TemporaryDirectory(prefix="opgen-") as scratch:
        return asyncio.run(_compile_all(ordered, compilers, Path(scratch), jobs, done))


async def _compile_all(
    objects: list[CodeObject],
    compilers: Mapping[str, Compiler],
    scratch: Path,
    jobs: int,
    done: Callable[[Result], None],
) -> list[Result]:
    limit = asyncio.Semaphore(jobs)

    async def one(code_object: CodeObject) -> Result:
        async with limit:
            try:
                result = await _compile(code_object, compilers[code_object.target], scratch)
            except OSError as error:
                result = Result(code_object, "failed", messages=f"{error.filename}: {error.strerror}")
        done(result)
        return result

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(code_object)) for code_object in objects]
    return [task.result() for task in tasks]


async def _compile(code_object: CodeObject, compiler: Compiler, scratch: Path) -> Result:
    made_of = {
        "sources": code_object.sources,
        "target": code_object.target,
        "flags": list(compiler.flags(code_object.target)),
        "compiler": compiler.version,
    }
    usages = _recorded(code_object, made_of)
    if usages is not None:
        return Result(code_object, "up to date", usages)
    output = scratch / f"{code_object.target}-{code_object.family}"
    # What compilers put aside goes with the folder, even if they are killed.
    environment = {**compiler.environment, "TMPDIR": str(scratch)}
    answer = await run(
        compiler.command(code_object.target, code_object.source, output, code_object.folders), environment
    )
    code = output.read_bytes() if output.is_file() else b""
    if answer.code != 0 or not code:
        messages = without_report(answer.errors + answer.output).strip()
        ended = f"{compiler.path} ended with code {answer.code}" + ", but wrote nothing" * (answer.code == 0)
        return Result(code_object, "failed", messages=messages or ended)
    usages = read_report(answer.errors)
    record = {**made_of, "code": checksum(code), "kernels": [asdict(usage) for usage in usages]}
    # A record must never describe another object than the one next to it.
    code_object.record.unlink(missing_ok=True)
    write_atomically(code_object.file, code)
    write_atomically(code_object.record, json.dumps(record).encode())
    output.unlink()
    return Result(code_object, "compiled", usages)


def _recorded(code_object: CodeObject, made_of: Mapping[str, object]) -> tuple[Usage, ...] | None:
    """Return the resources of the kernels of a code object; None if it is out of date."""
    try:
        record = json.loads(code_object.record.read_bytes())
        kernels = tuple(Usage.of_record(kernel) for kernel in record["kernels"])
        code = checksum(code_object.file.read_bytes())
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return kernels if record == {**made_of, "code": code, "kernels": [asdict(usage) for usage in kernels]} else None
