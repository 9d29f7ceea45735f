"""Matrix products and convolutions by oneDNN, through ctypes, where its library is installed."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import numpy as np

from ....dtype import Array, DType
from ....libraries.onednn import FUNCTIONS
from ....op import BinaryOp
from ...core.shape import Shape
from ...doctor.finding import Finding
from ...doctor.machine import library_files
from ...helpers.c_library import load
from ...helpers.threads import get_threads
from .kernels import HostKernels

# oneDNN's own numbers.
_DTYPES: Final = DType.known({"f16": 1, "bf16": 2, "f32": 3})
_CPU: Final = 1
_IN_ORDER: Final = 1
_ANY_LAYOUT: Final = 1
_TRAINING: Final = 64
_INFERENCE: Final = 96
_OF_WEIGHT: Final = "convolution_gradient_weight"
_ALGORITHMS: Final = {"convolution": 1, _OF_WEIGHT: 1, "deconvolution": 0xA}
_POSTS: Final = {BinaryOp.ADD: 0x1FFF0, BinaryOp.MUL: 0x1FFF1}
_STRICT: Final = 0
_OWN_SCRATCHPAD: Final = 1
_IMPLEMENTATION: Final = 8
_SOURCE, _RESULT, _BIAS, _SCRATCHPAD = 1, 17, 41, 80
_SCRATCHPAD_LAYOUT: Final = 136
# The n-th op after a primitive has n times the one and the other as the argument of its operand.
_POST_OPERAND: Final = 1 << 15
_SECOND_SOURCE: Final = 2
_LAYOUT_OF_ARGUMENT: Final = 255
# For each operand, its argument of a primitive and the query for its layout.
_FORWARD: Final = {"source": (_SOURCE, 129), "weights": (33, 131), "result": (_RESULT, 133)}
_GRADIENT_WEIGHT: Final = {"source": (_SOURCE, 129), "weights": (145, 134), "result": (161, 132)}
# The instructions that an implementation is named after, without which tallow's own kernels are as quick.
_INSTRUCTIONS: Final = DType.known({"f16": ("fp16",), "bf16": ("bf16", "amx", "fp16"), "f32": ("avx", "brg", "jit:")})
_ALIGNMENT: Final = 64


class Memory(NamedTuple):
    """The dims of an operand, and how many elements lie between neighbours along each of them."""

    dims: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def dense(cls, dims: Sequence[int]) -> Self:
        """That of elements in row-major order."""
        shape = Shape(dims)
        return cls(shape, shape.contiguous_strides())


class Window(NamedTuple):
    """How a convolution of images goes over them: each has a number for each dim."""

    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]


class Post(NamedTuple):
    """An op of the sums before they are rounded, and of an operand whose dims are those of the result or 1."""

    op: BinaryOp
    memory: Memory
    dtype: DType


class Problem(NamedTuple):
    """A problem for oneDNN; a product has no window, and only products may have a bias.

    The result has the dtype of the operands unless `result_dtype` is another. For the gradient of a
    convolution's kernel the gradient of its result replaces the weights.
    """

    name: str
    dtype: DType
    source: Memory
    weights: Memory
    result: Memory
    bias: Memory | None = None
    window: Window | None = None
    posts: tuple[Post, ...] = ()
    result_dtype: DType | None = None

    @property
    def operands(self) -> dict[str, tuple[Memory, DType]]:
        """The memory and the dtype of each operand and the result by name, in the order of addresses."""
        bias = {} if self.bias is None else {"bias": (self.bias, self.dtype)}
        posts = {f"operand {index}": (post.memory, post.dtype) for index, post in enumerate(self.posts)}
        sides = {"source": (self.source, self.dtype), "weights": (self.weights, self.dtype)}
        return {**sides, **bias, **posts, "result": (self.result, self.result_dtype or self.dtype)}


class _Argument(ctypes.Structure):
    """dnnl_exec_arg_t: which argument, and its memory."""

    _fields_ = (("argument", ctypes.c_int), ("memory", ctypes.c_void_p))


class _Failure(RuntimeError):
    """A function failed."""

    def __init__(self, name: str, status: int) -> None:
        super().__init__(f"{name} of oneDNN failed with status {status}")


# How often idle threads of OpenMP look for work before they sleep: for 0.1 ms or less. By default they do for 10 ms or
# more, and take the processors from other threads.
_SPINS: Final = ("GOMP_SPINCOUNT", "2000")


@contextmanager
def _short_spins() -> Iterator[None]:
    """Let the OpenMP runtime that is loaded meanwhile have short spins, unless the user's environment says how long."""
    name, count = _SPINS
    if name in os.environ or "OMP_WAIT_POLICY" in os.environ:
        yield
        return
    os.environ[name] = count
    try:
        yield
    finally:
        del os.environ[name]


