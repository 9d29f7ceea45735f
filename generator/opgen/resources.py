"""The resources of kernels on a GPU, from a compiler's report: clang's remarks, or verbose output of ptxas."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

_REMARK = re.compile(r": remark: +([^:\n]+): (\S+) \[-Rpass-analysis=kernel-resource-usage\]$", re.MULTILINE)
# A remark, and below it the line of the source and the mark under it.
_PRINTED = re.compile(r"^[^\n]*: remark: [^\n]*\n(?:[^\n]*\n[ |]*\^[^\n]*\n)?", re.MULTILINE)
_NAME = "Function Name"
# A vector register is spilled to memory, a scalar one to a lane of a vector register, which costs no memory access.
_NUMBERS = {
    "VGPRs": "vgprs",
    "AGPRs": "agprs",
    "SGPRs": "sgprs",
    "TotalSGPRs": "sgprs",
    "VGPRs Spill": "spills",
    "SGPRs Spill": "sgpr_spills",
    "ScratchSize [bytes/lane]": "scratch",
    "LDS Size [bytes/block]": "lds",
    "Occupancy [waves/SIMD]": "occupancy",
}
# What ptxas says of a kernel and of the functions that it calls, up to the next kernel.
_ENTRY = re.compile(r"^ptxas info +: Compiling entry function '(\w+)'.*?(?=^ptxas info +: Compiling|\Z)", re.M | re.S)
_STACK = re.compile(r"^ +(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads$", re.MULTILINE)
_REGISTERS = re.compile(r": Used (\d+) registers")
_SHARED = re.compile(r"\b(\d+) bytes smem\b")
_REGISTER_BYTES = 4
_ENTRY_LINE = re.compile(r"^ptxas info +:[^\n]*\n|^ +\d+ bytes stack frame,[^\n]*\n", re.MULTILINE)
_TITLES = ("spills", "scratch", "occupancy", "vgprs", "agprs", "sgprs", "sgpr_spills", "lds", "target", "kernel")


@dataclass(frozen=True)
class Usage:
    """The resources of one kernel."""

    kernel: str
    vgprs: int = 0
    agprs: int = 0
    sgprs: int = 0
    spills: int = 0  # vector registers, to memory
    sgpr_spills: int = 0  # scalar registers, to lanes of vector registers
    scratch: int = 0  # bytes of a lane
    lds: int = 0  # bytes of a block
    occupancy: int = 0  # waves of a SIMD

    @classmethod
    def of_record(cls, record: Mapping[str, str | int]) -> "Usage":
        """Load the output of `asdict`; TypeError if a record is damaged."""
        for field in fields(cls):
            if type(record[field.name]) is not field.type:
                raise TypeError(field.name)
        return cls(**record)  # type: ignore[arg-type]

    @property
    def is_spilled(self) -> bool:
        """Whether there were too few registers of either kind."""
        return self.spills > 0 or self.sgpr_spills > 0


def read_report(text: str) -> tuple[Usage, ...]:
    """The kernels that a compiler reports."""
    usages: list[Usage] = []
    for name, value in _REMARK.findall(text):
        if name == _NAME:
            usages.append(Usage(value))
        elif name in _NUMBERS and usages:
            field = _NUMBERS[name]
            number: dict[str, Any] = {field: int(value)}
            usages[-1] = replace(usages[-1], **number)
    return (*usages, *(_entry(section[1], section[0]) for section in _ENTRY.finditer(text)))


def _entry(kernel: str, text: str) -> Usage:
    """Parse a report of ptxas, which has vector registers alone, and no occupancy."""
    stacks = [tuple(map(int, numbers)) for numbers in _STACK.findall(text)]
    return Usage(
        kernel,
        vgprs=sum(map(int, _REGISTERS.findall(text))),
        spills=sum(stored for _, stored, _ in stacks) // _REGISTER_BYTES,
        scratch=max((frame for frame, _, _ in stacks), default=0),
        lds=sum(map(int, _SHARED.findall(text))),
    )


def without_report(text: str) -> str:
    """A compiler's messages without its report."""
    return _ENTRY_LINE.sub("", _PRINTED.sub("", text))


def table(usages: Iterable[tuple[str, Usage]]) -> Iterator[str]:
    """A title and a line for each kernel and its target, those that take most first."""
    ranked = sorted(usages, key=_rank)
    rows = [tuple(target if title == "target" else str(getattr(usage, title)) for title in _TITLES)
            for target, usage in ranked]  # fmt: skip
    widths = [max(map(len, column)) for column in zip(_TITLES, *rows, strict=True)]
    for row in (_TITLES, *rows):
        *numbers, target, kernel = (
            text.ljust(width) if title == "target" else text.rjust(width)
            for text, width, title in zip(row, widths, _TITLES, strict=True)
        )
        yield "  ".join([*numbers, target, kernel.strip()])


def _rank(entry: tuple[str, Usage]) -> tuple[int | str, ...]:
    target, usage = entry
    return (
        -usage.spills,
        -usage.scratch,
        -usage.sgpr_spills,
        usage.occupancy,
        -usage.vgprs,
        -usage.lds,
        usage.kernel,
        target,
    )
