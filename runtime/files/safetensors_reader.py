"""Tensors in safetensors files: read at once, one by one, or in slices."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...device import Device
from ...dtype import DType
from ...storage import Storage
from ..backends.backend import BackendStorage, Part
from ..core import argument
from ..core.layout import Layout
from ..core.shape import Shape
from ..tensor.base import device_of
from ..tensor.shape.indexing import Index, indexed
from ..tensor.tensor import Tensor
from .content import Content, Source, TensorFile
from .safetensors import contents, entries


def load_safetensors(
    path: Source | Sequence[Source],
    device: Device | str | None = None,
    *,
    progress: Callable[[int, int], object] | None = None,
) -> dict[str, Tensor]:
    """Read all tensors of a safetensors file to a device, by default the CPU.

    `path` may also be the bytes of a file, several files, or an index (`model.safetensors.index.json`), which means the
    tensors that it names, in files next to it. All headers are checked before any memory is allocated. Elements go from
    the file to their destination without a second copy; to a GPU several threads read while earlier parts are copied.
    `progress(done, total)` is called with the bytes that were read so far and those of all tensors.

    `FileError` where a file cannot be read, `MissingFile` where there is none; `InvalidArgument` if it is no such file,
    was cut short, has a tensor of a dtype or a rank that tallow lacks, or if two files have a tensor of one name;
    `OutOfMemory`.

    >>> tl.save_safetensors({"weight": tl.ones((2, 2))}, "model.safetensors")
    >>> tl.load_safetensors("model.safetensors")["weight"].shape
    (2, 2)
    """
    operation = "load_safetensors"
    if progress is not None and not callable(progress):
        raise argument.wrong_type(operation, "progress", progress, "Callable[[int, int], object]")
    with SafetensorsFile(operation, path, device) as file:
        return file._load(progress)


def open_safetensors(path: Source | Sequence[Source], device: Device | str | None = None) -> SafetensorsFile:
    """Read the header of a safetensors file: tensors then are read one by one, or in slices, to a device.

    `with open_safetensors("model.safetensors") as file: rows = file["embedding"][:100]`. What `path` may be and the
    errors are those of `load_safetensors`.

    >>> tl.save_safetensors({"weight": tl.arange(6)}, "model.safetensors")
    >>> with tl.open_safetensors("model.safetensors") as file:
    ...     print(list(file), file["weight"])
    ['weight'] <StoredTensor of shape (6,), i64>
    """
    return SafetensorsFile("open_safetensors", path, device)


class StoredTensor:
    """A tensor in a file, of which only the header has been read.

    `stored[index]` is a tensor of the part that an index chooses, read from the file; `stored[...]` is all of it. An
    index is one that makes a view of a tensor.
    """

    __slots__ = ("_begin", "_content", "_device", "_layout", "dtype")

    def __init__(self, dtype: DType, layout: Layout, device: Device, content: Content, begin: int) -> None:
        self.dtype = dtype
        self._layout = layout
        self._device = device
        self._content = content
        self._begin = begin

    @property
    def shape(self) -> Shape:
        """The sizes of the dims."""
        return self._layout.shape

    @property
    def nbytes(self) -> int:
        """The bytes of the elements."""
        return self.shape.elem_count * self.dtype.itemsize

    def __getitem__(self, index: Index | tuple[Index, ...]) -> Tensor:
        """Read the part that integers, slices with positive steps, None (a new dim) and `...` choose, as in NumPy."""
        self._content.require_open()
        layout = indexed(self._layout, index)
        storage: BackendStorage
        if layout.is_contiguous:
            (storage,) = self._device.inner.load([self._part(layout)])
        else:
            elements = self._content.read_strided(self._begin, layout, self.dtype.itemsize)
            storage = self._device.storage(elements.view(self.dtype.numpy).reshape(layout.shape)).inner
        return Tensor._new(Storage(storage), Layout.contiguous(layout.shape))

    def _part(self, layout: Layout) -> Part:
        begin = self._begin + layout.start_offset * self.dtype.itemsize
        return Part(
            self.dtype, layout.elem_count, lambda target, offset: self._content.read_into(target, begin + offset)
        )

    def __repr__(self) -> str:
        return f"<StoredTensor of shape {tuple(self.shape)}, {self.dtype.value}>"


class SafetensorsFile(TensorFile[StoredTensor]):
    """The tensors of a safetensors file, or of several, by name. Closed by `close` or at the end of a `with` block."""

    def __init__(self, operation: str, path: Source | Sequence[Source], device: Device | str | None) -> None:
        target = device_of(device)
        super().__init__(operation)
        self.device = target
        """Where tensors are read to."""
        self.metadata: dict[str, str] = {}
        """The text that the file carries along."""
        try:
            for content, names in contents(operation, path):
                self._contents.append(content)
                self._add(content, target, names)
        except BaseException:
            self.close()
            raise
        self._tensors = dict(sorted(self._tensors.items()))

    def _add(self, content: Content, device: Device, names: frozenset[str] | None) -> None:
        known, metadata = entries(content)
        self.metadata |= metadata
        for name in known if names is None else names:
            if name not in known:
                raise content.refused(f"it has no tensor '{name}', which the index names; get both from one source")
            if name in self._tensors:
                raise content.refused(f"tensor '{name}' is in another of the files too; load them one by one")
            self._tensors[name] = StoredTensor(*known[name][:2], device, content, known[name].begin)

    def _load(self, progress: Callable[[int, int], object] | None) -> dict[str, Tensor]:
        stored = list(self._tensors.values())
        total = sum(tensor.nbytes for tensor in stored)
        report = None if progress is None else lambda done: progress(done, total)
        storages = self.device.inner.load([tensor._part(tensor._layout) for tensor in stored], report)
        return {
            name: Tensor._new(Storage(storage), tensor._layout)
            for (name, tensor), storage in zip(self._tensors.items(), storages, strict=True)
        }

    def __repr__(self) -> str:
        return f"<SafetensorsFile of {len(self)} tensors, to {self.device.label}>"
