"""The tensor."""

from __future__ import annotations

from ..display import debug, pretty
from .create import CreationMethods
from .custom import CustomMethods
from .indexing import IndexMethods
from .linear import LinearMethods
from .network import NetworkMethods


class Tensor(CreationMethods, IndexMethods, LinearMethods, NetworkMethods, CustomMethods):
    """Elements of one dtype on one device, in at most `limits.MAX_RANK` dims.

    A tensor is a storage and a layout. Views share the storage, so what is written through one of them shows in all:
    only methods whose name ends in `_`, and a user's in-place ops, write. Operands broadcast by NumPy's rules and have
    one dtype and one device. `==` compares element by element, and tensors hash by identity.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return debug(self)

    def __str__(self) -> str:
        return pretty(self)
