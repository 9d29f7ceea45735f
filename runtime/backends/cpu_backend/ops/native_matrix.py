"""Decompositions of matrices by the kernels for the host: what their launches need."""

from __future__ import annotations

from typing import Final, Never

from ....host.linalg import no_result
from ..values import IndexRecord

_REASONS: Final = {"solve": "Singular matrix", "cholesky": "Matrix is not positive definite"}


def without_result(op: str) -> IndexRecord:
    """The record in which a kernel notes that a matrix has no result."""

    def fail(_index: int) -> Never:
        raise no_result(op, _REASONS[op])

    return IndexRecord(fail)
