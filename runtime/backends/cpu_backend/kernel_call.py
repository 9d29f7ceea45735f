"""Calls of kernels as functions created in C, which put storages and numbers into a kernel's struct."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from ....dtype import DType
from ....kernels.host_arguments import (
    CallItems,
    NumberItems,
    ResultItems,
    SourceItems,
    UnaliasedItems,
    WrongIndexItems,
)
from ...core.layout import Layout
from ...helpers.host_memory import out_of_memory
from ...program.program import Launch
from ...program.values import Address, Buffer, Constant, Memory, Scalar, Size, Value, sized_number
from ..numbers import bits_of
from ..plan import Plan, kind_of
from .host_device import HostDevice
from .kernels import address_of_array
from .storage import CpuStorage
from .values import Function, IndexRecord, Snapshot, Threads

BRIEF: Final = 1 << 14
"""Other threads of Python wait while a kernel works on no more elements."""


# Makes a tuple of its fields, in half of the time of the class's own `__new__`.
_new: Final = tuple.__new__


class KernelCall:
    """The call of a launch: its fields that are the same in all runs, and where the others are."""

    _compute: DType | None = None
    """The compute dtype of the numbers that the call takes, if it computes their bits."""
    _threads = 0
    _unaliased: tuple[UnaliasedItems, ...] = ()
    _wrong: tuple[WrongIndexItems, ...] = ()
    _tables: tuple[Any, ...] = ()
    _sizes: tuple[tuple[int, Size], ...] = ()
    divided: tuple[Memory, ...] = ()
    """Memory that the kernel uses in several fields or from an offset on, which a call can not allocate."""
    numbers: tuple[Value, ...] = ()
    """The numbers of a run, in the order of their fields."""

    def __init__(
        self, device: HostDevice, launch: Launch, positions: dict[Memory, int], stored: Collection[Memory] = ()
    ) -> None:
        """Fill in what is known. Memory is that of the storage at a position, and what is `stored` gets one."""
        self._device = device
        self._launch = launch
        struct = launch.arguments.struct
        self._fields = fields = list(launch.arguments.fields)
        self._sources: list[SourceItems] = []
        self._number_items: list[NumberItems] = []
        self.taken: list[Any] = []
        """The numbers that the call takes, or their parameters."""
        self.positions = positions
        """The memory of the storages that the call takes."""
        self.new: dict[Memory, int] = {}
        """The offset in the struct of each memory that the call allocates."""
        new, offsets, sources = self.new, struct.offsets, self._sources
        for number, value in struct.values(fields):
            # Patterns of classes would take longer.
            kind = type(value)
            fields[number], offset = 0, offsets[number]
            if kind is Threads:
                self._threads = offset
                fields[number] = 1
            elif kind is Address or kind is Snapshot:
                memory = value.memory
                if memory in stored and memory not in positions:
                    positions[memory] = len(positions)
                position = positions.get(memory)
                if position is not None:
                    if kind is Snapshot:
                        self._unaliased += (_unaliased(value, len(sources), positions),)
                    sources.append(_new(SourceItems, (offset, value.offset, position)))
                elif type(memory) is Constant:
                    self._tables += (memory.array,)
                    fields[number] = address_of_array(memory.array) + value.offset
                else:
                    if value.offset or memory in new:
                        self.divided += (memory,)
                    new[memory] = offset
            elif kind is Function:
                fields[number] = device.kernels.address(value.family, value.name)
            elif kind is Size:
                self._sizes += ((number, value),)
            elif kind is IndexRecord:
                self._wrong += (WrongIndexItems(offset, value.fail),)
            else:
                self._number_items.append(NumberItems(offset))
                self.numbers += (value,)
        if self.numbers:
            self._compute, self.taken = _as_taken(self.numbers)

    def plan(self, results: Sequence[Buffer], scratch: Sequence[Buffer], makes_tuple: bool, count: int = 0) -> Plan:
        """The function that makes the call and returns storages of results.

        In a dynamic program, it is that of calls with `count` elements.
        """
        kernels, launch, fields, compute = self._device.kernels, self._launch, self._fields, self._compute
        if self._sizes:
            fields = [*fields]
            for number, size in self._sizes:
                fields[number] = size.at(count)
        # The call converts these itself, and others by `bits_of`.
        is_own = compute is not None and compute.is_float and compute.compute is compute
        items = tuple([self._items(each, count) for each in results])
        work = sized_number(launch.work, count)
        plan: Plan = kernels.call(CallItems(
            shared=kernels.shared, kernel=kernels.address(launch.family, launch.kernel),
            arguments=launch.arguments.struct.pack(*fields), threads_field_offset=self._threads,
            is_brief=work <= BRIEF and (not items or max([each.length for each in items]) <= BRIEF),
            makes_tuple=makes_tuple, device=self._device, compute=compute,
            compute_bytes=compute.itemsize if is_own and compute is not None else 0,
            results=items, scratch=tuple([self._items(each, count) for each in scratch]) if scratch else (),
            sources=tuple(self._sources), unaliased=self._unaliased, stored=len(self.positions),
            numbers=tuple(self._number_items), wrong=self._wrong, keep_alive=self._tables,
        ))  # fmt: skip
        return plan

    def _items(self, buffer: Buffer, count: int) -> ResultItems:
        dtype, length = buffer.dtype, sized_number(buffer.count, count)
        return _new(
            ResultItems, (self.new[buffer.memory], length * dtype.itemsize, length, dtype, kind_of(dtype, length))
        )


def _as_taken(numbers: Sequence[Any]) -> tuple[DType | None, list[Any]]:
    """The compute dtype of numbers, and their parameters; None and the numbers where a call takes bits."""
    dtype = None
    for number in numbers:
        if not isinstance(number, Scalar) or number.function is not bits_of:
            return None, [*numbers]
        (own,) = number.constants
        if dtype is not None and own is not dtype:
            return None, [*numbers]
        dtype = own
    return dtype, [number.source for number in numbers]


def _unaliased(snapshot: Snapshot, number: int, positions: dict[Memory, int]) -> UnaliasedItems:
    source, target = snapshot.source, snapshot.target
    return UnaliasedItems(
        source=number, first=source.layout.start_offset * source.itemsize, last=source.layout.end * source.itemsize,
        written=positions[target.storage.memory], begin=target.layout.start_offset * target.itemsize,
        end=target.layout.end * target.itemsize, copy=partial(_copied, layout=source.layout),
    )  # fmt: skip


def _copied(storage: CpuStorage, layout: Layout) -> CpuStorage:
    """Copy what a layout covers, as a storage in which it has the same offset."""
    try:
        data = np.empty(layout.end, storage.dtype.numpy)
    except MemoryError as error:
        raise out_of_memory(error) from None
    data[layout.start_offset :] = storage.data[layout.start_offset : layout.end]
    return CpuStorage(storage.device, storage.dtype, data)
