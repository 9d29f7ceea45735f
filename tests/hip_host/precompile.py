"""Compiles every family of kernels for the HIP runtime for the CPU, into the package's folder of prebuilt code.

    ROCM_PATH=build/hip_host HIP_HOST_WAVE=32 python tests/hip_host/precompile.py

The package would compile each kernel at its first use. A family at once takes a tenth of the time of its kernels one by
one, since most of that goes into headers. Families whose sources have not changed are left as they are.
"""

from __future__ import annotations

import hashlib
import json
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import tallow

SOURCES = Path(tallow.__file__).parent / "kernels"


def checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def compile_family(source: Path, target: str) -> str:
    """Writes the family's code object and, last, the record by which the package knows that it is current."""
    from tallow.rocm_backend.kernels import Hiprtc

    headers = sorted(SOURCES.glob("*.hpp"))
    sources = {path.name: checksum(path.read_bytes()) for path in (source, *headers)}
    code = SOURCES / "code" / target / f"{source.stem}.co"
    note = code.with_suffix(".json")
    if code.is_file() and note.is_file():
        found = {"sources": sources, "code": checksum(code.read_bytes())}
        if json.loads(note.read_bytes()) == found:
            return f"{source.stem}: up to date"
    texts = {path.name: path.read_text(encoding="utf-8") for path in headers}
    data = Hiprtc().compile(source.read_text(encoding="utf-8"), source.stem, texts, target)
    code.parent.mkdir(parents=True, exist_ok=True)
    note.unlink(missing_ok=True)
    record = {"sources": sources, "code": checksum(data)}
    for path, content in ((code, data), (note, json.dumps(record).encode())):
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_bytes(content)
        temporary.replace(path)
    return f"{source.stem}: {len(data) // 1024} KiB"


def main() -> None:
    target = f"host{os.environ.get('HIP_HOST_WAVE', '64')}"
    # The largest first, so that the last ones to finish are short.
    sources = sorted(SOURCES.glob("*.hip"), key=lambda path: -path.stat().st_size)
    with ProcessPoolExecutor() as pool:
        for line in pool.map(compile_family, sources, [target] * len(sources)):
            print(f"{target} {line}")


if __name__ == "__main__":
    main()
