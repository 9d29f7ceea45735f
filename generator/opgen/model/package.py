"""The package that opgen emits."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from opgen.decoder import Diagnostics
from opgen.notes import Example, LocationOf, Mark, Name, Pattern, Range, like
from opgen.problem import Location

# What pip takes, as far as a package's own version and the Python that it needs go.
_FOLDER = r"[a-z]\w*"
_VERSION = r"\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?"
_PYTHON = r"(~=|[=!<>]=|<|>) ?\d+(\.\d+)*(\.\*)?(, ?(~=|[=!<>]=|<|>) ?\d+(\.\d+)*(\.\*)?)*"
_MODULE = re.compile(r"\w+(?:/\w+)*")


@dataclass(frozen=True)
class BasePackage:
    """The installed package that a project builds on, and the families of kernels that it takes from there."""

    CALLED: ClassVar = "the base"
    package: Annotated[Name, "The name by which Python imports it."]
    kernels: Annotated[tuple[str, ...], Mark.OPTIONAL, "The families of kernels that this package has from there."]


@dataclass(frozen=True)
class Package:
    """The package that opgen emits."""

    CALLED: ClassVar = "the package"
    name: Annotated[Name, "The name that users import."]
    version: Annotated[str, Pattern(_VERSION, "1.0.2"), "The version of the package, as pip has it."]
    summary: Annotated[str, "One line on the package, for indexes of packages."]
    python: Annotated[str, Pattern(_PYTHON, ">=3.11"), "The versions of Python that the package runs on."]
    requires: Annotated[tuple[str, ...], Mark.OPTIONAL, "The packages that pip always installs with this one."]
    extras: Annotated[
        Mapping[Name, tuple[str, ...]],
        Mark.OPTIONAL,
        "By the name of an extra, what pip installs for a part that not everybody uses.",
    ]
    urls: Annotated[
        Mapping[str, str],
        Mark.OPTIONAL,
        Example("Issues: https://example.org/issues"),
        "Pages of the package by their labels. Its README and its self-test send problems to the page `Issues`.",
    ]
    max_rank: Annotated[
        int,
        Range(1, 64, "the most dims of a NumPy array"),
        "The most dims that a layout may have. Kernels carry dims and strides in arrays of this length.",
    ]
    public: Annotated[
        Mapping[Annotated[str, like(_MODULE.pattern)], tuple[Annotated[str, like(_MODULE.pattern)], Location]],
        Mark.OPTIONAL,
        "Modules that users import by these names, and the module of runtime/ that holds the names of each.",
    ]
    breaking: Annotated[
        Mapping[str, Mapping[str, tuple[str, Location]]],
        Mark.OPTIONAL,
        Example("OP_REMOVED: {unary.gelu: reason}"),
        "Why the package breaks its callers, by the rule and by what breaks, as `opgen diff` says both.",
    ]
    base: Annotated[
        BasePackage | None,
        Example("package: name"),
        "The installed package whose runtime, templates, primitives and families this one has.",
    ]
    shared: Annotated[
        Mapping[Annotated[str, like(_FOLDER)], Location],
        Mark.OPTIONAL,
        "Folders of the project that the package holds besides the runtime, for projects that build on it.",
    ]
    without_gradients: Annotated[bool, "Whether no op and no method has a gradient, so that none need be written."]
    location: Annotated[Location, LocationOf("name")] = field(compare=False)

    def diagnostics(self, _: str) -> Diagnostics:
        """Note what is no module."""
        for name, (home, location) in self.public.items():
            for text in (name, home):
                if text and not _MODULE.fullmatch(text):
                    yield location, f"'{text}' is no module; write its path, like 'files/gguf'"
        for folder, location in self.shared.items():
            if not re.fullmatch(r"[a-z]\w*", folder):
                yield location, f"'{folder}' is no folder of the project; write its name alone"


@dataclass(frozen=True)
class PublicModule:
    """A module that users import: what a module of the runtime has for them."""

    name: str  # as a path
    home: str  # below runtime/, without an ending
    doc: str
    names: tuple[str, ...]
