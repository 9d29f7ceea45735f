"""Code objects: which ones there are, which of them are out of date, and their compilation side by side."""

import asyncio
import hashlib
import json
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from opgen.compilers import Compiler, choose
from opgen.model import Spec
from opgen.problem import Refusal
from opgen.process import run
from opgen.resources import Usage, read_report, without_report
from opgen.write import write_atomically

_INCLUDE = re.compile(rb'^#include "([^"]+)"', re.MULTILINE)
_CODE, _RECORD = ".co", ".json"


class CompileError(Refusal):
    """Nothing can be compiled; the message says what to do."""


@dataclass(frozen=True)
class CodeObject:
    """The kernels of one family, compiled for one target."""

    target: str
    family: str
    is_host: bool
    source: Path
    sources: Mapping[str, str]  # the checksums of the source and of every header that it includes, by name
    file: Path

    @property
    def name(self) -> str:
        """What a person calls it."""
        return f"{self.target}/{self.family}"

    @property
    def record(self) -> Path:
        """What it was made of, its own checksum, and what its kernels take."""
        return self.file.with_suffix(_RECORD)


@dataclass(frozen=True)
class Result:
    """What became of a code object."""

    object: CodeObject
    status: str  # `compiled`, `up to date` or `failed`
    usages: tuple[Usage, ...] = ()
    messages: str = ""


def code_objects(spec: Spec, kernels: Path, code: Path) -> tuple[CodeObject, ...]:
    """Every code object that the spec asks for, from the sources in `kernels`, kept in a folder of `code` per target.

    CompileError where a source is missing.
    """
    # A family without kernels is what others are composed of at run time.
    families = [family for family in spec.kernels if family.kernels]
    sources = {family.name: kernels / f"{family.name}.{'cpp' if family.host else 'hip'}" for family in families}
    checksums = {family: _checksums(source) for family, source in sources.items()}
    return tuple(
        CodeObject(
            target=target,
            family=family.name,
            is_host=family.host,
            source=sources[family.name],
            sources=checksums[family.name],
            file=code / target / f"{family.name}{_CODE}",
        )
        for backend in spec.backends
        if backend.code_objects is not None
        for target in backend.code_objects.targets
        for family in families
        if family.host == backend.code_objects.host
    )


def _checksums(source: Path) -> dict[str, str]:
    if not source.is_file():
        raise CompileError(f"{source} is missing; run 'opgen generate'")
    found: dict[str, str] = {}
    waiting = [source]
    while waiting:
        file = waiting.pop()
        # A header that is missing is the compiler's to complain about.
        if file.name not in found and file.is_file():
            content = file.read_bytes()
            found[file.name] = _checksum(content)
            waiting.extend(source.parent / name.decode() for name in _INCLUDE.findall(content))
    return dict(sorted(found.items()))


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def remove_orphans(every: Iterable[CodeObject], code: Path) -> None:
    """Remove from `code` what the spec no longer has, and what a killed run left, but nothing of other programs."""
    kept = {file for code_object in every for file in (code_object.file, code_object.record)}
    for record in code.rglob(f"*{_RECORD}"):
        if _is_foreign(record):
            kept |= {record, record.with_suffix(_CODE)}
    for file in sorted(code.rglob("*"), reverse=True):
        if file.is_dir() and not any(file.iterdir()):
            file.rmdir()
        elif file.is_file() and file not in kept:
            file.unlink()


def _is_foreign(record: Path) -> bool:
    """Whether another program wrote a record: all of opgen's name the target."""
    try:
        content = json.loads(record.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and "target" not in content


def choose_compilers(
    spec: Spec, objects: Iterable[CodeObject], build: Path, jobs: int
) -> tuple[dict[str, Compiler], list[str]]:
    """The compilers of the objects' targets, and for targets that have none what to install."""
    wanted = {code_object.target for code_object in objects}
    compilers: dict[str, Compiler] = {}
    mends = []
    for backend in spec.backends:
        if backend.code_objects is None:
            continue
        targets = [target for target in backend.code_objects.targets if target in wanted]
        compilers |= choose(backend.code_objects.toolchains, targets, build, jobs)
        missing = [target for target in targets if target not in compilers]
        if missing:
            lines = [f"  {toolchain.name}: {toolchain.install}" for toolchain in backend.code_objects.toolchains]
            mends.append("\n".join([f"no compiler here builds {', '.join(missing)}; install one that does:", *lines]))
    return compilers, mends


def compile_objects(
    objects: Iterable[CodeObject], compilers: Mapping[str, Compiler], jobs: int, done: Callable[[Result], None]
) -> list[Result]:
    """Compile what is out of date, at most `jobs` at once, and call `done` after each.

    An object that fails keeps what was there before, and does not stop the others.
    """
    with tempfile.TemporaryDirectory(prefix="opgen-") as scratch:
        return asyncio.run(_compile_all(list(objects), compilers, Path(scratch), jobs, done))


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
    answer = await run(compiler.command(code_object.target, code_object.source, output), environment)
    if answer.code != 0 or not output.is_file():
        messages = without_report(answer.errors + answer.output).strip()
        return Result(code_object, "failed", messages=messages or f"{compiler.path} ended with code {answer.code}")
    usages = read_report(answer.errors)
    code = output.read_bytes()
    record = {**made_of, "code": _checksum(code), "kernels": [asdict(usage) for usage in usages]}
    # No record may ever stand beside an object that it does not describe.
    code_object.record.unlink(missing_ok=True)
    write_atomically(code_object.file, code)
    write_atomically(code_object.record, json.dumps(record).encode())
    output.unlink()
    return Result(code_object, "compiled", usages)


def _recorded(code_object: CodeObject, made_of: Mapping[str, object]) -> tuple[Usage, ...] | None:
    """What the kernels of an object take that is up to date; None where it is not."""
    try:
        record = json.loads(code_object.record.read_bytes())
        kernels = tuple(Usage(**kernel) for kernel in record.pop("kernels"))
        code = _checksum(code_object.file.read_bytes())
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return kernels if record == {**made_of, "code": code} else None
