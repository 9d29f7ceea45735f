"""The tensors of a model by name, for files, and tensors of files back into a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..base.error import DTypeMismatch, InvalidArgument, ShapeMismatch, describe
from ..tensor import Tensor
from ..tensor.base import require_tensors
from .recording import no_grad


def state_dict(model: Any) -> dict[str, Tensor]:
    """Return the tensors in nested dicts, lists and tuples by name; the parts of a name are separated by dots.

    They are the tensors themselves, so optimisers take them as parameters by name, and `save_safetensors` writes them;
    `load_state_dict` is the reverse. InvalidArgument for what is no tensor, and for two of one name.

    >>> model = {"layers": [{"weight": tl.Var(tl.ones((2, 2)))}, {"weight": tl.Var(tl.ones((1, 2)))}]}
    >>> list(tl.state_dict(model))
    ['layers.0.weight', 'layers.1.weight']
    """
    return _named("state_dict", model)


def load_state_dict(model: Any, tensors: Mapping[str, Tensor]) -> None:
    """Copy tensors by name, as `state_dict` gives them and `load_safetensors` reads them, into those of a model.

    They may be on any device. InvalidArgument where names are missing or unknown, ShapeMismatch and DTypeMismatch where
    a tensor is not like the model's: then nothing has changed.

    >>> model = {"weight": tl.Var(tl.zeros(2))}
    >>> tl.load_state_dict(model, {"weight": tl.Tensor([1.0, 2.0])})
    >>> model["weight"]
    Var([1., 2.], dtype=f32)
    """
    own = _named("load_state_dict", model)
    require_same("load_state_dict", own, tensors, "load one of the same model")
    load(own, tensors)


def _named(op: str, model: Any) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for path, value in _leaves("", model):
        if not isinstance(value, Tensor) or not path:
            what = f"'{path}'" if path else "the model"
            reason = f"{what} is {describe(value)}; a model is tensors in dicts, lists and tuples"
            raise InvalidArgument(op, reason)
        if path in tensors:
            raise InvalidArgument(op, f"two tensors are called '{path}'; rename one")
        tensors[path] = value
    return tensors


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    items: Iterable[tuple[Any, Any]]
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        items = zip(value._fields, value, strict=True)
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    else:
        yield path, value
        return
    for name, item in items:
        yield from _leaves(f"{path}.{name}" if path else str(name), item)


def require_same(op: str, own: Mapping[str, Tensor], tensors: Mapping[str, Tensor], advice: str) -> None:
    """Check that tensors have the names, the shapes and the dtypes of others."""
    if not isinstance(tensors, Mapping):
        raise InvalidArgument(op, f"tensors must be a dict of tensors by name, not {describe(tensors)}")
    for words, names in (("lacks", own.keys() - tensors.keys()), ("has", tensors.keys() - own.keys())):
        if names:
            reason = f"the state {words} {min(map(describe, names))}"
            raise InvalidArgument(op, f"{reason}; {advice}")
    for name, part in own.items():
        require_tensors(op, **{name: tensors[name]})
        if tensors[name].shape != part.shape:
            raise ShapeMismatch(op, (part.shape, tensors[name].shape), f"'{name}' has another shape")
        if tensors[name].dtype is not part.dtype:
            dtypes = part.dtype, tensors[name].dtype
            raise DTypeMismatch(op, dtypes, f"'{name}' is of {dtypes[0].value}, and the state has {dtypes[1].value}")


def load(own: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    """Copy tensors into those of the same names; nothing is recorded."""
    with no_grad():
        loaded = {name: tensors[name].detach().to(part.device) for name, part in own.items()}
        for name, part in own.items():
            part.copy_(loaded[name])
