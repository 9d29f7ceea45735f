"""The examination of a backend on GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ....kernels.arguments import FAMILIES
from ...base.error import TallowError
from ...doctor.finding import Finding, modules, reason
from ...doctor.machine import library_files
from ...kernels import code_object
from ...kernels.code_cache import CodeCache, cache_folder

if TYPE_CHECKING:
    from .gpu_base import GpuBase


def diagnose(device_class: type[GpuBase]) -> Iterator[Finding]:
    """Yield modules, runtime, devices, what the driver says of the first, compiler, kernels, cache and libraries."""
    yield from modules(device_class.modules, device_class.requires)
    runtime = _attempt("runtime", device_class.runtime_version)
    if not runtime.is_present:
        yield runtime
        return
    try:
        device = device_class.open(0)
    except TallowError as error:
        yield runtime
        yield Finding("devices", False, reason(error))
        return
    driver = device.driver
    yield runtime._replace(files=library_files(*driver.runtime_libraries))
    yield Finding("devices", True, f"{device_class.device_count()}, the first one {device.description}")
    yield from driver.diagnose()
    compiler = _attempt("compiler", lambda: driver.compiler_version)
    compiler = compiler._replace(files=library_files(driver.compiler.calls.LIBRARY))
    families = [family for family in FAMILIES if device.kernels.has(family)]
    built = sum(code_object.current(code_object.path_of(driver.target, family)) is not None for family in families)
    trouble = CodeCache(cache_folder()).trouble()
    if built == len(families):
        # Only kernels of users and fused functions are compiled then.
        yield compiler._replace(is_present=compiler.is_present or None)
        yield Finding("kernels", True, f"built ahead for {driver.target}")
    else:
        yield compiler
        state = f"{built} of {len(families)} families are built ahead for {driver.target}; the others are compiled"
        yield Finding("kernels", None if compiler.is_present else False, f"{state} at their first use")
    yield Finding("cache", trouble is None, trouble or f"kernels that were compiled are cached in {cache_folder()}")
    for name, library in device_class.library_classes().items():
        try:
            is_present = getattr(device, name) is not None
        except TallowError as error:
            yield Finding(name, False, reason(error))
            continue
        yield (
            Finding(name, True, "found", files=library_files(name.replace("_", ""), *library.parts))
            if is_present
            else Finding(name, None, f"not found, so {library.without}", f"it needs {library.needs}")
        )


def _attempt(part: str, look: Callable[[], str]) -> Finding:
    """Return the result of a check, or why it fails."""
    try:
        return Finding(part, True, look())
    except TallowError as error:
        return Finding(part, False, reason(error))
