"""Every op that is measured, by family."""

from ..work import Op
from . import attention, elementwise, images, indexing, memory, network, ordering, products, reductions

OPS: tuple[Op, ...] = (
    *elementwise.OPS,
    *memory.OPS,
    *reductions.OPS,
    *indexing.OPS,
    *images.OPS,
    *products.OPS,
    *attention.OPS,
    *network.OPS,
    *ordering.OPS,
)
