"""The ops of a traced function, called one by one where no kernel is composed of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...device import Device
from ...storage import Storage
from ..core.layout import Layout
from ..core.shape import Shape
from ..tensor import Tensor

if TYPE_CHECKING:
    from ..program.fused_kernel import Number

_EMPTY: Final = Layout.contiguous((0,))


class Call(NamedTuple):
    """One op as it was called: of the arguments of the storage method, storages and numbers by name."""

    name: str
    method: str
    arguments: tuple[object, ...]


class Reference(NamedTuple):
    """What has a name in a trace: an argument (t0), a number (n0), its storage (s0), or what was computed (v0)."""

    name: str


class Calls:
    """What computes the results of a function by calling its ops one by one, as it called them itself.

    Each result is a tensor in row-major order, in memory of its own.
    """

    def __init__(
        self,
        device: Device,
        calls: Sequence[Call],
        numbers: Mapping[str, Number],
        tensors: int,
        results: Sequence[tuple[Reference, Layout]],
    ) -> None:
        self._scope: dict[str, Any] = {}
        needed = {reference.name for reference, _ in results}
        kept = []
        for call in reversed(calls):
            if call.name in needed:
                needed.update(part.name for part in call.arguments if isinstance(part, Reference))
                kept.append(call)
        kept.reverse()
        # Each result after the first of the same elements is a copy, and so are arguments and what is broadcast.
        given: list[str] = []
        for reference, layout in results:
            name = reference.name
            if name[0] == "v" and name not in given and layout.is_contiguous and not layout.start_offset:
                given.append(name)
            else:
                given.append(f"{name}.to_dtype({self._constant(layout)}, {name}.dtype)")
        last = {part.name: call for call in kept for part in call.arguments if isinstance(part, Reference)}
        lines = ["def run(tensors, numbers):"]
        if tensors:
            lines.append(f"    {''.join(f't{place}, ' for place in range(tensors))}= tensors")
        for name, number in numbers.items():
            storage = f"s{name[1:]}"
            # A tensor of the dtype knows what its numbers are as storages.
            like = Tensor._new(device.zeros(Shape((0,)), number.dtype), _EMPTY)
            if number.known is not None:
                self._scope[name] = number.known
                self._scope[storage] = like._number("fuse", number.known)
                continue
            find = self._constant(number.find)
            if storage in needed:
                lines.append(f"    {storage} = {self._constant(like)}._number('fuse', {find}(numbers))")
            elif name in needed:
                lines.append(f"    {name} = {find}(numbers)")
        for call in kept:
            first, *rest = [it.name if isinstance(it, Reference) else self._constant(it) for it in call.arguments]
            lines.append(f"    {call.name} = {first}.{call.method}({', '.join(rest)})")
            # What nothing needs any more makes room for what follows.
            done = {it.name for it in call.arguments if isinstance(it, Reference) and last[it.name] is call}
            done = {name for name in done if name[0] == "v" and not any(name == it.name for it, _ in results)}
            lines += [f"    del {name}" for name in sorted(done)]
        lines.append(f"    return ({''.join(f'{result}, ' for result in given)})")
        exec("\n".join(lines), self._scope)
        self.run: Callable[[Sequence[Storage], Sequence[float]], tuple[Storage, ...]] = self._scope["run"]
        """The storages of the results for those of the tensors and the numbers that the function is given."""
        self.layouts = [Layout.contiguous(layout.shape) for _, layout in results]

    def _constant(self, value: object) -> str:
        name = f"c{len(self._scope)}"
        self._scope[name] = value
        return name
