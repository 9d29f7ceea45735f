"""The stages in their order, up to what has to change in the tree."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from opgen.base import with_base
from opgen.batching import check_batches
from opgen.build import SINGLE_FILES, build
from opgen.cache import state
from opgen.cache.state import State
from opgen.cache.views import ViewCache
from opgen.check import check
from opgen.composed import check_composed
from opgen.emitted import check_syntax, check_whole
from opgen.errors import check_errors
from opgen.folders import RUNTIME
from opgen.format import FormatError, formatted
from opgen.gradients import check_gradients
from opgen.loader import Document, load
from opgen.lower import lower
from opgen.model.spec import Spec
from opgen.plan import Output, plan
from opgen.problem import Problem, Problems, SpecError
from opgen.render import render, with_banners
from opgen.results import check_results
from opgen.rounding import check_rounding
from opgen.sources import OWN_RUNTIME, Sources
from opgen.symbols import check_symbols, read_symbols
from opgen.unused import check_headers, check_unused
from opgen.write import Change, Mount, changes


@dataclass(frozen=True, eq=False)
class Project:
    """The checked spec of a folder, its sources, and every file that comes of them."""

    root: Path
    spec: Spec
    sources: Sources
    outputs: Sequence[Output]
    views: ViewCache
    documents: Mapping[Path, Document] = field(default_factory=dict)
    is_new: bool = False  # to the next run

    def changes(self, output: Path) -> list[Change]:
        """How the tree below `output` differs from what the spec and the sources say."""
        bodies = render(self.outputs, self.sources, self.views)
        package = PurePosixPath(self.spec.package.name)
        runtime = package / (RUNTIME if self.sources.base is None else OWN_RUNTIME)
        mounts = [Mount(runtime, self.root / RUNTIME)]
        mounts += [Mount(package / name, self.root / name) for name in self.spec.package.shared]
        check_whole(self.outputs, bodies, self.sources, package / RUNTIME)
        check_headers(self.spec, self.sources, bodies)
        try:
            bodies = formatted(bodies)
        except FormatError:
            check_syntax(self.outputs, bodies, self.sources)
            raise
        changed = changes(with_banners(self.outputs, bodies), output, mounts)
        if self.is_new:
            state.save(self.root, State(self.documents, self.sources, self.views))
        return changed


def read_project(root: Path) -> Project:
    """The project below `root`; SpecError lists every error in it."""
    problems = Problems()
    return compose(root, *read_files(root, problems), problems)


def resumed_project(root: Path) -> Project:
    """The project below `root`, of which nothing is computed again that an earlier run has saved."""
    saved = state.load(root)
    problems = Problems()
    documents, sources = read_files(root, problems)
    if sources == saved.sources:
        sources = saved.sources
    project = compose(root, documents, sources, problems, saved.views)
    return replace(project, is_new=not saved.is_of(documents, sources), documents=documents)


def read_files(root: Path, problems: Problems) -> tuple[Mapping[Path, Document], Sources]:
    """Load the files of the project below `root`, with those of the package that it builds on."""
    documents = load(root, problems)
    base = with_base(documents, problems)
    return documents, Sources(root, base)


def compose(
    root: Path,
    documents: Mapping[Path, Document],
    sources: Sources,
    problems: Iterable[Problem],
    views: ViewCache | None = None,
) -> Project:
    """The project of files that are loaded; SpecError lists `problems`, and every error in the files."""
    views = views or ViewCache()
    noted = Problems(problems)
    spec, outputs = diagnose(root, documents, sources, noted, views)
    if noted:
        raise SpecError(noted)
    return Project(root, spec, sources, outputs, views)


def diagnose(
    root: Path,
    documents: Mapping[Path, Document],
    sources: Sources,
    problems: Problems,
    views: ViewCache | None = None,
) -> tuple[Spec, Sequence[Output]]:
    """The spec of files that are loaded, and its outputs, as far as they are right; errors go to `problems`."""
    is_whole = _is_whole(documents, problems)
    spec = _checked(documents, sources, problems)
    for folder, location in spec.package.shared.items() if is_whole else ():
        # One whose name cannot be is noted already.
        if folder.isidentifier() and not (root / folder).is_dir():
            problems.note(
                location, f"'shared' names the folder '{folder}', which is not here; make it or remove the name"
            )
    outputs = plan(spec, sources, problems, views) if is_whole else ()
    problems += sources.problems
    return spec, outputs


def _is_whole(documents: Mapping[Path, Document], problems: Problems) -> bool:
    """Whether each file could be read: a missing one would cause many errors between files."""
    return not problems and all(path in documents for path in SINGLE_FILES)


def _checked(documents: Mapping[Path, Document], sources: Sources, problems: Problems) -> Spec:
    """The spec of files that are loaded; every error in it goes to `problems`."""
    is_whole = _is_whole(documents, problems)
    spec = build(documents, problems)
    if is_whole:
        check(spec, problems)
        spec = lower(read_symbols(spec, sources, problems), problems)
        check_symbols(spec, sources, problems)
        check_results(spec, sources, problems)
        check_gradients(spec, sources, problems)
        check_composed(spec, sources, problems)
        check_batches(spec, sources, problems)
        check_errors(spec, problems)
        check_rounding(spec, sources, problems)
        check_unused(spec, sources, problems)
    return spec


def read_spec_alone(root: Path) -> Spec:
    """The checked spec of the project below `root`, whatever its templates are; SpecError lists every error in it."""
    problems = Problems()
    documents, sources = read_files(root, problems)
    spec = _checked(documents, sources, problems)
    problems += sources.problems
    if problems:
        raise SpecError(problems)
    return spec


def read_spec(root: Path) -> Spec:
    """The checked spec of the project below `root`; SpecError lists every error in it."""
    return read_project(root).spec
