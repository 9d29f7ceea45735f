"""Guarantees for kernels: barriers, shared memory, waves and atomics, in both wave sizes."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hip import hip
from hip_host_driver import Buffer, Module, check

# A script of its own for each wave size: a process has one.
WAVES = pytest.mark.parametrize("wave", [32, 64])

BLOCK_SUM = """
struct Args { float* out; const float* values; unsigned count; };
extern "C" __global__ void __launch_bounds__(256) block_sum(Args args) {
    __shared__ float partial[256];
    const unsigned lane = threadIdx.x, index = blockIdx.x * blockDim.x + lane;
    partial[lane] = index < args.count ? args.values[index] : 0.0f;
    __syncthreads();
    for (unsigned step = blockDim.x / 2; step > 0; step /= 2) {
        if (lane < step)
            partial[lane] += partial[lane + step];
        __syncthreads();
    }
    if (lane == 0)
        args.out[blockIdx.x] = partial[0];
}
"""


def pack(out: Buffer, values: Buffer, count: int) -> bytes:
    return struct.pack("<QQI4x", out.address, values.address, count)


def test_a_block_adds_up_over_shared_memory():
    values = np.random.default_rng(0).random(1000, np.float32)
    with Module(BLOCK_SUM) as module, Buffer(values) as source, Buffer(np.zeros(4, np.float32)) as out:
        module.launch("block_sum", (4,), (256,), pack(out, source, 1000))
        expected = np.pad(values, (0, 24)).reshape(4, 256).sum(1)
        np.testing.assert_allclose(out.read(), expected, rtol=1e-5)


def test_threads_that_have_returned_do_not_hold_up_a_barrier():
    source = """
    struct Args { int* out; unsigned count; };
    extern "C" __global__ void rotate(Args args) {
        extern __shared__ __attribute__((aligned(16))) int row[];
        if (threadIdx.x >= args.count)
            return;
        row[threadIdx.x] = static_cast<int>(threadIdx.x);
        __syncthreads();
        args.out[threadIdx.x] = row[(threadIdx.x + 1) % args.count];
    }"""
    with Module(source) as module, Buffer(np.zeros(100, np.int32)) as out:
        module.launch("rotate", (1,), (128,), struct.pack("<QI4x", out.address, 100), shared=400)
        assert out.read().tolist() == [*range(1, 100), 0]


def test_a_grid_of_two_dimensions_transposes_through_a_tile():
    source = """
    struct Args { float* out; const float* values; unsigned rows, columns; };
    extern "C" __global__ void transpose(Args args) {
        __shared__ alignas(16) float tile[16][17];
        unsigned column = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
        if (row < args.rows && column < args.columns)
            tile[threadIdx.y][threadIdx.x] = args.values[row * args.columns + column];
        __syncthreads();
        column = blockIdx.x * 16 + threadIdx.y, row = blockIdx.y * 16 + threadIdx.x;
        if (row < args.rows && column < args.columns)
            args.out[column * args.rows + row] = tile[threadIdx.x][threadIdx.y];
    }"""
    values = np.arange(37 * 50, dtype=np.float32).reshape(37, 50)
    with Module(source) as module, Buffer(values) as inputs, Buffer(np.zeros((50, 37), np.float32)) as out:
        module.launch("transpose", (4, 3), (16, 16), struct.pack("<QQII", out.address, inputs.address, 37, 50))
        assert (out.read() == values.T).all()


def test_shared_memory_is_poisoned_for_every_block():
    source = """
    struct Args { unsigned* out; };
    extern "C" __global__ void stale(Args args) {
        __shared__ unsigned fixed[4];
        extern __shared__ unsigned sized[];
        args.out[blockIdx.x * 2] = fixed[threadIdx.x];
        args.out[blockIdx.x * 2 + 1] = sized[threadIdx.x];
        fixed[threadIdx.x] = sized[threadIdx.x] = 1;
    }"""
    with Module(source) as module, Buffer(np.zeros(12, np.uint32)) as out:
        module.launch("stale", (6,), (1,), struct.pack("<Q", out.address), shared=64)
        assert (out.read() == 0xCBCBCBCB).all()


def test_atomics():
    source = """
    struct Args { unsigned* counts; unsigned long long* total; float* sum; int* extremes; };
    extern "C" __global__ void count(Args args) {
        const int index = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
        atomicAdd(&args.counts[index % 7], 1);
        atomicAdd(args.total, 1ull << 32);
        atomicAdd(args.sum, 0.5f);
        atomicMin(&args.extremes[0], 500 - index);
        atomicMax(&args.extremes[1], index);
        if (atomicCAS(&args.extremes[2], 0, 1) == 0)
            atomicExch(&args.extremes[3], 9);
    }"""
    arrays = [np.zeros(7, np.uint32), np.zeros(1, np.uint64), np.zeros(1, np.float32), np.zeros(4, np.int32)]
    with Module(source) as module:
        buffers = [Buffer(array) for array in arrays]
        module.launch("count", (100,), (256,), struct.pack("<QQQQ", *(buffer.address for buffer in buffers)))
        counts, total, total_float, extremes = (buffer.read() for buffer in buffers)
        assert counts.tolist() == np.bincount(np.arange(25600) % 7).tolist()
        assert total[0] == 25600 << 32 and total_float[0] == 12800
        assert extremes.tolist() == [500 - 25599, 25599, 1, 9]
        for buffer in buffers:
            buffer.__exit__()


SHUFFLES = '''
module = Module("""
struct Args { int* out; };
extern "C" __global__ void shuffles(Args args) {
    const int lane = threadIdx.x, wave = warpSize;
    int* row = args.out + threadIdx.x;
    row[0] = __shfl_xor(lane, 5);
    row[128] = __shfl_down(lane, 3);
    row[256] = __shfl_up(lane, 3, 16);
    row[384] = __shfl(lane, 2, 8);
    row[512] = static_cast<int>(__shfl_xor(lane * 0.5, wave / 2) * 2);
    const unsigned long long odd = __ballot(lane & 1);
    row[640] = __popcll(odd) + (odd >> 1 & 1) * 100;
    row[768] = __any(lane == 77) * 2 + __all(lane >= 0);
    int sum = lane;
    for (int step = wave / 2; step > 0; step /= 2)
        sum += __shfl_xor(sum, step);
    row[896] = sum;
}
""")
out = Buffer(np.zeros((8, 128), np.int32))
module.launch("shuffles", (1,), (128,), struct.pack("<Q", out.address))
xor, down, up, pick, wide, odd, votes, sums = out.read()
lane = np.arange(128)
wave = check(hip.hipGetDeviceProperties(0)).warpSize
in_wave, first = lane % wave, lane - lane % wave
assert (xor == lane ^ 5).all()
assert (down == np.where(in_wave + 3 < wave, lane + 3, lane)).all()
assert (up == np.where(lane % 16 >= 3, lane - 3, lane)).all()
assert (pick == lane // 8 * 8 + 2).all()
assert (wide == lane ^ (wave // 2)).all()
assert (odd == wave // 2 + 100).all()
assert (votes == (first == 77 // wave * wave) * 2 + 1).all()
assert (sums == np.add.reduceat(lane, lane[::wave])[lane // wave]).all()
print(wave, target())
'''


@WAVES
def test_shuffles_and_votes(run_script, wave):
    result = run_script(SHUFFLES, HIP_HOST_WAVE=str(wave))
    assert result.stdout == f"{wave} host{wave}\n", result.stderr


DIVERGENT = '''
module = Module("""
struct Args { unsigned* out; };
extern "C" __global__ void divergent(Args args) {
    const unsigned lane = threadIdx.x;
    unsigned value = lane;
    if (lane < 8)
        value = __shfl_down(value, 1);
    else if (lane < 16)
        value = __shfl_xor(value, 1);
    __syncthreads();
    args.out[lane] = value;
    if (lane >= 20)
        return;
    args.out[64 + lane] = static_cast<unsigned>(__ballot(1));
}
""")
out = Buffer(np.zeros(128, np.uint32))
module.launch("divergent", (1,), (64,), struct.pack("<Q", out.address))
values = out.read()
assert values[:7].tolist() == list(range(1, 8))
assert values[7] == 0xCBCBCBCB  # what an idle lane holds is undefined
assert values[8:16].tolist() == [lane ^ 1 for lane in range(8, 16)]
assert values[16:64].tolist() == list(range(16, 64))
assert (values[64:84] == 0xFFFFF).all()
'''


@WAVES
def test_only_the_lanes_that_are_there_take_part(run_script, wave):
    result = run_script(DIVERGENT, HIP_HOST_WAVE=str(wave))
    assert result.returncode == 0, result.stderr


def test_different_barriers_are_reported(run_script):
    code = '''
module = Module("""extern "C" __global__ void torn() {
    if (threadIdx.x < 32)
        __syncthreads();
    else
        __syncthreads();
}""")
module.launch("torn", (1,), (64,), b"")
'''
    result = run_script(code)
    assert result.returncode == -6
    assert "kernel torn" in result.stderr
    assert "wait at different barriers, at lines 3 and 5" in result.stderr
    result = run_script(code, HIP_HOST_FAULT="error")
    assert "hipErrorLaunchFailure" in result.stderr


@pytest.mark.parametrize(("seed", "threads"), [("0", "3"), ("7", "1"), ("8", "3")])
def test_the_order_of_blocks_does_not_matter_to_a_sound_kernel(run_script, seed, threads):
    code = f"""
