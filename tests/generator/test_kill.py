"""A kill at any moment of `opgen generate` leaves each file old or new, and the next run mends it."""

import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from .project import OPGEN, Project, copy_project

pytestmark = pytest.mark.slow
Wait = Callable[[subprocess.Popen[bytes]], None]


@pytest.fixture(scope="module")
def versions(
    generated_from_few_ops: Project, tmp_path_factory: pytest.TempPathFactory, full: bool
) -> tuple[Project, dict[str, bytes], dict[str, bytes], float]:
    """A project whose files are all out of date; what they are, what they will be, and how long a run takes."""
    project = copy_project(generated_from_few_ops.root, tmp_path_factory.mktemp("kill") / "project")
    old = project.files()
    for file in sorted((project.root / "templates").rglob("*")):
        if file.suffix == ".j2":
            file.write_text(file.read_text(encoding="utf-8") + "# New.\n", encoding="utf-8")
    start = time.monotonic()
    if full:
        subprocess.run([OPGEN, "generate", "--root", project.root], check=True, capture_output=True)
    else:
        # No test needs the time, and this process has read most of the spec already.
        project.generate()
    return project, old, project.files(), time.monotonic() - start


def restore(project: Project, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (project.output / name).write_bytes(content)


def kill(project: Project, wait: Wait) -> dict[str, bytes]:
    process = subprocess.Popen(
        [OPGEN, "generate", "--root", project.root], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    wait(process)
    process.kill()
    process.wait()
    # What is left of a file that was being written is beside the tree: no file of the package has such a name.
    return {name: content for name, content in project.files().items() if not Path(name).name.startswith(".opgen-")}


def assert_whole(project: Project, actual: dict[str, bytes], old: dict[str, bytes], new: dict[str, bytes]) -> None:
    assert actual.keys() == old.keys() == new.keys()
    invalid_files = [name for name, content in actual.items() if content not in (old[name], new[name])]
    assert not invalid_files
    result = project.run("generate")
    assert result.exit_code == 0, result.output
    assert project.files() == new


def sweep(few: int, values: list[float]) -> list[object]:
    """All of the values; those after the first few with --full only, because each kill takes two runs of opgen."""
    return [
        pytest.param(value, marks=[] if position < few else pytest.mark.full) for position, value in enumerate(values)
    ]


@pytest.mark.parametrize("position", sweep(1, [0.5, 0.0, 0.9, 0.1, 0.3, 0.7]))
def test_killed_while_writing(
    versions: tuple[Project, dict[str, bytes], dict[str, bytes], float], position: float
) -> None:
    """Killed as soon as the file at this part of the way is seen to be new."""
    project, old, new, _ = versions
    restore(project, old)
    changed = sorted(name for name in old if old[name] != new[name])
    file = project.output / changed[int(position * len(changed))]

    def wait(process: subprocess.Popen[bytes]) -> None:
        before = file.stat().st_mtime_ns
        while file.stat().st_mtime_ns == before and process.poll() is None:
            time.sleep(0.0002)

    assert_whole(project, kill(project, wait), old, new)


@pytest.mark.parametrize("seed", sweep(0, [*range(9)]))
def test_killed_at_any_time(versions: tuple[Project, dict[str, bytes], dict[str, bytes], float], seed: float) -> None:
    project, old, new, seconds = versions
    restore(project, old)
    delay = random.Random(seed).uniform(0.3, 1.1) * seconds
    assert_whole(project, kill(project, lambda _: time.sleep(delay)), old, new)
