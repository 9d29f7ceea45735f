"""Collective calls on tensors, which all ranks of a group make."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache

from ... import results
from ...device import Device
from ...dtype import DType
from ...storage import Storage
from ..base.error import InvalidArgument, TallowError, describe
from ..core import argument
from ..core.argument import DTypeLike
from ..core.layout import Layout
from ..core.tensor_type import TensorType
from ..ranks.group import Group, start
from ..tensor import Tensor
from ..tensor.base import require_tensors


@cache
def init() -> Group:
    """The group of all ranks, as torchrun, mpirun, srun or `python -m tallow.launch` started them; else a group of one.

    The first call waits for all ranks. Raises BackendUnavailable where they do not find each other.

    >>> tl.distributed.init().size
    1
    """
    return start()


def device(backend: str | None = None) -> Device:
    """The device of this rank: that of its number on the host, of a backend, by default of the best one that is here.

    Ranks share devices where there are more ranks. Raises BackendUnavailable where the backend has none.

    >>> tl.distributed.device("cpu")
    Device(cpu)
    """
    backends = Device.backends()
    if backend is None:
        backend = next(name for name, kind in backends.items() if kind.device_count() > 0)
    elif backend not in backends:
        raise InvalidArgument("device", f"backend is one of {', '.join(backends)}, not {describe(backend)}")
    count = backends[backend].device_count()
    return Device.parse(f"{backend}:{init().local_rank % count}" if count > 1 else backend)


def all_reduce(x: Tensor, reduction: str = "sum", *, group: Group | None = None) -> Tensor:
    """Reduce the elements of all ranks: their sum, prod, min, max or mean, with the same bits on every rank.

    >>> tl.distributed.all_reduce(tl.Tensor([1.0, 2.0]))
    Tensor([1., 2.], dtype=f32)
    """
    group = group or init()
    if group.size == 1:
        return x
    return _result("all_reduce", x, group, reduction)


def begin_all_reduce(x: Tensor, reduction: str, group: Group) -> Callable[[], Tensor]:
    """Begin `all_reduce` asynchronously: the returned function waits for the elements, and returns them.

    The tensor is contiguous, and of a dtype that the libraries join as it is.
    """
    group = group.asynchronous
    group.begin("all_reduce", reduction, x.dtype, x.shape)
    storage, layout = x._storage, x._layout
    finished = storage.inner.device.run_async(group, lambda: storage.all_reduce(layout, reduction, group))

    def result() -> Tensor:
        with _telling("all_reduce", group):
            return Tensor._new(finished(), Layout.contiguous(layout.shape))

    return result


def all_gather(x: Tensor, *, group: Group | None = None) -> Tensor:
    """Concatenate the elements of all ranks along the first dim, in the order of the ranks.

    >>> tl.distributed.all_gather(tl.Tensor([1.0, 2.0]))
    Tensor([1., 2.], dtype=f32)
    """
    group = group or init()
    if group.size == 1:
        return x
    return _result("all_gather", x, group, find=results.all_gather)


def reduce_scatter(x: Tensor, reduction: str = "sum", *, group: Group | None = None) -> Tensor:
    """Reduce the elements of all ranks as `all_reduce` does; each rank gets its part of the first dim.

    >>> tl.distributed.reduce_scatter(tl.Tensor([1.0, 2.0]))
    Tensor([1., 2.], dtype=f32)
    """
    group = group or init()
    if group.size == 1:
        return x
    return _result("reduce_scatter", x, group, reduction, find=results.reduce_scatter)


def broadcast(x: Tensor, root: int = 0, *, group: Group | None = None) -> Tensor:
    """Copy the elements of rank `root` to all ranks; the tensors of the others give the shape, the dtype and the
    device.

    >>> tl.distributed.broadcast(tl.Tensor([1.0, 2.0]))
    Tensor([1., 2.], dtype=f32)
    """
    group = group or init()
    if group.size == 1:
        return x
    return _result("broadcast", x, group, root)


def reduce(x: Tensor, reduction: str = "sum", root: int = 0, *, group: Group | None = None) -> Tensor:
    """Reduce the elements of all ranks as `all_reduce` does; the result is on rank `root`, and zeros on the others.

    >>> tl.distributed.reduce(tl.Tensor([1.0, 2.0]))
    Tensor([1., 2.], dtype=f32)
    """
    group = group or init()
    if group.size == 1:
        return x
    return _result("reduce", x, group, reduction, root)


def all_to_all(x: Tensor, *, group: Group | None = None) -> Tensor:
    """Send part i of the first dim to rank i; part i of the result comes from rank i.

    >>> tl.distributed.all_to_all(tl.Tensor([1.0, 2.0]))
    Tensor([1., 2.], dtype=f32)
    """
    group = group or init()
    if group.size == 1:
        return x
    return _result("all_to_all", x, group)


def send(x: Tensor, target: int, *, group: Group | None = None) -> None:
    """Send the elements to another rank, which calls `recv`.

    >>> group = tl.distributed.init()
    >>> if group.rank == 1:
    ...     tl.distributed.send(tl.ones(3), target=0)
    """
    group = group or init()
    target = _other("send", "target", target, group)
    require_tensors("send", x=x)
    group.begin_between("send", group.rank, target, x.dtype, x.elem_count)
    _stored("send", x, group, target)


def recv(
    shape: int | Iterable[int],
    source: int,
    *,
    dtype: DTypeLike = DType.F32,
    device: Device | str | None = None,
    group: Group | None = None,
) -> Tensor:
    """Receive the elements that another rank sends, of a shape and a dtype that both know.

    >>> group = tl.distributed.init()
    >>> if group.size > 1 and group.rank == 0:
    ...     x = tl.distributed.recv((3,), source=1)
    """
    group = group or init()
    source = _other("recv", "source", source, group)
    # Shows the shape without memory for it.
    like = Tensor.zeros((), dtype=dtype, device=device).expand(*([shape] if isinstance(shape, int) else shape))
    group.begin_between("recv", source, group.rank, like.dtype, like.elem_count)
    return Tensor._new(_stored("recv", like, group, source), Layout.contiguous(like.shape))


def barrier(*, group: Group | None = None) -> None:
    """Wait until every rank has called this.

    Work that was enqueued on devices may still run: see `Device.synchronize`.

    >>> tl.distributed.barrier()
    """
    (group or init()).barrier()


def _result(
    op: str, x: Tensor, group: Group, *arguments: object, find: Callable[[Tensor, Group], TensorType] | None = None
) -> Tensor:
    """The result of a call of all ranks: in the shape of its operand, unless a function gives another one."""
    if not isinstance(x, Tensor):
        require_tensors(op, x=x)
    group.begin(op, *arguments, x.dtype, x.shape)
    storage = _stored(op, x, group, *arguments)
    return Tensor._new(storage, Layout.contiguous(x.shape if find is None else find(x, group).shape))


def _stored(op: str, x: Tensor, group: Group, *arguments: object) -> Storage:
    with _telling(op, group):
        storage: Storage = getattr(x._storage, op)(x._layout, *arguments, group)
        return storage


@contextmanager
def _telling(op: str, group: Group) -> Iterator[None]:
    """Raise RankLost for an error of a library that waited for a lost rank, which says less."""
    try:
        yield
    except TallowError:
        group.require_all(op)
        raise


def _other(op: str, name: str, rank: object, group: Group) -> int:
    number = argument.integer(op, name, rank)
    if number == group.rank:
        raise InvalidArgument(op, f"{name} is rank {number} itself; name another rank")
    return number
