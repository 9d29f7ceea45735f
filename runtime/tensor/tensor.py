"""The tensor."""

from __future__ import annotations

from ..base.error import InvalidArgument, TallowError
from ..helpers.public import assembled
from . import names
from .attention import AttentionMethods
from .convolution import ConvolutionMethods
from .custom import CustomMethods
from .display import shown
from .familiar import FamiliarMethods
from .layers import LayerMethods
from .losses import LossMethods
from .sampling import SamplingMethods


class TensorType(type):
    """The class of the class Tensor, whose `dir` leaves out names that only say what to use in their place."""

    def __dir__(cls) -> list[str]:
        return [name for name in super().__dir__() if not isinstance(vars(Tensor).get(name), names.Elsewhere)]


@assembled
class Tensor(
    LayerMethods,
    LossMethods,
    SamplingMethods,
    FamiliarMethods,
    AttentionMethods,
    ConvolutionMethods,
    CustomMethods,
    metaclass=TensorType,
):
    """Elements of one dtype on one device, in at most `limits.MAX_RANK` dims.

    A tensor is a storage and a layout. Views share the storage, so what is written through one of them shows in all:
    only methods whose name ends in `_`, `slice_set`, statements such as `x += y` and `x[1:] = y`, and a user's in-place
    ops write. Operands broadcast by NumPy's rules and are on one device; those of different dtypes are promoted by one
    table, that of docs/promotion.md. `==` compares element by element, and tensors hash by identity. Wherever a dtype
    is expected, its name and NumPy's types and dtypes do too: DType.F16, "f16", "float16" and np.float16 are one thing.

    >>> tl.Tensor([[1.0, 2.0], [3.0, 4.0]])
    Tensor([[1., 2.],
            [3., 4.]], dtype=f32)
    >>> tl.Tensor([1, 2, 3], "f16")
    Tensor([1., 2., 3.], dtype=f16)
    >>> tl.Tensor(np.arange(3))
    Tensor([0, 1, 2], dtype=i64)
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return shown(self)

    def _repr_html_(self) -> str:
        """Show in a notebook what `repr` does, with columns that line up."""
        from html import escape

        return f'<pre style="font-family: monospace; white-space: pre">{escape(shown(self))}</pre>'

    def __dir__(self) -> list[str]:
        return dir(type(self))

    def __format__(self, spec: str) -> str:
        """Format the only element as a number; without a format, as `repr` does."""
        if not spec:
            return str(self)
        try:
            return format(self.item(), spec)
        except TallowError as error:
            error.rename("format")
            raise
        except ValueError as error:
            raise InvalidArgument("format", f"{error}; use a format of Python's numbers") from None


for _name, _word in names.OF_TENSORS.items():
    # A package may have an op of this name.
    if not hasattr(Tensor, _name):
        setattr(Tensor, _name, names.Elsewhere("a Tensor", _name, _word))
