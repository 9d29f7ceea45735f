"""The spec is executed: whatever is changed in it is an error, or changes what opgen emits or asks of a compiler."""

from __future__ import annotations

import itertools
import os
import random
import re
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path, PurePosixPath
from unittest import mock

import pytest
from opgen import compilers
from opgen.build import FILE_KINDS
from opgen.code_objects import CodeObject
from opgen.compile import choose_compilers
from opgen.loader import Document, Value, load
from opgen.model.spec import Spec
from opgen.plan import Output
from opgen.problem import SpecError
from opgen.process import Finished
from opgen.project import Project, compose
from opgen.render import render
from opgen.schema import schema_of
from opgen.sources import Sources

from .project import REPOSITORY

pytestmark = pytest.mark.slow

SAMPLE = 4
PARTS = 256
GARBAGE = "zzz garbage"
Path_ = tuple[str | int, ...]  # the keys and positions that lead to a value of a file


@dataclass(frozen=True)
class Mutation:
    """One change: any of the `roots`, each the whole of a file, is as good as the others."""

    file: Path
    line: int
    path: Path_
    what: str
    roots: tuple[Value, ...]

    @property
    def kind(self) -> tuple[object, ...]:
        """What it has in common with others: where it is, the keys that are the language's own, and what is done."""
        is_one_of_many = len(self.file.parts) > 2
        keys = [key for key in self.path if key in known_keys()]
        of, done = self.what.partition("'")[2].partition("'")[0], self.what.rpartition(" is ")[2]
        return (self.file.parent if is_one_of_many else self.file, *keys, of if of in known_keys() else "", done)

    def __str__(self) -> str:
        return f"{self.file.as_posix()}:{self.line}: {'.'.join(map(str, self.path))} {self.what}"


@cache
def documents() -> Mapping[Path, Document]:
    return load(REPOSITORY, [])


@cache
def sources() -> Sources:
    return Sources(REPOSITORY)


@cache
def known_keys() -> frozenset[object]:
    """The keys of the language, which schemas have, and not the names that one thing has."""

    def inside(schema: object) -> Iterator[str]:
        if isinstance(schema, dict):
            yield from schema.get("properties", ())
        for inner in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
            yield from inside(inner)

    return frozenset(key for kind in FILE_KINDS for key in inside(schema_of(kind)))


def walk(value: Value, path: Path_ = ()) -> Iterator[tuple[Path_, Value]]:
    yield path, value
    content = value.content
    pairs = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, inner in pairs:
        yield from walk(inner, (*path, key))


def changed(value: Value, path: Path_, content: object) -> Value:
    """`value` with another content at `path`."""
    if not path:
        return replace(value, content=content)
    key, *remaining = path
    inner = value.content
    assert isinstance(inner, dict | list)
    copy = inner.copy()
    copy[key] = changed(copy[key], tuple(remaining), content)  # type: ignore[index, call-overload]
    return replace(value, content=copy)


def key_of(path: Path_) -> str:
    return next((key for key in reversed(path) if isinstance(key, str)), "")


@cache
def texts_by_key() -> Mapping[str, list[str]]:
    """The texts that stand in the spec below a key of the same name: each is a plausible one for the others."""
    result: dict[str, dict[str, None]] = defaultdict(dict)
    for document in documents().values():
        for path, value in walk(document.root):
            if isinstance(value.content, str):
                result[key_of(path)][value.content] = None
    return {key: list(texts) for key, texts in result.items()}


def contents(path: Path_, value: Value) -> Iterator[tuple[str, list[object]]]:
    """The other contents of a value: what is done to it, and the contents of which one has to make a difference."""
    match value.content:
        case bool(flag):
            yield "flipped", [not flag]
        case int(number) | float(number):
            # Of a rank only the order counts, so one of the two has to make a difference.
            yield f"{number} is another number", [number + 1, number - 100]
        case None:
            yield "null is 1", [1]
        case str(text):
            others = [other for other in texts_by_key().get(key_of(path), ()) if other != text]
            start = random.Random(text).randrange(len(others) or 1)
            plausible = (others[start:] + others[:start])[:4] or [f"{text}2"]
            yield f"'{text}' is another text", list(plausible)
            yield f"'{text}' is garbage", [GARBAGE]
        case list(elements):
            for position in range(len(elements)):
                yield f"[{position}] is removed", [elements[:position] + elements[position + 1 :]]
        case dict(entries):
            for key in entries:
                others = {name: inner for name, inner in entries.items() if name != key}
                yield f"'{key}' is removed", [others]
                yield (
                    f"'{key}' is renamed",
                    [{(f"{name}2" if name == key else name): inner for name, inner in entries.items()}],
                )


def mutations(of: Mapping[Path, Document] | None = None) -> Iterator[Mutation]:
    """The changes of some files, or of the repository's spec."""
    for file, document in (of or documents()).items():
        for path, value in walk(document.root):
            for what, others in contents(path, value):
                roots = tuple(changed(document.root, path, content) for content in others)
                yield Mutation(file, value.location.line, path, what, roots)


