"""Products of tiles on the matrix cores of the GPU of --device, and on those that the HIP runtime for the CPU has."""

from __future__ import annotations

from typing import Any

import numpy as np
import own_spec
import pytest
from hip_runtime import Host
from tallow import Device, Kernel, Tensor
from tallow.kernels.targets import TARGETS
from tallow.runtime.backends.gpu_backend.driver.target import find_target

from . import backend

backend.require_package()

# Two products, of which the first one's sums are the rows of the second, by a wave; its lanes store what they hold.
SOURCE = """
#include "matrix_core.hpp"

using namespace tallow;

template <typename T> TALLOW_INLINE void multiply(float* sums, const T* rows, const T* columns, const T* transposed) {
    using Core = MatrixCore<T>;
    using Deep = MatrixCore<T, matrix_depth>;
    __shared__ bits128 memory[2][16 * 64 * sizeof(T) / sizeof(bits128)];
    const SharedTile<T, 64, false> tile{reinterpret_cast<uint8_t*>(memory[0])};
    const SharedTile<T, 64, !Core::reads_transposed> other{reinterpret_cast<uint8_t*>(memory[1])};
    for (uint32_t i = thread_index(); i < 16 * 64; i += wave_size) {
        *reinterpret_cast<T*>(tile.at(i / 64, i % 64)) = columns[i];
        *reinterpret_cast<T*>(other.at(i / 64, i % 64)) = transposed[i];
    }
    synchronize_block();
    float first[Core::sums] = {};
    float second[Core::sums] = {};
    for (uint32_t step = 0; step < 64; step += matrix_depth) {
        typename Deep::Rows loaded;
        for (uint32_t w = 0; w < Deep::words; ++w) {
            const T* const pair = rows + Deep::row(Deep::lane_row_of_word(w)) * 64 + step + Deep::depth_of_word(w);
            loaded.values[w] = pair[0].bits | static_cast<uint32_t>(pair[1].bits) << 16;
        }
        Deep::multiply(first, loaded, Deep::read(tile, 0, step));
    }
    if constexpr (Core::reads_transposed)
        Core::multiply(second, Core::rows_of(first), Core::read_transposed(other, 32, 0));
    else
        Core::multiply(second, Core::rows_of(first), Core::read(other, 0, 32));
    for (uint32_t i = 0; i < Core::sums; ++i) {
        const uint32_t place = Core::row(Core::lane_row_of(i)) * 16 + Core::column(i);
        sums[place] = first[i];
        sums[256 + place] = second[i];
        sums[512 + place] = static_cast<float>(Core::reads_transposed);
    }
}

extern "C" __global__ void f16_tiles(float* sums, const f16* rows, const f16* columns, const f16* transposed) {
    multiply(sums, rows, columns, transposed);
}
extern "C" __global__ void bf16_tiles(float* sums, const bf16* rows, const bf16* columns, const bf16* transposed) {
    multiply(sums, rows, columns, transposed);
}
"""
# A product of bytes by a wave, of a depth of two chunks and of one; the columns that a tile lacks are left as they are.
BYTES = """
#include "byte_core.hpp"

using namespace tallow;

template <uint32_t Chunks> TALLOW_INLINE void multiply(int* sums, const int8_t* rows, const int8_t* columns) {
    using Core = ByteCore;
    for (uint32_t first = 0; first < 16; first += Core::columns) {
        int result[Core::sums] = {};
        for (uint32_t step = 0; step < 64; step += 16 * Chunks) {
            uint32_t own[Core::lane_rows][Chunks][Core::words];
            uint32_t others[Core::lane_columns][Chunks][Core::words];
            for (uint32_t place = 0; place < 16 * Chunks; place += 16) {
                const uint32_t depth = step + place + Core::first_depth();
                for (uint32_t w = 0; w < Core::words; ++w) {
                    for (uint32_t h = 0; h < Core::lane_rows; ++h)
                        own[h][place / 16][w] = load_registers<4>(rows + Core::row(h) * 64 + depth + 4 * w).values[0];
                    for (uint32_t k = 0; k < Core::lane_columns; ++k)
                        others[k][place / 16][w] =
                            load_registers<4>(columns + (first + Core::lane_column(k)) * 64 + depth + 4 * w).values[0];
                }
            }
            Core::multiply(result, own, others);
        }
        for (uint32_t i = 0; i < Core::sums; ++i)
            sums[Core::row(Core::lane_row_of(i)) * 16 + first + Core::column(i)] = result[i];
    }
    for (uint32_t place = 0; place < Core::alike; ++place)
        if (Core::index_of_alike() == place && Core::lane_of_alike(place) != lane_index())
            sums[0] = -1;
}

extern "C" __global__ void byte_tiles(int* sums, const int8_t* rows, const int8_t* columns) {
    multiply<1>(sums, rows, columns);
    multiply<2>(sums + 256, rows, columns);
}
"""
ABOUT = """
#include "matrix_core.hpp"

extern "C" __global__ void about(unsigned* facts) {
    facts[0] = tallow::wave_size;
    facts[1] = tallow::has_matrix_cores;
}
"""


