"""How long a code object must be: drivers are told no size, and would read past the end of one that is cut short."""

import struct
from typing import Final

from ....base.error import InvalidArgument

_MAGIC: Final = b"\x7fELF"
# Where the program headers and the section headers begin, then the size and the number of either.
_HEADER: Final = struct.Struct("<32xQQ6xHHHH2x")


def elf_size(image: bytes) -> int:
    """The size that an ELF's header claims, 0 for anything else: one of its two tables is what compilers write last."""
    if not image.startswith(_MAGIC):
        return 0
    if len(image) < _HEADER.size:
        return _HEADER.size
    programs, sections, program_size, program_count, section_size, section_count = _HEADER.unpack_from(image)
    return int(max(programs + program_size * program_count, sections + section_size * section_count))


def require_complete(operation: str, name: str, image: bytes, needed: int) -> None:
    """InvalidArgument of an operation where the code object that errors call `name` has fewer bytes, or none."""
    if not image or len(image) < needed:
        reason = f"{name} is cut short: it has {len(image)} of {max(needed, 1)} bytes; build it again"
        raise InvalidArgument(operation, reason)
