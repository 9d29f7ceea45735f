"""Batching rules of storage methods: the key `batch` of spec/storage names these functions.

An operand that has all examples, `call.stacked(name)`, has them as its first dim. A rule returns storages or tensors
whose first dim is that of the examples; or None, where the method writes in place.
"""

from __future__ import annotations

import math
from typing import Any, Final

from ...kernels.constants import ROWS
from ...storage import Storage
from ..core.conv import ParamsConvolution
from ..core.layout import Layout
from ..tensor import Tensor
from ..tensor.batch import stacked
from ..tensor.shape.joining import stack
from .calls import BatchedCall, require_target


def leading(call: BatchedCall) -> Any:
    """Call the method with the examples as a dim before those that it names, since it treats them alike."""
    arguments = dict(call.arguments)
    for name, layout in call.batching.operands.items():
        value = call[name]
        if value is None or layout is None:
            continue
        if isinstance(value, tuple):
            pairs = [stacked(*pair, call.level) for pair in zip(value, call[layout], strict=True)]
            arguments[name], arguments[layout] = tuple(each[0] for each in pairs), tuple(each[1] for each in pairs)
        else:
            arguments[name], arguments[layout] = stacked(value, call[layout], call.level)
    if "dim" in arguments:
        arguments["dim"] = _behind(arguments["dim"])
    if "dims" in arguments:
        arguments["dims"] = tuple(map(_behind, arguments["dims"]))
    return call.call(arguments)


def written(call: BatchedCall) -> None:
    """Call a method that writes to the elements of each example."""
    require_target(call)
    leading(call)


def items(call: BatchedCall) -> Any:
    """The call of as many more items: the first dim of each operand counts them."""
    return call.run({name: _items(call.stacked(name)) for name in call.batching.operands})


def pool(call: BatchedCall) -> Any:
    """As `items`, where the parameters of a pool state the number of items."""
    params = call["params"]
    images, *others = params.input_dims
    params = params._replace(input_dims=(call.size * images, *others))
    return call.run({name: _items(call.stacked(name)) for name in call.batching.operands}, params=params)


def normalize_groups(call: BatchedCall) -> Any:
    """As `items` where groups are those of an item and all examples share the vectors, else as `loop`."""
    if call["whole_batch"] or call.is_batched("weight") or call.is_batched("bias"):
        return loop(call)
    vectors = {name: call.shared(name) for name in ("weight", "bias")}
    return call.run({"self": _items(call.stacked("self")), **vectors})


def pad(call: BatchedCall) -> Any:
    """Call the method without padding the dim of the examples."""
    ends = {name: (0, *call[name]) for name in ("before", "after")}
    return call.run({"self": call.stacked("self")}, **ends)


def _behind(dim: int) -> int:
    return dim + 1 if dim >= 0 else dim


def loop(call: BatchedCall) -> Any:
    """One call for each example."""
    stacks = {name: call.stacked(name) for name in call.batching.operands}
    each = [call.run({name: None if x is None else x[i] for name, x in stacks.items()}) for i in range(call.size)]
    if not isinstance(each[0], tuple):
        return stack([_flat(storage) for storage in each])
    return tuple([stack([_flat(storage) for storage in group]) for group in zip(*each, strict=True)])


def _flat(storage: Storage) -> Tensor:
    return Tensor.from_storage(storage, storage.length)


def _items(x: Any, dim: int = 0) -> Any:
    """Merge the examples into a dim of each."""
    if x is None:
        return None
    x = x.movedim(0, dim)
    return x.reshape(*x.shape[:dim], x.shape[dim] * x.shape[dim + 1], *x.shape[dim + 2 :])


def attention(call: BatchedCall) -> Any:
    """Examples are further batches, each with its own length of keys where there are several."""
    operands = {name: _items(call.stacked(name)) for name in call.batching.operands if name != "lengths"}
    lengths = call.stacked("lengths")
    if lengths is not None:
        count = call.stacked("self").shape[1]
        lengths = lengths.broadcast_as((call.size, count)) if lengths.shape[-1] == 1 else lengths
        lengths = lengths.reshape(call.size * count)
    return call.run({**operands, "lengths": lengths})


