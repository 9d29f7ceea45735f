"""The view of what compiles the host's kernels, which the package needs too."""

from collections.abc import Sequence
from types import SimpleNamespace as View

from opgen.model.spec import Spec
from opgen.toolchains import Toolchain
from opgen.views.python import quoted


def kernels_toolchains(spec: Spec) -> View:
    """The toolchains of the backends whose kernels are for the host, all as Python writes it."""
    owners = [backend for backend in spec.backends if backend.code_objects is not None and backend.code_objects.host]
    compiled = [each for backend in owners if (each := backend.code_objects) is not None]
    return View(
        made_from=tuple(backend.location_of("code_objects") for backend in owners),
        package=spec.package,
        targets=[target for each in compiled for target in each.targets],
        probe=quoted(next((each.probe for each in compiled if each.probe is not None), "")),
        toolchains=[_row(toolchain, list(each.targets)) for each in compiled for toolchain in each.toolchains],
    )


# It distinguishes wheels with kernels for the host from others.
setup = kernels_toolchains


def _row(toolchain: Toolchain, targets: Sequence[str]) -> View:
    built = toolchain.targets or dict.fromkeys(targets, ())
    return View(
        name=quoted(toolchain.name),
        install=quoted(toolchain.install),
        compilers=_tuple(toolchain.compilers),
        subcommand=_tuple(() if toolchain.subcommand is None else (toolchain.subcommand,)),
        flags=_tuple(toolchain.flags),
        targets={quoted(target): _tuple(built[target]) for target in targets if target in built},  # each with its flags
    )


def _tuple(texts: Sequence[str]) -> str:
    return "(" + "".join(f"{quoted(text)}, " for text in texts) + ")"
