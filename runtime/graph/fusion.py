"""Fusion on request: a function of elementwise and row ops that is one program, and on GPUs one kernel."""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn, ParamSpec, TypeAlias, TypeVar, overload

from ...storage import Storage
from ..base.bounded_cache import BoundedCache
from ..base.error import FusionError, InvalidArgument, TallowError, describe
from ..core import argument
from ..core.extensions import extensions
from ..gradient.node import unwrap
from ..gradient.recording import mode
from ..program.fused_function import EmptyRowError
from ..program.fused_kernels import excess
from ..storage.calls import live_autocasts, require_same_device
from ..tensor import Tensor
from ..tensor.base import TensorBase
from .fused_call import launch, record
from .staged import StagedFunction, functions_of

if TYPE_CHECKING:
    from ..program.fused_function import FusedFunction

P = ParamSpec("P")
Result = TypeVar("Result")

_MAX_KINDS: Final = 1 << 12
# Traces of one kind of arguments, by the numbers that decide what a function does: a step count is another each time.
_MAX_NUMBERS: Final = 1 << 7


@overload
def fuse(function: Callable[P, Result], *, precise: bool = True) -> Callable[P, Result]: ...
@overload
def fuse(*, precise: bool = True) -> Callable[[Callable[P, Result]], Callable[P, Result]]: ...
def fuse(function: Any = None, *, precise: bool = True) -> Any:
    """Make a function of elementwise and row ops one kernel, which reads each operand once and writes the results.

    The function takes tensors and numbers, and gives a tensor or a tuple or list of tensors, of elementwise ops:
    arithmetic and comparisons with tensors and numbers on either side, `where`, `to_dtype`, and the methods that are
    such ops; of ops of rows; of reductions of floats along one dim, whose results it may compute with; of `gather` with
    one index for each row and of losses of classes; and of reductions of the numbers of all rows. Rows along several
    dims or of several shapes or dtypes are kernels of their own, each with the elementwise ops around it. Its arguments
    may be views, broadcast, and viewed inside of it. Each op rounds its result to its dtype, so that the bits are those
    of the ops one by one, but for the order in which a GPU adds up rows in reductions. The results are new tensors.

    Convolutions may be among them. With `precise=False` a convolution computes what follows it, if that is a batch norm
    in inference or another scale and bias of the channels, a residual and an activation, and the device has such a
    kernel: in f32 and rounded once, so that bits differ.

    A GPU compiles a kernel for the ops, dtypes and ranks, and keeps it on disk. For that the function is run with what
    stands for its arguments, once for each combination of their layouts and dtypes: it should do nothing but compute.
    Numbers may differ from call to call; where the function decides by one (`if limit > 0`), it is run for each value.
    On the CPU the ops that this finds are run one after the other, at the cost of one call.

    Where an argument is recorded, a `Var` or what came of one, GPUs record the call as one op, whose gradients are
    another fused function, in which sums of gradients may be in another order. The ops are recorded one by one on the
    CPU, where gradients need other ops, such as sums, and where gradients have gradients.

    A method may be fused too; what it reads of its object, as of anything else that is no argument, it reads when it is
    run for that object.

    Raises FusionError, which names the line, for what is no such op of the arguments: other reductions, matmul,
    reading elements (`if x > 0`), in-place writes, reshaping a computed tensor, tensors that are no arguments.

    >>> @tl.fuse
    ... def swish(x: tl.Tensor, beta: float) -> tl.Tensor:
    ...     return x / (1 + (-beta * x).exp())
    >>> swish(tl.Tensor([-1.0, 0.0, 1.0]), 1.0)
    Tensor([-0.2689, 0.0000, 0.7311], dtype=f32)
    >>> @tl.fuse(precise=False)
    ... def layer(x: tl.Tensor, kernel: tl.Tensor, scale: tl.Tensor, bias: tl.Tensor) -> tl.Tensor:
    ...     return (x.conv1d(kernel) * scale + bias).relu()
    >>> layer(tl.ones((1, 1, 3)), tl.ones((1, 1, 2)), tl.Tensor(0.5), tl.Tensor(1.0))
    Tensor([[[2., 2.]]], dtype=f32)
    """
    is_precise = argument.boolean("fuse", "precise", precise)
    if function is None:
        return lambda function: Fused(function, is_precise)
    return Fused(function, is_precise)


_Traced: TypeAlias = "tuple[FusedFunction | StagedFunction, Callable[[list[Any]], object] | None]"
"""The fused function for one kind of arguments, and the class of its container of results; None for a single tensor."""