def matmul(call: BatchedCall) -> Any:
    """Examples are further matrices, or, of a matrix times one that all share, further rows."""
    lhs, rhs = call.stacked("self"), call.stacked("rhs")
    batch, m, n, k = call["bmnk"]
    if not call.is_batched("rhs") and lhs.rank == 3:
        rows = lhs.reshape(call.size * m, k)
        return call.run({"self": rows, "rhs": call.shared("rhs")}, bmnk=(1, call.size * m, n, k))
    return call.run({"self": lhs, "rhs": rhs}, bmnk=(call.size * batch, m, n, k))


def linear(call: BatchedCall) -> Any:
    """Examples are further rows where all share the weights, else further matrices."""
    x, bias = call.stacked("self"), call.stacked("bias")
    if not call.is_batched("weight") and not call.is_batched("bias"):
        rows = x.reshape(call.size * x.shape[1], x.shape[2])
        return call.run({"self": rows, "weight": call.shared("weight"), "bias": call.shared("bias")})
    if bias is None:
        return x.matmul(call.stacked("weight").mT)
    wide = x.to_dtype(x.dtype.compute).matmul(call.stacked("weight").to_dtype(x.dtype.compute).mT)
    return (wide + bias.to_dtype(wide.dtype).unsqueeze(1)).to_dtype(x.dtype)


