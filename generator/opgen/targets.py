"""The targets' part of the model: the facts of GPU architectures, on which kernels and their launches depend."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated

from opgen.decoder import Cursor, Diagnostics
from opgen.notes import Entry, Key, Mark, Name, Range, defines, exactly, like, names_of
from opgen.problem import Location, did_you_mean

# The name of a folder too.
TARGET = re.compile(r"[a-z][a-z0-9_.-]*")

# What an entry has of the one that it is like.
_SHARED = ("wave_size", "shared_bytes", "matrix_cores", "instructions", "has")


# A dtype, and rows, columns and depth.
_PRODUCT = re.compile(r"[a-z][a-z0-9]*_[0-9]+x[0-9]+x[0-9]+")


def _is_product(_: Cursor, text: str) -> Iterator[str]:
    if not _PRODUCT.fullmatch(text):
        yield f"'{text}' is no dtype with rows, columns and depth; write it like 'f16_16x16x16'"


def is_target(_: Cursor, text: str) -> Iterator[str]:
    """Note a name that cannot be one of a folder."""
    if not TARGET.fullmatch(text):
        yield f"'{text}' cannot be a target's name; use small letters, digits, dots, underscores and hyphens"


@dataclass(frozen=True)
class Target:
    """The facts of a GPU architecture."""

    name: Annotated[str, Entry("target '{}'"), is_target, like(TARGET.pattern), defines("target", token=TARGET.pattern)]
    like: Annotated[
        str | None,
        names_of("target", token=TARGET.pattern),
        "A target above, whose `wave_size`, `shared_bytes`, `matrix_cores`, `instructions` and `has` hold here unless "
        "they are written.",
    ]
    at_run_time: Annotated[bool, "True if `opgen compile` leaves it out: kernels are compiled where they first run."]
    reported: Annotated[str | None, "What drivers call it, if not by its name."]
    serves: Annotated[
        Mapping[Annotated[str, is_target, like(TARGET.pattern)], Location],
        Mark.OPTIONAL,
        "Other targets with these facts, for each of which kernels are compiled at run time.",
    ]
    wave_size: Annotated[int | None, Range(1), "The threads that run in step."]
    shared_bytes: Annotated[int | None, Range(1), "The bytes of shared memory that a block may have."]
    matrix_cores: Annotated[
        Name | None, "The kind of its matrix cores: in kernels the macro MATRIX_CORES_ and the kind is defined."
    ]
    instructions: Annotated[
        Mapping[Annotated[str, _is_product, exactly(_PRODUCT.pattern)], str],
        Mark.OPTIONAL,
        "By dtype and shape (rows, columns and depth), what multiplies on its matrix cores: a function of the compiler "
        "or an instruction. In kernels the macro MATRIX_, the dtype and the shape stands for it.",
    ]
    has: Annotated[
        Mapping[Annotated[Name, defines("feature")], Location],
        Mark.OPTIONAL,
        "What else it has: in kernels the macro HAS_ and the name is defined. Families of kernels name it in `needs`.",
    ]
    generic: Annotated[
        str | None,
        names_of("target", token=TARGET.pattern),
        "The target whose code runs on it too, for compilers that do not know its name.",
    ]
    override: Annotated[
        str | None,
        "The version by which its driver takes it for the target that it is `like`, for libraries without kernels for "
        "it.",
    ]
    constants: Annotated[
        Mapping[str, int],
        Mark.OPTIONAL,
        "By the name of a file of a toolchain's `device_libraries` that holds nothing but a constant, the constant; a "
        "missing file is written.",
    ]
    location: Location = field(compare=False)

    @property
    def flags(self) -> Sequence[str]:
        """The kind of its matrix cores and its features, as macros of kernels without the prefix of the package."""
        kind = self.matrix_cores
        cores = [] if kind is None else ["MATRIX_CORES", f"MATRIX_CORES_{kind.upper()}"]
        return [*cores, *(f"HAS_{feature.upper()}" for feature in self.has)]

    @property
    def products(self) -> Mapping[str, str]:
        """The matrix instructions that it has, by their name in kernels."""
        return {f"MATRIX_{product.upper()}": name for product, name in self.instructions.items()}

    def diagnostics(self, what: str) -> Diagnostics:
        """Note an override without the target that drivers then take it for."""
        if self.override is not None and self.like is None:
            yield "override", f"{what} has an 'override', and is 'like' no target; write which one drivers take it for"


@dataclass(frozen=True)
class Targets:
    """The GPU architectures of each backend, emitted to kernels/target.hpp and kernels/targets.py.

    A device whose target no entry has or serves takes the first entry with its wave size.
    """

    listed: Annotated[
        Mapping[Annotated[str, names_of("backend")], tuple[Target, ...]],
        Key("targets"),
        "By backend, its targets by name.",
    ]

    @cached_property
    def by_backend(self) -> Mapping[str, Sequence[Target]]:
        """The targets of each backend, with the facts of those that they are like."""
        return {backend: _with_facts(targets) for backend, targets in self.listed.items()}

    def diagnostics(self, _what: str) -> Diagnostics:
        """Note names that two targets have, and targets that are named and not there."""
        for backend, targets in self.listed.items():
            named = {target.name: target for target in targets}
            owners = dict.fromkeys(named, "")
            for position, target in enumerate(targets):
                above = [other.name for other in targets[:position]]
                if target.like is not None and target.like not in above:
                    message = f"target '{target.name}' is like '{target.like}', which is no target of '{backend}' above"
                    yield target.location, message + did_you_mean(target.like, above)
                if target.generic is not None and target.generic not in named:
                    message = f"the generic target '{target.generic}' of '{target.name}' is no target of '{backend}'"
                    yield target.location, message + did_you_mean(target.generic, named)
                for name in (*target.serves, *([target.reported] if target.reported else ())):
                    if owners.setdefault(name, target.name) != target.name:
                        owner = "has an entry of its own" if name in named else f"'{owners[name]}' serves too"
                        message = f"target '{target.name}' serves '{name}', which {owner}; remove one"
                        yield target.serves.get(name, target.location), message
            for target in _with_facts(targets):
                for key in ("wave_size", "shared_bytes"):
                    if getattr(target, key) is None:
                        yield target.location, f"target '{target.name}' lacks '{key}'; write it, or what it is 'like'"
                if target.instructions and target.matrix_cores is None:
                    message = f"target '{target.name}' has 'instructions' of matrix cores, and no 'matrix_cores'"
                    yield target.location, f"{message}; write their kind"


def _with_facts(targets: Sequence[Target]) -> list[Target]:
    resolved: dict[str, Target] = {}
    for target in targets:
        model = resolved.get(target.like or "")
        facts = {key: getattr(target, key) or getattr(model, key) for key in _SHARED} if model else {}
        resolved[target.name] = replace(target, **facts)
    return list(resolved.values())
