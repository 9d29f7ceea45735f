"""The package that a project builds on: the spec, the templates and the runtime that the project itself lacks.

A project says in spec/package.yaml on which installed package it stands. The templates and the runtime of that package
serve the project too, and the files of its spec that describe the runtime. A file of the project replaces the
one with its path.
"""

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from opgen.folders import PACKAGE_FILE
from opgen.loader import Document, load_file
from opgen.problem import Problem, did_you_mean

# What describes a runtime: the functions that formulas and cells call, and the numbers that its kernels share.
_OF_KERNELS = ("widths", "constants", "targets", "groups", "tuples")
_FILES = ("primitives.yaml", *(f"kernels/{name}.yaml" for name in _OF_KERNELS))
_FOLDERS = ("families", "libraries", "drivers")
_PRIMITIVES = Path("spec/primitives.yaml")


@dataclass(frozen=True)
class Base:
    """An installed package with the folders spec/, templates/ and runtime/, whose modules are not imported."""

    package: str
    folder: Path


def find_base(package: str) -> Base | None:
    """The installed package of this name, where it has a spec for other projects."""
    module_spec = importlib.util.find_spec(package) if package.isidentifier() else None
    folders = module_spec.submodule_search_locations if module_spec is not None else None
    for folder in map(Path, folders or ()):
        if (folder / PACKAGE_FILE).is_file():
            return Base(package, folder)
    return None


def with_base(documents: dict[Path, Document], problems: list[Problem]) -> Base | None:
    """The base that spec/package.yaml names, whose files join `documents`; what it lacks goes to `problems`.

    What is no text or no list there is noted when the file is decoded.
    """
    package = documents.get(PACKAGE_FILE)
    root = package.root.content if package is not None else None
    named = root.get("base") if isinstance(root, dict) else None
    content = named.content if named is not None else None
    name = content.get("package") if isinstance(content, dict) else None
    if not isinstance(content, Mapping) or name is None or not isinstance(name.content, str):
        return None
    base = find_base(name.content)
    if base is None:
        message = f"the base '{name.content}' is not installed here, or is no package that projects can build on"
        problems.append(
            Problem(name.location, f"{message}; install it from its repository: pip install REPOSITORY/generated")
        )
        return None
    wanted = [
        *_FILES,
        *(f"{it}/{file.name}" for it in _FOLDERS for file in sorted((base.folder / "spec" / it).glob("*.yaml"))),
    ]
    kernels = content.get("kernels")
    known = [file.stem for file in sorted((base.folder / "spec/kernels").glob("*.yaml"))]
    for item in kernels.content if kernels is not None and isinstance(kernels.content, list) else ():
        family = str(item.content)
        if family in known:
            wanted.append(f"kernels/{family}.yaml")
        else:
            message = f"base '{base.package}' has no kernels '{family}'{did_you_mean(family, known)}"
            problems.append(Problem(item.location, message))
    for file in dict.fromkeys(wanted):
        path = Path("spec", file)
        if path == _PRIMITIVES and path in documents:
            described = load_file(base.folder / path, Path(base.package) / path, problems)
            documents[path] = _merged(documents[path], described)
            continue
        if path not in documents and (base.folder / path).is_file():
            document = load_file(base.folder / path, Path(base.package) / path, problems)
            if document is not None:
                documents[path] = document
    return base


def _merged(own: Document, base: Document | None) -> Document:
    """The primitives of a project and, before them, those of the base that have other names."""
    key = "primitives"
    roots = [own.root.content, None if base is None else base.root.content]
    mine, theirs = (root.get(key) if isinstance(root, dict) else None for root in roots)
    if mine is None or theirs is None or not isinstance(own.root.content, dict):
        return own
    if not isinstance(mine.content, dict) or not isinstance(theirs.content, dict):
        return own
    merged = replace(mine, content={**theirs.content, **mine.content})
    return Document(own.path, replace(own.root, content={**own.root.content, key: merged}), own.text)