def convolution(call: BatchedCall) -> Any:
    """Examples are further images where all share the kernel, else further groups of channels."""
    params, (first, second) = call["params"].general, call.batching.operands
    method = call.batching.name
    if not method.startswith("convolution"):
        method = "convolution_gradient_input" if "transpose" in method else "convolution"
    gives_kernel = method == "convolution_gradient_weight"
    x, other = call.stacked(first), call.stacked(second)
    images, channels, *sizes = params.input_dims
    if not gives_kernel and not call.is_batched(second):
        params = params._replace(input_dims=(call.size * images, channels, *sizes))
        return _convolved(_items(x), method, call.shared(second), params)
    is_last, (count, *kernel_sizes) = params.channels_last, params.kernel_dims
    # Further examples are among the channels, in no order that puts channels last.
    params = params._replace(
        input_dims=(images, call.size * channels, *sizes),
        kernel_dims=(call.size * count, *kernel_sizes),
        groups=call.size * params.groups,
        channels_last=False,
    )
    if gives_kernel:
        storage = _convolved(_items(x, 1), method, _items(other, 1), params)
        result = Tensor.from_storage(storage, (call.size, count, *kernel_sizes))
    else:
        storage = _convolved(_items(x, 1), method, _items(other), params)
        _, channels, *sizes = params.out_dims if method == "convolution" else params.input_dims
        result = Tensor.from_storage(storage, (images, call.size, channels // call.size, *sizes)).movedim(1, 0)
    return result.movedim(2, -1) if is_last else result


def _convolved(x: Tensor, method: str, other: Tensor, params: ParamsConvolution) -> Any:
    return getattr(x._storage, method)(x._layout, other._storage, other._layout, params)


def recurrent(call: BatchedCall) -> Any:
    """Examples are further sequences where all share weight and bias."""
    shared = [name for name in ("weight", "bias") if name in call.batching.operands]
    if any(map(call.is_batched, shared)):
        return loop(call)
    operands = {name: call.stacked(name) for name in call.batching.operands if name not in shared}
    # Sequences are along the dim before the last, or of lengths along the only one.
    merged = {name: None if x is None else _items(x, max(x.rank - 3, 0)) for name, x in operands.items()}
    outputs = call.run({**merged, **{name: call.shared(name) for name in shared}})
    batch, gates = operands["self"].shape[-2:]
    states = gates // (4 if call.batching.name.startswith("lstm") else 3)

    def unmerged(storage: Storage, width: int) -> Tensor:
        sizes = call.size, batch, width
        return Tensor.from_storage(storage, (storage.length // max(math.prod(sizes), 1), *sizes)).movedim(1, 0)

    if not isinstance(outputs, tuple):
        return unmerged(outputs, states)
    is_gradient = call.batching.name.endswith("gradient")
    widths = [gates] * (len(outputs) - 1) + [states] if is_gradient else [states, gates]
    return tuple(map(unmerged, outputs, widths))


def copy_strided_src(call: BatchedCall) -> None:
    """As `assign`."""
    layout = call["src_layout"]
    call["dst"].assign(Layout.contiguous(layout.shape, call["dst_offset"]), call["self"], layout)


def copy2d(call: BatchedCall) -> None:
    """As `assign`."""
    shape = call["d1"], call["d2"]
    target, source = ((call[f"{name}_stride"], 1) for name in ("dst", "src"))
    layout = Layout(shape, source, call["src_offset"])
    call["dst"].assign(Layout(shape, target, call["dst_offset"]), call["self"], layout)


def try_clone(call: BatchedCall) -> Any:
    """A copy of the elements of all examples."""
    storage, layout = stacked(call["self"], Layout.contiguous((call["self"].length,)), call.level)
    return storage.to_dtype(layout, storage.dtype)


def index_select(call: BatchedCall) -> Any:
    """Each example has its own indexes, or all the same."""
    dim = call["dim"]
    if not call.is_batched("indexes"):
        return call.run({"self": call.stacked("self"), "indexes": call.shared("indexes")}, dim=dim + 1)
    x, indexes = call.stacked("self"), call.stacked("indexes").reshape(call.size, -1)
    shape = [*x.shape[: dim + 1], indexes.shape[1], *x.shape[dim + 2 :]]
    return x.gather(_along(indexes, dim + 1, shape), dim + 1)


def index_add(call: BatchedCall) -> Any:
    """Each example has its own indexes, or all the same."""
    dim, x, source = call["dim"], call.stacked("self"), call.stacked("source")
    if not call.is_batched("indexes"):
        return call.run({"self": x, "indexes": call.shared("indexes"), "source": source}, dim=dim + 1)
    indexes = call.stacked("indexes").reshape(call.size, -1)
    return x.scatter_add(_along(indexes, dim + 1, source.shape), source, dim + 1)


def _along(indexes: Tensor, dim: int, shape: Any) -> Tensor:
    """The indexes (examples, count) along a dim of a shape, for each of the other elements."""
    sizes = [1] * len(shape)
    sizes[0], sizes[dim] = indexes.shape
    return indexes.reshape(sizes).broadcast_as(shape).contiguous()


def searchsorted(call: BatchedCall) -> Any:
    """Each example has its own lines and values."""
    lines, values = call.stacked("self"), call.stacked("values")
    return call.run({"self": lines, "values": values.reshape(call.size, -1) if lines.rank == 2 else values})


def ratio_of_sums(call: BatchedCall) -> Any:
    """The sums of each example."""
    total, divisor = (call.stacked(name).reshape(call.size, -1).sum(1) for name in ("self", "divisor"))
    return (total / divisor, divisor, divisor.recip()) if call["saves"] else (total / divisor,)


def fresh(call: BatchedCall) -> Any:
    """As `leading`, with results in memory of their own."""
    return leading(BatchedCall(call.batching, call.level, {**call.arguments, "overwrites": False}))


_VECTORS = ("weight", "bias")


def row(call: BatchedCall) -> Any:
    """Examples are further rows where they share the vectors along these, and each asks for no sums over its rows."""
    facts, names = ROWS[call.batching.name], [*call.batching.operands]
    vectors = [name for index, name in enumerate(names) if facts.vectors >> index & 1]
    if any(map(call.is_batched, vectors)) or any(call[name] for name in call.arguments if name.startswith("of_")):
        return _OF_VECTORS.get(call.batching.name, loop)(call)
    rows = {name: call.stacked(name) for name in names if name not in vectors}
    dim = {name: _behind(value) for name, value in call.arguments.items() if name == "dim"}
    return call.run({**rows, **{name: call.shared(name) for name in vectors}}, **dim)


def _norm(call: BatchedCall) -> Any:
    """Normalise without weights, and multiply the result by those of each example."""
    names = [*call.batching.operands]
    scales = [name for name in names if name in _VECTORS]
    rows = {name: call.stacked(name) for name in names if name not in scales}
    x = rows["self"] if rows["residual"] is None else rows["self"] + rows["residual"]
    wide = _wide(x)
    normed = Tensor.from_storage(call.run({**dict.fromkeys(names), "self": wide})[0], wide.shape)
    weight, bias = [_rows_of(call.stacked(name), wide) if name in scales else None for name in _VECTORS]
    normed = normed if weight is None else normed * weight
    normed = (normed if bias is None else normed + bias).to_dtype(x.dtype)
    return (normed,) if rows["residual"] is None else (normed, x)


def _norm_gradient(call: BatchedCall) -> Any:
    """The sums over the rows of each example are the gradients of its weights."""
    rows = {name: call.stacked(name) for name in ("self", "x", "residual")}
    wanted = [call.arguments.get(name, False) for name in ("of_weight", "of_bias")]
    x, g = _wide(rows["x"]), _wide(rows["self"])
    weight = _rows_of(call.stacked("weight"), x)
    none = {name: False for name in ("of_weight", "of_bias") if name in call.arguments}
    inside = {"self": g if weight is None else g * weight, "x": x, "weight": None}
    residual = None if rows["residual"] is None else _wide(rows["residual"])
    x_gradient = Tensor.from_storage(call.run({**inside, "residual": residual}, **none)[0], x.shape)
    results = [x_gradient]
    dims = tuple(range(1, x.rank - 1))
    if wanted[0]:
        of_rows = x.rms_norm if call.batching.name.startswith("rms") else x.layer_norm
        product = g * of_rows(eps=call["eps"])
        results.append(product.sum(dims) if dims else product)
    if wanted[1]:
        results.append(g.sum(dims) if dims else g)
    return tuple(each.to_dtype(rows["self"].dtype) for each in results)


_OF_VECTORS: Final = {
    **dict.fromkeys(("rms_norm", "layer_norm"), _norm),
    **dict.fromkeys(("rms_norm_gradient", "layer_norm_gradient"), _norm_gradient),
}


def norm_of_blocks(call: BatchedCall) -> Any:
    """Examples are further rows where all share the weight."""
    if call.is_batched("weight"):
        return loop(call)
    rows = {name: _items(call.stacked(name)) for name in ("x", "residual")}
    return call.run({**rows, "weight": call.shared("weight")})


def _wide(x: Tensor) -> Tensor:
    return x.to_dtype(x.dtype.compute)


def _rows_of(vectors: Tensor | None, x: Tensor) -> Tensor | None:
    """Vectors of the last dim, one for each example, for all of its rows."""
    if vectors is None:
        return None
    return _wide(vectors).reshape(vectors.shape[0], *[1] * (x.rank - 2), vectors.shape[1])


def rope(call: BatchedCall) -> Any:
    """Examples are further batches, each with its position, where all share the tables."""
    if call.is_batched("cos") or call.is_batched("sin"):
        return loop(call)
    x, positions = call.stacked("self"), call.stacked("positions")
    tables = {name: call.shared(name) for name in ("cos", "sin")}
    positions = positions.reshape(call.size, -1)
    if x.rank > 3:
        positions = positions.broadcast_as((call.size, x.shape[1]))
        rows = _items(x)
    else:
        rows = x
    return call.run({**tables, "self": rows, "positions": positions.reshape(-1).contiguous()})
