"""Compiles every family of kernels for the HIP runtime for the CPU, into the package's folder of prebuilt code.

    ROCM_PATH=build/hip_host python tests/hip_host/precompile.py

The package would compile each kernel at its first use. A family at once takes a tenth of the time of its kernels one by
one, since most of that goes into headers. Families whose sources have not changed are left as they are.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import tallow

SOURCES = Path(tallow.__file__).parent / "kernels"
TARGETS = ("host64", "host32")  # named after the lanes of a wave


def checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def included(source: Path) -> set[str]:
    """The headers of the package that a source includes, directly or not."""
    found: set[str] = set()
    waiting = [source]
    while waiting:
        names = re.findall(r'^#include "(.+)"', waiting.pop().read_text(encoding="utf-8"), re.MULTILINE)
        new = {name for name in names if (SOURCES / name).is_file()} - found
        found |= new
        waiting += [SOURCES / name for name in new]
    return found


def compile_family(source: Path) -> str:
    """Writes the family's code objects; the record by which the package knows that one is current comes last."""
    from tallow.rocm_backend.kernels import Hiprtc

    headers = sorted(SOURCES.glob("*.hpp"))
    sources = {path.name: checksum(path.read_bytes()) for path in (source, *headers)}
    if all(is_current(code_of(source, target), sources) for target in TARGETS):
        return f"{source.stem}: up to date"
    texts = {path.name: path.read_text(encoding="utf-8") for path in headers}
    uses_waves = "wave.hpp" in included(source)
    data = b""
    for target in TARGETS:
        if uses_waves or not data:
            data = Hiprtc().compile(source.read_text(encoding="utf-8"), source.stem, texts, target)
        else:
            # Code that knows nothing of waves is the same for all, behind a header with the name of the target.
            data = data.replace(TARGETS[0].encode(), target.encode(), 1)
        write(code_of(source, target), data, sources)
    return f"{source.stem}: {len(data) // 1024} KiB{'' if uses_waves else ', the same for both'}"


def code_of(source: Path, target: str) -> Path:
    return SOURCES / "code" / target / f"{source.stem}.co"


def is_current(code: Path, sources: dict[str, str]) -> bool:
    note = code.with_suffix(".json")
    if not (code.is_file() and note.is_file()):
        return False
    return bool(json.loads(note.read_bytes()) == {"sources": sources, "code": checksum(code.read_bytes())})


def write(code: Path, data: bytes, sources: dict[str, str]) -> None:
    note = code.with_suffix(".json")
    code.parent.mkdir(parents=True, exist_ok=True)
    note.unlink(missing_ok=True)
    record = {"sources": sources, "code": checksum(data)}
    for path, content in ((code, data), (note, json.dumps(record).encode())):
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_bytes(content)
        temporary.replace(path)


def main() -> None:
    # The largest first, so that the last ones to finish are short.
    sources = sorted(SOURCES.glob("*.hip"), key=lambda path: -path.stat().st_size)
    with ProcessPoolExecutor() as pool:
        for number, line in enumerate(pool.map(compile_family, sources), 1):
            print(f"{number} of {len(sources)} families for {' and '.join(TARGETS)}: {line}", flush=True)


if __name__ == "__main__":
    main()
