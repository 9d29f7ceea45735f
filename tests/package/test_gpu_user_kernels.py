"""Kernels that users write, compiled and launched on the GPU of --device, and on the HIP runtime for the CPU."""

from __future__ import annotations

import re
import struct
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tallow
from tallow import (
    CompilationFailed,
    CustomOp1,
    CustomOp2,
    CustomOp3,
    Device,
    DeviceMismatch,
    InplaceOp1,
    InplaceOp2,
    InplaceOp3,
    InvalidArgument,
    Kernel,
    KernelOp1,
    Layout,
    Shape,
    Tensor,
)
from tallow.runtime.backends.gpu_backend.driver.error import DriverError
from tallow.runtime.backends.gpu_backend.execute.kernels import open_cache
from tallow.runtime.backends.gpu_backend.user_kernels import UserKernels

from . import backend
from .filling import plant

backend.require_package()

SAXPY = """
extern "C" __global__ void saxpy(float* y, const float* x, float a, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] += a * x[i];
}
"""
SIGNATURE = "float*, const float*, float, uint32"


@pytest.fixture
def device(gpu: Any) -> Device:
    return Device(gpu)


@pytest.fixture
def saxpy(device: Device) -> Kernel:
    return Kernel.compile("saxpy", SAXPY, device, signature=SIGNATURE)


def ramp(device: Device, count: int = 300) -> Tensor:
    return Tensor(np.arange(count, dtype=np.float32), device=device)


def test_an_ordinary_kernel(device: Device, saxpy: Kernel) -> None:
    y, x = Tensor.ones(300, device=device), ramp(device)
    saxpy.launch(2, 256, y, x, 2.0, 300)
    assert y.tolist() == [1 + 2 * i for i in range(300)]
    assert repr(saxpy) == f"<Kernel saxpy({SIGNATURE}) on {device.label}>"


def test_grids_of_three_dims(device: Device) -> None:
    source = """
extern "C" __global__ void number(unsigned* places) {
    const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    const unsigned index = block * blockDim.x * blockDim.y * blockDim.z + thread;
    places[index] = index + 1;
}
"""
    kernel = Kernel.compile("number", source, device, signature="u32*")
    for grid, block in (((2, 3, 4), (5, 2, 3)), ((np.int64(6), 4), [30]), (720, 1), (1, (10, 72))):
        indices = Tensor.zeros(720, dtype="u32", device=device)
        kernel.launch(grid, block, indices)
        assert indices.tolist() == list(range(1, 721))
    kernel.launch(0, 64, indices)
    kernel.launch((3, 0), (64, 2), indices)


def test_what_a_pointer_takes(device: Device, saxpy: Kernel) -> None:
    y, x = Tensor.zeros(8, device=device), ramp(device, 8)
    inner = x.storage.inner
    last = y[4:]
    for source in (x, x.storage, inner, inner.address(x.layout), np.int64(inner.address(x.layout))):
        saxpy.launch(1, 32, last, source, np.float32(1), np.uint8(4))
    assert y.tolist() == [0, 0, 0, 0, 0, 5, 10, 15]
    saxpy.launch(1, 32, y, None, 1, 0)
    # Of a view the first element, and of the storage its beginning.
    assert inner.address(x[2:].layout) == inner.address(x.layout) + 8
    saxpy.launch(1, 32, y, x[6:], 1.0, 1)
    assert y.tolist()[0] == 6


NUMBERS = {
    "char": -5,
    "double": 1e300,
    "short": -(2**15),
    "long long": -(2**63),
    "bool": True,
    "float": 0.1,
    "unsigned char": 255,
    "unsigned short": 2**16 - 1,
    "unsigned long long": 2**64 - 1,
    "int": -(2**31),
    "unsigned": 2**32 - 1,
}


