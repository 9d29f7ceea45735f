"""What tallow calls what other libraries call differently, for the errors about attributes that are not there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NoReturn

# By the names of PyTorch and NumPy, what does the same here to a tensor x.
OF_TENSORS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("astype", "type", "type_as"), "x.to_dtype(dtype)"),
    "double": 'x.to_dtype("f64")',
    "bfloat16": 'x.to_dtype("bf16")',
    "long": 'x.to_dtype("i64")',
    "int": 'x.to_dtype("i32")',
    "short": 'x.to_dtype("i16")',
    "byte": 'x.to_dtype("u8")',
    "bool": 'x.to_dtype("bool")',
    "dim": "x.rank",
    "nelement": "x.elem_count",
    **dict.fromkeys(("itemsize", "element_size"), "x.dtype.itemsize"),
    **dict.fromkeys(("stride", "strides"), "x.layout.strides, in elements"),
    "storage_offset": "x.layout.start_offset",
    **dict.fromkeys(("view_as", "reshape_as"), "x.reshape(other.shape)"),
    "ravel": "x.flatten()",
    "unflatten": "x.reshape(shape)",
    **dict.fromkeys(("broadcast_to", "expand_as"), "x.broadcast_as(shape)"),
    **dict.fromkeys(("swapaxes", "swapdims"), "x.transpose(dim1, dim2)"),
    "moveaxis": "x.movedim(source, destination)",
    **dict.fromkeys(("take", "select"), "x[index], or x.index_select(indexes, dim)"),
    "take_along_axis": "x.take_along_dim(indexes, dim)",
    "clip": "x.clamp(lowest, highest)",
    "pad": "x.pad_with_zeros(dim, left, right)",
    "inner": "x.vecdot(other)",
    "subtract": "x.sub(other)",
    "multiply": "x.mul(other)",
    **dict.fromkeys(("divide", "true_divide"), "x.div(other)"),
    "mod": "x.remainder(other)",
    "power": "x.pow(exponent)",
    "negative": "x.neg()",
    "reciprocal": "x.recip()",
    "square": "x.sqr()",
    "absolute": "x.abs()",
    **{f"arc{name}": f"x.a{name}()" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    "arctan2": "x.atan2(other)",
    "fix": "x.trunc()",
    **dict.fromkeys(("bitwise_not", "invert"), "~x"),
    "not_equal": "x.ne(other)",
    "greater": "x.gt(other)",
    "greater_equal": "x.ge(other)",
    "less": "x.lt(other)",
    "less_equal": "x.le(other)",
    "amax": "x.max(dim)",
    "amin": "x.min(dim)",
    "swish": "x.silu()",
    **dict.fromkeys(
        ("requires_grad", "grad_fn", "track_op", "is_variable"), "x.is_recorded; tallow.Var(x) makes a variable"
    ),
    **dict.fromkeys(("requires_grad_", "retain_grad"), "tallow.Var(x)"),
    "grad": "grads = loss.backward(), then grads[w] of a tallow.Var w",
    **dict.fromkeys(("empty_like", "new_zeros", "new_empty"), "x.zeros_like()"),
    "full_like": "x.zeros_like().fill_(value)",
}
OF_OPTIMIZERS: Final[Mapping[str, str]] = {
    "zero_grad": "nothing: backward gives new gradients each time",
    "state_dict": "optimizer.state()",
    "load_state_dict": "optimizer.load_state(tensors)",
    "param_groups": "optimizer.groups",
    "backward_step": "optimizer.step(loss.backward())",
    "set_learning_rate": "optimizer.learning_rate = rate",
}
OF_THE_PACKAGE: Final[Mapping[str, str]] = {
    **dict.fromkeys(("array", "asarray", "as_tensor"), "tallow.Tensor(data)"),
    **dict.fromkeys(("concat", "concatenate"), "tallow.cat(tensors, dim)"),
    **dict.fromkeys(("vstack", "hstack"), "tallow.cat(tensors, dim), or tallow.stack(tensors, dim)"),
    "empty": "tallow.zeros(shape)",
    "device_count": "len(tallow.devices())",
    "manual_seed": "Device.set_seed(seed)",
    "save": "tallow.save_safetensors(tensors, path)",
    "load": "tallow.load_safetensors(path)",
    "compile": "tallow.fuse(function)",
    **dict.fromkeys(("Parameter", "Variable"), "tallow.Var(tensor)"),
    **dict.fromkeys(("grad", "autograd"), "loss.backward(), or tallow.value_and_grad(function)"),
    **dict.fromkeys(("set_grad_enabled", "inference_mode"), "tallow.no_grad()"),
    "jit": "tallow.fuse(function)",
    "set_printoptions": "tallow.set_print_options()",
    "set_num_threads": "tallow.set_threads(count)",
    "get_num_threads": "tallow.get_threads()",
    "use_deterministic_algorithms": "tallow.deterministic(is_on)",
    "int": 'the dtype "i32"',
    "long": 'the dtype "i64"',
    "half": 'the dtype "f16"',
    "float": 'the dtype "f32"',
    "double": 'the dtype "f64"',
}


def refuse(owner: str, name: str, found: object, word: str | None) -> NoReturn:
    """Raise the AttributeError for a name that `found` does not have; `word` is what does the same."""
    # With the name and the object, Python itself looks for a name that is spelled alike.
    mend = "" if word is None else f"; use {word}"
    raise AttributeError(f"{owner} has no attribute '{name}'{mend}", name=name, obj=found)


class Elsewhere:
    """A name of other libraries as an attribute of a class: to look at it is the AttributeError that names our word.

    With a method `__getattr__` Python would look up every attribute of the class the slow way, which takes a third of a
    small call.
    """

    __slots__ = ("_name", "_owner", "_word")

    def __init__(self, owner: str, name: str, word: str) -> None:
        self._owner, self._name, self._word = owner, name, word

    def __get__(self, instance: object, owner: type | None = None) -> NoReturn:
        refuse(self._owner, self._name, owner if instance is None else instance, self._word)
