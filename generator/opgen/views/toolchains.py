"""The view of what compiles the host's kernels, which the package needs too."""

from typing import NamedTuple

from opgen.model import Spec
from opgen.toolchains import Toolchain
from opgen.views.python import quoted


class ToolchainRow(NamedTuple):
    """A kind of compiler, all as Python writes it."""

    name: str
    install: str
    compilers: str
    subcommand: str
    flags: str
    targets: tuple[tuple[str, str], ...]  # each with its flags


class ToolchainsView(NamedTuple):
    """kernels/toolchains.py, and setup.py, which tells wheels with kernels for the host from others."""

    package: str
    targets: tuple[str, ...]
    toolchains: tuple[ToolchainRow, ...]


def host_toolchains(spec: Spec, _: str | None) -> ToolchainsView:
    """The toolchains of the backends whose kernels are for the host."""
    compiled = [each for backend in spec.backends if (each := backend.code_objects) is not None and each.host]
    return ToolchainsView(
        package=spec.package.name,
        targets=tuple(target for each in compiled for target in each.targets),
        toolchains=tuple(_row(toolchain, tuple(each.targets)) for each in compiled for toolchain in each.toolchains),
    )


def _row(toolchain: Toolchain, targets: tuple[str, ...]) -> ToolchainRow:
    built = toolchain.targets or dict.fromkeys(targets, ())
    return ToolchainRow(
        quoted(toolchain.name),
        quoted(toolchain.install),
        _tuple(toolchain.compilers),
        _tuple(() if toolchain.subcommand is None else (toolchain.subcommand,)),
        _tuple(toolchain.flags),
        tuple((quoted(target), _tuple(built[target])) for target in targets if target in built),
    )


def _tuple(texts: tuple[str, ...]) -> str:
    return "(" + "".join(f"{quoted(text)}, " for text in texts) + ")"