values = np.arange(100_000, dtype=np.float32)
module = Module('''{BLOCK_SUM}''')
source, out = Buffer(values), Buffer(np.zeros(1000, np.float32))
for _ in range(5):
    module.launch("block_sum", (1000,), (128,), struct.pack("<QQI4x", out.address, source.address, 100_000))
expected = np.pad(values, (0, 28_000)).reshape(1000, 128).sum(1)
np.testing.assert_allclose(out.read(), expected, rtol=1e-5)
"""
    result = run_script(code, HIP_HOST_SHUFFLE=seed, HIP_HOST_THREADS=threads)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(("seed", "outcome"), [("2", "hidden"), ("3", "seen")])
def test_an_odd_seed_shows_a_missing_barrier(run_script, seed, outcome):
    code = '''
source = """extern "C" __global__ void chain(int* out) {
    __shared__ int value[64];
    value[threadIdx.x] = threadIdx.x;
    out[threadIdx.x] = value[threadIdx.x ? threadIdx.x - 1 : 0];
}"""
out = Buffer(np.zeros(64, np.int32))
Module(source).launch("chain", (1,), (64,), struct.pack("<Q", out.address))
print("hidden" if out.read().tolist() == [0, *range(63)] else "seen")
'''
    assert run_script(code, HIP_HOST_SHUFFLE=seed).stdout == outcome + "\n"


def test_templates_share_no_variables_between_modules():
    source = """
    template <class Value> Value& slot() { __shared__ Value value; return value; }
    struct Args { int* out; };
    extern "C" __global__ void both(Args args) {
        if (threadIdx.x == 0) { slot<int>() = 41; slot<float>() = 0.5f; }
        __syncthreads();
        args.out[threadIdx.x] = slot<int>() + static_cast<int>(slot<float>() * 2);
    }"""
    for _ in range(2):
        with Module(source) as module, Buffer(np.zeros(64, np.int32)) as out:
            module.launch("both", (1,), (64,), struct.pack("<Q", out.address))
            assert (out.read() == 42).all()


def test_kernels_in_namespaces_with_large_shared_memory():
    source = """
    namespace outer { namespace inner { constexpr unsigned threads = 128; } }
    namespace outer::inner {
    struct Args { float* out; };
    extern "C" __global__ void __launch_bounds__(threads) spread(Args args);
    extern "C" __global__ void spread(Args args) {
        __shared__ float table[12 * 1024];
        for (unsigned index = threadIdx.x; index < 12 * 1024; index += blockDim.x)
            table[index] = static_cast<float>(index);
        __syncthreads();
        args.out[threadIdx.x] = table[12 * 1024 - 1 - threadIdx.x];
    }
    }
    extern "C" __global__ void plain(int a, double b, float* out) { *out = static_cast<float>(a + b); }"""
    limit = hip.hipFunction_attribute.HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
    with Module(source) as module, Buffer(np.zeros(128, np.float32)) as out:
        assert check(hip.hipFuncGetAttribute(limit, module.function("spread"))) == 128
        module.launch("spread", (3,), (128,), struct.pack("<Q", out.address))
        assert out.read().tolist() == list(range(12 * 1024 - 1, 12 * 1024 - 129, -1))
        module.launch("plain", (1,), (1,), struct.pack("<i4xdQ", 1, 0.5, out.address))
        assert out.read()[0] == 1.5


def test_a_fault_in_a_large_grid_ends_the_launch(run_script):
    code = """
module = Module('extern "C" __global__ void late(float* p) { if (blockIdx.x == 700) __syncthreads(), p[999] = 1; }')
buffer = Buffer(np.zeros(4))
for _ in range(2):
    try:
        module.launch("late", (1000,), (256,), struct.pack("<Q", buffer.address))
    except CallError as error:
        print(error.name)
    check(hip.hipDeviceReset())
"""
    result = run_script(code, HIP_HOST_FAULT="error", HIP_HOST_THREADS="3")
    assert result.stdout == "hipErrorIllegalAddress\n" * 2, result.stderr
    assert "block (700, 0, 0)" in result.stderr


def test_a_division_by_zero_is_reported(run_script):
    result = run_script('Module("""extern "C" __global__ void divide(int* p) { *p = 100 / *p; }""").launch('
                        '"divide", (1,), (1,), struct.pack("<Q", Buffer(np.zeros(1, np.int32)).address))')  # fmt: skip
    assert result.returncode == -8
    assert "kernel divide" in result.stderr and "integer division by zero" in result.stderr
