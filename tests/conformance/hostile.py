"""Every public call of tallow, found by walking, and arguments for them: some that fit and some that nobody expects."""

from __future__ import annotations

import enum
import inspect
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tallow
from hypothesis import strategies as st
from tallow import (
    BinaryGradientOp,
    BinaryGradientsOp,
    BinaryOp,
    CmpOp,
    DType,
    Layout,
    ReduceOp,
    Shape,
    Tensor,
    UnaryGradientOp,
    UnaryOp,
    array_api,
)
from tallow.runtime.backends.backend import BackendBlocks, BackendDevice, BackendStorage
from tallow.runtime.core.argument import REQUIRED
from tallow.runtime.custom.user_op import UserOp
from tallow.runtime.ranks.group import Group

from . import bases, calls, custom_ops

Device = tallow.Device


class Value:
    """An argument, made anew for each call because calls may change it; it shows as the expression that makes it."""

    def __init__(self, text: str, make: Callable[[Device], Any]) -> None:
        self.text = text
        self.make = make

    def __repr__(self) -> str:
        return self.text


def values(text: str) -> list[Value]:
    """The values of Python expressions, between semicolons and line ends, in which `d` is the device."""
    expressions = [part.strip() for line in text.splitlines() for part in line.split(";") if part.strip()]
    return [Value(part, eval(f"lambda d: {part}", NAMES)) for part in expressions]


class Index:
    """An integer of some library."""

    def __index__(self) -> int:
        return 2


class Exporter:
    """An object that claims to export a tensor, and exports something else."""

    def __init__(self, capsule: object, kind: object = 1, ordinal: object = 0) -> None:
        self.capsule, self.place = capsule, (kind, ordinal)

    def __dlpack__(self, **_: object) -> object:
        return self.capsule

    def __dlpack_device__(self) -> object:
        return self.place


class Taken(Exporter):
    """A tensor whose capsule somebody has taken already."""

    def __init__(self, tensor: Tensor) -> None:
        super().__init__(tensor.__dlpack__(), *tensor.__dlpack_device__())
        Tensor.from_dlpack(self)


def ramp(d: Device, dtype: DType, *shape: int) -> Tensor:
    """A tensor of 0, 1, 2, 0, 1, 2 and so on."""
    numbers = [float(i % 3) for i in range(int(np.prod(shape)))]
    return Tensor.from_storage(d.storage_from_slice(numbers, dtype), shape)


@custom_ops.everywhere
class _Apply:
    def cpu_fwd(self, storage: Any, *_: object) -> tuple[Any, tuple[int]]:
        return storage.device.storage(np.ones(2, np.float32)), (2,)


@custom_ops.everywhere
class _Change:
    def cpu_fwd(self, *_: object) -> None:
        pass


def user_op(kind: type[UserOp]) -> UserOp:
    """A user's op of a kind, which never fails."""
    work = _Change if kind.__name__.startswith("Inplace") else _Apply
    result: UserOp = type("Own", (work, kind), {})()
    return result


@cache
def variable(d: Device) -> tallow.Var:
    """A variable, the same at each call."""
    return tallow.Var(ramp(d, DType.F32, 2, 3))


def kernel(d: Device, signature: str = "") -> tallow.Kernel:
    """A kernel of a user's own, which leaves its arguments alone."""
    return tallow.Kernel.compile("nothing", NOTHING.replace("()", f"({signature})"), d, signature=signature)


def captured(d: Device) -> tallow.Graph:
    """A graph that has captured something."""
    graph = tallow.Graph(d)
    with graph.capture():
        ramp(d, DType.F32, 1).zeros_like()
    return graph


def sent(d: Device) -> Group:
    """A group of one, which has sent itself something."""
    group = Group.alone()
    ramp(d, DType.F32, 4).storage.send(calls.layout(4), 0, group)
    return group


NOTHING = 'extern "C" __global__ void nothing() {}'
NAMES = {
    "NOTHING": NOTHING,
    "kernel": kernel,
    "captured": captured,
    "variable": variable,
    "np": np,
    "tl": tallow,
    "Path": Path,
    "Layout": Layout,
    "Shape": Shape,
    "DType": DType,
    "UnaryOp": UnaryOp,
    "Index": Index,
    "Exporter": Exporter,
    "Taken": Taken,
    "ramp": ramp,
    "user_op": user_op,
    "at": calls.layout,
    "alone": Group.alone,
    "sent": sent,
    "blocks": lambda d: tallow.QStorage.zeros(d, 64, "Q4_0"),
    "LINE": calls.LINE,
    "IMAGE": calls.IMAGE,
}


# The arguments of the general parameters of a convolution.
GENERAL = "((1, 2, 4), (2, 1, 2), (3,), (0,), (1,), (1,), 2)"

# The arguments of the parameters of a pool.
POOL = "((1, 2, 4), (3,), (2,), (0,), (1,), (1,), True, False)"


