"""The errors of this package.

Each is a `TallowError` and also the built-in exception that fits best. An error carries its facts as attributes, and
its message ends with what to do about it. The facts are the arguments of the exception, so that errors survive
pickling.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from .protocols import HasName, LayoutLike


class TallowError(Exception):
    """Base class of every error that this package raises."""

    def rename(self, op: str) -> None:
        """Replace the op that raised the error with `op`, which called it; do nothing if the error names no op."""
        if hasattr(self, "op"):
            self.op = op
            self.args = (op, *self.args[1:])


class _OpError(TallowError):
    """An error that consists of the op that was called and a reason."""

    def __init__(self, op: str, reason: str) -> None:
        super().__init__(op, reason)
        self.op = op
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.op}: {self.reason}"


class BackendUnavailable(TallowError, RuntimeError):
    """A backend was called whose packages, libraries or devices are missing here."""

    def __init__(self, backend: str, reason: str) -> None:
        super().__init__(backend, reason)
        self.backend = backend
        self.reason = reason

    def __str__(self) -> str:
        return f"the {self.backend} backend is not available: {self.reason}"


class MissingPackage(TallowError, ImportError):
    """A package that the call needs is not installed."""

    def __init__(self, op: str, package: str) -> None:
        super().__init__(op, package)
        self.op = op
        self.package = package

    def __str__(self) -> str:
        return f"{self.op}: {self.package} is not installed; run pip install {self.package}"


class UnsupportedDType(TallowError, TypeError):
    """An op was called on a dtype for which the backend does not have it; `tallow.support()` lists what there is.

    `fix` says what to convert to, unless `reason` does.

    >>> tl.Tensor([1, 2]).exp()
    Traceback (most recent call last):
        ...
    tallow.UnsupportedDType: exp: i64 is not supported on cpu: the function is not defined for this dtype; ...
    """

    def __init__(self, op: str, dtype: HasName, backend: str, reason: str, fix: str = "") -> None:
        super().__init__(op, dtype, backend, reason, fix)
        self.op = op
        self.dtype = dtype
        self.backend = backend
        self.reason = reason
        self.fix = fix

    def __str__(self) -> str:
        advice = f"; {self.fix}" if self.fix and ";" not in self.reason else ""
        return f"{self.op}: {self.dtype.value} is not supported on {self.backend}: {self.reason}{advice}"


class UnsupportedDevice(TallowError, TypeError):
    """The devices of a backend do not have a device method; `tallow.support()` lists what there is."""

    def __init__(self, op: str, backend: str, reason: str) -> None:
        super().__init__(op, backend, reason)
        self.op = op
        self.backend = backend
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.op}: devices of {self.backend} do not have it: {self.reason}"


class DTypeMismatch(TallowError, TypeError):
    """The dtypes of an op's operands do not go together; `reason` says more, such as that one is a number.

    >>> tl.Tensor([1, 2], "u64") + tl.Tensor([1, 2], "i64")
    Traceback (most recent call last):
        ...
    tallow.DTypeMismatch: add: operands of u64 and i64 do not go together; convert them with to_dtype first
    """

    def __init__(self, op: str, dtypes: tuple[HasName, ...], reason: str = "") -> None:
        super().__init__(op, dtypes, reason)
        self.op = op
        self.dtypes = dtypes
        self.reason = reason

    def __str__(self) -> str:
        names = " and ".join(dtype.value for dtype in self.dtypes)
        wrong = self.reason or f"operands of {names} do not go together"
        return f"{self.op}: {wrong}; convert them with to_dtype first"


class DeviceMismatch(TallowError, ValueError):
    """The operands are on different devices, or a device is of another backend than `reason` says."""

    def __init__(self, op: str, devices: tuple[str, ...], reason: str = "") -> None:
        super().__init__(op, devices, reason)
        self.op = op
        self.devices = devices
        self.reason = reason

    def __str__(self) -> str:
        wrong = self.reason or f"the operands must be on one device, not {', '.join(self.devices)}"
        return f"{self.op}: {wrong}; move them with to first"


class ShapeMismatch(TallowError, ValueError):
    """The shapes of the operands do not fit each other; `reason` says which would.

    >>> tl.zeros((2, 3)) @ tl.zeros((2, 3))
    Traceback (most recent call last):
        ...
    tallow.ShapeMismatch: matmul: shapes (2, 3), (2, 3): the rows of the first have 3 elements, the columns ...
    """

    def __init__(self, op: str, shapes: tuple[tuple[int, ...], ...], reason: str) -> None:
        super().__init__(op, shapes, reason)
        self.op = op
        self.shapes = shapes
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.op}: shapes {', '.join(map(str, self.shapes))}: {self.reason}"


class InvalidLayout(TallowError, ValueError):
    """A layout reaches outside its storage of `length` elements, or has 2**56 elements or more.

    >>> tl.Tensor.from_storage(tl.zeros(2).storage, (2, 3))
    Traceback (most recent call last):
        ...
    tallow.InvalidLayout: from_storage: the layout with shape (2, 3), strides (3, 1) and start offset 0 ...
    """

    def __init__(self, op: str, layout: LayoutLike, length: int) -> None:
        super().__init__(op, layout, length)
        self.op = op
        self.layout = layout
        self.length = length

    def __str__(self) -> str:
        layout = self.layout
        if layout.start_offset >= 0 and layout.end <= self.length:
            shown = f"the {layout.elem_count} elements of shape {layout.shape}"
            return f"{self.op}: {shown} are too many, although they repeat; ops take fewer than 2**56"
        return (
            f"{self.op}: the layout with shape {layout.shape}, strides {layout.strides} and start offset"
            f" {layout.start_offset} reaches outside its storage of {self.length} elements;"
            f" it needs a start offset of at least 0 and a storage of at least {layout.end} elements"
        )


class InvalidArgument(_OpError, ValueError):
    """An argument has a value that the op does not accept; `reason` says which ones it does.

    >>> tl.Tensor([1.0, 2.0]).item()
    Traceback (most recent call last):
        ...
    tallow.InvalidArgument: item: a tensor of shape (2,) does not have one element; index it, reduce it or use tolist()
    """


class FileFormatError(InvalidArgument):
    """A file is damaged, was cut short or is of another format; `reason` names it and what is wrong."""


class InvalidDim(InvalidArgument, IndexError):
    """A dim is out of range for the rank of the tensor.

    >>> tl.zeros((2, 3)).sum(dim=2)
    Traceback (most recent call last):
        ...
    tallow.InvalidDim: sum: dim 2 does not exist in shape (2, 3); use one from -2 to 1
    """


class IndexMismatch(ShapeMismatch, IndexError):
    """A mask does not fit the dims that it indexes, or tensors of indexes do not fit each other.

    >>> tl.zeros(3)[tl.Tensor([True, False])]
    Traceback (most recent call last):
        ...
    tallow.IndexMismatch: index: shapes (3,), (2,): a mask has the shape of the dims that it indexes, (3,), ...
    """


class UnsizedTensor(InvalidArgument, TypeError):
    """The length or the rows of a tensor without dims were requested; `reason` says what it has instead.

    >>> len(tl.Tensor(1.0))
    Traceback (most recent call last):
        ...
    tallow.UnsizedTensor: len: a tensor of rank 0 has no length; use item() for its element
    """


class UnsupportedOperand(InvalidArgument, TypeError):
    """An operand is of a type that no op takes, or a function of NumPy's has no op; `reason` says what to call."""


