"""The machine that a report is about: operating system, processor, and the library files of this process."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...limits import VERSION

# The extensions of instruction sets for which there are kernels, as Linux names them.
_INSTRUCTIONS: Final = (
    *("avx2", "fma", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_int8"),
    *("asimd", "asimdhp", "asimddp", "bf16", "i8mm", "sve", "sve2"),
)


@dataclass(frozen=True)
class System:
    """The machine and its Python; nothing in it names a user or a host."""

    package: str
    """The name and the version of the package."""
    python: str
    os: str
    cpu: str
    """The model, the architecture and the number of cores that this process may use."""
    instructions: tuple[str, ...]
    """The extensions of the instruction set that kernels can use, where the system names them."""

    def __str__(self) -> str:
        extensions = f"; {' '.join(self.instructions)}" if self.instructions else ""
        return f"{self.package}, {self.python}, {self.os}\nCPU: {self.cpu}{extensions}"


def system() -> System:
    """Describe this machine and this process."""
    package = __name__.partition(".")[0]
    facts = _cpu_facts()
    flags = {*(facts.get("flags") or facts.get("features") or "").split()}
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    model = facts.get("model name") or platform.processor() or "unknown model"
    return System(
        f"{package} {VERSION}",
        f"{platform.python_implementation()} {platform.python_version()}",
        _os(),
        f"{' '.join(model.split())}, {platform.machine()}, {cores} core{'s' * (cores != 1)}",
        tuple(name for name in _INSTRUCTIONS if name in flags),
    )


def _os() -> str:
    kernel = f"{platform.system()} {platform.release()}"
    with suppress(OSError):  # where there is no such file: another system than Linux
        return f"{platform.freedesktop_os_release().get('PRETTY_NAME', 'Linux')}, {kernel}"
    version = platform.mac_ver()[0]
    return f"macOS {version}, {kernel}" if version else kernel


def _cpu_facts() -> dict[str, str]:
    """Return the properties of the first core, by the names of /proc/cpuinfo in lower case."""
    if sys.platform == "darwin":
        import subprocess

        with suppress(OSError, subprocess.SubprocessError):
            command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
            answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
            return {"model name": answer.stdout}
    facts: dict[str, str] = {}
    with suppress(OSError), Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as file:
        for line in file:
            name, colon, value = line.partition(":")
            if not colon:
                break
            facts[name.strip().lower()] = value.strip()
    return facts


def library_files(*names: str) -> tuple[str, ...]:
    """Return the files of libraries that this process has loaded, such as libNAME.so.1; none on systems without /proc.

    Case does not matter, and a name includes the parts of a library: cudnn matches libcudnn_graph.so.9 too.
    """
    wanted = re.compile(rf"lib({'|'.join(map(re.escape, names))})(?![a-z0-9])", re.IGNORECASE)
    return tuple(sorted({str(path) for path in _loaded() if wanted.match(path.name)}))


def _loaded() -> Iterator[Path]:
    # Only Linux has this file.
    with suppress(OSError), Path("/proc/self/maps").open(encoding="utf-8", errors="replace") as file:
        for line in file:
            _, slash, path = line.rstrip("\n").partition("/")
            if slash:
                yield Path("/" + path)


def anonymous(text: str) -> str:
    """Shorten the user's home folder to ~, and take the names of the user and of the host out of other paths."""
    with suppress(RuntimeError):  # the home folder is unknown
        home = str(Path.home())
        text = re.sub(rf"{re.escape(home)}(?![\w.-])", "~", text) if len(home) > 1 else text
    for name, sign in ((_user(), "USER"), (platform.node(), "HOST")):
        # Folders at the root of the file system, such as /opt, are named after neither.
        text = re.sub(rf"(?<=[\w.-]/){re.escape(name)}(?=/)", sign, text) if name else text
    return text


def _user() -> str:
    import getpass

    with suppress(OSError, KeyError, ImportError):  # the user is unknown
        return getpass.getuser()
    return ""