def params(kind: str, sizes: str) -> list[Value]:
    """The parameters of a convolution, and such with one that is as large as can be, or larger."""
    names = ("padding", "stride", "dilation", *(("output_padding",) if "output_padding" in sizes else ()))
    many = [f"'{name}': {size}" for name in names for size in ("2**31 - 1", "2**31", "2**40", "2**62")]
    return values(";".join(f"tl.{kind}(**{{{sizes}, {change}}})" for change in ["", *many]))


TENSORS = values("""
    ramp(d, DType.F32, 2, 3); ramp(d, DType.F32, 4); ramp(d, DType.I64, 4)
    ramp(d, DType.U8, 2, 3); ramp(d, DType.U32, 2, 3); ramp(d, DType.BF16, 3, 2).transpose(0, 1)
    ramp(d, DType.F64, 1, 3).broadcast_as(2, 3); ramp(d, DType.F32, 1, 2, 4); ramp(d, DType.F32, 1, 2, 4, 4)
    ramp(d, DType.F32, 2, 2, 2, 2); ramp(d, DType.I32, 2, 2, 2); ramp(d, DType.F16, 0, 3); ramp(d, DType.F8E4M3, 1)
    ramp(d, DType.F32, 3, 4)[1:, ::3]; ramp(d, DType.F32, 1)[0]; ramp(tl.Device.cpu(), DType.F32, 2, 3)
    ramp(d, DType.COMPLEX64, 2, 3)
""")
STORAGES = values("""
    d.storage(np.arange(48, dtype=np.float32)); d.storage(np.arange(48) % 2); d.storage(np.zeros(48, np.uint8))
    d.zeros((48,), DType.BF16); d.zeros((0,), DType.F32); tl.Device.cpu().zeros((48,), DType.F32)
""")
LAYOUTS = values("""
    Layout.contiguous((2, 3)); Layout.contiguous((4,)); Layout.contiguous((2, 3), 5); Layout.contiguous(())
    Layout.contiguous((1, 2, 4)); Layout.contiguous((1, 2, 4, 4)); Layout.contiguous((2, 2, 2, 2))
    Layout.contiguous((0, 3)); Layout((2, 3), (1, 2)); Layout((2, 3), (0, 1)); Layout((1, 3), (2**40, 2))
""")
SHAPES = values("(2, 3); (); (4,); (1, 2, 4, 4); (0, 3); [3, 2]; (1, 6); (2, 2, 1); (1, 0)")
DTYPES = [Value(str(dtype), lambda _, dtype=dtype: dtype) for dtype in DType]
_GRADIENTS = "variable(d).sum().backward()"
# What fits an annotation that has the word.
FITTING: dict[str, list[Value]] = {
    "Tensor": TENSORS,
    "Var": values("variable(d)"),
    "Gradients": values(_GRADIENTS),
    "Storage": STORAGES,
    "Layout": LAYOUTS,
    "Shape": [Value(f"Shape({shape})", lambda d, make=shape.make: Shape(make(d))) for shape in SHAPES],
    "DType": DTYPES,
    "DTypeLike": DTYPES + values("'f16'; np.float32; np.dtype('int64')"),
    "Device": values("d; tl.Device.cpu()"),
    "CpuDevice": values("tl.Device.cpu().inner; d.inner"),
    "BackendStorage": [Value(f"{storage}.inner", lambda d, make=storage.make: make(d).inner) for storage in STORAGES],
    "int": values("0; 1; 2; 3; -1; 4"),
    "float": values("0; 1; 2.5; -0.0; -3; float('inf'); float('nan'); 1e300; 300"),
    "complex": values("0; 2.5; -3; 1j; 2.5-1j; complex('inf-nanj')"),
    "bool": values("True; False"),
    "Callable": values("print; tl.Tensor.exp; tl.fuse(tl.Tensor.abs)"),
    "str": values("'cpu'; 'rocm:0'; 'cuda:7'; ''; 'f32'; '.2f'; 'exp'; 'add'; 'float*, unsigned'"),
    "Kernel": values("kernel(d); kernel(d, 'float*, unsigned'); kernel(d, 'const void*'); kernel(d, 'double')"),
    "Graph": values("tl.Graph(d); captured(d)"),
    "Group": values("alone()"),
    "BaseException": values("None"),
    "TracebackType": values("None"),
    "Padding": values("1; 0; (1, 0); 'same'; 'valid'; ((0, 1), (2, 0)); [[1, 0]]"),
    "Size": values("1; 8; (2, 2); [1, 1, 3]; 0"),
    "tuple": SHAPES + values("(1, 2, 2, 3); (0, 1); (2, 2)"),
    "Iterable": SHAPES,
    "Sequence": SHAPES + values("[0.5, 2]; []; (0, -1)"),
    "T": values("""
        [ramp(d, DType.F32, 2, 3)]; [ramp(d, DType.F32, 2, 3)] * 2; []
        (ramp(d, DType.F32, 2, 3), ramp(d, DType.I64, 4))
    """),
    "Axes": values("0; -1; (0, 1); ()"),
    "Number": values("2; 2.5; True; ramp(d, DType.F32, 3)"),
    "Scalar": values("2; 2.5; True"),
    "Array": values("np.ones((2, 3), np.float32); np.arange(4); np.array(True); np.zeros((3, 0))"),
    "ArrayLike": values("[[1, 2], [3, 4]]; 2.5; [True]; np.ones(3, np.int16)"),
    "ndarray": values("np.ones((2, 3), np.float32); np.arange(4)"),
    "NDArray": values("np.ones((2, 3), np.float32); np.arange(4)"),
    "dtype": values("np.dtype('float32'); np.dtype('int8')"),
    "dict": values("{}; {'a': 'b'}"),
    "Mapping": values("{}; {'a': ramp(d, DType.F32, 2)}; {'a': ramp(d, DType.I64, 4), 'b': ramp(d, DType.U8, 1)}"),
    "PathLike": values(
        "'made.safetensors'; 'not/there'; '.'; 'x.json'; Path('made.safetensors'); bytes(8); ['made.safetensors'] * 2"
    ),
    "SupportsDLPack": values("np.ones((2, 3), np.float32); np.ones((4, 2))[::2]; np.array([True])") + TENSORS,
    "Index": values("0; -1; slice(1, None); slice(None, None, 2); None; ...; (0, ...); (slice(0, 0), 1)"),
    "Choice": values("[0, 1]; [[0], [-1]]; range(2); [True, False]; np.array([1, 0]); (np.array([0, 1]), [0])"),
    "ParamsConv1D": params("ParamsConv1D", "**LINE"),
    "ParamsConv2D": params("ParamsConv2D", "**IMAGE"),
    "ParamsConvolution": values(
        f"tl.ParamsConvolution{GENERAL}; tl.ParamsConvolution((1, 2, 4), (2, 1, 2), (3,), (2**31 - 1,), (1,), (1,), 2);"
        "tl.ParamsConvolution((1, 2, 4), (2, 1, 2), (2**40,), (0,), (2**31 - 1,), (2**31 - 1,), 2)"
    ),
    "ParamsPool": values(
        f"tl.ParamsPool{POOL}; tl.ParamsPool((1, 2, 4), (1,), (2,), (0,), (2**31 - 1,), (1,));"
        "tl.ParamsPool((1, 2, 4), (1,), (2**31 - 1,), (2**30,), (1,), (2**31 - 1,)); "
        "tl.ParamsPool((1, 2, 4), (3,), (2,), (0,), (1,), (1,), adaptive=True)"
    ),
    "ParamsConvTranspose1D": params("ParamsConvTranspose1D", "**LINE, 'output_padding': 0"),
    "ParamsConvTranspose2D": params("ParamsConvTranspose2D", "**IMAGE, 'output_padding': 0"),
    "QStorage": values("blocks(d); tl.QStorage.zeros(d, 256, 'Q6K'); tl.QStorage.zeros(d, 0, 'F32')"),
    "QTensor": values("tl.QTensor(blocks(d), (2, 32)); tl.QTensor(blocks(d), (1, 2, 32))"),
    "BackendBlocks": values("blocks(d).inner"),
    "GgmlDType": values("tl.GgmlDType.Q4_0; tl.GgmlDType.Q8K; 'F16'; 'Q5_1'"),
    "bytes": values("bytes(36); bytes(3)"),
    "SupportCell": values("tl.support()[0]"),
    **{
        kind.__name__: [Value(str(op), lambda _, op=op: op) for op in kind]
        for kind in (UnaryOp, BinaryOp, CmpOp, ReduceOp, UnaryGradientOp, BinaryGradientOp, BinaryGradientsOp)
    },
    **{
        name: values(f"user_op(tl.{name})")
        for name in tallow.__all__
        if isinstance(getattr(tallow, name), type) and issubclass(getattr(tallow, name), UserOp)
    },
}

