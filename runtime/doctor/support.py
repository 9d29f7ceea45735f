"""The support matrix: what every backend makes of every op and dtype, and why not."""

from dataclasses import dataclass
from functools import cache

from ...dtype import DType
from ...ggml_dtype import GgmlDType


@dataclass(frozen=True)
class SupportCell:
    """The support of an op on a dtype by a backend.

    >>> cell = next(cell for cell in tl.support() if cell.op == "exp" and cell.backend == "cpu" and cell.dtype == "f32")
    >>> cell.status
    'supported'
    """

    method: str
    """The storage or device method."""
    op: str | None
    """The unary, binary, cmp or reduce op, for methods that choose between such."""
    backend: str
    """The name of the backend."""
    dtype: DType | GgmlDType | None
    """The dtype, or the format of block-quantized weights; None for device methods without a dtype."""
    status: str
    """Either supported or unsupported."""
    via: str | None
    """The functions that the branch calls: those of the backend's ops, `library: function` if the library is there, and
    `nondeterministic: function` where `deterministic(False)` lets floats be added in any order."""
    reason: str | None
    """Why it is unsupported."""


@cache
def support() -> tuple[SupportCell, ...]:
    """Return all cells of the support matrix: for each op, backend and dtype, how the backend does it, or why not.

    >>> sorted({cell.status for cell in tl.support()})
    ['supported', 'unsupported']
    """
    # Nobody else asks for the table, which is long.
    from ...support_table import GROUPS, TABLE

    cells: list[SupportCell] = []
    for line in TABLE.strip().splitlines():
        if not line.startswith(" "):
            backends, status, dtypes, *explained = line.split(" | ", 4)
            via, reason = (None if text == "-" else text for text in explained)
            continue
        for name in line.split():
            method, _, op = name.partition(".")
            cells += [
                SupportCell(method, op or None, backend, dtype, status, via and via.replace(".~", f".{method}"), reason)
                for backend in backends.split()
                for dtype in _dtypes(GROUPS.get(dtypes, dtypes))
            ]
    return tuple(cells)


def _dtypes(text: str) -> list[DType | GgmlDType | None]:
    if text == "-":
        return [None]
    # The names of formats have capital letters.
    return [GgmlDType(name) if name.isupper() else DType(name) for name in text.split()]
