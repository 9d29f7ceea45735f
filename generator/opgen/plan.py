"""Stage 4: the manifest. Every output file, the template that it comes from and the view that the template gets."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from opgen.model import Spec
from opgen.problem import Location, Problem, SpecError, did_you_mean
from opgen.views import FILES, FOLDERS, PLACEHOLDER, PLACEHOLDERS

_TEMPLATE_ENDING = ".j2"


@dataclass(frozen=True)
class Output:
    """One file to emit. `view` makes what the template is given; None where the template is copied as it is."""

    path: PurePosixPath  # below generated/
    template: PurePosixPath  # below templates/
    view: Callable[[], object] | None


def plan(spec: Spec, templates: Path) -> list[Output]:
    """Every output of the templates below `templates`, in the order of their paths.

    A template's path mirrors its output's. A `{placeholder}` in it stands for each member of a family of the spec,
    and the ending .j2 marks a template that is rendered.
    """
    if not (templates / spec.package.name).is_dir():
        message = (
            f"the package is named '{spec.package.name}', but templates/{spec.package.name} is missing; rename one"
        )
        raise SpecError([Problem(spec.package.location, message)])
    problems: list[Problem] = []
    outputs: dict[PurePosixPath, Output] = {}
    for file in sorted(_files(templates, problems)):
        template = PurePosixPath(file.relative_to(templates).as_posix())
        if "__pycache__" in template.parts:
            continue
        for output in _outputs(spec, template, problems):
            first = outputs.setdefault(output.path, output)
            if first is not output:
                message = f"generated/{output.path} comes from templates/{first.template} too; rename one of the two"
                problems.append(Problem(_place(template), f"{message}, or what it is made for in spec/"))
    if problems:
        raise SpecError(problems)
    return sorted(outputs.values(), key=lambda output: output.path)


def _files(templates: Path, problems: list[Problem]) -> Iterator[Path]:
    def note(error: OSError) -> None:
        # Passed over, its outputs would be orphans, and removed.
        place = Location(Path("templates", Path(error.filename).relative_to(templates)))
        problems.append(Problem(place, f"cannot be read: {error.strerror}; let it be read or remove it"))

    for folder, _, names in os.walk(templates, onerror=note):
        yield from (Path(folder, name) for name in names)


def _outputs(spec: Spec, template: PurePosixPath, problems: list[Problem]) -> Iterator[Output]:
    text = str(template)
    target = text.removesuffix(_TEMPLATE_ENDING)
    make = FILES.get(_listed_as(spec, template))
    if target == text:
        make = None
    elif make is None:
        problems.append(Problem(_place(template), "no view is made for this template; add it to FILES"))
        return
    placeholders = list(dict.fromkeys(PLACEHOLDER.findall(target)))
    unknown = [placeholder for placeholder in placeholders if placeholder not in PLACEHOLDERS]
    for placeholder in unknown:
        message = f"unknown placeholder '{{{placeholder}}}' in a template's path"
        problems.append(Problem(_place(template), message + did_you_mean(placeholder, PLACEHOLDERS)))
    if len(placeholders) > 1:
        problems.append(Problem(_place(template), "a template's path has one placeholder at most; remove the others"))
    if unknown or len(placeholders) > 1:
        return
    if not placeholders:
        yield Output(PurePosixPath(target), template, _view(spec, make, None))
        return
    members = list(PLACEHOLDERS[placeholders[0]](spec))
    for member in members:
        yield Output(PurePosixPath(PLACEHOLDER.sub(member, target)), template, _view(spec, make, member))
    if not members and placeholders[0] in FOLDERS:
        message = f"no file is here, and templates/{template} makes one of each; write one or remove the template"
        problems.append(Problem(Location(Path(FOLDERS[placeholders[0]])), message))


def _listed_as(spec: Spec, template: PurePosixPath) -> str:
    """The key of FILES for a template."""
    runtimes = [backend.runtime for backend in spec.backends]
    return "/".join("{runtime}" if part in runtimes else part for part in template.parts)


def _place(template: PurePosixPath) -> Location:
    return Location(Path("templates", template))


def _view(
    spec: Spec, make: Callable[[Spec, str | None], object] | None, member: str | None
) -> Callable[[], object] | None:
    return None if make is None else lambda: make(spec, member)
