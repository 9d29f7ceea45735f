"""Stage 4: the manifest. Every output file, the template that it comes from and the view that the template gets."""

import re
from collections.abc import Callable, Collection, Hashable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Final

from opgen.cache.views import ViewCache
from opgen.folders import BACKENDS, TEMPLATES
from opgen.model.spec import Spec
from opgen.problem import Location, Problems
from opgen.sources import Sources, location_of, package_folders
from opgen.views import MEMBERS, PLACEHOLDER, View, view_of

_TEMPLATE_ENDING = ".j2"
COMMENTS: Final = {
    ".py": ("# ", ""),
    ".toml": ("# ", ""),
    ".typed": ("# ", ""),
    ".md": ("<!-- ", " -->"),
    ".svg": ("<!-- ", " -->"),
    ".hip": ("// ", ""),
    ".cpp": ("// ", ""),
    ".hpp": ("// ", ""),
}
"""How a file of each ending that templates make holds a comment of one line: its banner is one."""
# A part of other templates, which import it.
_PART_ENDING = ".include.j2"
_VIEW = re.compile(r"{[{%][^}]*\bview\b")


@dataclass(frozen=True)
class Output:
    """One file to emit. `view` makes the input of the template; None if it needs nothing of the spec."""

    path: PurePosixPath  # below generated/
    template: PurePosixPath
    view: Callable[[], object]
    find_view: Callable[[], object] = lambda: None  # the identity of the view, as long as it is the same


def nothing() -> None:
    """The view of a template that sees nothing."""


def plan(spec: Spec, sources: Sources, problems: Problems, views: ViewCache | None = None) -> list[Output]:
    """Every output of the templates, in the order of their paths; what cannot be planned goes to `problems`.

    A template's path mirrors its output's, with the ending .j2. A `{placeholder}` in it stands for each member of a
    family of the spec. A member whose output has a template of its own is rendered from that one.
    """
    package = spec.package.name
    folder, *_ = folders = package_folders(spec.package)
    if not package:  # which is noted
        return []
    if not any(map(sources.below, folders)):
        message = f"the package is named '{package}', but {folder} is missing; rename one"
        # Of a name that is noted already, there is no more to say.
        if all(problem.location != spec.package.location for problem in problems):
            problems.note(spec.package.location, message)
        return []
    templates = _Templates(spec, sources, problems, views or ViewCache())
    outputs: dict[PurePosixPath, Output] = {}
    own_first = sorted(sources.below(TEMPLATES), key=lambda path: (_has_placeholder(path), not sources.is_own(path)))
    for template in own_first:
        for output in () if template.name.endswith(_PART_ENDING) else templates.outputs(template):
            first = outputs.setdefault(output.path, output)
            is_double = _has_placeholder(template) == _has_placeholder(first.template) and sources.is_own(template)
            if first is not output and is_double:
                message = f"generated/{output.path} comes from {first.template} too; rename one of the two"
                problems.note(location_of(template), f"{message}, or the files of spec/ that it is for")
    _check_made(spec, sources, outputs, problems)
    return sorted(outputs.values(), key=lambda output: output.path)


def _has_placeholder(template: PurePosixPath) -> bool:
    return PLACEHOLDER.search(str(template)) is not None


def _check_made(spec: Spec, sources: Sources, outputs: Collection[PurePosixPath], problems: Problems) -> None:
    """Note what the package lacks where no template makes it."""
    init = f"{spec.package.name}/__init__.py"
    if PurePosixPath(init) not in outputs:
        message = f"no template makes generated/{init}; write {TEMPLATES / init}{_TEMPLATE_ENDING}"
        problems.note(spec.package.location, message)
    used = {placeholder for path in sources.below(TEMPLATES) for placeholder in PLACEHOLDER.findall(str(path))}
    for placeholder, members in MEMBERS.items():
        if placeholder not in used and members.folder is not None and [*members.of(spec)]:
            message = f"no template makes anything of its files; write one with {{{placeholder}}} in its path"
            problems.note(Location(Path(members.folder)), message)
    # A file with an error of its own may not say what it means to.
    invalid_files = problems.invalid_files
    for backend in spec.backends:
        if backend.package is None or backend.path in invalid_files:
            continue
        folder = PurePosixPath(spec.package.name, backend.package)
        if folder / "__init__.py" not in outputs:
            known = [path.parent.name for path in outputs if path.name == "__init__.py"]
            message = f"no template makes generated/{folder}/__init__.py, the runtime of {backend}"
            fix = "write it, or why the runtime is 'missing'"
            problems.unknown(backend.location_of("runtime"), message, backend.package, known, fix)