# Sizes are small, or so large that nobody has the memory: what lies between would be granted, and take its time. For
# the same reason no layout repeats an element more than a few times.
HOSTILE = values(r"""
    None; True; '2'; ''; b'2'; 1.5; 2.0; float('nan'); float('inf'); 1j; object(); object; tl; lambda *_: None
    -1; -(2**31); 2**31 - 1; 2**31; 2**33; 2**62; 2**63 - 1; 2**63; -(2**63); 2**64 - 1; 10**30; 10**400; -(10**400)
    10**5000; np.int8(2); np.int32(2**30); np.int64(2**62); np.int64(2**63 - 1); np.uint64(2**64 - 1); np.bool_(True)
    np.float32(1.5); np.float64; np.str_('2'); np.datetime64('2020'); Index()
    []; (); (1,) * 9; [1, [2]]; [None]; ['a']; (2.0, 3); range(3); {1: 2}; {'a'}; iter([1, 2]); [1 + 2j]; (-1, -1)
    (2**62, 4); (0, 2**62, 2**62); (2**63, 0); (10**5000, 1); (2**31, 2**31); (0,) * 9; [2**64]; (1, 2**62)
    np.array([1, 2]); np.array(3); np.array(['a']); np.array([None]); np.zeros((1,) * 12); np.ones(2)[:0]
    np.array([1 + 2j]); np.zeros(2, [('a', int)]); np.array(['2020'], 'M8[D]'); np.ones(2, '>f4')
    slice(None, None, 2**70); slice(2**70, -(2**70)); slice('a'); slice(0, 1, 0); slice(None, None, -1); ...; (..., ...)
    ramp(d, DType.F32, 2, 3); [ramp(d, DType.F32, 2, 3)]; d.zeros((4,), DType.F32); d; d.inner; DType.U8; Shape((2, 3))
    UnaryOp.EXP; tl.BinaryOp.ADD; tl.ReduceOp.MAX; user_op(tl.InplaceOp1); tl.CustomOp1; tl.CustomOp1()
    Layout((2, 3), (2**40, 1)); Layout((5,), (np.int32(2**30),)); Layout((2,), (1,), -1); Layout((1,), (2**40,))
    Layout((0, 9), (2**40, 2**40), 2**40); Layout.contiguous((2**40,)); Layout.contiguous((1,) * 8)
    Exporter(None); Exporter(object()); Exporter(1, 'a', 'b'); Exporter(1, 10**30); Exporter(1, 1, 7)
    Taken(ramp(d, DType.F32, 2)); 'no/such/file'; '\0'; Path('.'); {'': None}; {1: ramp(d, DType.F32, 2)}
    {'a': ramp(d, DType.BF16, 2)}; tl.ParamsConv1D(**{**LINE, 'stride': 2**31 - 1})
""")

