"""Generation in a process that goes on: what did not change is not read, viewed, rendered or laid out again."""

from collections.abc import Iterable
from pathlib import Path

from opgen.base import with_base
from opgen.cache.views import ViewCache
from opgen.folders import FOLDERS
from opgen.loader import load
from opgen.problem import Problems
from opgen.project import Project, compose
from opgen.sources import Sources
from opgen.write import Change, write


class Watcher:
    """A project that is generated again and again."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._views = ViewCache()
        self._sources: Sources | None = None

    def update(self, output: Path, changed: Iterable[Path] = ()) -> tuple[Project, list[Change]]:
        """Write what has to change since `changed` files were saved; SpecError where there is an error."""
        problems = Problems()
        documents = load(self._root, problems)
        base = with_base(documents, problems)
        is_spec = all(self._root / FOLDERS[0] in file.parents for file in changed)
        sources = self._sources
        if sources is None or sources.base != base or sources.problems or not is_spec:
            sources = self._sources = Sources(self._root, base)
        project = compose(self._root, documents, sources, problems, self._views)
        changes = project.changes(output)
        write(changes, output, force=False)
        return project, changes