def test_every_type_arrives_with_the_alignment_of_c(device: Device) -> None:
    declared = [f"{name} p{index}" for index, name in enumerate(NUMBERS)]
    stores = "".join(f"    results[{index}] = static_cast<double>(p{index});\n" for index in range(len(NUMBERS)))
    signature = ", ".join([*declared, "double* results"])
    source = f'extern "C" __global__ void numbers({signature}) {{\n{stores}}}\n'
    kernel = Kernel.compile("numbers", source, device, signature=signature)
    results = Tensor.zeros(len(NUMBERS), dtype="f64", device=device)
    kernel.launch(1, 1, *NUMBERS.values(), results)
    assert results.tolist() == [
        float(np.float32(0.1)) if name == "float" else float(value) for name, value in NUMBERS.items()
    ]


def test_numbers_and_elements_of_short_floats(device: Device) -> None:
    source = """
#include "types.hpp"
using namespace tallow;
extern "C" __global__ void sum(float* result, f16 a, bf16 b, f8e4m3 c, const bf16* d) {
    *result = to_float(a) + to_float(b) + to_float(c) + to_float(*d);
}
"""
    kernel = Kernel.compile("sum", source, device, signature="float*, f16, bf16, f8e4m3, const bf16*")
    result, d = Tensor.zeros(1, device=device), Tensor([8.0], dtype="bf16", device=device)
    kernel.launch(1, 1, result, 1, 2.0, np.float16(4), d)
    assert result.item() == 15


def test_a_struct(device: Device) -> None:
    source = """
struct Sum { float* y; double a; unsigned n; };
extern "C" __global__ void add(Sum sum) { for (unsigned i = 0; i < sum.n; i++) sum.y[i] += sum.a; }
"""
    kernel = Kernel.compile("add", source, device)
    y = ramp(device, 4)
    packed = struct.pack("@QdI4x", y.storage.inner.address(y.layout), 0.5, 3)
    kernel.launch(1, 1, packed)
    assert y.tolist() == [0.5, 1.5, 2.5, 3]
    for arguments, told in (
        ((y,), "the struct must be bytes, not .*; a kernel of other parameters needs a signature"),
        ((bytes(4097),), r"the struct has (at most 4096|24) bytes, not 4097"),
        ((packed, 1), "its arguments are one struct, packed to bytes, and 2 were given"),
    ):
        with pytest.raises(InvalidArgument, match=f"launch of add: {told}"):
            kernel.launch(1, 1, *arguments)


