"""Compiles every family of kernels for the HIP runtime for the CPU, into the package's folder of prebuilt code.

    ROCM_PATH=build/hip_host python tests/hip_host/precompile.py

The package would compile each kernel at its first use. A family at once takes a tenth of the time of its kernels one by
one, since most of that goes into headers. Families whose sources have not changed are left as they are.

Most families take longer to compile than to test. They are not optimised, and compiled by clang where that is
installed, in a third of the time of g++. Kernels of products would run for two to three times as long.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tallow.kernels.arguments import FAMILIES
from tallow.runtime.helpers.atomic import replacing
from tallow.runtime.kernels.code_object import SOURCES, current, path_of, sources

TARGETS = ("host64", "host32")  # named after the lanes of a wave
OPTIMISED = {"attention", "attention_gradient", "block_tiles", "conv", "matmul", "recurrent_sequence"}
COMPILER = os.environ.get("HIP_HOST_CXX")
CLANG = ("clang++", "clang++-19", "clang++-15")


def checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def compile_family(family: str) -> str:
    """Writes the family's code objects; the record by which the package knows that one is current comes last."""
    from tallow.compilers import rocm
    from tallow.runtime.backends.gpu_backend.driver.run_time_compiler import RunTimeCompiler

    files = {target: path_of(target, family) for target in TARGETS}
    if all(current(file) is not None for file in files.values()):
        return f"{family}: up to date"
    texts = sources(f"{family}.hip")
    uses_waves = "wave.hpp" in texts
    checksums = {name: checksum(text.encode()) for name, text in texts.items()}
    source = texts.pop(f"{family}.hip")
    is_optimised = family in OPTIMISED
    os.environ["HIP_HOST_CXX"] = COMPILER or ("" if is_optimised else next(filter(shutil.which, CLANG), ""))
    os.environ["HIP_HOST_CXXFLAGS"] = "" if is_optimised else "-O0"
    data = b""
    for target, file in files.items():
        if uses_waves or not data:
            data = RunTimeCompiler(rocm, str, 64).compile(source, family, texts, target)
        else:
            # Code that knows nothing of waves is the same for all, behind a header with the name of the target.
            data = data.replace(TARGETS[0].encode(), target.encode(), 1)
        write(file, data, checksums)
    return f"{family}: {len(data) // 1024} KiB{'' if uses_waves else ', the same for both'}"


def write(code: Path, data: bytes, checksums: dict[str, str]) -> None:
    note = code.with_suffix(".json")
    code.parent.mkdir(parents=True, exist_ok=True)
    note.unlink(missing_ok=True)
    record = {"sources": checksums, "code": checksum(data)}
    for path, content in ((code, data), (note, json.dumps(record).encode())):
        with replacing(path) as stream:
            stream.write(content)


def main() -> None:
    # The largest first, so that the last ones to finish are short.
    everywhere = [SOURCES / f"{family}.hip" for family, needs in FAMILIES.items() if not needs]
    families = [path.stem for path in sorted(everywhere, key=lambda path: -path.stat().st_size)]
    with ProcessPoolExecutor() as pool:
        for number, line in enumerate(pool.map(compile_family, families), 1):
            print(f"{number} of {len(families)} families for {' and '.join(TARGETS)}: {line}", flush=True)


if __name__ == "__main__":
    main()
