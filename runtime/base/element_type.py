"""Facts of element types, from the spec."""

from __future__ import annotations

import importlib
from functools import cache, cached_property
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np

from .error import InvalidArgument
from .float_format import FloatFormat
from .named import Named


class Facts(NamedTuple):
    """The spec's facts of an element type."""

    kind: str
    itemsize: int
    numpy: tuple[str, str] | None  # the module and the name of its NumPy type
    compute: str
    index_mark: int | None
    safetensors: str | None
    dlpack: tuple[int, int] | None
    cpp: str
    real: str | None = None  # of complex numbers the dtype of their parts
    joined_as: str | None = None  # where it is not itself
    format: FloatFormat | None = None  # of floats
    multiplicand: str | None = None  # the type as which matrix cores multiply it


class IndexForm(NamedTuple):
    """How kernels read an index."""

    mark: int
    """The mark as an i64; where there is none, what no index of fewer bytes is."""
    itemsize: int
    shift: int
    """How far the sign is from bit 63."""


class ElementType(Named):
    """Base class of the enum DType, which defines the members."""

    def __init__(self, facts: Facts) -> None:
        self.kind = facts.kind
        self.itemsize = facts.itemsize
        self.index_mark = facts.index_mark
        self.safetensors = facts.safetensors
        self.dlpack = facts.dlpack
        self.cpp = facts.cpp
        self._facts = facts

    def __eq__(self, other: object) -> bool:
        """Compare as all names are, and with NumPy's types and dtypes."""
        if isinstance(other, np.dtype) or (isinstance(other, type) and issubclass(other, np.generic)):
            return self is _by_numpy_name(type(self)).get(np.dtype(other).name)
        return super().__eq__(other)

    __hash__ = Named.__hash__

    @classmethod
    def _is_misspelt(cls, text: str) -> bool:
        """See Named; also a name of a library, such as "torch.float32", and one that NumPy knows, such as "half"."""
        name = text.rpartition(".")[2].casefold()
        try:
            numpy_name = np.dtype(name).name
        except Exception:
            return super()._is_misspelt(name)
        return numpy_name in _by_numpy_name(cls) or super()._is_misspelt(name)

    @cached_property
    def format(self) -> FloatFormat:
        """The bits of exponent and fraction of a float, and what follows from them."""
        assert self._facts.format is not None, "it is a float"
        return self._facts.format

    @cached_property
    def is_float(self) -> bool:
        """Whether it is a type of real floating-point numbers."""
        return self.kind == "float"

    @cached_property
    def is_narrow(self) -> bool:
        """Whether it is a short float that matrix cores do not multiply: ops without kernels of it compute in f32."""
        return self.is_float and self.compute is not self and self._facts.multiplicand is None

    @cached_property
    def is_integer(self) -> bool:
        """Whether it is an integer type."""
        return self.kind in ("unsigned", "signed")

    @cached_property
    def is_complex(self) -> bool:
        """Whether it is a type of complex numbers."""
        return self.kind == "complex"

    @cached_property
    def is_inexact(self) -> bool:
        """Whether it is a type of floating-point numbers, real or complex."""
        return self.kind in ("float", "complex")

    @cached_property
    def real(self) -> Self:
        """The dtype of the real and imaginary parts of its complex numbers; of others it is itself."""
        return self if self._facts.real is None else self._other(self._facts.real)

    @cached_property
    def joined_as(self) -> Self:
        """The dtype in which ranks combine its elements: itself, or another one that libraries support."""
        return self if self._facts.joined_as is None else self._other(self._facts.joined_as)

    @cached_property
    def complex(self) -> Self | None:
        """The dtype of complex numbers whose parts have this dtype: a complex one itself; None where there is none."""
        return self if self.is_complex else next((each for each in type(self) if each._facts.real == self.value), None)

    def _other(self, name: str) -> Self:
        member: Self = type(self)._value2member_map_[name]  # type: ignore[assignment]
        return member

    @cached_property
    def compute(self) -> Self:
        """The dtype in which arithmetic on it is done."""
        return self._other(self._facts.compute)

    @cached_property
    def numpy(self) -> np.dtype[Any]:
        """Its NumPy dtype. ml_dtypes is imported only for the types that NumPy lacks.

        A float that both lack is a structured type whose one field holds its bits.
        """
        if self._facts.numpy is None:
            return np.dtype([(self.value, f"u{self.itemsize}")])
        module, name = self._facts.numpy
        dtype: np.dtype[Any] = np.dtype(getattr(importlib.import_module(module), name))
        return dtype

    @property
    def dtype(self) -> np.dtype[Any]:
        """Its NumPy dtype, by which NumPy takes it for one: `numpy.zeros(3, x.dtype)`."""
        return self.numpy

    @cached_property
    def is_of_numpy(self) -> bool:
        """Whether NumPy has it by itself, without ml_dtypes."""
        return self._facts.numpy is not None and self._facts.numpy[0] == "numpy"

    @cached_property
    def index_form(self) -> IndexForm:
        """How kernels read an index of it."""
        mark = 2**63 if self.index_mark is None else self.index_mark
        shift = 64 - 8 * self.itemsize if self.kind == "signed" else 0
        return IndexForm((mark + 2**63) % 2**64 - 2**63, self.itemsize, shift)

    def index_of(self, word: int) -> int:
        """The index that an i64 of the same bits stands for."""
        return word % 2**64 if self.kind == "unsigned" else word

    @classmethod
    def named(cls, name: str) -> Self | None:
        """The dtype of a name, its own or NumPy's; None where there is none."""
        member: Self | None = _by_name(cls).get(name) if isinstance(name, str) else None
        return member

    @classmethod
    def from_numpy(cls, dtype: np.dtype[Any]) -> Self:
        """The dtype of a NumPy dtype in native byte order; InvalidArgument where there is none."""
        if not isinstance(dtype, np.dtype):
            raise InvalidArgument("from_numpy", f"dtype must be of type numpy.dtype, not {type(dtype).__name__}")
        member: Self | None = _of_numpy(cls, dtype)
        if member is None:
            known = ", ".join(_by_numpy_name(cls))
            raise InvalidArgument("dtype", f"no dtype for NumPy's {dtype!r}; convert the array to one of {known}")
        return member


Element = TypeVar("Element", bound=ElementType)


@cache
def _by_numpy_name(every: type[Element]) -> dict[str, Element]:
    return {each._facts.numpy[1]: each for each in every if each._facts.numpy is not None}


# A dtype of NumPy makes its name anew each time.
@cache
def _of_numpy(every: type[Element], dtype: np.dtype[Any]) -> Element | None:
    if dtype.names is not None:
        return next((each for each in every if each._facts.numpy is None and each.numpy == dtype), None)
    return _by_numpy_name(every).get(dtype.name) if dtype.isnative else None


@cache
def _by_name(every: type[Element]) -> dict[str, Element]:
    return _by_numpy_name(every) | {each.value: each for each in every}