_COUNT = "d.storage(np.arange(48, dtype=np.float32))"
_LINE, _IMAGE = "ramp(d, DType.F32, 1, 2, 4)", "ramp(d, DType.F32, 1, 2, 4, 4)"
_VOLUME = "ramp(d, DType.F32, 1, 2, 2, 4, 4)"
_ROW, _PAIR = "ramp(d, DType.F32, 4)", "ramp(d, DType.F32, 2)"
_MATRIX, _VECTOR = "ramp(d, DType.F32, 2, 3)", "ramp(d, DType.F32, 3)"
_SCALAR = "ramp(d, DType.F32, 1)[0]"
_SQUARE = "tl.Tensor.eye(3, device=d)"


def _recurrent(gates: int, ending: str, states: int) -> tuple[None, str]:
    """The arguments of a recurrent layer, or of a cell."""
    step, count = ("2, 1" if ending == "" else "1, 2, 1"), f"ramp(d, DType.F32, {gates}"
    weights = {f"weight_ih{ending}": f"{count}, 3)", f"weight_hh{ending}": f"{count}, 1)"}
    weights |= {f"bias_ih{ending}": f"{count})", f"bias_hh{ending}": f"{count})"}
    state = [f"ramp(d, DType.F32, {step})"] * states
    texts = [
        f"ramp(d, DType.F32, {'' if ending == '' else '4, '}2, 3)",
        f"{{{', '.join(f'{name!r}: {text}' for name, text in weights.items())}}}",
        f"({', '.join(state)})" if states > 1 else state[0],
        *(["[4, 2]", "False", "0.0"] if ending else []),
    ]
    return None, "; ".join(texts)


