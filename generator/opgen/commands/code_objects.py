"""The code objects of a project, and which of them are out of date."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from opgen.base import find_base
from opgen.code_objects import CodeObject, CompileError, code_objects, out_of_date
from opgen.folders import HEADERS, OUTPUT
from opgen.model.spec import Spec


def project_code_objects(root: Path, spec: Spec) -> tuple[tuple[CodeObject, ...], Path]:
    """The code objects that a project has, and the folder that holds them."""
    kernels = root / OUTPUT / spec.package.name / "kernels"
    headers = [root / HEADERS]
    if spec.package.base is not None and (base := find_base(spec.package.base.package)) is not None:
        headers.append(base.folder / HEADERS)
    return code_objects(spec, kernels, headers, kernels / "code"), kernels / "code"


def out_of_date_kernels(root: Path, spec: Spec) -> Iterator[str]:
    """The targets whose kernels were compiled before the sources changed: the package does not use those.

    Targets that no compiler here is for, such as those of kernels that were copied from another machine, are left out.
    """
    try:
        old = out_of_date(project_code_objects(root, spec)[0])
    except CompileError:  # a source is missing, which is reported already
        return
    if not old:
        return
    from opgen.compilers import may_be_built  # asyncio takes long to import, and most commands have nothing to report

    toolchains = {
        target: backend.code_objects.toolchains
        for backend in spec.backends
        if backend.code_objects is not None
        for target in backend.code_objects.targets
    }
    lacking = {target for target in {each.target for each in old} if not may_be_built(target, toolchains[target])}
    old = [code_object for code_object in old if code_object.target not in lacking]
    for is_host in (True, False):
        families: dict[str, list[str]] = {}
        for code_object in old:
            if code_object.is_host == is_host:
                families.setdefault(code_object.target, []).append(code_object.family)
        if families:
            names = ", ".join(sorted(set(chain.from_iterable(families.values()))))
            fix = f"run 'opgen compile{' --host' if is_host else ''}'"
            yield f"kernels of {', '.join(families)} are out of date ({names}); {fix}"
