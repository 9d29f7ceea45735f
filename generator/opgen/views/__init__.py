"""The views of templates: each template gets the view that is named after its file, built from the spec.

`kernels/blocks.hpp.j2` in the folder of the package sees what `kernels_blocks` of one of these modules makes,
`setup.py.j2` what `setup` makes, and the package's own `__init__.py.j2` what `package` makes; without such a function a
template sees nothing. A template with a `{placeholder}` in its path sees each of the members that this stands for.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import PurePosixPath
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

from opgen.folders import RUNTIME
from opgen.launch_ops import launch_packages
from opgen.model.backends import Backend
from opgen.model.spec import Spec
from opgen.views import (
    arrays,
    backend,
    batching,
    composed,
    derivatives,
    dispatch,
    drivers,
    dtype,
    examples,
    flow,
    formats,
    gradients,
    kernels,
    launch_arguments,
    launches,
    libraries,
    op,
    package,
    results,
    support,
    targets,
    toolchains,
)

PLACEHOLDER = re.compile(r"{(.*?)}")
_MODULES = (
    arrays,
    backend,
    batching,
    composed,
    derivatives,
    dispatch,
    drivers,
    dtype,
    examples,
    flow,
    formats,
    gradients,
    kernels,
    launch_arguments,
    launches,
    libraries,
    op,
    package,
    results,
    support,
    targets,
    toolchains,
)
View: TypeAlias = Callable[[Spec], object]


class Members(NamedTuple):
    """The members that a placeholder stands for."""

    of: Callable[[Spec], Iterable[tuple[str, Any]]]  # with their names
    view: Callable[[Spec, Any], object]
    folder: str | None = None  # of their files, where they are not chosen among the backends


def _runtimes(is_one: Callable[[Spec, Backend], bool]) -> Callable[[Spec], Iterable[tuple[str, Backend]]]:
    return lambda spec: [(str(each.package), each) for each in spec.backends if each.package and is_one(spec, each)]


def _named(members: Callable[[Spec], Iterable[Any]]) -> Callable[[Spec], Iterable[tuple[str, Any]]]:
    return lambda spec: [(each.name, each) for each in members(spec)]


def _sources(spec: Spec, *, host: bool) -> Iterable[Any]:
    return (family for family in spec.kernels if family.host is host)


def _launches(spec: Spec) -> Iterable[tuple[str, Any]]:
    """The modules of the ops that launches make, and the package of the backends that have them.

    One without ops is there too: hand-written ops of the package import it.
    """
    return [(module, package) for module, package in launch_packages(spec).items() if package is not None]


def _is_of_kernels(spec: Spec, each: Backend) -> bool:
    """Whether its family computes with kernels: it has no vocabulary of array libraries."""
    family = spec.family_of(each)
    return family is not None and not family.vocabulary


MEMBERS: Mapping[str, Members] = {
    "storage": Members(_named(lambda spec: spec.families), dispatch.family_module, "spec/storage"),
    "recorded": Members(_named(lambda spec: spec.families), gradients.recorded_module),
    "called": Members(examples.called, examples.calls),
    "family": Members(
        _named(lambda spec: (k for k in spec.kernels if not k.host)), kernels.kernel_family, "spec/kernels"
    ),
    "host": Members(_named(lambda spec: (k for k in spec.kernels if k.host)), kernels.kernel_family),
    "launches": Members(_launches, launches.launches),
    "library": Members(_named(lambda spec: spec.c_libraries), libraries.functions, "spec/libraries"),
    "driver": Members(drivers.backends_with_drivers, drivers.driver_of, "spec/drivers"),
    "gpu": Members(_runtimes(_is_of_kernels), backend.kernel_backend),
    "array": Members(_runtimes(lambda _, each: each.array is not None), arrays.spelled_library),
    "imported": Members(_runtimes(backend.has_error_class), arrays.imported_backend),
    "runtime": Members(_runtimes(lambda *_: True), backend.ops),
    "mounted": Members(lambda spec: [(str(RUNTIME), b) for b in [spec.package.base] if b], package.mounted_runtime),
    "public": Members(_named(lambda spec: spec.public.values()), package.public_module),
    "dummy": Members(_named(lambda spec: (b for b in spec.backends if b.extra is not None)), backend.dummy),
}


def view_of(template: PurePosixPath, package_name: str) -> tuple[str, View | None]:
    """The function that makes the view of a template without a placeholder, by its name; None where nothing does."""
    parts = [part.partition(".")[0].lower() for part in template.parts]
    words = [part for part in (parts[1:] if parts[0] == package_name else parts) if part != "__init__"]
    name = "_".join(words) or "package"
    return name, _views().get(name)


@cache
def _views() -> dict[str, View]:
    """Every function that makes a view, by its name."""
    return {key: each for module in _MODULES for key, each in vars(module).items() if _is_own(each, module)}


def _is_own(each: object, module: ModuleType) -> bool:
    return callable(each) and getattr(each, "__module__", None) == module.__name__
