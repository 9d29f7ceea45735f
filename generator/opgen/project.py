"""The stages in their order, up to what has to change in the tree."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from opgen.build import SINGLE_FILES, build
from opgen.check import check
from opgen.emitted import check_syntax, check_whole
from opgen.errors import check_errors
from opgen.format import FormatError, formatted
from opgen.loader import Document, load
from opgen.lower import lower
from opgen.model import Spec
from opgen.plan import Output, plan
from opgen.problem import Problem, SpecError
from opgen.references import check_references
from opgen.render import render, with_banners
from opgen.resolve import resolve
from opgen.templates import Templates, check_templates
from opgen.words import check_words
from opgen.write import Change, changes


@dataclass(frozen=True)
class Project:
    """The checked spec of a folder, its templates, and every file that comes of them."""

    spec: Spec
    templates: Templates
    outputs: Sequence[Output]

    def changes(self, output: Path) -> list[Change]:
        """How the tree below `output` differs from what the spec and the templates say."""
        bodies = render(self.outputs, self.templates)
        check_whole(self.outputs, bodies, self.templates)
        try:
            bodies = formatted(bodies)
        except FormatError:
            check_syntax(self.outputs, bodies, self.templates)
            raise
        return changes(with_banners(self.outputs, bodies), output)


def read_project(root: Path) -> Project:
    """The project below `root`; SpecError lists every mistake in it."""
    problems: list[Problem] = []
    documents = load(root, problems)
    return compose(documents, Templates(root / "templates"), problems)


def compose(documents: Mapping[Path, Document], templates: Templates, problems: list[Problem]) -> Project:
    """The project of files that are loaded; SpecError lists `problems`, and every mistake in the files."""
    # Mistakes between files are looked for only where each file could be read: a missing one would cause many.
    is_whole = not problems and all(path in documents for path in SINGLE_FILES)
    spec = build(documents, problems)
    outputs: Sequence[Output] = ()
    if is_whole:
        check(spec, problems)
        spec = lower(spec, problems)
        check_templates(spec, templates, problems)
        spec = resolve(spec, templates, problems)
        check_errors(spec, problems)
        check_references(spec, templates, problems)
        check_words(spec, templates, problems)
        outputs = plan(spec, templates, problems)
    problems += templates.problems
    if problems:
        raise SpecError(problems)
    return Project(spec, templates, outputs)


def read_spec(root: Path) -> Spec:
    """The checked spec of the project below `root`; SpecError lists every mistake in it."""
    return read_project(root).spec
