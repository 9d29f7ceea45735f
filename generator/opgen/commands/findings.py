"""What 'opgen check' finds of a project that has changed."""

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
from opgen.report import BREAK, DIFFERENCE, MISTAKE, Findings
from opgen.schema import SPEC, has_schemas, stale_files
from opgen.write import Change


class Difference(NamedTuple):
    """A file that differs from what the spec says, in which way, and what to do."""

    path: str
    state: str
    mend: str


@dataclass(frozen=True)
class Found:
    """The files of a project, and those that differ; what there is to say where none does."""

    files: int
    changes: Sequence[Change]
    differences: Sequence[Difference]
    outputs: Outputs


def look(root: Path, against: str | None, run: Run) -> Found:
    """What there is to find; SpecError lists every mistake, or what breaks callers of the commit `against`.

    Where all is up to date, `run` records it.
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
    return Found(files, changes, differences, outputs)


def _folders(root: Path, project: Project) -> Iterator[Path]:
    """Where the files are that decide what is found."""
    base = project.sources.base
    for folder in (root, *([base.folder] if base is not None else [])):
        yield from (folder / name for name in FOLDERS)
    yield from (root / name for name in (OUTPUT, *project.spec.package.shared))


def _differences(root: Path, found: Sequence[Change]) -> Iterator[Difference]:
    schemas = stale_files(root) if has_schemas(root) else []
    for folder, changes in ((OUTPUT, found), (str(SPEC), schemas)):
        # What is edited is to be moved before anything else is written.
        edited = next((change for change in changes if change.is_edit_lost), None)
        for change in changes:
            state = (
                "edited" if change.is_edit_lost
                else "missing" if change.old is None
                else "left over" if change.new is None
                else "differs"
            )  # fmt: skip
            mend = f"run '{change.banner.command}'" if edited is None else edited.banner.mend
            yield Difference(f"{folder}/{change.path}", state, mend)


def findings(root: Path, against: str | None, run: Run) -> Findings:
    """All that is wrong: the mistakes or, where there are none, the files that differ."""
    try:
        differences = look(root, against, run).differences
    except SpecError as error:
        from opgen.comparison.breaks import CallersError

        rule = BREAK if isinstance(error, CallersError) else MISTAKE
        return [(rule, problem) for problem in error.problems]
    return [(DIFFERENCE, Problem(Location(Path(path)), f"{state}; {mend}")) for path, state, mend in differences]
