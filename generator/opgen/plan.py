"""Stage 4: the manifest. Every output file, the template that it comes from and the view that the template gets."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from opgen.model import Spec
from opgen.problem import Location, Problem, SpecError
from opgen.views import FILES, PLACEHOLDERS

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
    outputs: list[Output] = []
    for file in sorted(path for path in templates.rglob("*") if path.is_file()):
        template = PurePosixPath(file.relative_to(templates).as_posix())
        if "__pycache__" not in template.parts:
            outputs.extend(_outputs(spec, template))
    return sorted(outputs, key=lambda output: output.path)


def _outputs(spec: Spec, template: PurePosixPath) -> Iterable[Output]:
    text = str(template)
    target = text.removesuffix(_TEMPLATE_ENDING)
    is_rendered = target != text
    if is_rendered and text not in FILES:
        raise SpecError(
            [Problem(Location(Path("templates", text)), "no view is made for this template; add it to FILES")]
        )
    for placeholder, members in PLACEHOLDERS.items():
        if f"{{{placeholder}}}" in target:
            for member in members(spec):
                path = PurePosixPath(target.replace(f"{{{placeholder}}}", member))
                yield Output(path, template, _view(spec, text, member) if is_rendered else None)
            return
    yield Output(PurePosixPath(target), template, _view(spec, text, None) if is_rendered else None)


def _view(spec: Spec, template: str, member: str | None) -> Callable[[], object]:
    make = FILES[template]
    return lambda: make(spec, member)
