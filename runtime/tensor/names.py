"""Errors about attributes that other libraries have and tallow calls differently: they say what to use."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from enum import Enum
from operator import attrgetter
from typing import Any, Final, NoReturn

from ..core.argument import REQUIRED
from .equivalents import EQUIVALENTS

# By the names of other libraries, what does the same to a tensor x where it is no single name of `EQUIVALENTS`.
_OF_TENSORS: Final[Mapping[str, str]] = {
    "type_as": "x.to_dtype(dtype)",
    "data": "x.detach()",
    "double": 'x.to_dtype("f64")',
    "bfloat16": 'x.to_dtype("bf16")',
    "long": 'x.to_dtype("i64")',
    "int": 'x.to_dtype("i32")',
    "short": 'x.to_dtype("i16")',
    "byte": 'x.to_dtype("u8")',
    "bool": 'x.to_dtype("bool")',
    **dict.fromkeys(("itemsize", "element_size"), "x.dtype.itemsize"),
    **dict.fromkeys(("stride", "strides"), "x.layout.strides, in elements"),
    "storage_offset": "x.layout.start_offset",
    **dict.fromkeys(("view_as", "reshape_as"), "x.reshape(other.shape)"),
    "unflatten": "x.reshape(shape)",
    **dict.fromkeys(("take", "select"), "x[index], or x.index_select(indexes, dim)"),
    "inner": "x.vecdot(other)",
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
_OF_THE_PACKAGE: Final[Mapping[str, str]] = {
    **dict.fromkeys(("vstack", "hstack"), "tallow.cat(tensors, dim), or tallow.stack(tensors, dim)"),
    "empty": "tallow.zeros(shape)",
    "set_default_device": "device= where tensors are created, such as tallow.zeros(shape, device=device)",
    "set_default_dtype": "dtype= where tensors are created, such as tallow.zeros(shape, dtype=dtype)",
    **dict.fromkeys(
        ("nn", "functional"), "methods, such as x.linear(weight, bias) and x.relu(); parameters are tallow.Var(tensor)"
    ),
    "device_count": "len(tallow.devices())",
    "seed": "tallow.Device.set_seed",
    "random": "tallow.rand, tallow.randn, tallow.randint and tallow.randperm",
    "Variable": "tallow.Var(tensor)",
    **dict.fromkeys(("grad", "autograd"), "loss.backward(), or tallow.value_and_grad(function)"),
    "set_grad_enabled": "tallow.no_grad()",
    "jit": "tallow.fuse(function)",
    "int": 'the dtype "i32"',
    "long": 'the dtype "i64"',
    "half": 'the dtype "f16"',
    "float": 'the dtype "f32"',
    "double": 'the dtype "f64"',
}


def _by_foreign_name(words: Mapping[str, str], *, of_tensors: bool) -> dict[str, str]:
    """Return the words, and besides them ours for each name of `EQUIVALENTS`.

    Where several of ours have one foreign name, functions come before methods, and what is called so itself first.
    """
    candidates: dict[str, list[tuple[bool, bool, str]]] = {}
    for ours, libraries in EQUIVALENTS.items():
        owner, _, name = ours.rpartition(".")
        if of_tensors and owner != "Tensor":
            continue
        word = f"x.{name}" if owner == "Tensor" else f"tallow.{ours}"
        for foreign in " ".join(libraries).split():
            theirs = foreign.rpartition(".")[2]
            is_method = foreign.startswith(("Tensor.", "ndarray."))
            is_ours = f"Tensor.{theirs}" in EQUIVALENTS
            if not (is_ours and (of_tensors or is_method)):
                candidates.setdefault(theirs, []).append((is_method, theirs != name, word))
    return {theirs: min(matches)[2] for theirs, matches in candidates.items()} | dict(words)


# By the names of other libraries, what to use: an expression, or only a name, of which `as_call` makes one.
OF_TENSORS: Final[Mapping[str, str]] = _by_foreign_name(_OF_TENSORS, of_tensors=True)
OF_THE_PACKAGE: Final[Mapping[str, str]] = _by_foreign_name(_OF_THE_PACKAGE, of_tensors=False)


def as_call(word: str, value: object) -> str:
    """The call of a function that `word` names, with the parameters that it needs, or with its first ones."""
    is_enum = isinstance(value, type) and issubclass(value, Enum)
    if not word.replace(".", "").isidentifier() or not callable(value) or is_enum:
        return word
    parameters = [each for each in inspect.signature(value).parameters.values() if each.name != "self"]
    positional = [each for each in parameters if each.kind is not each.KEYWORD_ONLY and each.annotation != "Never"]
    needed = [each.name for each in positional if each.default in (each.empty, REQUIRED)]
    return f"{word}({', '.join(needed or [each.name for each in positional][:2])})"


def of_the_package(name: str, package: Any) -> str | None:
    """Return what to use instead of a name that the package does not have; None where nothing does the same."""
    word = OF_THE_PACKAGE.get(name)
    if word is not None:
        return _shown(word, package)
    dtype = package.DType.named(name)
    if dtype is not None:
        return f"the dtype '{dtype}', or DType.{dtype.name}"
    if not name.startswith("_"):
        if hasattr(package.Tensor, name) and name not in package.Device.backends():
            return _shown(f"x.{name}", package)
        if hasattr(package.Device, name):
            return _shown(f"tallow.Device.{name}", package)
    return None


def _shown(word: str, package: Any) -> str | None:
    owner, _, path = word.partition(".")
    if not path.replace(".", "").isidentifier():
        return word
    try:
        value = attrgetter(path)(package.Tensor if owner == "x" else package)
    except AttributeError:
        # A package may have fewer ops.
        return None
    if path.startswith("Device.") and inspect.isfunction(value):
        return f"the method {as_call(path.replace('Device', 'device'), value)} of a Device"
    if owner != "x":
        return as_call(f"{package.__name__}.{path}", value)
    return f"the method {as_call(word, value)} of a Tensor" if callable(value) else f"{word} of a Tensor"


def refuse_of_the_package(name: str, package: Any) -> NoReturn:
    """Raise the AttributeError for a name that a package does not have."""
    refuse(f"module '{package.__name__}'", name, package, of_the_package(name, package))


def refuse(owner: str, name: str, instance: object, word: str | None) -> NoReturn:
    """Raise the AttributeError for a name that `instance` does not have; `word` is what does the same."""
    # With the name and the object, Python itself looks for a name that is spelled alike.
    fix = "" if word is None else f"; use {word}"
    raise AttributeError(f"{owner} has no attribute '{name}'{fix}", name=name, obj=instance)


class Elsewhere:
    """A name of other libraries as an attribute of a class: to look at it is the AttributeError that names our word.

    With a method `__getattr__` Python would look up every attribute of the class by the slow path, a third of a
    small call's time.
    """

    __slots__ = ("_name", "_owner", "_word")

    def __init__(self, owner: str, name: str, word: str) -> None:
        self._owner, self._name, self._word = owner, name, word

    def __get__(self, instance: object, owner: type | None = None) -> NoReturn:
        ours = getattr(owner, self._word.removeprefix("x."), None)
        refuse(self._owner, self._name, owner if instance is None else instance, as_call(self._word, ours))
