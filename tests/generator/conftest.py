"""Projects for the generator's tests."""

from pathlib import Path

import pytest

from .compilation import compilation as compilation
from .project import REPOSITORY, SMALL, Project, copy_project


@pytest.fixture
def small(tmp_path: Path) -> Project:
    """A project of a few lines, generated; its text changes only with the tests."""
    return copy_project(SMALL, tmp_path / "small").generate()


@pytest.fixture(scope="session")
def generated_from_repository(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The repository's spec and templates, and what they give; not to be changed."""
    folder = tmp_path_factory.mktemp("repository")
    project = copy_project(REPOSITORY, folder)
    # What is committed may lag behind; only `generate` on an empty folder says what belongs there.
    for path in sorted(project.output.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    return project.generate()


@pytest.fixture
def repository(generated_from_repository: Project, tmp_path: Path) -> Project:
    """A copy of the repository's spec, templates and output that a test may change."""
    return copy_project(generated_from_repository.root, tmp_path / "repository")
