"""The toolchains' part of the model: what a backend's kernels are compiled for ahead of time, and with what."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from opgen.fields import Fields, ScalarType
from opgen.loader import Value
from opgen.problem import Location, Problem, did_you_mean

# The name of a folder too.
_TARGET = re.compile(r"[a-z][a-z0-9_.-]*")


@dataclass(frozen=True)
class DeviceLibraries:
    """A folder of libraries that a compiler wants, and how the constants that an old one lacks are made."""

    folders: tuple[str, ...]  # looked for in this order
    constants: Mapping[str, int]  # by the name of the file that holds nothing but it
    text: str  # such a file as the compiler's intermediate text, with its {constant}
    flags: tuple[str, ...]  # turn that text into the file


@dataclass(frozen=True)
class Toolchain:
    """A kind of compiler that builds code objects."""

    name: str
    install: str  # what to install for it
    compilers: tuple[str, ...]  # names or paths, looked for in this order; $NAME/ is a variable of the environment
    subcommand: str | None  # of the compiler, before all flags
    environment: Mapping[str, str]
    flags: tuple[str, ...]  # with {target} and {device_libraries}
    targets: Mapping[str, tuple[str, ...]]  # the only ones that it builds, with the flags of each; empty for all
    device_libraries: DeviceLibraries | None

    def may_build(self, target: str) -> bool:
        """Whether it is meant for a target."""
        return not self.targets or target in self.targets


@dataclass(frozen=True)
class CodeObjects:
    """The targets that a backend's kernels are compiled for. The first toolchain that can build one of them does."""

    host: bool  # the kernels are those for the host
    targets: Mapping[str, Location]
    toolchains: tuple[Toolchain, ...]


def build_code_objects(value: Value, backend: str, problems: list[Problem]) -> CodeObjects:
    """What the key `code_objects` of a backend holds."""
    fields = Fields(value, f"'code_objects' of backend '{backend}'", problems)
    host = fields.flag("host")
    targets: dict[str, Location] = {}
    for target, location in _required_texts(fields, "targets"):
        if not _TARGET.fullmatch(target):
            message = f"'{target}' cannot be a target's name; use small letters, digits, dots, underscores and hyphens"
            fields.problem(location, message)
        if target in targets:
            fields.problem(location, f"{fields.what} lists target '{target}' twice; keep one")
        targets[target] = location
    flags = _flags(fields, fields.texts("flags"), ["target"])
    toolchains = tuple(
        _toolchain(name, inner, flags, targets, problems, host=host)
        for name, inner in fields.mapping("toolchains").items()
    )
    fields.finish()
    return CodeObjects(host, targets, toolchains)


def _toolchain(
    name: str, value: Value, flags: tuple[str, ...], targets: Collection[str], problems: list[Problem], *, host: bool
) -> Toolchain:
    fields = Fields(value, f"toolchain '{name}'", problems)
    subcommand = fields.optional("subcommand")
    value_of_libraries = fields.optional("device_libraries")
    libraries = _device_libraries(value_of_libraries, name, problems) if value_of_libraries is not None else None
    known = ["target"] if libraries is None else ["target", "device_libraries"]
    own_flags = _flags(fields, _required_texts(fields, "flags"), known)
    own_targets: dict[str, tuple[str, ...]] = {}
    for target, inner in _items(fields, fields.optional("targets"), "targets").items():
        if target not in targets:
            message = f"{fields.what} builds '{target}', which is no target of the backend" + did_you_mean(
                target, targets
            )
            fields.problem(inner.location, message)
        own_targets[target] = _flags(fields, fields.text_list(inner, target), known)
    compilers = _required_texts(fields, "compilers")
    if host:
        _check_host(fields, compilers)
    toolchain = Toolchain(
        name=name,
        install=fields.text("install"),
        compilers=tuple(text for text, _ in compilers),
        subcommand=fields.line(subcommand, "subcommand") if subcommand is not None else None,
        environment=_scalars(fields, fields.optional("environment"), "environment", str),
        flags=flags + own_flags,
        targets=own_targets,
        device_libraries=libraries,
    )
    fields.finish()
    return toolchain


def _check_host(fields: Fields, compilers: Iterable[tuple[str, Location]]) -> None:
    """The package runs the toolchains of the host too, and looks for their compilers by name alone."""
    for compiler, location in compilers:
        if "/" in compiler or compiler.startswith("$"):
            message = f"compiler '{compiler}' of {fields.what} is for the host, so it has no folder; write its name"
            fields.problem(location, message)
    for key in ("device_libraries", "environment"):
        if fields.optional(key) is not None:
            fields.problem(fields.place(key), f"{fields.what} is for the host and has no '{key}'; remove it")


def _device_libraries(value: Value, toolchain: str, problems: list[Problem]) -> DeviceLibraries:
    fields = Fields(value, f"'device_libraries' of toolchain '{toolchain}'", problems)
    libraries = DeviceLibraries(
        folders=_texts(fields, "folders"),
        constants=_scalars(fields, fields.required("constants"), "constants", int),
        text=fields.paragraphs("text"),
        flags=_texts(fields, "flags"),
    )
    fields.check_placeholders("text", libraries.text, fields.place("text"), ["constant"], has_braces=True)
    fields.finish()
    return libraries


def _flags(fields: Fields, listed: tuple[tuple[str, Location], ...], known: list[str]) -> tuple[str, ...]:
    for text, location in listed:
        fields.check_placeholders("flags", text, location, known, has_braces=True)
    return tuple(text for text, _ in listed)


def _required_texts(fields: Fields, key: str) -> tuple[tuple[str, Location], ...]:
    """A list of texts with their places, of which there must be one."""
    value = fields.required(key)
    if value is None:
        return ()
    if value.content == []:
        fields.problem(value.location, f"'{key}' of {fields.what} is empty; write what it holds")
    return fields.text_list(value, key)


def _texts(fields: Fields, key: str) -> tuple[str, ...]:
    return tuple(text for text, _ in _required_texts(fields, key))


def _scalars(fields: Fields, value: Value | None, key: str, kind: type[ScalarType]) -> dict[str, ScalarType]:
    """A mapping to scalars from texts, which need not be names."""
    found = {name: fields.scalar(inner, kind, name) for name, inner in _items(fields, value, key).items()}
    return {name: scalar for name, scalar in found.items() if scalar is not None}


def _items(fields: Fields, value: Value | None, key: str) -> dict[str, Value]:
    """What a mapping from texts holds, which need not be names."""
    if value is None:
        return {}
    if not isinstance(value.content, dict):
        fields.problem(value.location, f"'{key}' of {fields.what} must be a mapping, not {value.type_name}")
        return {}
    return value.content