# Calls of which the spec has no example, and whose arguments must fit each other: what each is called on, and these.
BASES = {
    "load_safetensors": (None, "'made.safetensors'; 'cpu'; print"),
    "open_safetensors": (None, "'made.safetensors'; 'cpu'"),
    "set_threads": (None, "2"),
    "GgmlDType.from_u32": (None, "2"),
    "QStorage.from_data": (None, "bytes(36); d; 'Q4_0'"),
    "QTensor": (None, "blocks(d); (2, 32)"),
    "QTensor.new": (None, "blocks(d); (2, 32)"),
    "QTensor.quantize": (None, "ramp(d, DType.F16, 2, 32); 'Q4_0'"),
    "QTensor.embedding": ("tl.QTensor(blocks(d), (2, 32))", "ramp(d, DType.U8, 2, 3).clamp(0, 1)"),
    "fuse": (None, "tl.Tensor.exp; True"),
    "autocast": (None, "'bf16'"),
    "state_dict": (None, "{'a': variable(d)}"),
    "load_state_dict": (None, "{'a': variable(d)}; {'a': ramp(d, DType.F32, 2, 3)}"),
    "jvp": (None, f"tl.Tensor.exp; {_MATRIX}; {_MATRIX}"),
    "Device.compile": ("d", "'nothing'; NOTHING; (); ''"),
    "Device.of_dlpack": (None, "1; 0"),
    "Gradients.get": (_GRADIENTS, "variable(d)"),
    "Gradients.__getitem__": (_GRADIENTS, "variable(d)"),
    "Gradients.__setitem__": (_GRADIENTS, "variable(d); variable(d).detach()"),
    "Graph": (None, "d"),
    "Graph.replay": ("captured(d)", ""),
    "Kernel.compile": (None, "'nothing'; NOTHING; d; (); ''"),
    "Kernel.launch": ("kernel(d)", "1; 8; 0"),
    "Tensor.randint": (None, "0; 9; (2, 3); DType.F32; d"),
    "Tensor.randperm": (None, "6; DType.U8; d"),
    "randint": (None, "0; 9; (2, 3); DType.F32; d"),
    "randperm": (None, "6; DType.U8; d"),
    "Tensor.nll_loss": (_MATRIX, f"ramp(d, DType.I64, 2); -100; 'mean'; {_VECTOR}"),
    "Tensor.diff": ("ramp(d, DType.F32, 2, 3)", "1; 0; ramp(d, DType.F32, 1, 3); ramp(d, DType.F32, 1, 3)"),
    "Tensor.squeeze": ("ramp(d, DType.F32, 1, 3)", "0"),
    "Tensor.take_along_dim": ("ramp(d, DType.F32, 2, 3)", "ramp(d, DType.I64, 1, 2); 1"),
    "Tensor.dot": (_ROW, _ROW),
    "einsum": (None, "'ij,jk->ik'"),
    "Tensor.embedding": (_MATRIX, "ramp(d, DType.I64, 4).clamp(0, 1)"),
    "Tensor.batch_norm": (_IMAGE, f"{_PAIR}; {_PAIR}; {_PAIR}; {_PAIR}; False; 0.1; 1e-5"),
    "Tensor.group_norm": (_IMAGE, f"2; {_PAIR}; {_PAIR}; 1e-5"),
    "Tensor.instance_norm": (_IMAGE, f"{_PAIR}; {_PAIR}; 1e-5"),
    "read_npy": (None, "'made.npy'; 'cpu'"),
    "read_npz": (None, "'made.npz'; 'cpu'"),
    "Tensor.scaled_dot_product_attention": (
        "ramp(d, DType.F32, 2, 3, 4)",
        "ramp(d, DType.F32, 1, 5, 4); ramp(d, DType.F32, 1, 5, 4); ramp(d, DType.F32, 3, 5); False; None; "
        "ramp(d, DType.U8, 1)",
    ),
    **{
        f"Tensor.{kind}_pool{dims}d": (x, f"2; 1; 1; {last}")
        for dims, x in enumerate((_LINE, _IMAGE, _VOLUME), 1)
        for kind, last in (("avg", "True; False"), ("max", "2; True"))
    },
    **{
        f"Tensor.adaptive_{kind}_pool{dims}d": (x, "3")
        for dims, x in enumerate((_LINE, _IMAGE, _VOLUME), 1)
        for kind in ("avg", "max")
    },
    "Tensor.conv1d": (
        _LINE,
        f"ramp(d, DType.F32, 2, 1, 2); (1, 0); 1; 1; 2; {_PAIR}; {_PAIR}; ramp(d, DType.F32, 1, 2, 4); 'relu'",
    ),
    "Tensor.conv2d": (
        _IMAGE,
        f"ramp(d, DType.F32, 2, 1, 2, 2); (1, 0); 1; 1; 2; {_PAIR}; {_PAIR}; ramp(d, DType.F32, 1, 2, 5, 3); 'relu'",
    ),
    "Tensor.conv3d": (
        _VOLUME,
        f"ramp(d, DType.F32, 2, 1, 1, 2, 2); (1, 0, 0); 1; 1; 2; {_PAIR}; {_PAIR}; ramp(d, DType.F32, 1, 2, 4, 3, 3);"
        "'relu'",
    ),
    "Tensor.conv_transpose3d": (_VOLUME, f"ramp(d, DType.F32, 2, 1, 1, 2, 2); 1; 0; 2; 1; 2; {_PAIR}"),
    "Tensor.conv_transpose1d": (_LINE, f"ramp(d, DType.F32, 2, 1, 2); 1; 0; 2; 1; 2; {_PAIR}"),
    "Tensor.conv_transpose2d": (_IMAGE, f"ramp(d, DType.F32, 2, 1, 2, 2); 1; 0; 2; 1; 2; {_PAIR}"),
    "Tensor.clamp": (_MATRIX, "0; 1"),
    "Device.is_available": (None, "'cpu'"),
    "Tensor.__setitem__": (_ROW, f"slice(None, None, 2); {_PAIR}"),
    "Tensor.where": ("ramp(d, DType.U8, 4)", f"{_ROW}; 1.5"),
    "Tensor.from_storage": (None, f"{_COUNT}; at(2, 3)"),
    "Tensor.__matmul__": ("ramp(d, DType.F32, 2, 3)", "ramp(d, DType.F32, 3, 2)"),
    "Tensor.__bool__": (_SCALAR, ""),
    "Tensor.__float__": (_SCALAR, ""),
    "Tensor.__int__": (_SCALAR, ""),
    "Tensor.__complex__": (_SCALAR, ""),
    "Tensor.__index__": ("ramp(d, DType.I64, 1)[0]", ""),
    "Tensor.__array_namespace__": (_SCALAR, "'2025.12'"),
    "Tensor.__format__": (_SCALAR, "'.2f'"),
    "Layout.check": ("Layout.contiguous((2, 3))", "'add'; 6"),
    "Layout.permute": ("Layout.contiguous((2, 3))", "(1, 0)"),
    "Layout.squeeze": ("Layout.contiguous((2, 1, 3))", "1"),
    "Layout.narrow": ("Layout.contiguous((2, 3))", "1; 0; 2; 1"),
    "Layout": (None, "(2, 3); (3, 1); 2"),
    "xp.asarray": (None, "[1, 2]; DType.I64; d; True"),
    "xp.from_dlpack": (None, f"{_MATRIX}; d; True"),
    "xp.take": (None, f"{_ROW}; ramp(d, DType.I64, 4); 0"),
    "xp.where": (None, f"ramp(d, DType.U8, 2, 3); {_MATRIX}; {_MATRIX}"),
    "xp.take_along_axis": (None, f"{_MATRIX}; ramp(d, DType.I64, 2, 3); -1"),
    "lstm": _recurrent(4, "_l0", 2),
    "gru": _recurrent(3, "_l0", 1),
    "lstm_cell": _recurrent(4, "", 2),
    "gru_cell": _recurrent(3, "", 1),
    "where": (None, f"ramp(d, DType.U8, 2, 3); {_MATRIX}; {_MATRIX}"),
    **dict.fromkeys(("cat", "stack", "xp.concat", "xp.stack"), (None, f"[{_MATRIX}, {_MATRIX}]; 0")),
    "xp.squeeze": (None, "ramp(d, DType.F32, 1, 2, 4); 0"),
    "xp.permute_dims": (None, f"{_MATRIX}; (1, 0)"),
    "xp.fft.fftfreq": (None, "4; 0.5; DType.F32; d"),
    "xp.fft.rfftfreq": (None, "4; 0.5; DType.F32; d"),
    "xp.linalg.cholesky": (None, f"{_SQUARE}; False"),
    "xp.linalg.matrix_power": (None, f"{_SQUARE}; 2"),
    "xp.linalg.cross": (None, f"{_MATRIX}; {_MATRIX}; -1"),
    "ParamsConv1D": (None, "1; 4; 1; 1; 2; 0; 1; 1"),
    "ParamsConv2D": (None, "1; 2; 2; 1; 2; 1; 1; 0; 1; 1"),
    "ParamsConvolution": (None, "(1, 2, 4); (2, 1, 2); (3,); (0,); (1,); (1,); 2; False"),
    "ParamsPool": (None, "(1, 2, 4); (3,); (2,); (0,); (1,); (1,); True; False"),
    "ParamsConvTranspose1D": (None, "1; 4; 1; 1; 2; 0; 0; 1; 1"),
    "ParamsConvTranspose2D": (None, "1; 2; 2; 1; 2; 1; 1; 0; 0; 1; 1"),
}