@dataclass(frozen=True)
class Emitted:
    """A spec, the outputs that it has and what their templates see."""

    spec: Spec
    outputs: Mapping[PurePosixPath, Output]
    views: dict[PurePosixPath, object]

    def view(self, path: PurePosixPath) -> object:
        if path not in self.views:
            make = self.outputs[path].view
            self.views[path] = make and make()
        return self.views[path]

    def body(self, path: PurePosixPath) -> str:
        output = replace(self.outputs[path], view=lambda: self.view(path))
        return render([output], sources())[path]


def emitted(project: Project) -> Emitted:
    return Emitted(project.spec, {output.path: output for output in project.outputs}, {})


@cache
def unchanged() -> Emitted:
    return emitted(compose(REPOSITORY, documents(), sources(), []))


@cache
def quick_first() -> list[PurePosixPath]:
    """The outputs that have a view, those first whose view is made quickly: most changes show in one of them."""
    taken = {}
    for path, output in unchanged().outputs.items():
        if output.view is not None:
            began = time.process_time()
            unchanged().view(path)
            taken[path] = time.process_time() - began
    return sorted(taken, key=taken.__getitem__)


def makes_a_difference(roots: Mapping[Path, Value]) -> bool:
    """Whether the spec with other roots of these files is an error, or something else comes of it."""
    before = unchanged()
    others = {file: Document(file, root) for file, root in roots.items()}
    try:
        after = emitted(compose(REPOSITORY, {**documents(), **others}, sources(), []))
        if after.spec == before.spec and after.outputs.keys() == before.outputs.keys():
            return False
        if after.outputs.keys() != before.outputs.keys():
            return True
        if any(
            after.view(path) != before.view(path) and after.body(path) != before.body(path) for path in quick_first()
        ):
            return True
    except SpecError:
        return True
    return asked_of_compilers(after.spec) != asked_before()


def asked_of_compilers(spec: Spec) -> list[str]:
    """What `opgen compile` asks of a machine that has every compiler, with their libraries and without; and its advice.

    No compiler there can build anything, so that each one is asked for each target.
    """
    return [*_asked(spec, "with"), *_asked(spec, "without")]


def _asked(spec: Spec, folder: str) -> list[str]:
    log: list[str] = []

    def which(expected: str, path: str) -> str:
        log.append(f"which {expected}")
        return f"/tools/{expected}"

    def is_dir(path: Path) -> bool:
        log.append(f"folder {path}")
        return os.path.isdir(path) and "opgen-" in str(path)

    async def run(command: list[str], environment: Mapping[str, str], _seconds: float) -> Finished:
        texts = [Path(word).read_text(encoding="utf-8") for word in command if word.endswith(".ll")]
        log.append(f"{command} {texts} in {sorted(environment.items())}")
        return Finished(0 if texts or command[-1] == "--version" else 1, "1.0", "")

    with tempfile.TemporaryDirectory(prefix="opgen-") as name:
        root = Path(name)
        (root / "with/amdgcn/bitcode").mkdir(parents=True)
        environment = dict.fromkeys(("ROCM_PATH", "CUDA_HOME", "CUDA_PATH"), str(root / folder))
        built = [backend.code_objects for backend in spec.backends if backend.code_objects is not None]
        objects = [
            CodeObject(target, "unary", each.host, root, (), {}, root) for each in built for target in each.targets
        ]
        with (
            mock.patch.dict(os.environ, environment, clear=True),
            mock.patch.object(shutil, "which", which),
            mock.patch.object(Path, "is_dir", is_dir),
            mock.patch.object(compilers, "run", run),
        ):
            _, advice = choose_compilers(spec, objects, root, 1)
    # Folders are named after a random word or, by a checksum, after one.
    return [re.sub(r"opgen-\w+|[0-9a-f]{16}", "", text) for text in (*log, *advice)]


@cache
def asked_before() -> list[str]:
    return asked_of_compilers(unchanged().spec)


def verdict(mutation: Mutation) -> str | None:
    """What is wrong: a change that nobody notices, or one that opgen falls over; None where nothing is."""
    try:
        is_noticed = any(makes_a_difference({mutation.file: root}) for root in mutation.roots)
    except Exception as error:  # which a user would see as a traceback
        return f"{mutation}: {type(error).__name__}: {error}"
    return None if is_noticed else f"{mutation}: nothing changes"


def survivors(tried: Iterable[Mutation]) -> list[str]:
    return [text for mutation in tried if (text := verdict(mutation)) is not None]


def sample(count: int | None, of: Mapping[Path, Document] | None = None) -> list[Mutation]:
    """Changes of different kinds, or one of each kind: no two are the same change below the same keys."""
    kinds: dict[object, list[Mutation]] = defaultdict(list)
    for mutation in mutations(of):
        kinds[mutation.kind].append(mutation)
    generator = random.Random(0)
    results = [generator.choice(alike) for alike in kinds.values()]
    return results if count is None else generator.sample(results, min(count, len(results)))


def test_a_spec_that_is_written_anew_makes_no_difference() -> None:
    """What the other tests stand on."""
    assert not makes_a_difference({file: document.root for file, document in documents().items()})


def test_a_sample_of_the_values_of_the_spec_is_executed() -> None:
    assert survivors(sample(SAMPLE)) == []


@pytest.mark.full
@pytest.mark.parametrize("part", range(PARTS))
def test_every_value_of_the_spec_is_executed(part: int) -> None:
    """In parts of half a minute, which workers share evenly."""
    assert survivors(itertools.islice(mutations(), part, None, PARTS)) == []