class GradientError(_OpError, RuntimeError):
    """There is no gradient, or what it needs was overwritten or freed; `reason` says what to do.

    >>> tl.ones(()).backward()
    Traceback (most recent call last):
        ...
    tallow.GradientError: backward: this tensor does not depend on a Var by ops that have a gradient; make ...
    """


class BatchingError(_OpError, RuntimeError):
    """A call has no meaning for a batch in `vmap`; `reason` says what to do.

    >>> tl.vmap(lambda x: x * x.item())(tl.ones(2))
    Traceback (most recent call last):
        ...
    tallow.BatchingError: vmap: the elements of one example cannot be read on their own, ...
    """


class InvalidIndex(TallowError, IndexError):
    """An index is out of range for a dim of `size` elements.

    >>> tl.zeros((2, 3))[5]
    Traceback (most recent call last):
        ...
    tallow.InvalidIndex: index: index 5 is out of range; use one from 0 to 1
    """

    def __init__(self, op: str, index: int, size: int) -> None:
        super().__init__(op, index, size)
        self.op = op
        self.index = index
        self.size = size

    def __str__(self) -> str:
        if self.size == 0:
            return f"{self.op}: index {self.index} is out of range: the dim has no elements"
        return f"{self.op}: index {self.index} is out of range; use one from 0 to {self.size - 1}"


