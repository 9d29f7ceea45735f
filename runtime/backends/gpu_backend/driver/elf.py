"""The length of a code object: drivers take no size, and would read past the end of a truncated one."""

import struct
from typing import Final

from ....base.error import InvalidArgument

_MAGIC: Final = b"\x7fELF"
# Where the program headers and the section headers begin, then the size and the number of either.
_HEADER: Final = struct.Struct("<32xQQ6xHHHH2x")
# A bundle of several, as clang makes it for AMD GPUs, and an entry of its table.
_BUNDLE_MAGIC: Final = b"__CLANG_OFFLOAD_BUNDLE__"
_BUNDLE_ENTRY: Final = struct.Struct("<QQQ")


def elf_size(image: bytes) -> int:
    """The size that an ELF's header claims, 0 for anything else: one of its two tables is what compilers write last."""
    if not image.startswith(_MAGIC):
        return 0
    if len(image) < _HEADER.size:
        return _HEADER.size
    programs, sections, program_size, program_count, section_size, section_count = _HEADER.unpack_from(image)
    return int(max(programs + program_size * program_count, sections + section_size * section_count))


def bundle_size(image: bytes) -> int:
    """The size that a bundle's table claims, 0 for anything else."""
    if not image.startswith(_BUNDLE_MAGIC):
        return 0
    start = len(_BUNDLE_MAGIC) + 8
    if len(image) < start:
        return start
    needed = start
    for _ in range(int.from_bytes(image[start - 8 : start], "little")):
        if len(image) < start + _BUNDLE_ENTRY.size:
            return start + _BUNDLE_ENTRY.size
        offset, size, name_size = _BUNDLE_ENTRY.unpack_from(image, start)
        start += _BUNDLE_ENTRY.size + name_size
        needed = max(needed, start, offset + size)
    return needed


def require_complete(operation: str, name: str, image: bytes) -> None:
    """InvalidArgument of an operation where the code object that errors call `name` is empty or cut short."""
    needed = elf_size(image) or bundle_size(image)
    if not image or len(image) < needed:
        reason = f"{name} is cut short: it has {len(image)} of {max(needed, 1)} bytes; build it again"
        raise InvalidArgument(operation, reason)
