"""Diagnoses an installation of ROCm from the files of the system, without calling HIP.

The files are those below `root`, which tests replace.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from ....kernels.targets import TARGETS
from ...doctor.finding import Finding
from ..gpu_backend.driver.target import find_target

ROOT: Final = Path("/")
OVERRIDE: Final = "HSA_OVERRIDE_GFX_VERSION"
_HIDING: Final = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")
_AMD: Final = "0x1002"
# Display controllers and processing accelerators, by the first byte of their class on the PCI bus.
_GPU_CLASSES: Final = ("0x03", "0x12")


def diagnose(target: str, root: Path = ROOT) -> Iterator[Finding]:
    """Yield the version of ROCm, and whether its libraries may lack kernels for a target."""
    version = rocm_version(root)
    if version is not None:
        yield Finding("ROCm", True, version)
    override = os.environ.get(OVERRIDE)
    if override:
        yield Finding("target", None, f"{OVERRIDE}={override} makes the runtime report {target}")
        return
    facts = find_target(TARGETS["rocm"], target)
    if facts is not None and facts.override is not None:
        text = f"rocBLAS and MIOpen may have no kernels for {target}; tallow's own are compiled for it"
        fix = f"if a library fails, set {OVERRIDE}={facts.override}, by which the GPU is taken for {facts.taken_for}"
        yield Finding("target", None, text, fix)


def rocm_version(root: Path = ROOT) -> str | None:
    """Return the version of ROCm and its folder, if the installation records it."""
    chosen = os.environ.get("ROCM_PATH")
    for folder in (*([Path(chosen)] if chosen else []), root / "opt/rocm"):
        with suppress(OSError):
            version = (folder / ".info/version").read_text(encoding="utf-8").strip()
            return f"{version} in {os.path.realpath(folder)}"
    return None


def no_gpu(root: Path = ROOT) -> str:
    """Return why the runtime finds no GPU, as far as files show, and what to do."""
    if not sys.platform.startswith("linux"):
        return "ROCm's GPUs are used on Linux; check that rocminfo lists one"
    kfd, dri = root / "dev/kfd", root / "dev/dri"
    if not kfd.exists():
        if not _has_gpu(root):
            return "no AMD GPU is on the PCI bus of this machine; use another backend"
        if (root / "sys/module/amdgpu").exists():
            return (
                "/dev/kfd is missing although the driver amdgpu is loaded; in a container pass --device=/dev/kfd"
                " --device=/dev/dri, else install AMD's amdgpu-dkms or a kernel with CONFIG_HSA_AMD"
            )
        return (
            "the kernel's driver amdgpu is not loaded, so /dev/kfd is missing; run 'sudo modprobe amdgpu', and install"
            " amdgpu-dkms or a newer kernel if that fails"
        )
    nodes = sorted(dri.glob("renderD*")) if dri.is_dir() else []
    closed = [node for node in (kfd, *nodes) if not os.access(node, os.R_OK | os.W_OK)]
    # The nodes of other GPUs than AMD's may be closed.
    if kfd in closed or (nodes and len(closed) == len(nodes)):
        groups = sorted({_group_of(node) for node in closed} | {"render", "video"})
        return (
            f"this user may not open /{closed[0].relative_to(root)}; run 'sudo usermod -aG {','.join(groups)} $USER'"
            " and log in again, or in a container pass --group-add for these groups"
        )
    if not nodes:
        return "/dev/dri has no render node; in a container pass --device=/dev/dri as well as --device=/dev/kfd"
    hiding = next((name for name in _HIDING if name in os.environ), None)
    if hiding is not None:
        return f"{hiding}={os.environ[hiding]} may hide it; unset that, or set it to the number of a GPU that is there"
    return (
        "check that rocminfo lists one; if it does not, the GPU or the kernel's driver is older or newer than this ROCm"
        " supports"
    )


def _has_gpu(root: Path) -> bool:
    for device in (root / "sys/bus/pci/devices").glob("*"):
        with suppress(OSError):
            vendor, kind = [(device / name).read_text(encoding="ascii").strip() for name in ("vendor", "class")]
            if vendor == _AMD and kind.startswith(_GPU_CLASSES):
                return True
    return False


def _group_of(node: Path) -> str:
    with suppress(OSError, KeyError, NotImplementedError):  # the group has no name here
        return node.group()
    return "render"
