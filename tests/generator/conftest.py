"""Projects for the generator's tests."""

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from .compilation import compilation as compilation
from .project import REPOSITORY, SMALL, Project, copy_project

FEW_OPS = {
    "unary": "exp log sin cos neg abs sign sqr sqrt rsqrt tanh sigmoid ceil round softplus silu to_dtype powf elu",
    "binary": "add sub mul div floor_divide remainder pow fmod atan2 silu_mul",
    "reduce": "sum sum_i64 prod prod_slope count_zero prod_i64 mean norm min max count_min count_max argmin argmax "
    "states maxima minima factors lengths",
    "scan": "cumsum cumprod cummax cummin",
    "row": "softmax log_softmax softmin rms_norm layer_norm",
}


@pytest.fixture(scope="session", autouse=True)
def caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No folder for what opgen leaves to its next run: it would hold all projects of this process, and take seconds."""
    with pytest.MonkeyPatch.context() as patch:
        no_folder = tmp_path_factory.mktemp("caches") / "file"
        no_folder.touch()
        patch.setenv("XDG_CACHE_HOME", str(no_folder))
        yield


@pytest.fixture(scope="session")
def generated_small(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project of a few lines, generated; not to be changed."""
    return copy_project(SMALL, tmp_path_factory.mktemp("small")).generate()


@pytest.fixture
def small(generated_small: Project, tmp_path: Path) -> Project:
    """A copy of the project of a few lines, that a test may change; its text changes only with the tests."""
    return copy_project(generated_small.root, tmp_path / "small")


@pytest.fixture(scope="session")
def generated_from_repository(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The repository's spec and templates, and what they give; not to be changed."""
    folder = tmp_path_factory.mktemp("repository")
    # What is committed may lag behind; only `generate` on an empty folder says what belongs there.
    return copy_project(REPOSITORY, folder, ("spec", "starter", "templates", "runtime")).generate()


@pytest.fixture(scope="session")
def generated_from_few_ops(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The repository's spec with those ops alone that its templates use and golden cases change; not to be changed."""
    project = copy_project(REPOSITORY, tmp_path_factory.mktemp("few_ops"), ("spec", "starter", "templates", "runtime"))
    for kind, saved in FEW_OPS.items():
        file = project.root / "spec" / "functors" / f"{kind}.yaml"
        # An op is its name two spaces in, and all that is further in.
        entries = re.split(r"^(?=  \w|\w)", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
        chosen = [
            entry
            for entry in entries
            if entry.strip().split(":")[0] in saved.split() or not entry.startswith(("  ", "states:"))
        ]
        file.write_text("".join(chosen), encoding="utf-8")
    # With each primitive that is in no formula any more goes what only its gradient has, and then words.
    primitives = project.root / "spec/primitives.yaml"
    while lines := re.findall(r"primitives\.yaml:(\d+):.* is in no formula", (errors := project.run("check").stderr)):
        entries = re.split(r"^(?=  \S)", primitives.read_text(encoding="utf-8"), flags=re.MULTILINE)
        starts = list(itertools.accumulate((entry.count("\n") for entry in entries), initial=1))
        saved = [entry for entry, start in zip(entries, starts, strict=False) if str(start) not in lines]
        primitives.write_text("".join(saved), encoding="utf-8")
    while words := re.findall(r"(?:word|of word) '(\w+)'(?: of family .* is used by no op|; known are)", errors):
        entry = re.compile(rf"^ +(?:{'|'.join(words)})(?:\(.*\))?: .*\n(?:      .*\n)*", re.MULTILINE)
        for file in (project.root / "spec/families/array.yaml", *(project.root / "spec/backends").iterdir()):
            file.write_text(entry.sub("", file.read_text(encoding="utf-8")), encoding="utf-8")
        errors = project.run("check").stderr
    return project.generate()


@pytest.fixture
def few_ops(generated_from_few_ops: Project, tmp_path: Path) -> Project:
    """A copy of the repository's project with a few ops, that a test may change."""
    return copy_project(generated_from_few_ops.root, tmp_path / "few_ops")


@pytest.fixture
def repository(generated_from_repository: Project, tmp_path: Path) -> Project:
    """A copy of the repository's spec, templates and output that a test may change."""
    return copy_project(generated_from_repository.root, tmp_path / "repository")
