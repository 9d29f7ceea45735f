"""The findings of 'opgen check' in a project that has changed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from opgen.build import FILE_KINDS
from opgen.cache.up_to_date import Outputs, Run
from opgen.commands.code_objects import out_of_date_kernels
from opgen.folders import FOLDERS, OUTPUT
from opgen.problem import Location, Problem, SpecError
from opgen.project import Project, resumed_project
from opgen.report import BREAK, DIFFERENCE, ERROR, Findings
from opgen.schema import SPEC, has_schemas, stale_files
from opgen.write import Change


class Difference(NamedTuple):
    """A file that differs from the output of the spec: its state, and a fix."""

    path: str
    state: str
    fix: str


@dataclass(frozen=True)
class CheckResult:
    """The number of files of a project, those that differ, and the state to record where none does."""

    files: int
    changes: Sequence[Change]
    differences: Sequence[Difference]
    outputs: Outputs


def check_project(root: Path, against: str | None, run: Run) -> CheckResult:
    """Compare a project with its outputs; SpecError lists every error, or what breaks callers of the commit `against`.

    If all files are up to date, `run` records it.
    """
    project = resumed_project(root)
    if against is not None:
        # Most checks compare nothing, and the rules take long to import.
        from opgen.comparison.breaks import CallersError, breaks, unexcused
        from opgen.comparison.changes import compare
        from opgen.comparison.revision import spec_at

        comparison = compare(spec_at(root, against), project.spec)
        if problems := [*unexcused(comparison, breaks(comparison))]:
            raise CallersError(problems)
    changes = project.changes(root / OUTPUT)
    differences = list(_differences(root, changes))
    outputs = Outputs(len(project.outputs), () if differences else tuple(out_of_date_kernels(root, project.spec)))
    if not differences:
        run.finish(_folders(root, project), project.sources.base, outputs)
    files = len(project.outputs) + (len(FILE_KINDS) + 1 if has_schemas(root) else 0)
    return CheckResult(files, changes, differences, outputs)


def _folders(root: Path, project: Project) -> Iterator[Path]:
    """Yield the folders whose files decide the result."""
    base = project.sources.base
    for folder in (root, *([base.folder] if base is not None else [])):
        yield from (folder / name for name in FOLDERS)
    yield from (root / name for name in (OUTPUT, *project.spec.package.shared))


def _differences(root: Path, outputs: Sequence[Change]) -> Iterator[Difference]:
    schemas = stale_files(root) if has_schemas(root) else []
    for folder, changes in ((OUTPUT, outputs), (str(SPEC), schemas)):
        # Edited outputs must be moved before anything else is written.
        edited = next((change for change in changes if change.is_edit_lost), None)
        for change in changes:
            state = (
                "edited" if change.is_edit_lost
                else "missing" if change.old is None
                else "left over" if change.new is None
                else "differs"
            )  # fmt: skip
            fix = f"run '{change.banner.command}'" if edited is None else edited.banner.fix
            yield Difference(f"{folder}/{change.path}", state, fix)


def findings(root: Path, against: str | None, run: Run) -> Findings:
    """Return the errors or, if there are none, the files that differ."""
    try:
        differences = check_project(root, against, run).differences
    except SpecError as error:
        from opgen.comparison.breaks import CallersError

        rule = BREAK if isinstance(error, CallersError) else ERROR
        return [(rule, problem) for problem in error.problems]
    return [(DIFFERENCE, Problem(Location(Path(path)), f"{state}; {fix}")) for path, state, fix in differences]