class _Templates:
    """The outputs of the templates for a spec. Templates with the same input share one view."""

    def __init__(self, spec: Spec, sources: Sources, problems: Problems, views: ViewCache) -> None:
        self._spec, self._sources, self._problems = spec, sources, problems
        self._folders = package_folders(spec.package)
        self._members = {placeholder: [*members.of(spec)] for placeholder, members in MEMBERS.items()}
        self._views = views
        views.begin(spec)

    def outputs(self, template: PurePosixPath) -> Iterator[Output]:
        """The outputs of a template."""
        path = self._in_package(template)
        if self._is_of_another_backend(template, path):
            return
        target = str(path).removesuffix(_TEMPLATE_ENDING)
        if target == str(path):
            message = f"the name of a template ends in {_TEMPLATE_ENDING}; add it, or move code that the spec does not"
            self._problems.note(location_of(template), f"{message} change to runtime/")
            return
        if PurePosixPath(target).suffix not in COMMENTS:
            message = f"the name of a template ends in one of {', '.join(COMMENTS)} before {_TEMPLATE_ENDING}"
            self._problems.note(location_of(template), f"{message}; rename it")
            return
        placeholders = list(dict.fromkeys(PLACEHOLDER.findall(target)))
        unknown = [placeholder for placeholder in placeholders if placeholder not in MEMBERS]
        for placeholder in unknown:
            message = f"unknown placeholder '{{{placeholder}}}' in a template's path"
            self._problems.unknown(location_of(template), message, placeholder, MEMBERS)
        if len(placeholders) > 1:
            self._problems.note(
                location_of(template), "a template's path has one placeholder at most; remove the others"
            )
        if unknown or len(placeholders) > 1:
            return
        if not placeholders:
            yield self._without_members(PurePosixPath(target), template)
            return
        members, folder = self._members[placeholders[0]], MEMBERS[placeholders[0]].folder
        for name, member in members:
            output_path = PurePosixPath(target.replace(f"{{{placeholders[0]}}}", name))
            yield self._of_member(output_path, template, placeholders[0], name, member)
        if folder is not None and not members:
            message = f"no file is here, and {template} makes one of each; write one or remove the template"
            self._problems.note(Location(Path(folder)), message)

    def _in_package(self, template: PurePosixPath) -> PurePosixPath:
        """The path of a template, that of another package's below the name of this one."""
        for folder in self._folders[1:]:
            if template.is_relative_to(folder):
                return PurePosixPath(self._spec.package.name, template.relative_to(folder))
        return template.relative_to(TEMPLATES)

    def _is_of_another_backend(self, template: PurePosixPath, path: PurePosixPath) -> bool:
        """Whether a template of another package's belongs to a backend that the project does not have."""
        runtimes = [name for name, _ in self._members["runtime"]]
        if self._sources.is_own(template) or path.parts[1] in runtimes:
            return False
        return any(self._sources.below(BACKENDS / path.parts[1]))

    def _of_member(self, path: PurePosixPath, template: PurePosixPath, kind: str, name: str, member: Any) -> Output:
        """The output of a template for a member of what a placeholder stands for."""
        return self._output(path, template, (kind, name), member, lambda spec: MEMBERS[kind].view(spec, member))

    def _output(
        self, path: PurePosixPath, template: PurePosixPath, key: Hashable, member: object, view: View
    ) -> Output:
        views = self._views
        return Output(path, template, partial(views.view, key, member, view), partial(views.find, key, member))

    def _without_members(self, output_path: PurePosixPath, template: PurePosixPath) -> Output:
        """The output of a template without a placeholder."""
        # What belongs to one backend is a member too: that of the backend's folder.
        path = self._in_package(template)
        runtime = next((own for own in self._members["runtime"] if own[0] in path.parts), None)
        if runtime is not None:
            return self._of_member(output_path, template, "runtime", *runtime)
        name, view = view_of(path, self._spec.package.name)
        if view is not None:
            return self._output(output_path, template, view, None, view)
        if _VIEW.search(self._sources.text(template) or ""):
            message = f"this template has no view; write the function '{name}' in a module of"
            self._problems.note(location_of(template), f"{message} generator/opgen/views")
        return Output(output_path, template, nothing, lambda: nothing)