def test_a_kernel_without_parameters(device: Device) -> None:
    source = '__device__ unsigned seen;\nextern "C" __global__ void nothing() { seen = 1; }\n'
    Kernel.compile("nothing", source, device, signature="").launch(1, 1)
    device.synchronize()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({1: None, 3: None}, None),
        (
            {0: lambda y: y.to_dtype("f64")},
            r"argument 1 \(float\*\) points to f32, not f64; convert with to_dtype first",
        ),
        (
            {0: lambda y: y.reshape((2, 4)).t()},
            r"argument 1 \(float\*\) has strides \(1, 4\); call contiguous\(\) on it first",
        ),
        (
            {0: lambda y: [1.0]},
            r"argument 1 \(float\*\) must be a Tensor, a Storage or an address, for f32, not \[1\.0\]",
        ),
        ({0: lambda y: -8}, r"argument 1 \(float\*\) must be from 0 to 18446744073709551615, not -8"),
        ({2: lambda y: "2"}, r"argument 3 \(float\) must be a Python number, not of type str"),
        ({2: lambda y: y[0]}, r"argument 3 \(float\) must be a Python number, not of type Tensor"),
        ({2: lambda y: 1e39}, r"argument 3 \(float\) holds no number as large as 1e\+39"),
        ({3: lambda y: 1.0}, r"argument 4 \(uint32\) must be an integer, not 1\.0"),
        ({3: lambda y: -1}, r"argument 4 \(uint32\) must be from 0 to 4294967295, not -1"),
        ({3: lambda y: np.int64(2**32)}, r"argument 4 \(uint32\) must be from 0 to 4294967295, not 4294967296"),
    ],
)
def test_arguments_that_do_not_match_are_told_before_the_launch(
    device: Device, saxpy: Kernel, change: dict[int, Any], told: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    y = Tensor.zeros(8, device=device)
    arguments: list[Any] = [y, y, 2.0, 8]
    if told is None:
        monkeypatch.setattr(saxpy, "_call", None)
        with pytest.raises(
            InvalidArgument, match=rf"launch of saxpy: its arguments are \({re.escape(SIGNATURE)}\), and 3"
        ):
            saxpy.launch(1, 8, *arguments[:3])
        return
    for index, make in change.items():
        arguments[index] = make(y)
    monkeypatch.setattr(saxpy, "_call", None)
    with pytest.raises(InvalidArgument, match=f"^launch of saxpy: {told}"):
        saxpy.launch(1, 8, *arguments)


def test_memory_of_another_device(device: Device, saxpy: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = Tensor.zeros(8, device=device), Tensor.zeros(8)
    monkeypatch.setattr(saxpy, "_call", None)
    for other in (there, there.storage, there.storage.inner):
        with pytest.raises(DeviceMismatch) as caught:
            saxpy.launch(1, 8, here, other, 2.0, 8)
        assert (caught.value.op, caught.value.devices) == ("launch of saxpy", (device.label, "cpu"))


def test_kernels_of_two_devices(device: Device) -> None:
    if backend.package().device_count() < 2:
        pytest.skip("needs two devices")
    devices = [device, Device(backend.own("Device")(1))]
    kernels = [Kernel.compile("saxpy", SAXPY, each, signature=SIGNATURE) for each in devices]
    tensors = [Tensor.ones(8, device=each) for each in devices]
    for _ in range(2):
        for kernel, tensor in zip(kernels, tensors, strict=True):
            kernel.launch(1, 8, tensor, tensor, 1.0, 8)
    assert [tensor.tolist() for tensor in tensors] == [[4.0] * 8] * 2
    with pytest.raises(DeviceMismatch, match=f"not {device.label}, {devices[1].label}"):
        kernels[0].launch(1, 8, *tensors, 1.0, 8)


def test_launches_beyond_the_limits_are_told_before_them(
    device: Device, saxpy: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    y = Tensor.zeros(8, device=device)
    limits = saxpy._limits  # type: ignore[attr-defined]
    called: list[tuple[Any, ...]] = []
    monkeypatch.setattr(saxpy, "_call", lambda *given: (called.append(given[1:8]), (0,))[1])
    _, y_axis, z = limits.block
    blocks_x, blocks_y, blocks_z = limits.grid
    refused = [
        ((1, limits.threads + 1), "threads"),
        ((1, (limits.threads, 2)), f"at most {limits.threads} are possible"),
        ((1, 0), "is empty"),
        ((1, (8, 0)), "is empty"),
        ((-1, 8), "is empty"),
        ((blocks_x + 1, 1), f"grid .* is too large; at most {re.escape(str(limits.grid))} blocks"),
        (((1, blocks_y + 1), 1), "is too large"),
        (((1, 1, blocks_z + 1), 1), "is too large"),
        ((1, ()), r"block must be one to three integers, not \(\)"),
        (((1, 2, 3, 4), 1), "grid must be one to three integers"),
        ((1.5, 1), "grid must be .*integer"),
        ((1, "8"), "block must be .*integer"),
    ]
    # Along an axis there may be fewer threads than in a block.
    refused += [
        ((1, shape), rf"are too large; at most {re.escape(str(limits.block))} threads")
        for shape in ((1, y_axis + 1), (1, 1, z + 1))
        if max(shape) <= limits.threads
    ]
    for (grid, block), told in refused:
        with pytest.raises(InvalidArgument, match=f"^launch of saxpy: .*{told}"):
            saxpy.launch(grid, block, y, y, 2.0, 8)
    for shared_bytes in (limits.shared_bytes + 1, -1):
        with pytest.raises(InvalidArgument, match=f"{shared_bytes} bytes of shared memory per block; at most"):
            saxpy.launch(1, 8, y, y, 2.0, 8, shared_bytes=shared_bytes)
    with pytest.raises(InvalidArgument, match="shared_bytes must be an integer"):
        saxpy.launch(1, 8, y, y, 2.0, 8, shared_bytes="4")  # type: ignore[arg-type]
    assert not called
    most = (min(blocks_x, limits.along_dim), blocks_y, blocks_z)
    saxpy.launch(most, 1, y, y, 2.0, 8, shared_bytes=limits.shared_bytes)
    assert called == [(*most, 1, 1, 1, limits.shared_bytes)]


def test_all_of_the_shared_memory(device: Device) -> None:
    source = """
extern "C" __global__ void turn(unsigned* values, unsigned words) {
    extern __shared__ unsigned shared[];
    shared[words - 1 - threadIdx.x] = values[threadIdx.x];
    __syncthreads();
    values[threadIdx.x] = shared[words - blockDim.x + threadIdx.x];
}
"""
    kernel = Kernel.compile("turn", source, device, signature="u32*, u32")
    most: int = kernel._limits.shared_bytes  # type: ignore[attr-defined]
    values = Tensor(np.arange(64, dtype=np.uint32), device=device)
    for shared_bytes in (256, most):
        kernel.launch(1, 64, values, shared_bytes // 4, shared_bytes=shared_bytes)
    assert values.tolist() == list(range(64))
    kernel.launch(1, 64, values, 64, shared_bytes=256)
    assert values.tolist() == list(range(63, -1, -1))


def test_a_kernel_that_was_compiled_for_small_blocks(device: Device) -> None:
    source = 'extern "C" __global__ void __launch_bounds__(64) small(int* p) { *p = 1; }'
    kernel = Kernel.compile("small", source, device, signature="int*")
    with pytest.raises(InvalidArgument, match=r"blocks \(65, 1, 1\) have 65 threads; at most 64 are possible"):
        kernel.launch(1, 65, None)


def test_errors_of_the_compiler_are_at_the_lines_of_the_source(device: Device) -> None:
    source = '#include "types.hpp"\n\nextern "C" __global__ void broken() {\n    nonsense();\n}\n'
    with pytest.raises(CompilationFailed) as caught:
        Kernel.compile("broken", source, device, signature="")
    error = caught.value
    assert re.search(r"broken\.hip[:(]4\b.*nonsense", error.log)
    assert "; fix the source or the options. It wrote:\n" in str(error)
    with pytest.raises(CompilationFailed, match=r"gone\.hpp"):
        Kernel.compile("broken", '#include "gone.hpp"', device)
    with pytest.raises(CompilationFailed, match="other_name"):
        device.inner.get_or_load("broken", "other_name", "nonsense")  # type: ignore[union-attr]


def test_a_kernel_that_the_source_does_not_have(device: Device) -> None:
    for source in (SAXPY, 'extern "C" __global__ void other() {}', "__global__ void gone(int* p) { *p = 1; }"):
        with pytest.raises(
            InvalidArgument, match="compile: name: the source has no kernel gone; write it there as extern"
        ):
            Kernel.compile("gone", source, device, signature="int*")


def test_options_go_to_the_compiler(device: Device) -> None:
    source = 'extern "C" __global__ void number(int* p) { *p = NUMBER; }'
    result = Tensor.zeros(1, dtype="i32", device=device)
    for number in (3, 4):
        kernel = Kernel.compile("number", source, device, [f"-DNUMBER={number}"], signature="int*")
        kernel.launch(1, 1, result)
        assert result.item() == number
    with pytest.raises(CompilationFailed, match="NUMBER"):
        Kernel.compile("number", source, device, signature="int*")


def test_an_option_takes_the_place_of_the_one_that_it_contradicts(device: Device) -> None:
    compiler = device.inner.driver.compiler  # type: ignore[union-attr]
    own = compiler.options("target")
    standard = next(option for option in own if "std=" in option)
    newer = standard.replace("17", "20")
    expected = (*(option for option in own if option != standard), newer, "-DX")
    assert compiler.with_options("target", (newer, "-DX")) == expected
    assert compiler.with_options("target", ()) == own


TWO = 'extern "C" __global__ void one(int* p) { *p = 1; }\nextern "C" __global__ void two(int* p) { *p = 2; }\n'


def test_a_source_is_loaded_once_on_a_device(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    load = gpu.driver.load
    monkeypatch.setattr(gpu.driver, "load", lambda code, name: (loaded.append(name), load(code, name))[1])
    source = TWO + "// loaded once\n"
    kernels = [gpu.get_or_load(name, "numbers", source, signature="int*") for name in ("one", "two", "one")]
    assert kernels[0] is kernels[2]
    assert type(gpu)(0).get_or_load("two", "numbers", source, signature="int*") is kernels[1]
    assert loaded == ["numbers"]
    result = Tensor.zeros(1, dtype="i32", device=Device(gpu))
    for kernel, expected in zip(kernels, (1, 2, 1), strict=True):
        kernel.launch(1, 1, result)
        assert result.item() == expected
    # Another name, source or option is another module.
    gpu.get_or_load("one", "others", source, signature="int*")
    gpu.get_or_load("one", "numbers", source, ["-DX"], signature="int*")
    gpu.compile("one", source, signature="int*")
    assert loaded == ["numbers", "others", "numbers", "one"]


def test_what_was_compiled_is_kept_on_disk(gpu: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("TALLOW_CACHE", str(tmp_path))
    compiled: list[tuple[str, ...]] = []
    compile_source = gpu.driver.compiler.compile

    def compile_and_note(source: str, name: str, headers: Any, target: str, options: tuple[str, ...]) -> bytes:
        compiled.append(options)
        return compile_source(source, name, headers, target, options)

    monkeypatch.setattr(gpu.driver.compiler, "compile", compile_and_note)

    def load(source: str = TWO, *options: str) -> None:
        UserKernels(gpu.driver, open_cache()).get(gpu, "one", "kept", source, options, "int*")

    for _ in range(2):
        load()
    assert compiled == [()]
    load(TWO, "-DX")
    load(TWO + "// changed\n")
    assert compiled == [(), ("-DX",), ()]
    with monkeypatch.context() as patch:
        patch.setattr(
            "tallow.runtime.backends.gpu_backend.execute.kernels.headers", lambda: {"types.hpp": "// changed"}
        )
        load()
    with monkeypatch.context() as patch:
        patch.setitem(vars(gpu.driver.compiler), "version", "another")
        load()
    load()
    assert len(compiled) == 5


INCLUDING = """
#ifndef OFF
#include "outer.h"
#endif
extern "C" __global__ void one(int* p) { *p = NUMBER; }
"""


@pytest.fixture
def compiled(gpu: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The names of the sources that were compiled, with a cache of its own."""
    monkeypatch.setenv("TALLOW_CACHE", str(tmp_path / "cache"))
    names: list[str] = []
    compile_source = gpu.driver.compiler.compile

    def compile_and_note(source: str, name: str, *arguments: Any) -> bytes:
        names.append(name)
        return compile_source(source, name, *arguments)

    monkeypatch.setattr(gpu.driver.compiler, "compile", compile_and_note)
    return names


def test_a_change_of_a_header_that_a_source_includes_gives_new_code(
    gpu: Any, compiled: list[str], tmp_path: Path
) -> None:
    """In this process and in others, by way of another header too; the code of before is still in the cache."""
    result = Tensor.zeros(1, dtype="i32", device=Device(gpu))
    (tmp_path / "outer.h").write_text('#include "inner.h"\n')
    kernels = UserKernels(gpu.driver, open_cache())

    def number(kernels: UserKernels) -> Any:
        kernel = kernels.get(gpu, "one", "including", INCLUDING, [f"-I{tmp_path}"], "int*")
        assert kernels.get(gpu, "one", "including", INCLUDING, [f"-I{tmp_path}"], "int*") is kernel
        kernel.launch(1, 1, result)
        return result.item()

    for written, count in ((3, 1), (4, 2), (3, 2)):
        (tmp_path / "inner.h").write_text(f"#define NUMBER {written}\n")
        assert (number(kernels), len(compiled)) == (written, count)
        assert (number(UserKernels(gpu.driver, open_cache())), len(compiled)) == (written, count)


def test_a_source_whose_files_nobody_knows_is_compiled_at_each_call(
    gpu: Any, compiled: list[str], tmp_path: Path
) -> None:
    result = Tensor.zeros(1, dtype="i32", device=Device(gpu))
    source = INCLUDING.replace('"outer.h"', "HEADER")
    for written in (3, 4, 3):
        (tmp_path / "inner.h").write_text(f"#define NUMBER {written}\n")
        kernel = gpu.compile("one", source, [f"-I{tmp_path}", "-DHEADER=<inner.h>"], signature="int*")
        kernel.launch(1, 1, result)
        assert result.item() == written
    assert compiled == ["one"] * 3


def test_code_of_the_cache_that_the_driver_refuses_is_compiled_again(
    gpu: Any, compiled: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once: what is compiled then is kept in its place, or raises its own error."""
    result = Tensor.zeros(1, dtype="i32", device=Device(gpu))

    def load() -> None:
        result.zero_()
        UserKernels(gpu.driver, open_cache()).get(gpu, "one", "planted", TWO, (), "int*").launch(1, 1, result)
        assert result.item() == 1

    load()
    for count, code in ((2, b"garbage"), (3, b"\x7fELF")):
        plant(tmp_path / "cache", code)
        load()
        load()
        assert len(compiled) == count
    plant(tmp_path / "cache", b"garbage")
    compile_source = gpu.driver.compiler.compile
    monkeypatch.setattr(gpu.driver.compiler, "compile", lambda *arguments: compile_source(*arguments) and b"no better")
    with pytest.raises(DriverError):
        load()
    assert len(compiled) == 4


def test_threads_do_not_share_what_they_pack(device: Device, saxpy: Kernel) -> None:
    results = [Tensor.zeros(4, device=device) for _ in range(4)]
    ones = Tensor.ones(4, device=device)

    def work(number: int) -> None:
        for _ in range(200):
            saxpy.launch(1, 4, results[number], ones, float(number), 4)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result.tolist() for result in results] == [[200.0 * number] * 4 for number in range(4)]


def test_memory_that_is_dropped_after_a_launch_is_not_used_before_it_has_run(device: Device, saxpy: Kernel) -> None:
    y = Tensor.zeros(256, device=device)
    for number in range(1, 20):
        saxpy.launch(1, 256, y, Tensor.full(256, float(number), device=device), 1.0, 256)
    assert set(y.tolist()) == {190.0}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("a b", "", (), ""), "name must be that of a function, not 'a b'"),
        (("saxpy", SAXPY + "\0", (), ""), "source must be without null characters"),
        (("saxpy", SAXPY, "-DX", ""), "options must be a sequence of str, not '-DX'"),
        (("saxpy", SAXPY, (3,), ""), "options must be of type str, not int"),
        (("saxpy", SAXPY, (), "float"), None),
        (("saxpy", SAXPY, (), "Point p"), "signature: 'Point p' is no parameter that tallow knows"),
    ],
)
def test_what_is_wrong_with_a_compilation(device: Device, arguments: tuple[Any, ...], told: str | None) -> None:
    name, source, options, signature = arguments
    if told is None:
        # CUDA alone tells what parameters a kernel has.
        if device.backend == "cuda":
            with pytest.raises(InvalidArgument, match="signature: it has parameters of 4 bytes, and kernel saxpy has"):
                Kernel.compile(name, source, device, options, signature=signature)
        return
    with pytest.raises(InvalidArgument, match=f"^compile: {told}"):
        Kernel.compile(name, source, device, options, signature=signature)


class Weighted(CustomOp1, CustomOp2, CustomOp3):
    """The first operand, twice the second and three times the third, by a kernel of the user's own."""

    def rocm_fwd(self, *operands: Any) -> tuple[Any, Shape]:
        first, layout = operands[:2]
        kernel = first.device.get_or_load("saxpy", "weighted", SAXPY, signature=SIGNATURE)
        count = layout.elem_count
        result = tallow.Storage(first.device.empty(first.dtype, count))
        result.const_set(0.0, Layout.contiguous((count,)))
        for factor, (storage, layout) in enumerate(zip(operands[::2], operands[1::2], strict=True), 1):
            source = Tensor.from_storage(tallow.Storage(storage), layout).contiguous()
            kernel.launch(-(-count // 64), 64, result, source, factor, count)
        return result.inner, layout.shape

    cuda_fwd = rocm_fwd


class Accumulate(InplaceOp1, InplaceOp2, InplaceOp3):
    """The other operands added to the first, or itself where there is none, by a kernel of the user's own."""

    def rocm_fwd(self, first: Any, layout: Layout, *others: Any) -> None:
        kernel = first.device.get_or_load("saxpy", "accumulate", SAXPY, signature=SIGNATURE)
        count = layout.elem_count
        for storage, index in zip(others[::2] or (first,), others[1::2] or (layout,), strict=True):
            kernel.launch(-(-count // 64), 64, first.address(layout), storage.address(index), 1.0, count)

    cuda_fwd = rocm_fwd


def test_ops_of_one_to_three_tensors_with_a_kernel(device: Device) -> None:
    x, y, z = (ramp(device, 12).affine(1.0, float(shift)).reshape((3, 4)) for shift in (0, 1, 2))
    a, b, c = (tensor.numpy() for tensor in (x, y, z))
    assert np.array_equal(x.t().apply_op1(Weighted()).numpy(), a.T)
    assert np.array_equal(x[1:].apply_op2(y[:2], Weighted()).numpy(), a[1:] + 2 * b[:2])
    assert np.array_equal(x.apply_op3(y, z, Weighted()).numpy(), a + 2 * b + 3 * c)


def test_ops_in_place_with_a_kernel(device: Device) -> None:
    x, y, z = (ramp(device, 12).affine(1.0, float(shift)).reshape((3, 4)) for shift in (0, 1, 2))
    a, b, c = (tensor.numpy() for tensor in (x, y, z))
    assert x[1].inplace_op1(Accumulate()).tolist() == (2 * a[1]).tolist()
    a[1] *= 2
    assert np.array_equal(x.inplace_op2(y, Accumulate()).numpy(), a + b)
    assert np.array_equal(x[2].inplace_op3(y[0], z[1], Accumulate()).numpy(), a[2] + b[2] + b[0] + c[1])


def test_an_op_that_is_one_kernel(device: Device) -> None:
    source = """
#include "types.hpp"
extern "C" __global__ void triple(ELEMENT* elements, unsigned long long count) {
    const unsigned long long i = blockIdx.x * static_cast<unsigned long long>(blockDim.x) + threadIdx.x;
    if (i < count)
        elements[i] = elements[i] * 3;
}
"""
    op = KernelOp1("triple", source, device, options=["-DELEMENT=float"])
    tensor = ramp(device, 1000)
    assert tensor.inplace_op1(op) is tensor
    tensor[10:20].inplace_op1(op)
    tensor[:0].inplace_op1(op)
    assert tensor.tolist() == [(9 if 10 <= i < 20 else 3) * i for i in range(1000)]
    integers = Tensor([[1, 2], [3, 4]], device=device)
    full = KernelOp1("triple", source, device.label, dtype="i64", options=["-DELEMENT=long long"])
    assert integers.inplace_op1(full).tolist() == [[3, 6], [9, 12]]
    for wrong, told in (
        (integers, "launch of triple: argument 1 .* points to f32, not i64; convert with to_dtype first"),
        (tensor.reshape((2, 500)).t(), r"launch of triple: argument 1 .* has strides \(1, 500\); call contiguous"),
    ):
        with pytest.raises(InvalidArgument, match=told):
            wrong.inplace_op1(op)
    with pytest.raises(DeviceMismatch, match="launch of triple"):
        Tensor([1.0]).inplace_op1(op)
    assert op.name == "triple"


def test_a_device_of_the_backend_itself(gpu: Any) -> None:
    device = Device(gpu)
    for name in ("cpu", "cuda", "metal", "rocm"):
        convert = getattr(device, f"as_{name}_device")
        if name == device.backend:
            assert convert() is gpu
        else:
            with pytest.raises(
                DeviceMismatch, match=f"as_{name}_device: tensors on {device.label} are not on {name}; move them"
            ):
                convert()
    assert gpu.stream == gpu.driver.stream
    assert isinstance(gpu.stream, int)


def test_the_cpu_runs_no_kernels() -> None:
    told = "compile: devices of cpu do not have it: kernels run on GPUs; write cpu_fwd of a custom op with NumPy"
    for compile_kernel in (Kernel.compile, KernelOp1):
        with pytest.raises(tallow.UnsupportedDevice, match=told):
            compile_kernel("saxpy", SAXPY, "cpu")