class MissingTensor(TallowError, KeyError):
    """A file has no tensor of a name; `close` are those whose names are like it.

    >>> tl.save_safetensors({"weight": tl.ones(2)}, "model.safetensors")
    >>> with tl.open_safetensors("model.safetensors") as file:
    ...     file["weights"]
    Traceback (most recent call last):
        ...
    tallow.MissingTensor: open_safetensors: there is no tensor 'weights'; did you mean 'weight'?
    """

    def __init__(self, op: str, name: object, close: Sequence[str]) -> None:
        super().__init__(op, name, close)
        self.op = op
        self.name = name
        self.close = close

    @classmethod
    def among(cls, op: str, name: object, names: Iterable[str]) -> Self:
        """The error that a name is not among those of a file."""
        from difflib import get_close_matches

        return cls(op, name, get_close_matches(str(name), names))

    def __str__(self) -> str:
        advice = f"did you mean {' or '.join(map(repr, self.close))}?" if self.close else "list(file) gives all names"
        return f"{self.op}: there is no tensor {describe(self.name)}; {advice}"


class EmptyTensor(TallowError, ValueError):
    """A reduction without an identity, such as max, was called on no elements.

    >>> tl.zeros(0).max()
    Traceback (most recent call last):
        ...
    tallow.EmptyTensor: max: there is no max of no elements; reduce dims that have at least one element
    """

    def __init__(self, op: str) -> None:
        super().__init__(op)
        self.op = op

    def __str__(self) -> str:
        return f"{self.op}: there is no {self.op} of no elements; reduce dims that have at least one element"


class CaptureError(TallowError, RuntimeError):
    """A graph cannot capture what was done on a device; `advice` says what to do instead.

    Nothing of it was done. The capture goes on where the error is caught inside of it, and ends with it elsewhere.
    """

    def __init__(self, device: str, what: str, advice: str) -> None:
        super().__init__(device, what, advice)
        self.device = device
        self.what = what
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.device}: a graph cannot capture {self.what}; {self.advice}"


class CompilationFailed(TallowError, RuntimeError):
    """A kernel does not compile here; `log` is what the compiler wrote, `advice` what to do about it."""

    def __init__(
        self,
        kernel: str,
        target: str,
        compiler: str,
        log: str,
        advice: str = "where it does not know the target, install a newer one, else reinstall tallow",
    ) -> None:
        super().__init__(kernel, target, compiler, log, advice)
        self.kernel = kernel
        self.target = target
        self.compiler = compiler
        self.log = log
        self.advice = advice

    def __str__(self) -> str:
        failed = f"{self.compiler} does not compile kernel {self.kernel} for {self.target}"
        return f"{failed}; {self.advice}. It wrote:\n{self.log}"


class LibraryError(TallowError, RuntimeError):
    """An array library refused a call; `text` is its message."""

    def __init__(self, library: str, text: str) -> None:
        super().__init__(library, text)
        self.library = library
        self.text = text

    def __str__(self) -> str:
        return f"{self.library}: {self.text}"