# A target for each kind of matrix cores, whose instructions the HIP runtime for the CPU has; None for the device's own.
KINDS = {(target.matrix_cores, *target.instructions.values()): target for target in own_spec.read().targets["rocm"]}
GENERATIONS = pytest.mark.parametrize("target", [None, *(target.name for kind, target in KINDS.items() if kind[0])])


def about(device: Device, target: str | None, monkeypatch: pytest.MonkeyPatch) -> tuple[int, bool]:
    """The size of the device's waves, and whether it has matrix cores; skips a target whose facts it cannot have."""
    if target is not None:
        chosen = find_target(TARGETS["rocm"], target)
        driver = device.inner.driver
        if Host.found() is None or chosen is None or chosen.wave_size != driver.facts.wave_size:
            pytest.skip("the device has no such matrix cores")
        monkeypatch.setattr(driver.compiler, "define", lambda _: f"-D{chosen.macro}")
    facts = Tensor.zeros((2,), dtype="u32", device=device)
    Kernel.compile("about", ABOUT, device, signature="unsigned*").launch(1, 1, facts)
    wave_size, has_matrix_cores = facts.numpy().tolist()
    return wave_size, bool(has_matrix_cores)


@pytest.fixture
def device(gpu: Any) -> Device:
    return Device(gpu)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@GENERATIONS
def test_sums_of_one_product_are_rows_of_the_next(
    device: Device, dtype: str, target: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    wave_size, has_matrix_cores = about(device, target, monkeypatch)
    if not has_matrix_cores:
        pytest.skip("the device has no matrix cores")
    generator = np.random.default_rng(3)
    rows, columns, transposed = (generator.integers(-2, 3, (16, 64)).astype(np.float32) for _ in range(3))
    sums = Tensor.zeros((3, 16, 16), device=device)
    operands = [Tensor(each, dtype=dtype, device=device) for each in (rows, columns, transposed)]
    signature = f"float*, const {dtype}*, const {dtype}*, const {dtype}*"
    kernel = Kernel.compile(f"{dtype}_tiles", f"{SOURCE}// {target}\n", device, signature=signature)
    kernel.launch(1, wave_size, sums, *operands)
    first, second, reads_transposed = sums.numpy()
    np.testing.assert_array_equal(first, rows @ columns.T)
    # Where columns are read transposed, row r of the tile is what all of them have at depth r.
    part = transposed[:, 32:48]
    np.testing.assert_array_equal(second, first @ (part if reads_transposed.all() else part.T))


@GENERATIONS
def test_products_of_bytes_are_exact(device: Device, target: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    wave_size, _ = about(device, target, monkeypatch)
    generator = np.random.default_rng(4)
    rows, columns = (generator.integers(-128, 128, (16, 64)).astype(np.int8) for _ in range(2))
    sums = Tensor.zeros((2, 16, 16), dtype="i32", device=device)
    operands = [Tensor(each, device=device) for each in (rows, columns)]
    signature = "int*, const signed char*, const signed char*"
    kernel = Kernel.compile("byte_tiles", f"{BYTES}// {target}\n", device, signature=signature)
    kernel.launch(1, wave_size, sums, *operands)
    expected = rows.astype(np.int32) @ columns.astype(np.int32).T
    np.testing.assert_array_equal(sums.numpy(), np.stack([expected, expected]))