class _Kind:
    """The traced functions for arguments with the same dtypes and layouts, by the numbers that decide branches."""

    def __init__(self) -> None:
        self._read: tuple[int, ...] = ()
        self._traced: BoundedCache[tuple[str, ...], _Traced] = BoundedCache(_MAX_NUMBERS)
        self.only: _Traced | None = None
        """The traced function if it does not depend on numbers."""

    def find(self, numbers: Sequence[float]) -> _Traced | None:
        return self._traced.get(self._key(numbers))

    def put(self, numbers: Sequence[float], read: set[int], traced: _Traced) -> None:
        if not read.issubset(self._read):
            self._traced = BoundedCache(_MAX_NUMBERS)
            self._read = tuple(sorted(read.union(self._read)))
        self._traced.put(self._key(numbers), traced)
        self.only = None if self._read else traced

    def _key(self, numbers: Sequence[float]) -> tuple[str, ...]:
        return tuple([repr(numbers[index]) for index in self._read])


class Fused:
    """A function whose ops are one kernel: see `fuse`."""

    def __init__(self, function: Callable[..., Any], is_precise: bool = True) -> None:
        if not callable(function):
            raise InvalidArgument("fuse", f"function must be a function, not {describe(function)}")
        functools.update_wrapper(self, function)
        self._function = function
        self._is_precise = is_precise
        self._name: str = getattr(function, "__name__", type(function).__name__)
        self._kinds: BoundedCache[tuple[object, ...], _Kind] = BoundedCache(_MAX_KINDS)
        # By their ids, the objects whose method this is; of each what stands for it in keys, since an id serves again.
        self._objects: dict[int, tuple[weakref.ref[Any], object]] = {}

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """The method of an object."""
        if instance is None:
            return self
        known = id(instance)
        if known not in self._objects:
            try:
                reference = weakref.ref(instance, lambda _: self._objects.pop(known, None))
            except TypeError:
                kind = type(instance).__name__
                reason = f"objects of class {kind} have no weak references; add '__weakref__' to its __slots__"
                raise InvalidArgument(self._name, reason) from None
            self._objects[known] = reference, object()
        return types.MethodType(self, instance)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Run what was traced for arguments of this kind; trace the function first if there was none."""
        if live_autocasts and extensions.is_cast():
            return self._function(*arguments, **named)
        inputs = (*arguments, *named.values()) if named else arguments
        key: list[object] = list(named)
        inners, numbers = [], []
        for value in inputs:
            kind = type(value)
            if kind is Tensor:
                inner = value._storage.inner
                key += value._layout.number, inner.kind
                inners.append(inner)
            elif kind is float or kind is int:
                key.append(None)
                numbers.append(value)
            elif id(value) in self._objects:
                key.append(self._objects[id(value)][1])
            else:
                return self._call_with_others(arguments, named)
        variants = self._kinds.get(tuple(key))
        traced = None if variants is None else variants.only or variants.find(numbers)
        if traced is None:
            if any(type(value) is Tensor and value._storage.is_wrapped for value in inputs):
                return self._call_wrapped(key, arguments, named, numbers)
            try:
                traced = self._trace(tuple(key), arguments, named, numbers)
            except EmptyRowError:
                return self._function(*arguments, **named)
        device = inners[0].device
        for inner in inners:
            if inner.device is not device:
                require_same_device(self._name, *[value._storage for value in inputs if type(value) is Tensor])
        function, container = traced
        plan = device.plans.get(function)
        if plan is None:
            results = launch(function, inners, numbers)
        else:  # what `launch` does, without a call
            results = plan(*inners, *[compute(numbers) for compute in function.computed_numbers])
        layouts = function.layouts
        if container is None:
            return Tensor._new(Storage._new(results[0]), layouts[0])
        return container([*map(Tensor._new, map(Storage._new, results), layouts)])

    def _call_wrapped(
        self, key: list[object], arguments: Sequence[Any], named: Mapping[str, Any], numbers: Sequence[float]
    ) -> Any:
        """A call of tensors that are recorded, which is recorded as one op if its gradients are fused.

        Else the ops are called one by one: each is recorded, or done for each example.
        """

        def plain(value: Any) -> Any:
            return Tensor._new(unwrap(value._storage)[0], value._layout) if type(value) is Tensor else value

        plain_arguments, plain_named = [*map(plain, arguments)], {name: plain(it) for name, it in named.items()}
        plain_tensors = [it for it in (*plain_arguments, *plain_named.values()) if type(it) is Tensor]
        is_batched = any(it._storage.is_wrapped for it in plain_tensors)
        if is_batched or not plain_tensors[0]._storage.inner.device.has_fused_kernels:
            return self._function(*arguments, **named)
        if not mode().records:
            return self(*plain_arguments, **plain_named)
        parts = iter(key[len(named) :])
        plain_key: list[object] = list(named)
        for value in (*plain_arguments, *plain_named.values()):
            plain_key.append(next(parts))
            if type(value) is Tensor:
                next(parts)
                plain_key.append(value._storage.inner.kind)
        variants = self._kinds.get(tuple(plain_key))
        traced = None if variants is None else variants.only or variants.find(numbers)
        if traced is None:
            try:
                traced = self._trace(tuple(plain_key), plain_arguments, plain_named, numbers)
            except (FusionError, EmptyRowError):  # each of its ops has a gradient nevertheless
                return self._function(*arguments, **named)
        function, container = traced
        others = [None if type(value) is Tensor else value for value in (*arguments, *named.values())]

        def again(tensors: Sequence[Tensor]) -> list[Any]:
            left = iter(tensors)
            values = [next(left) if value is None else value for value in others]
            result = self._function(
                *values[: len(arguments)], **dict(zip(named, values[len(arguments) :], strict=True))
            )
            return [result] if container is None else list(result)

        tensors = [value for value in (*arguments, *named.values()) if type(value) is Tensor]
        require_same_device(self._name, *[tensor._storage for tensor in tensors])
        results = record(function, tensors, numbers, again)
        if results is None:
            return self._function(*arguments, **named)
        outputs = [*map(Tensor._new, results, function.layouts)]
        return outputs[0] if container is None else container(outputs)

    def _call_with_others(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """A call of tensors of a user's class, NumPy's numbers, or what another fused function is traced with."""
        from .traced import TracedTensor

        values = {f"argument {index}": value for index, value in enumerate(arguments, 1)} | dict(named)
        if any(isinstance(value, TracedTensor) for value in values.values()):
            return self._function(*arguments, **named)
        known = [
            Tensor._new(value._storage, value._layout)
            if isinstance(value, TensorBase)
            else value
            if id(value) in self._objects
            else argument.number(self._name, name, value, "a Tensor or a Python number")
            for name, value in values.items()
        ]
        return self(*known[: len(arguments)], **dict(zip(named, known[len(arguments) :], strict=True)))

    def _trace(
        self, key: tuple[object, ...], arguments: Sequence[Any], named: Mapping[str, Any], numbers: Sequence[float]
    ) -> _Traced:
        from .staged import staged
        from .traced import Trace, TracedTensor

        tensors = [value for value in (*arguments, *named.values()) if type(value) is Tensor]
        if not tensors:
            raise InvalidArgument(self._name, "none of its arguments is a Tensor; give it one")
        for tensor in tensors:
            tensor._layout.check(self._name, tensor._storage.inner.length)
        trace = Trace(self._name, tensors[0].device, tuple(numbers))
        proxies = trace.proxies((*arguments, *named.values()))
        named_proxies = dict(zip(named, proxies[len(arguments) :], strict=True))
        try:
            result = self._function(*proxies[: len(arguments)], **named_proxies)
        except TypeError as error:
            if isinstance(error, TallowError) or not any(
                name in str(error) for name in ("TracedNumber", "TracedTensor")
            ):
                raise
            self._refuse_function(error)
        is_one = type(result) not in (tuple, list)
        results = [result] if is_one else result
        for part in results:
            if not isinstance(part, TracedTensor):
                what = "a tensor that is none of its arguments" if isinstance(part, Tensor) else describe(part)
                self._refuse(f"it returns {what}", "return what it computes, a tensor or a tuple of tensors")
        if not results:
            self._refuse("it returns nothing", "return what it computes, a tensor or a tuple of tensors")
        if trace.convolutions:
            fused: FusedFunction | StagedFunction = staged(trace, trace.results(results), is_precise=self._is_precise)
        else:
            fused = trace.function(results)
        self._check(fused)
        traced = fused, None if is_one else type(result)
        self._kinds.setdefault(key, _Kind()).put(numbers, trace.read, traced)
        return traced

    def _check(self, function: FusedFunction | StagedFunction) -> None:
        """Raise FusionError for a function that a GPU has no kernel for, on other devices too."""
        reason = next(filter(None, map(excess, functions_of(function))), None)
        if reason is not None:
            self._refuse(f"it has {reason}", "make two functions of it")

    def _refuse_function(self, error: TypeError) -> NoReturn:
        """Raise FusionError for a function that takes nothing but Python's own numbers, or no tensors."""
        import traceback  # most programs need none of it

        frames = traceback.extract_tb(error.__traceback__)
        frame = next((it for it in frames if it.filename != __file__), frames[-1])
        reason = f"gives what stands for an argument to a function that does not take it ({error})"
        advice = "give it float(n) or int(n) of a number, or call it outside of the fused function"
        raise FusionError(self._name, frame.filename, frame.lineno or 0, None, reason, advice) from None

    def _refuse(self, reason: str, advice: str) -> NoReturn:
        code = getattr(self._function, "__code__", None) or getattr(type(self._function).__call__, "__code__", None)
        file, line = ("?", 0) if code is None else (code.co_filename, code.co_firstlineno)
        raise FusionError(self._name, file, line, None, reason, advice)

    def __repr__(self) -> str:
        return f"<fused function {self._name}>"