class RankLost(TallowError, RuntimeError):
    """A rank of a group ended before a call that the others wait for; `reason` says how."""

    def __init__(self, op: str, rank: int, reason: str) -> None:
        super().__init__(op, rank, reason)
        self.op = op
        self.rank = rank
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.op}: rank {self.rank} {self.reason}; look at what it wrote last"


class CollectiveMismatch(TallowError, RuntimeError):
    """Ranks made calls that do not match, and would wait forever; `calls` maps ranks to their calls."""

    def __init__(self, op: str, calls: Mapping[int, str]) -> None:
        super().__init__(op, calls)
        self.op = op
        self.calls = calls

    def __str__(self) -> str:
        ranks: dict[str, list[int]] = {}
        for rank, call in sorted(self.calls.items()):
            ranks.setdefault(call, []).append(rank)
        called = "; ".join(f"{_counted(group)} called {call}" for call, group in ranks.items())
        return f"{self.op}: the calls of the ranks must match, but {called}"


class FusionError(TallowError, RuntimeError):
    """A function passed to `fuse` does what one kernel of elementwise ops cannot do; `advice` says what to do.

    `file` and `line` are where the function does it, `called` is what it calls there; None for what it returns.
    """

    def __init__(self, function: str, file: str, line: int, called: str | None, reason: str, advice: str) -> None:
        super().__init__(function, file, line, called, reason, advice)
        self.function = function
        self.file = file
        self.line = line
        self.called = called
        self.reason = reason
        self.advice = advice

    def __str__(self) -> str:
        what = self.reason if self.called is None else f"{self.called} {self.reason}"
        return f"{self.function} cannot be fused: {self.file}:{self.line}: {what}; {self.advice}"


class OutOfMemory(TallowError, MemoryError):
    """A device cannot allocate `nbytes` bytes; None where their number is not known.

    `reason` says how much memory there is, where a part of it is reserved.
    """

    def __init__(self, device: str, nbytes: int | None, reason: str = "") -> None:
        super().__init__(device, nbytes, reason)
        self.device = device
        self.nbytes = nbytes
        self.reason = reason

    def __str__(self) -> str:
        what = "no memory" if self.nbytes is None else f"no memory for {self.nbytes} bytes"
        why = f" ({self.reason})" if self.reason else ""
        return f"{self.device}: {what}{why}; drop tensors that are no longer needed, or use less"


class FileError(TallowError, OSError):
    """A file cannot be read or written.

    `filename` is the path that the caller passed, `errno` and `strerror` the system's reason, `advice` what to do.
    """

    def __init__(self, op: str, filename: str, errno: int, advice: str) -> None:
        super().__init__(errno, os.strerror(errno), filename)
        self.op = op
        self.advice = advice

    def __reduce__(self) -> tuple[type[FileError], tuple[str, str, int, str]]:
        # An OSError has its own idea of what its arguments are.
        return type(self), (self.op, self.filename, self.errno or 0, self.advice)

    def __str__(self) -> str:
        return f"{self.op}: path '{self.filename}': {self.strerror}; {self.advice}"


class MissingFile(FileError, FileNotFoundError):
    """There is no file at a path, or no folder to write it to.

    >>> tl.load_safetensors("missing.safetensors")
    Traceback (most recent call last):
        ...
    tallow.MissingFile: load_safetensors: path 'missing.safetensors': No such file or directory; choose another path
    """


def _counted(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


def describe(value: object) -> str:
    """Return what an error shows of an argument: the text of a short one, of any other the type."""
    try:
        text = repr(value)
    except Exception:
        text = ""
    return text if 0 < len(text) <= 80 else f"a {type_name(value)}"


def type_name(value: object) -> str:
    """Return the name of a type for an error, with its library if it is another library's tensor: `torch.Tensor`."""
    kind = type(value)
    library = kind.__module__.partition(".")[0]
    is_foreign = hasattr(kind, "__dlpack__") and library not in ("numpy", __name__.partition(".")[0])
    return f"{library}.{kind.__name__}" if is_foreign else kind.__name__