class Call(NamedTuple):
    """A public function, or a method of a public class."""

    name: str
    owner: str | None
    """The class of the object that it is called on; None for what is called without one."""
    find: Callable[[Any], Callable[..., Any]]
    """The function, given the object."""
    parameters: tuple[inspect.Parameter, ...]


@cache
def surface() -> dict[str, Call]:
    """Every call that tallow offers, by name."""
    results = []
    for name in tallow.__all__:
        thing = getattr(tallow, name)
        if not callable(thing) or _is_left_out(thing):
            continue
        results.append(Call(name, None, lambda _, thing=thing: thing, _parameters(thing)))
        if isinstance(thing, type):
            results += _methods(thing)
    return {call.name: call for call in results}


@cache
def array_api_surface() -> dict[str, Call]:
    """Every function of the array API's namespace and of its extensions, by name."""
    functions = {}
    for prefix, namespace in (("xp", array_api), ("xp.linalg", array_api.linalg), ("xp.fft", array_api.fft)):
        for name in namespace.__all__:
            function = getattr(namespace, name)
            if inspect.isfunction(function):
                full_name = f"{prefix}.{name}"
                functions[full_name] = Call(
                    full_name, None, lambda _, function=function: function, _parameters(function)
                )
    return functions


_HELD = (tallow.TallowError, BackendBlocks, BackendDevice, BackendStorage, UserOp)


