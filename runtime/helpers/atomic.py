"""Files that are written atomically."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(target: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Open a stream whose content becomes the file `target` at the end of the block, on disk and at once.

    It is written to one file next to the target, called `.tallow-` and 16 digits. That is removed where the block or
    the disk fails; only a process that is killed leaves it. The umask takes from `mode` as it does for any new file.
    """
    temporary = target.with_name(f".tallow-{os.urandom(8).hex()}")
    # As tempfile does it, but for the mode: that of its files is 0600 always.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    stream = os.fdopen(os.open(temporary, flags, mode), "wb")
    try:
        with stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
