"""Products with a bias by cuBLASLt: what is passed to it, and what comes of it where it refuses or fails."""

from __future__ import annotations

import ctypes
import gc
from enum import IntEnum
from types import SimpleNamespace

import pytest
from tallow.dtype import DType

pytest.importorskip("cuda.bindings")

from tallow.runtime.backends.cuda_backend.libraries.cublas_lt import CuBlasLt
from tallow.runtime.backends.gpu_backend.driver.error import LibraryError
from tallow.runtime.backends.gpu_backend.libraries.matrices import Matrices
from tallow.runtime.backends.gpu_backend.memory.allocator import CachingAllocator

from .library_calls import run
from .test_cuda_cublas import Context, queue
from .test_gpu_allocator import Memory

LHS, RHS = Matrices(1024, False, 16, 48), Matrices(2048, True, 16, 128)


class CuBlasLtError(Exception):
    """As nvmath-python's."""


class Module:
    """nvmath-python's module of cuBLASLt: what it is called with."""

    MatmulDescAttribute = IntEnum("MatmulDescAttribute", ["TRANSA", "TRANSB", "EPILOGUE", "BIAS_POINTER"])
    MatmulPreferenceAttribute = IntEnum(
        "MatmulPreferenceAttribute",
        ["MAX_WORKSPACE_BYTES", "REDUCTION_SCHEME_MASK", *(f"MIN_ALIGNMENT_{name}_BYTES" for name in "ABCD")],
    )
    Epilogue = IntEnum("Epilogue", {"BIAS": 4})
    ReductionScheme = IntEnum("ReductionScheme", {"COMPUTE_TYPE": 2})
    cuBLASLtError = CuBlasLtError  # noqa: N815 - nvmath-python's own name

    def __init__(self, context: Context) -> None:
        self.context = context
        self.calls: list[tuple] = []
        self.failing = ""
        self.found = 1
        self.handles = iter(range(100, 1000))

    def MatmulHeuristicResult(self, count):  # noqa: N802 - nvmath-python's own name
        assert count == 1
        return SimpleNamespace(ptr=9, workspace_size=4096)

    def matmul_algo_get_heuristic(self, *arguments):
        self.calls.append(("matmul_algo_get_heuristic", *arguments[:7]))
        ctypes.c_int32.from_address(arguments[-1]).value = self.found

    def __getattr__(self, name):
        def call(*arguments):
            assert self.context.depth or "destroy" in name, name
            if name.endswith("set_attribute"):
                described, attribute, address, size = arguments
                number = ctypes.c_uint64 if size == 8 else ctypes.c_int32
                names = self.MatmulDescAttribute if "desc" in name else self.MatmulPreferenceAttribute
                arguments = described, names(attribute).name, number.from_address(address).value
            self.calls.append((name, *arguments))
            if name == self.failing:
                raise CuBlasLtError("NOT_SUPPORTED (15)")
            return next(self.handles) if "create" in name else None

        return call

    def named(self, name: str) -> list[tuple]:
        """The arguments of the calls of one function."""
        return [arguments for each, *arguments in self.calls if each == name]


@pytest.fixture
def context():
    return Context()


@pytest.fixture
def module(context):
    return Module(context)


@pytest.fixture
def blas(context, module):
    cublas = SimpleNamespace(
        ComputeType=IntEnum("ComputeType", {"COMPUTE_32F": 68, "COMPUTE_64F": 70}),
        Operation=IntEnum("Operation", {"N": 0, "T": 1}),
    )
    return CuBlasLt(module, cublas, context, queue(1234), CachingAllocator(Memory()))


@pytest.mark.parametrize(("dtype", "kind", "compute"), [(DType.F16, 2, 68), (DType.F32, 0, 68), (DType.F64, 1, 70)])
def test_a_product_and_its_bias(blas, module, dtype, kind, compute):
    assert run(blas.multiply_and_add(dtype, (3, 8, 16), LHS, RHS, 4096, 8192))
    assert module.named("matmul_desc_create")[0][0] == compute
    # The sizes of the transposes, as cuBLASLt sees what lies there.
    assert module.named("matrix_layout_create") == [[kind, 16, 3, 16], [kind, 16, 8, 16], [kind, 8, 3, 8]]
    described = {name: value for _, name, value in module.named("matmul_desc_set_attribute")}
    assert described == {"TRANSA": 1, "TRANSB": 0, "EPILOGUE": 4, "BIAS_POINTER": 4096}
    expected = {name: value for _, name, value in module.named("matmul_preference_set_attribute")}
    assert expected["REDUCTION_SCHEME_MASK"] == 2
    assert {expected[f"MIN_ALIGNMENT_{name}_BYTES"] for name in "ABCD"} == {16}
    (arguments,) = module.named("matmul")
    _, _, _, right, _, left, _, _, target, _, result, _, algorithm, _, nbytes, stream = arguments
    assert (right, left, target, result) == (2048, 1024, 8192, 8192)
    assert (algorithm, nbytes, stream) == (9, 4096, 1234)


def test_a_plan_is_made_once_and_takes_each_bias(blas, module):
    for bias in (4096, 5120):
        assert run(blas.multiply_and_add(DType.F16, (3, 8, 16), LHS, RHS, bias, 8192))
    assert len(module.named("matmul_desc_create")) == 1
    assert [value for _, name, value in module.named("matmul_desc_set_attribute") if name == "BIAS_POINTER"] == [
        4096,
        5120,
    ]


@pytest.mark.parametrize("place", range(4))
def test_what_is_not_aligned_is_refused(blas, module, place):
    addresses = [1024, 2048, 4096, 8192]
    addresses[place] += 8
    lhs, rhs = LHS._replace(address=addresses[0]), RHS._replace(address=addresses[1])
    assert not run(blas.multiply_and_add(DType.F16, (3, 8, 16), lhs, rhs, *addresses[2:]))
    assert module.named("matmul") == []


@pytest.mark.parametrize(
    ("mnk", "lhs", "rhs"),
    [((3, 9, 16), 16, 16), ((3, 8, 17), 17, 16), ((3, 8, 16), 16, 17)],
    ids=["the result", "the left side", "the right side"],
)
def test_rows_that_are_not_aligned_are_refused(blas, module, mnk, lhs, rhs):
    left, right = LHS._replace(leading=lhs), RHS._replace(leading=rhs)
    assert not run(blas.multiply_and_add(DType.F16, mnk, left, right, 4096, 8192))
    assert module.named("matmul") == []


def test_what_it_has_no_algorithm_for_is_refused_and_not_asked_again(blas, module):
    module.found = 0
    for _ in range(2):
        assert not run(blas.multiply_and_add(DType.F16, (3, 8, 16), LHS, RHS, 4096, 8192))
    assert len(module.named("matmul_algo_get_heuristic")) == 1
    assert len(module.named("matmul_desc_destroy")) == 1


def test_a_product_that_fails(blas, module):
    module.failing = "matmul"
    with pytest.raises(LibraryError, match=r"cublasLt matmul: NOT_SUPPORTED \(15\); tallow needs cuBLAS 12"):
        run(blas.multiply_and_add(DType.F16, (3, 8, 16), LHS, RHS, 4096, 8192))


def test_everything_is_given_back(blas, module):
    run(blas.multiply_and_add(DType.F16, (3, 8, 16), LHS, RHS, 4096, 8192))
    result = [name for name, *_ in module.calls if "create" in name]
    blas._plans.clear()
    gc.collect()
    gone = [name for name, *_ in module.calls if "destroy" in name]
    assert len(result) - 1 == len(gone), "all but the handle"
