"""Views of the package: its metadata, its README and its __init__."""

import json
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import PurePosixPath
from types import SimpleNamespace as View

from opgen.cache.memo import memoize
from opgen.folders import RUNTIME
from opgen.matrix import Alike, alike_by_op
from opgen.model.package import BasePackage, PublicModule
from opgen.model.spec import Spec
from opgen.problem import Location
from opgen.sources import OWN_RUNTIME
from opgen.views.backend import error_classes
from opgen.views.dispatch_names import op_classes
from opgen.views.python import quoted


def _toml(text: str) -> str:
    # Of texts without control characters, JSON's form is TOML's too.
    return json.dumps(text, ensure_ascii=False)


def package(spec: Spec) -> View:
    """The package itself: the classes that it exports because the spec names them."""
    classes = ("{}Device", "{}Storage", "Q{}Storage")
    backends = [name.format(backend.class_prefix) for backend in spec.backends for name in classes]
    backends += error_classes(spec)
    custom = [method.custom_class for method in spec.storage_methods() if method.custom_class is not None]
    ops = op_classes(spec)
    return View(
        package=spec.package,
        backends=backends,
        ops=ops,
        custom_ops=custom,
        named=[*backends, *ops, *custom],
        modules=_modules(spec),
    )


def _modules(spec: Spec) -> list[str]:
    """The modules that are attributes of the package: those that are neither programs nor of a backend."""
    others = {backend.runtime.package for backend in spec.backends}
    others |= {name.removesuffix("/__main__") for name, it in spec.public.items() if "main" in it.names}
    names = [name.removesuffix("/__init__") for name in spec.public]
    return sorted(name for name in names if "/" not in name and name not in others)


def readme(spec: Spec) -> View:
    """How many cells of each backend have which status."""
    return _counts(spec, alike_by_op(spec))


@memoize(lambda spec, by_op: (spec.package, *spec.backends, *by_op), size=1)
def _counts(spec: Spec, by_op: Sequence[Sequence[Alike]]) -> View:
    statuses = Counter[tuple[str, str]]()
    for own in chain.from_iterable(by_op):
        statuses[own.backend, own.status] += len(own.dtypes)
    rows = []
    for backend in spec.backends:
        supported, unsupported = (statuses[backend.name, status] for status in ("supported", "unsupported"))
        doc = backend.doc.replace("|", "\\|")
        made_from = (Location(backend.path),)
        row = View(made_from=made_from, backend=backend.name, doc=doc, supported=supported, unsupported=unsupported)
        rows.append(row)
    page = spec.package.urls.get("Issues")
    return View(package=spec.package, rows=rows, reports=f"to {page}" if page else "to where you got the package from")


def pyproject(spec: Spec) -> View:
    """Return the metadata for pip, as TOML; backends and parts of the package have optional dependencies."""
    own = {backend.extra: backend.requires for backend in spec.backends if backend.extra is not None}
    extras = {**spec.package.extras, **own}
    return View(
        package=spec.package,
        description=_toml(spec.package.summary),
        requires=", ".join(map(_toml, spec.package.requires)),
        # Without a pattern of their own, setuptools leaves out files that begin with a dot, such as .gitignore.
        shared=", ".join(_toml(f"{folder}/**/{name}") for folder in spec.package.shared for name in ("*", ".*")),
        extras={name: ", ".join(map(_toml, requires)) for name, requires in extras.items()},
        urls={_toml(label): _toml(url) for label, url in spec.package.urls.items()},
    )


def public_module(spec: Spec, module: PublicModule) -> View:
    """A module that users import, which has the names of one of the runtime."""
    package = f"{'.' * len(PurePosixPath(module.name).parts)}{RUNTIME}"
    return View(
        made_from=(spec.package.public[module.name][1],),
        doc=module.doc,
        package=package,  # the runtime, as it is imported
        home=f"{package}.{module.home.replace('/', '.')}",
        names=module.names,
        exports=list(map(quoted, module.names)),
        has_main="main" in module.names,  # whether it is a program
    )


def mounted_runtime(spec: Spec, base: BasePackage) -> View:
    """The view of the base package's runtime, as a part of this package."""
    return View(package=spec.package.name, base=base.package, own=OWN_RUNTIME)


def limits(spec: Spec) -> View:
    """The values of the package that the runtime needs."""
    return View(package=spec.package)
