"""Which tallow was measured: its version stays the same from commit to commit, and a copied tree has no commit."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import tallow

# What a package contains; code objects and bytecode follow from it.
_SUFFIXES = {".py", ".hip", ".hpp"}


def checksum(package: Path = Path(tallow.__file__).parent) -> str:
    """The beginning of a SHA-256 over the names and contents of the package's sources."""
    digest = hashlib.sha256()
    # The runtime is behind a link.
    paths = (Path(folder, file) for folder, _, files in os.walk(package, followlinks=True) for file in files)
    for name in sorted(path.relative_to(package).as_posix() for path in paths if path.suffix in _SUFFIXES):
        digest.update(f"{name}\0".encode())
        digest.update(hashlib.sha256((package / name).read_bytes()).digest())
    return digest.hexdigest()[:12]