class Onednn:
    """The library, on the threads of OpenMP.

    Each plan gives the same bits at every call: oneDNN divides the work by its sizes and the number of threads. Other
    numbers of threads may add up in another order.
    """

    is_forked = False
    """Whether this process was forked from one that had opened the library: OpenMP's threads are not there."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        self.engine = self.make("dnnl_engine_create", _CPU, 0)

    @classmethod
    @cache
    def open(cls) -> Self | None:
        """The library; None where it is missing, or NumPy is to do everything."""
        if get_threads() == 0 or cls.is_forked:
            return None
        # Its wheel has it among the libraries of the environment.
        paths = [str(Path(sys.prefix, "lib", "libdnnl.so.3")), "libdnnl.so.3"]
        with _short_spins():
            library = load(paths, FUNCTIONS)
        if library is None:
            return None
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=cls._lose)
        kernels = HostKernels.open()
        if kernels is not None:
            kernels.use_openmp_of(library)
        return cls(library)

    @classmethod
    def diagnose(cls) -> Iterator[Finding]:
        """Whether the library is here; kernels and NumPy do its work where it is not."""
        if get_threads() == 0:
            return
        if cls.open() is not None:
            text = "libdnnl.so.3, for products and convolutions of bf16, f16 and f32"
            yield Finding("oneDNN", True, text, files=library_files("dnnl"))
        else:
            advice = "pip install onednn-cpu-gomp for quicker products and convolutions on x86-64"
            yield Finding("oneDNN", None, "libdnnl.so.3 is not installed", advice)

    @classmethod
    def _lose(cls) -> None:
        cls.is_forked = True
        cls.open.cache_clear()

    def primitive(self, problem: Problem) -> Callable[..., bool] | None:
        """Return a function that solves a problem, from the addresses of its operands and of the result.

        Operands are source, weights, a bias if there is one, and those of posts. The function returns False in a
        forked process. None where oneDNN has no quick algorithm for it.
        """
        by_threads = {get_threads(): self._compiled(problem)}
        if by_threads[get_threads()] is None:
            return None

        def solve(*addresses: int) -> bool:
            if Onednn.is_forked:
                return False
            threads = get_threads()
            compiled = by_threads.get(threads)
            if compiled is None:
                compiled = by_threads[threads] = self._compiled(problem)
                assert compiled is not None, "what threads do not change"
            compiled.run(threads, addresses)
            return True

        return solve

    def _compiled(self, problem: Problem) -> _Compiled | None:
        with self.threads(get_threads()):
            compiled = _Compiled(self)
            try:
                return compiled if compiled.solves(problem) else None
            except _Failure:  # what oneDNN has not, or does not take
                return None

    @contextmanager
    def threads(self, count: int) -> Iterator[None]:
        """Limit OpenMP to a number of threads for the calls of this thread."""
        before = self.library.omp_get_max_threads()
        self.library.omp_set_num_threads(count)
        try:
            yield
        finally:
            self.library.omp_set_num_threads(before)

    def make(self, name: str, *arguments: Any) -> ctypes.c_void_p:
        """Call a function and return the handle that it writes to its first argument."""
        handle = ctypes.c_void_p()
        self.call(name, ctypes.byref(handle), *arguments)
        return handle

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function that is not to fail."""
        status = getattr(self.library, name)(*arguments)
        if status:
            raise _Failure(name, status)


class _Step(NamedTuple):
    """A primitive, and which memory is which of its arguments."""

    primitive: ctypes.c_void_p
    arguments: tuple[tuple[int, str], ...]


