"""The toolchains' part of the model: what a backend's kernels are compiled for ahead of time, and with what."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated

from opgen.decoder import Diagnostics
from opgen.notes import Entry, Key, Mark, Name, Placeholders, defines, like, names_of
from opgen.problem import Location, did_you_mean
from opgen.targets import TARGET, is_target

_FLAG = Placeholders(("target", "device_libraries"), among_braces=True)
_LIBRARIES = "{device_libraries}"


@dataclass(frozen=True)
class DeviceLibraries:
    """A folder of device libraries for a compiler, and the constants that an old one lacks."""

    folders: Annotated[tuple[str, ...], "Folders that may hold the libraries; the first that is there is taken."]
    constants: Annotated[
        Mapping[str, int],
        Mark.LATER,  # those of the targets
    ]
    text: Annotated[
        str,
        Mark.PARAGRAPHS,
        Placeholders(("constant",), among_braces=True),
        "Such a file as the compiler's intermediate text, with its {constant}.",
    ]
    flags: Annotated[tuple[str, ...], "The compiler's flags that compile that text to the file."]


@dataclass(frozen=True)
class Toolchain:
    """A kind of compiler that builds code objects."""

    name: Annotated[Name, Entry("toolchain '{}'")]
    install: Annotated[str, "What to install for it: opgen says so where it is missing."]
    compilers: Annotated[
        tuple[str, ...],
        "Names or paths of the compiler, tried in this order; $NAME/ is a folder that the environment names.",
    ]
    subcommand: Annotated[str | None, "A subcommand of the compiler, before all flags."]
    environment: Annotated[
        Mapping[str, str], Mark.OPTIONAL, "Variables of the environment that the compiler runs with."
    ]
    flags: Annotated[
        tuple[Annotated[str, _FLAG], ...], "The flags of this toolchain, with {target} and {device_libraries}."
    ]
    targets: Annotated[
        Mapping[Annotated[str, names_of("target", token=TARGET.pattern)], tuple[Annotated[str, _FLAG], ...]],
        Mark.OPTIONAL,
        "The only targets that it builds, with further flags for each; without this key it builds all.",
    ]
    device_libraries: Annotated[
        DeviceLibraries | None, "The folder of libraries that the compiler wants, for {device_libraries}."
    ]

    def may_build(self, target: str) -> bool:
        """Whether it is meant for a target."""
        return not self.targets or target in self.targets

    def diagnostics(self, what: str) -> Diagnostics:
        """Note flags with a folder of libraries that there is not."""
        flags: dict[tuple[str | int, ...], str] = {("flags", i): flag for i, flag in enumerate(self.flags)}
        flags |= {("targets", target, i): flag for target, own in self.targets.items() for i, flag in enumerate(own)}
        for location, flag in flags.items() if self.device_libraries is None else ():
            if _LIBRARIES in flag:
                yield (
                    location,
                    f"'flags' of {what} have the placeholder 'device_libraries'; write what it is below that key",
                )


@dataclass(frozen=True)
class CodeObjects:
    """The targets that a backend's kernels are compiled for. The first toolchain that can build one of them does."""

    host: Annotated[bool, "True if the kernels are those for the host: the files of spec/kernels with `host: true`."]
    targets: Annotated[
        Mapping[Annotated[str, is_target, like(TARGET.pattern), defines("target", token=TARGET.pattern)], Location],
        Mark.OPTIONAL,
        "The targets, each the name of a folder of code objects; without this key those that spec/kernels/targets.yaml "
        "has for the backend, but for those that are compiled at run time.",
    ]
    flags: Annotated[
        tuple[Annotated[str, Placeholders(("target",), among_braces=True)], ...],
        Mark.OPTIONAL,
        "The flags of all toolchains, with {target}.",
    ]
    probe: Annotated[
        str | None,
        "Of the host: a header whose `bool is_supported()` says whether the machine has the instructions of the target "
        "that it was compiled for.",
    ]
    listed: Annotated[
        tuple[Toolchain, ...],
        Key("toolchains"),
        "The toolchains by name. The first that is installed and can build a target builds it.",
    ]

    @cached_property
    def toolchains(self) -> tuple[Toolchain, ...]:
        """The toolchains, with the flags of all."""
        return tuple(replace(toolchain, flags=self.flags + toolchain.flags) for toolchain in self.listed)

    def diagnostics(self, _: str) -> Diagnostics:
        """Note targets that there are not, and what a toolchain for the host cannot have."""
        if self.host != (self.probe is not None):
            fix = "lack a 'probe'; name a header" if self.host else "alone have a 'probe'; remove it"
            yield ("probe",) if self.probe else ("host",), f"kernels for the host {fix}"
        for toolchain in self.listed:
            path, what = ("toolchains", toolchain.name), f"toolchain '{toolchain.name}'"
            for target in toolchain.targets if self.targets else ():
                if target not in self.targets:
                    message = f"{what} builds '{target}', which is no target of the backend"
                    yield (*path, "targets", target), message + did_you_mean(target, self.targets)
            # The package runs the toolchains of the host too, and looks for their compilers by name alone.
            for position, compiler in enumerate(toolchain.compilers if self.host else ()):
                if "/" in compiler or compiler.startswith("$"):
                    message = f"compiler '{compiler}' of {what} is for the host, so it has no folder; write its name"
                    yield (*path, "compilers", position), message
            for key in ("device_libraries", "environment") if self.host else ():
                if getattr(toolchain, key):
                    yield (*path, key), f"{what} is for the host and has no '{key}'; remove it"
