"""Stage 4: the manifest. Every output file, the template that it comes from and the view that the template gets."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path, PurePosixPath

from opgen.model import Spec
from opgen.problem import Location, Problem, did_you_mean
from opgen.sources import TEMPLATES, Sources, place
from opgen.views import FILES, FOLDERS, PLACEHOLDER, PLACEHOLDERS

_TEMPLATE_ENDING = ".j2"
# A part of other templates, which import it.
_PART_ENDING = ".include.j2"


@dataclass(frozen=True)
class Output:
    """One file to emit. `view` makes what the template is given."""

    path: PurePosixPath  # below generated/
    template: PurePosixPath
    view: Callable[[], object]


def plan(spec: Spec, sources: Sources, problems: list[Problem]) -> list[Output]:
    """Every output of the templates, in the order of their paths; what cannot be planned goes to `problems`.

    A template's path mirrors its output's, with the ending .j2. A `{placeholder}` in it stands for each member of a
    family of the spec. A member whose output has a template of its own is made from that one.
    """
    package = spec.package.name
    folder = TEMPLATES / package
    if not any(sources.below(folder)):
        message = f"the package is named '{package}', but {folder} is missing; rename one"
        # Of a name that is noted already, there is no more to say.
        if all(problem.location != spec.package.location for problem in problems):
            problems.append(Problem(spec.package.location, message))
        return []
    view = cache(lambda make, member: make(spec, member))  # one for all templates that see the same
    outputs: dict[PurePosixPath, Output] = {}
    for template in sorted(sources.below(TEMPLATES), key=_has_placeholder):
        if template.name.endswith(_PART_ENDING):
            continue
        for output in _outputs(spec, template, view, problems):
            first = outputs.setdefault(output.path, output)
            if first is not output and _has_placeholder(template) == _has_placeholder(first.template):
                message = f"generated/{output.path} comes from {first.template} too; rename one of the two"
                problems.append(Problem(place(template), f"{message}, or what it is made for in spec/"))
    _check_made(spec, sources, outputs, problems)
    _check_runtimes(spec, outputs, problems)
    return sorted(outputs.values(), key=lambda output: output.path)


def _has_placeholder(template: PurePosixPath) -> bool:
    return PLACEHOLDER.search(str(template)) is not None


def _check_made(spec: Spec, sources: Sources, outputs: Collection[PurePosixPath], problems: list[Problem]) -> None:
    """Note what the package lacks where no template makes it."""
    init = f"{spec.package.name}/__init__.py"
    if PurePosixPath(init) not in outputs:
        problems.append(
            Problem(
                spec.package.location, f"no template makes generated/{init}; write {TEMPLATES / init}{_TEMPLATE_ENDING}"
            )
        )
    used = {placeholder for path in sources.below(TEMPLATES) for placeholder in PLACEHOLDER.findall(str(path))}
    for placeholder, folder in FOLDERS.items():
        if placeholder not in used and any(PLACEHOLDERS[placeholder](spec)):
            message = f"no template makes anything of its files; write one with {{{placeholder}}} in its path"
            problems.append(Problem(Location(Path(folder)), message))


def _check_runtimes(spec: Spec, outputs: Collection[PurePosixPath], problems: list[Problem]) -> None:
    """Note the runtimes that no template makes."""
    # A file with a mistake of its own may not say what it means to.
    torn = {problem.location.path for problem in problems}
    for backend in spec.backends:
        if backend.package is None or backend.path in torn:
            continue
        folder = PurePosixPath(spec.package.name, backend.package)
        if folder / "__init__.py" not in outputs:
            known = [path.parent.name for path in outputs if path.name == "__init__.py"]
            message = f"no template makes generated/{folder}/__init__.py, the runtime of backend '{backend.name}'"
            hint = did_you_mean(backend.package, known, "write it, or why the runtime is 'missing'")
            problems.append(Problem(backend.place("runtime"), message + hint))


def _outputs(
    spec: Spec, template: PurePosixPath, view: Callable[..., object], problems: list[Problem]
) -> Iterator[Output]:
    text = str(template.relative_to(TEMPLATES))
    target = text.removesuffix(_TEMPLATE_ENDING)
    make = FILES.get(_listed_as(spec, PurePosixPath(text)))
    if target == text:
        message = (
            f"the name of a template ends in {_TEMPLATE_ENDING}; add it, or move code that the spec does not change"
        )
        problems.append(Problem(place(template), f"{message} to runtime/"))
        return
    placeholders = list(dict.fromkeys(PLACEHOLDER.findall(target)))
    unknown = [placeholder for placeholder in placeholders if placeholder not in PLACEHOLDERS]
    for placeholder in unknown:
        message = f"unknown placeholder '{{{placeholder}}}' in a template's path"
        problems.append(Problem(place(template), message + did_you_mean(placeholder, PLACEHOLDERS)))
    if len(placeholders) > 1:
        problems.append(Problem(place(template), "a template's path has one placeholder at most; remove the others"))
    if unknown or len(placeholders) > 1:
        return
    if make is None:
        problems.append(Problem(place(template), "no view is made for this template; add it to FILES"))
        return
    if not placeholders:
        # What belongs to one backend is a member too: that of the backend's folder.
        runtime = next((part for part in template.parts if part in _runtimes(spec)), None)
        yield Output(PurePosixPath(target), template, partial(view, make, runtime))
        return
    members = list(PLACEHOLDERS[placeholders[0]](spec))
    for member in members:
        yield Output(PurePosixPath(PLACEHOLDER.sub(member, target)), template, partial(view, make, member))
    if not members and placeholders[0] in FOLDERS:
        message = f"no file is here, and {template} makes one of each; write one or remove the template"
        problems.append(Problem(Location(Path(FOLDERS[placeholders[0]])), message))


def _listed_as(spec: Spec, template: PurePosixPath) -> str:
    """The key of FILES for a template."""
    return "/".join("{runtime}" if part in _runtimes(spec) else part for part in template.parts)


def _runtimes(spec: Spec) -> set[str]:
    return {backend.package for backend in spec.backends if backend.package is not None}