class _Compiled:
    """The primitives of a problem for a number of threads, and what they work in."""

    def __init__(self, onednn: Onednn) -> None:
        self._onednn = onednn
        self._library = onednn.library
        # The handles to destroy, each with the function that does.
        self._owned: list[tuple[str, ctypes.c_void_p]] = []
        self._steps: list[_Step] = []
        # The layouts of all memory, in the order of the addresses first.
        self._layouts: dict[str, ctypes.c_void_p] = {}
        self._arguments: list[str] = []
        # Threads of Python that call at once have memory of their own.
        self._free: list[_Workspace] = []

    def solves(self, problem: Problem) -> bool:
        """Whether oneDNN has a fast implementation of a problem, which `run` then uses."""
        there = problem.operands
        for name, (memory, dtype) in there.items():
            what = "dnnl_memory_desc_create_with_strides"
            dims, strides = (_numbers(each) for each in memory)
            self._layouts[name] = self._create("memory_desc", what, len(memory.dims), dims, _DTYPES[dtype], strides)
        self._arguments = list(there)
        described = self._chosen(problem, there, self._attributes(problem))
        if described is None:
            return False
        queries = _FORWARD if problem.name != _OF_WEIGHT else _GRADIENT_WEIGHT
        arguments = [
            (argument, self._arranged(name, self._queried(described, query)))
            for name, (argument, query) in queries.items()
        ]
        for index in range(len(problem.posts)):
            argument = (index + 1) * _POST_OPERAND | _SECOND_SOURCE
            wanted = self._queried(described, _LAYOUT_OF_ARGUMENT, argument)
            arguments.append((argument, self._arranged(f"operand {index}", wanted)))
        if problem.bias is not None:
            arguments.append((_BIAS, "bias"))
        self._add("primitive", described, arguments)
        if "own result" in self._layouts:
            self._reorder("own result", "result")
        return True

    def _attributes(self, problem: Problem | None = None) -> ctypes.c_void_p:
        attributes = self._create("primitive_attr", "dnnl_primitive_attr_create")
        self._onednn.call("dnnl_primitive_attr_set_fpmath_mode", attributes, _STRICT)
        self._onednn.call("dnnl_primitive_attr_set_scratchpad_mode", attributes, _OWN_SCRATCHPAD)
        if problem is not None and problem.posts:
            chain = self._create("post_ops", "dnnl_post_ops_create")
            for index, (op, memory, dtype) in enumerate(problem.posts):
                # oneDNN reads what has all elements in its own layout of the result.
                is_free = problem.window is not None and memory.dims == problem.result.dims
                layout = self._any(memory, dtype) if is_free else self._layouts[f"operand {index}"]
                self._onednn.call("dnnl_post_ops_append_binary", chain, _POSTS[op], layout)
            self._onednn.call("dnnl_primitive_attr_set_post_ops", attributes, chain)
        return attributes

    def _arranged(self, name: str, wanted: ctypes.c_void_p) -> str:
        """The memory of an operand in the layout that the primitive wants: its own, or another."""
        if self._library.dnnl_memory_desc_equal(wanted, self._layouts[name]):
            return name
        own = f"own {name}"
        self._layouts[own] = wanted
        if name != "result":
            self._reorder(name, own)
        return own

    def _chosen(
        self, problem: Problem, there: dict[str, tuple[Memory, DType]], attributes: ctypes.c_void_p
    ) -> ctypes.c_void_p | None:
        """The descriptor of the primitive; None where oneDNN's implementations are slow."""
        # For inference oneDNN prefers channels last, to which it is slow to convert.
        is_channels_first = problem.window is not None and problem.source.strides[-1] == 1
        for kind in (_TRAINING, _INFERENCE) if is_channels_first else (_INFERENCE,):
            described = self._described(problem, there, attributes, kind)
            if any(word in self._implementation(described) for word in self._instructions(problem)):
                return described
        return None

    @staticmethod
    def _instructions(problem: Problem) -> tuple[str, ...]:
        """The words of which the name of a fast implementation has one."""
        kernels = HostKernels.open()
        if problem.window is None and problem.dtype is DType.BF16 and kernels is not None and kernels.has_tiles:
            # Of short sums oneDNN has none, and tallow's own kernels take a quarter of the time.
            return ("amx",)
        return _INSTRUCTIONS[problem.dtype]

    def _described(
        self, problem: Problem, there: dict[str, tuple[Memory, DType]], attributes: ctypes.c_void_p, kind: int
    ) -> ctypes.c_void_p:
        engine = self._onednn.engine
        if problem.window is None:
            layouts = [self._layouts.get(name) for name in ("source", "weights", "bias", "result")]
            return self._create("primitive_desc", "dnnl_matmul_primitive_desc_create", engine, *layouts, attributes)
        source, weights, result = (self._any(*there[name]) for name in ("source", "weights", "result"))
        stride, dilation, before, after = problem.window
        steps = [_numbers(each) for each in (stride, [size - 1 for size in dilation], before, after)]
        algorithm = _ALGORITHMS[problem.name]
        if problem.name == _OF_WEIGHT:
            return self._create(
                "primitive_desc", "dnnl_convolution_backward_weights_primitive_desc_create",
                engine, algorithm, source, result, None, weights, *steps, None, attributes,
            )  # fmt: skip
        return self._create(
            "primitive_desc", f"dnnl_{problem.name}_forward_primitive_desc_create",
            engine, kind, algorithm, source, weights, None, result, *steps, attributes,
        )  # fmt: skip

    def _any(self, memory: Memory, dtype: DType) -> ctypes.c_void_p:
        what = "dnnl_memory_desc_create_with_tag"
        return self._create("memory_desc", what, len(memory.dims), _numbers(memory.dims), _DTYPES[dtype], _ANY_LAYOUT)

    def _implementation(self, described: ctypes.c_void_p) -> str:
        name = ctypes.c_char_p()
        self._onednn.call("dnnl_primitive_desc_query", described, _IMPLEMENTATION, 0, ctypes.byref(name))
        return (name.value or b"").decode()

    def _queried(self, described: ctypes.c_void_p, query: int, index: int = 0) -> ctypes.c_void_p:
        return ctypes.c_void_p(self._library.dnnl_primitive_desc_query_md(described, query, index))

    def _reorder(self, source: str, target: str) -> None:
        engine, attributes = self._onednn.engine, self._attributes()
        described = self._create(
            "primitive_desc", "dnnl_reorder_primitive_desc_create",
            self._layouts[source], engine, self._layouts[target], engine, attributes,
        )  # fmt: skip
        self._add(f"reorder of {source}", described, [(_SOURCE, source), (_RESULT, target)])

    def _add(self, name: str, described: ctypes.c_void_p, arguments: list[tuple[int, str]]) -> None:
        scratchpad = f"scratchpad of {name}"
        self._layouts[scratchpad] = self._queried(described, _SCRATCHPAD_LAYOUT)
        primitive = self._create("primitive", "dnnl_primitive_create", described)
        self._steps.append(_Step(primitive, (*arguments, (_SCRATCHPAD, scratchpad))))

    def _create(self, kind: str, function: str, *arguments: Any) -> ctypes.c_void_p:
        handle = self._onednn.make(function, *arguments)
        self._owned.append((kind, handle))
        return handle

    def run(self, threads: int, addresses: Sequence[int]) -> None:
        """Solve the problem for operands at the addresses."""
        try:
            workspace = self._free.pop()
        except IndexError:
            workspace = _Workspace(self._onednn, self._steps, self._layouts, self._arguments)
        # Most often OpenMP has them already.
        if self._library.omp_get_max_threads() == threads:
            workspace.run(addresses)
        else:
            with self._onednn.threads(threads):
                workspace.run(addresses)
        self._free.append(workspace)

    def __del__(self) -> None:
        for kind, handle in reversed(self._owned):
            getattr(self._library, f"dnnl_{kind}_destroy")(handle)


