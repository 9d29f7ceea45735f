// Streams of keys and values for attention by dot products: a subgroup of lanes has the elements of a line.
#pragma once

#include "async_copy.hpp"
#include "attention_rows.hpp"

namespace tallow {

// An access of a line from element `first` on, of which `count` exist; accesses past them are 0.
template <typename T> TALLOW_INLINE Registers<access_bytes> load_access(const T* line, uint32_t first, uint32_t count) {
    Registers<access_bytes> access{};
    if (first < count)
        access = load_registers<access_bytes>(line + first);
    return access;
}

// Adds up each of `Count` sums over a subgroup of lanes. Where there are several, each lane gets those for which it
// then is there: those from lane * Count / Lanes on. It takes few shuffles to halve the sums rather than give all to
// everybody.
template <uint32_t Lanes, uint32_t Count, uint32_t Total> TALLOW_INLINE void butterfly_reduce(float (&sums)[Total]) {
    if constexpr (Lanes > 1 && Count > 1) {
        constexpr uint32_t half = Count / 2;
        const bool is_upper = (lane_index() & Lanes / 2) != 0;
#pragma unroll
        for (uint32_t i = 0; i < half; ++i) {
            const float sent = is_upper ? sums[i] : sums[i + half];
            sums[i] = (is_upper ? sums[i + half] : sums[i]) + shuffle_xor(sent, Lanes / 2);
        }
        butterfly_reduce<Lanes / 2, half>(sums);
    } else if constexpr (Lanes > 1) {
        sums[0] += shuffle_xor(sums[0], Lanes / 2);
        butterfly_reduce<Lanes / 2, 1>(sums);
    }
}

// The accesses of a thread to keys and values, alternately: `Batch` lines with a stride of `subgroups`, and some
// accesses of each. The first access begins at `element`, each other one `step` further. Lines from `end` on, and
// elements past the head, are 0.
template <typename T, uint32_t Batch, uint32_t Accesses> struct LineStream {
    using Lines = Registers<access_bytes>[Batch][Accesses];

    const T* keys;
    const T* values;
    uint64_t key_stride;
    uint64_t value_stride;
    uint32_t end;
    uint32_t head_size;
    uint32_t element;
    uint32_t step;
    uint32_t subgroups;

#if defined(TALLOW_HAS_ASYNC_COPIES)
    // Each thread has slots of its own, of which all but one are in flight.
    static constexpr uint32_t accesses = Batch * Accesses;
    static constexpr uint32_t slots = accesses > 2 ? 3 : 5;
    static constexpr uint32_t shared_bytes = slots * accesses * access_bytes * block_size;
    bits128* ring;
    uint32_t slot = slots - 1;

    TALLOW_INLINE void start(uint32_t first) {
#pragma unroll
        for (uint32_t ahead = 1; ahead < slots; ahead += 2) {
            begin(keys, key_stride, first + (ahead - 1) / 2 * Batch * subgroups, ahead);
            begin(values, value_stride, first + (ahead - 1) / 2 * Batch * subgroups, ahead + 1);
        }
    }
    TALLOW_INLINE void take_keys(uint32_t first, Lines& lines) {
        take(keys, key_stride, first, lines);
    }
    TALLOW_INLINE void take_values(uint32_t first, Lines& lines) {
        take(values, value_stride, first, lines);
    }
    // Behind the last lines the slots are still being cleared.
    static TALLOW_INLINE void finish() {
        await_copies<0>();
    }

  private:
    TALLOW_INLINE bits128* slot_of(uint32_t ahead, uint32_t access) const {
        return ring + ((slot + ahead) % slots * accesses + access) * block_size + thread_index();
    }
    TALLOW_INLINE void begin(const T* from, uint64_t stride, uint32_t first, uint32_t ahead) {
#pragma unroll
        for (uint32_t i = 0; i < accesses; ++i) {
            const uint32_t line = first + i / Accesses * subgroups;
            const uint32_t offset = element + i % Accesses * step;
            const bool is_present = line < end && offset < head_size;
            copy_async(slot_of(ahead, i), from + (is_present ? line * stride + offset : 0),
                       is_present ? access_bytes : 0);
        }
        commit_copies();
    }
    TALLOW_INLINE void take(const T* from, uint64_t stride, uint32_t first, Lines& lines) {
        slot = (slot + 1) % slots;
        await_copies<slots - 2>();
#pragma unroll
        for (uint32_t i = 0; i < accesses; ++i)
            lines[i / Accesses][i % Accesses] = load_registers<access_bytes>(slot_of(0, i));
        begin(from, stride, first + (slots - 1) / 2 * Batch * subgroups, slots - 1);
    }
#else
    static constexpr uint32_t shared_bytes = 0;
    Lines loaded;

    TALLOW_INLINE void start(uint32_t) {
    }
    TALLOW_INLINE void take_keys(uint32_t first, Lines& lines) {
        load(keys, key_stride, first, lines);
        load(values, value_stride, first, loaded);
    }
    TALLOW_INLINE void take_values(uint32_t, Lines& lines) {
#pragma unroll
        for (uint32_t b = 0; b < Batch; ++b)
#pragma unroll
            for (uint32_t a = 0; a < Accesses; ++a)
                lines[b][a] = loaded[b][a];
    }

  private:
    TALLOW_INLINE void load(const T* from, uint64_t stride, uint32_t first, Lines& lines) {
#pragma unroll
        for (uint32_t b = 0; b < Batch; ++b) {
            const uint32_t line = first + b * subgroups;
#pragma unroll
            for (uint32_t a = 0; a < Accesses; ++a)
                lines[b][a] = load_access(from + line * stride, element + a * step, line < end ? head_size : 0);
        }
    }
#endif
};

} // namespace tallow