def _is_left_out(thing: object) -> bool:
    """Errors hold what they are given, backends are given what the dispatch has checked, and users write their ops."""
    return isinstance(thing, type) and issubclass(thing, _HELD)


_OF_NUMPY = ("__array_ufunc__", "__array_function__")


def _methods(owner: type) -> Iterator[Call]:
    for name in dir(owner):
        static = inspect.getattr_static(owner, name)
        code = getattr(getattr(static, "__func__", static), "__code__", None)
        # What dataclasses, enums and tuples bring along is Python's, and what copy and pickle ask for. The class itself
        # stands for its constructor, and NumPy's functions for what they call.
        is_ours = code is not None and Path(tallow.__file__).parent in Path(code.co_filename).parents
        is_private = re.fullmatch("_[^_].*", name) is not None
        if not is_ours or is_private or name in ("__init__", "__new__", "__getattr__", "__reduce_ex__", *_OF_NUMPY):
            continue
        # What a class inherits from another one that is public is that one's.
        if any(name in vars(base) for base in _bases(owner, name)):
            continue
        function = getattr(owner, name)
        if isinstance(static, classmethod | staticmethod):
            yield Call(f"{owner.__name__}.{name}", None, lambda _, function=function: function, _parameters(function))
        else:
            parameters = _parameters(function)[1:]
            yield Call(f"{owner.__name__}.{name}", owner.__name__, lambda of, name=name: getattr(of, name), parameters)


def _bases(owner: type, name: str) -> tuple[type, ...]:
    """The classes from which a class has an attribute that it does not define itself."""
    public = [base for base in owner.__mro__[1:] if base.__name__ in tallow.__all__]
    return () if name in vars(owner) else tuple(it for base in public for it in base.__mro__)


# NumPy's and PyTorch's names of parameters, and those that a function has them for.
SECOND_NAMES = {"axis": ("dim", "dims"), "axes": ("dims",), "keepdims": ("keepdim",), "lr": ("learning_rate",)}


def _parameters(function: Callable[..., Any]) -> tuple[inspect.Parameter, ...]:
    if isinstance(function, type) and issubclass(function, enum.Enum):
        return (inspect.Parameter("value", inspect.Parameter.POSITIONAL_ONLY, annotation="str"),)
    parameters = inspect.signature(function).parameters
    return tuple(
        parameter.replace(default=parameter.empty) if parameter.default is REQUIRED else parameter
        for name, parameter in parameters.items()
        if parameters.keys().isdisjoint(SECOND_NAMES.get(name, ()))
    )


def fitting(call: Call, parameter: inspect.Parameter) -> list[Value]:
    """Return values that fit a parameter's annotation; none if its words are unknown."""
    own = call.name.partition(".")[0]
    text = re.sub(r"\bSelf\b|\bTensorBase\b", own if own in FITTING else "Tensor", str(parameter.annotation))
    text = text.replace("Sequence[Tensor]", "T")
    words = dict.fromkeys(re.findall(r"[A-Za-z_]\w*", text))
    return FITTING["T"] if "T" in words else [value for word in words for value in FITTING.get(word, ())]


class Example(NamedTuple):
    """A call with its arguments."""

    call: Call
    of: Value | None
    arguments: tuple[Value, ...]
    keywords: dict[str, Value]

    def __repr__(self) -> str:
        items = [*map(repr, self.arguments), *(f"{name}={value!r}" for name, value in self.keywords.items())]
        return f"{self.call.name}({', '.join(items)}){'' if self.of is None else f', a method of {self.of!r}'}"

    def changed(self, new: dict[str, Value]) -> Example:
        """The same call with other arguments for some parameters."""
        by_place = [parameter.name for parameter in self.call.parameters if parameter.kind is parameter.POSITIONAL_ONLY]
        arguments = [new.get(name, value) for name, value in zip(by_place, self.arguments, strict=False)]
        # One that has a default may follow.
        arguments += [new[name] for name in by_place[len(arguments) :][:1] if name in new]
        keywords = self.keywords | {name: value for name, value in new.items() if name not in by_place}
        return self._replace(arguments=tuple(arguments), keywords=keywords)

    def made(self, device: Device) -> tuple[Callable[..., Any], list[Any], dict[str, Any]]:
        """The function, and its arguments by position and by name."""
        function = self.call.find(None if self.of is None else self.of.make(device))
        arguments = [value.make(device) for value in self.arguments]
        return function, arguments, {name: value.make(device) for name, value in self.keywords.items()}

    def run(self, device: Device) -> Any:
        """Make the call."""
        function, arguments, keywords = self.made(device)
        return function(*arguments, **keywords)


