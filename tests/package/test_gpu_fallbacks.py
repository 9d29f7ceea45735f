"""Calls of libraries that refuse: in the first run they leave the call to the next cell, later to a fallback."""

from __future__ import annotations

import inspect
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tallow.kernels import launches
from tallow.runtime.backends.gpu_backend.ops import attention_by_library, conv, conv_epilogue, pool_by_library
from tallow.runtime.core.conv import ParamsConvolution
from tallow.runtime.core.pool import ParamsPool
from tallow.runtime.program.builder import OpCall
from tallow.runtime.program.program import LibraryCall
from tallow.runtime.program.values import Operand, dense

PARAMS = ParamsConvolution((2, 4, 5, 6), (6, 2, 3, 2), (5, 7), (1, 1), (1, 1), (1, 1), 2)
POOL = ParamsPool((2, 3, 6, 6), (3, 3), (2, 2), (0, 0), (2, 2), (1, 1))
HEADS = 1, 2, 40, 64
ATTENDED = [HEADS] * 3
GRADIENT = [*[HEADS] * 5, HEADS[:3]]

# The shapes of the operands and the other arguments of each op whose library may refuse in a run, and the same op by
# kernels.
OPS: dict[Any, tuple[list[tuple[int, ...]], tuple[Any, ...], Any]] = {
    conv.by_library: ([PARAMS.input_dims, PARAMS.kernel_dims], (PARAMS,), conv.convolve),
    conv.transposed_by_library: ([PARAMS.out_dims, PARAMS.kernel_dims], (PARAMS,), conv.convolve_transposed),
    conv.weight_by_library: ([PARAMS.input_dims, PARAMS.out_dims], (PARAMS,), conv.gradient_weight),
    **dict.fromkeys(
        (conv_epilogue.by_images, conv_epilogue.by_fused_library),
        ([PARAMS.input_dims, PARAMS.kernel_dims], (None, None, None, "relu", PARAMS), conv_epilogue.convolve),
    ),
    pool_by_library.avg_pool: ([POOL.input_dims], (POOL,), launches.avg_pool),
    attention_by_library.attention: (ATTENDED, (None, None, True, 0.125), launches.scaled_dot_product_attention),
    attention_by_library.attention_with_logsumexp: (
        ATTENDED,
        (None, None, True, 0.125),
        launches.scaled_dot_product_attention_with_logsumexp,
    ),
    **dict.fromkeys(
        (attention_by_library.attention_gradient, attention_by_library.attention_gradient_in_any_order),
        (
            GRADIENT,
            (None, None, True, False, 0.125),
            launches.scaled_dot_product_attention_gradient,
        ),
    ),
}


class Library:
    """Takes calls of any kind, of which it writes no results, until it refuses."""

    def __init__(self) -> None:
        self.calls = 0
        self.has_room = True

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: LibraryCall(self.run, arguments)

    def run(self, *arguments: Any) -> bool:
        self.calls += 1
        return self.has_room


def call(gpu: Any, op: Any) -> SimpleNamespace:
    """An op's library, and functions that call it with a plan, and its kernels."""
    shapes, others, by_kernels = OPS[op]
    generator, library = np.random.default_rng(0), Library()
    storages = [gpu.storage(generator.random(shape, dtype="f4").reshape(-1)) for shape in shapes]
    operands = [Operand(storage, dense(storage, shape).layout) for storage, shape in zip(storages, shapes, strict=True)]

    def run() -> Any:
        plan = gpu.plans.get((op, library))
        if plan is not None:
            return plan(*storages)
        return gpu.planned((op, library), 0, op, (library, *operands, *others), {}, may_refuse=True)

    described, _ = OpCall.of(op, (library, *operands, *others), {}, 0)
    program = described.program(gpu.facts)
    by_kernels_alone = partial(gpu.run, by_kernels, *operands, *others)
    return SimpleNamespace(library=library, program=program, run=run, by_kernels=by_kernels_alone)


def peak(gpu: Any, run: Any) -> tuple[list[Any], int]:
    """The results of a call, and the most memory that it has at once."""
    allocator = gpu.allocator
    before = allocator.peak = allocator.allocated
    result = run()
    needed = allocator.peak - before
    return [storage.to_numpy() for storage in (result if isinstance(result, tuple) else (result,))], needed


@pytest.mark.parametrize("op", OPS, ids=lambda op: f"{op.__module__.rpartition('.')[2]}.{op.__name__}")
def test_a_library_that_refuses_what_it_took_before_is_replaced_by_kernels(gpu, op):
    case = call(gpu, op)
    assert ", else " in str(case.program)
    for _ in range(3):
        assert case.run() is not None
    case.library.has_room = False
    expected, most = peak(gpu, case.by_kernels)
    actual, needed = peak(gpu, case.run)
    for one, other in zip(actual, expected, strict=True):
        assert np.array_equal(one, other)
    assert needed == most, "kernels get the memory of what the library refused"
    assert case.library.calls == 4
    case.library.has_room = True
    assert case.run() is not None
    assert case.library.calls == 5, "the next run asks the library again"


@pytest.mark.parametrize("op", OPS, ids=lambda op: f"{op.__module__.rpartition('.')[2]}.{op.__name__}")
def test_a_library_that_refuses_the_first_call_leaves_it_to_the_next_cell(gpu, op):
    case = call(gpu, op)
    case.library.has_room = False
    assert case.run() is None
    assert (op, case.library) not in gpu.plans


def test_all_ops_whose_libraries_may_refuse_are_here():
    refusing = {"Attention", "Convolution", "FusedConvolution", "Pooling"}
    actual = {
        function
        for module in (attention_by_library, conv, conv_epilogue, pool_by_library)
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__
        and not name.startswith("_")
        and refusing & {str(parameter.annotation) for parameter in inspect.signature(function).parameters.values()}
    }
    assert actual == set(OPS)