class _Workspace:
    """The workspace of one call at a time: its own memory, and a stream."""

    def __init__(
        self, onednn: Onednn, steps: Sequence[_Step], layouts: dict[str, ctypes.c_void_p], arguments: Sequence[str]
    ) -> None:
        self._library = onednn.library
        self._stream = onednn.make("dnnl_stream_create", onednn.engine, _IN_ORDER)
        self._buffers: list[Array] = []
        self._memories: dict[str, ctypes.c_void_p] = {}
        for name, layout in layouts.items():
            address = 0 if name in arguments else self._allocate(self._library.dnnl_memory_desc_get_size(layout))
            self._memories[name] = onednn.make("dnnl_memory_create", layout, onednn.engine, address)
        self._arguments = [self._memories[name] for name in arguments]
        self._calls = []
        for step in steps:
            listed = [_Argument(argument, self._memories[name]) for argument, name in step.arguments]
            self._calls.append((step.primitive, self._stream, len(listed), (_Argument * len(listed))(*listed)))

    def _allocate(self, nbytes: int) -> int:
        buffer = np.empty(nbytes + _ALIGNMENT, np.uint8)
        self._buffers.append(buffer)
        address: int = buffer.__array_interface__["data"][0]
        return -(-address // _ALIGNMENT) * _ALIGNMENT

    def run(self, addresses: Sequence[int]) -> None:
        """Execute all steps."""
        set_data = self._library.dnnl_memory_set_data_handle
        for memory, address in zip(self._arguments, addresses, strict=True):
            set_data(memory, address)
        execute = self._library.dnnl_primitive_execute
        for call in self._calls:
            if status := execute(*call):
                raise _Failure("dnnl_primitive_execute", status)

    def __del__(self) -> None:
        for memory in self._memories.values():
            self._library.dnnl_memory_destroy(memory)
        self._library.dnnl_stream_destroy(self._stream)


def _numbers(values: Sequence[int]) -> Any:
    return (ctypes.c_int64 * len(values))(*values)