@cache
def base_of(call: Call) -> Example:
    """A call whose arguments fit."""
    named = [parameter for parameter in call.parameters if "VAR" not in parameter.kind.name]
    if call.name in BASES:
        text, arguments = BASES[call.name]
        return _example(call, values(text)[0] if text else None, named, values(arguments))
    base = _written(call)
    if base is None:
        return _of_fitting(call)
    named = [parameter for parameter in named if parameter.name in base.arguments]
    inputs = [fitting(call, it)[0] if is_user_op(it) else Value(*base.arguments[it.name]) for it in named]
    return _example(call, Value(*base.of), named, inputs)


def _of_fitting(call: Call) -> Example:
    """A call with arguments that fit by their annotations alone."""
    named = [
        parameter
        for parameter in call.parameters
        if "VAR" not in parameter.kind.name and parameter.default is parameter.empty
    ]
    of = None if call.owner is None else FITTING[call.owner][0]
    return _example(call, of, named, [_fitting_one(call, parameter) for parameter in named])


def _example(call: Call, of: Value | None, named: list[inspect.Parameter], given: list[Value]) -> Example:
    keywords = {parameter.name: value for parameter, value in zip(named, given, strict=True)}
    by_place = [keywords.pop(parameter.name) for parameter in named if parameter.kind is parameter.POSITIONAL_ONLY]
    return Example(call, of, tuple(by_place), keywords)


def _fitting_one(call: Call, parameter: inspect.Parameter) -> Value:
    """Something that fits a parameter; of an enum the name of a member."""
    kind = getattr(tallow, call.name, None)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        name = next(iter(kind)).value
        return Value(repr(name), lambda _: name)
    return (fitting(call, parameter) or HOSTILE)[0]


def is_user_op(parameter: inspect.Parameter) -> bool:
    """Whether a parameter takes an op that users write."""
    kind = getattr(tallow, str(parameter.annotation), None)
    return isinstance(kind, type) and issubclass(kind, UserOp)


@cache
def _written(call: Call) -> bases.Base | None:
    """The example of the spec for a method of the spec, or of its name, else of the docstring.

    Operands alone fit each other, unless their shapes or values are refused.
    """
    name = call.name.rpartition(".")[2]
    if call.owner != "Tensor":
        return bases.of_spec(call.owner or "", name)
    parameters = {parameter.name: parameter for parameter in call.parameters}
    base = bases.of_tensors(name, parameters)
    if base is not None:
        return base
    example = _of_fitting(call)
    if all(value in TENSORS for value in example.keywords.values()):
        try:
            example.run(Device.cpu())
        except (tallow.InvalidArgument, tallow.ShapeMismatch):
            pass
        except tallow.TallowError:
            return None
        else:
            return None
    return bases.of_docs(getattr(Tensor, name), parameters)


# Where a call takes any keyword, it names the right ones for those of NumPy; the last is nobody's.
_KEYWORDS = ("axis", "keepdims", "nobody")


@st.composite
def examples(draw: st.DrawFn, found: dict[str, Call]) -> Example:
    """Any call, with arguments that fit but for some: none, some or all of them."""
    call = found[draw(st.sampled_from(sorted(found)))]
    # Python's enum itself compares what it is given with each value, and prints it; errors print the names they hold.
    names = {parameter.name for parameter in call.parameters}
    unprinted = "np\\.|5000" if names == {"value"} else "5000" if names & {"op", "name"} else "$^"
    hostile = [value for value in HOSTILE if not re.search(unprinted, value.text)]
    named = [parameter for parameter in call.parameters if "VAR" not in parameter.kind.name]
    if named and (call.name in BASES or _written(call) is not None) and draw(st.booleans()):
        base = base_of(call)
        changed = draw(st.lists(st.sampled_from(named), min_size=1, max_size=2, unique=True))
        new = {parameter.name: draw(st.sampled_from(hostile + fitting(call, parameter))) for parameter in changed}
        return base.changed(new)
    of = None if call.owner is None else draw(st.sampled_from(FITTING[call.owner]))
    arguments: list[Value] = []
    keywords: dict[str, Value] = {}
    tenths = draw(st.sampled_from([0, 3, 3, 10] if len(call.parameters) > 1 else [7]))

    def some(parameter: inspect.Parameter) -> Value:
        fit = fitting(call, parameter)
        is_hostile = not fit or draw(st.integers(1, 10)) <= tenths
        return draw(st.sampled_from(hostile if is_hostile else fit))

    by_name = False
    for parameter in call.parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            count = 0 if by_name else draw(st.sampled_from([0, 1, 1, 2, 3]))
            arguments += [some(parameter) for _ in range(count)]
        elif parameter.kind is parameter.VAR_KEYWORD:
            keywords |= {name: some(parameter) for name in draw(st.lists(st.sampled_from(_KEYWORDS), max_size=1))}
        elif parameter.default is not parameter.empty and draw(st.booleans()):
            by_name = True
        elif by_name or parameter.kind is parameter.KEYWORD_ONLY:
            keywords[parameter.name] = some(parameter)
        else:
            arguments.append(some(parameter))
    return Example(call, of, tuple(arguments), keywords)
