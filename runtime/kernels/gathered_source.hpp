// The operands of convolutions as loaders read them. An access has channels side by side: of the image, of the kernel,
// or of the gradient.
#pragma once

#include "image_index.hpp"
#include "operand_loader.hpp"

namespace tallow {

// The part of the depth that a block sums, and the rows and columns from the first ones of its tile on. It is in shared
// memory, since threads have no registers left for it.
struct GatheredLimits {
    uint32_t begin;
    uint32_t depth;
    uint32_t rows;
    uint32_t columns;
};

// The contribution of the depth to coordinates, some steps ahead of those that are loaded. Where positions are
// summed there is an entry for each of them, else for the channels of an access. While one half is read the other one
// is written, after a barrier of the loop.
template <typename T, typename Gathering> struct DepthIndexes {
    static constexpr uint32_t length = access_bytes / sizeof(T);
    static constexpr uint32_t in_entry = Gathering::sums_positions ? 1 : length;
#if defined(TALLOW_NVIDIA)
    static constexpr uint32_t half = block_size / 2;
#else
    // Two blocks share the memory of a compute unit.
    static constexpr uint32_t half = block_size / 4;
#endif
    static constexpr uint32_t size = 2 * half;
    static constexpr uint32_t depth = half * in_entry;

    // Coordinates along the axes, or a mask and the offset in the other tensor, and an offset in accesses.
    alignas(access_bytes) uint32_t images[size][4];
    uint32_t others[size];

    // The half from `from` on, counted from the part's beginning.
    TALLOW_INLINE void write(const Gathering& gathering, const GatheredLimits& limits, uint32_t from) {
        if (thread_index() >= half)
            return;
        const uint32_t depth_index = from + thread_index() * in_entry;
        const uint32_t slot = (from / in_entry + thread_index()) % size;
        Registers<access_bytes> entry{{gathering.outside(!Gathering::sums_positions), 0, 0, 0}};
        if (depth_index < limits.depth) {
            const ImageIndex index = gathering.of_depth(limits.begin + depth_index);
            entry = {{index.coordinates[0], index.coordinates[1], index.coordinates[2],
                      static_cast<uint32_t>(index.image / length)}};
            others[slot] = static_cast<uint32_t>(index.other / length);
            if constexpr (Gathering::has_masks)
                entry.values[1] = others[slot];
        }
        store_registers(images[slot], entry);
    }
};

// The columns of a tile: coordinates along the axes, an offset in accesses, and the offset in the result, in elements.
template <typename T, uint32_t Columns> struct ColumnIndexes {
    static constexpr uint32_t length = access_bytes / sizeof(T);
    static constexpr uint32_t count = Columns;
    alignas(access_bytes) uint32_t images[count][4];
    uint64_t results[count];
    // Whether the columns of each group are adjacent.
    uint32_t are_dense[count / 2];

    template <typename Gathering>
    TALLOW_INLINE void write(const Gathering& gathering, uint32_t first_column, uint32_t left) {
        // Of the last threads, as the first ones write the depth.
        for (uint32_t i = block_size - 1 - thread_index(); i < count; i += block_size) {
            const ImageIndex index = gathering.of_column(first_column + i);
            const uint32_t depth_index = i < left ? index.coordinates[0] : gathering.outside(Gathering::sums_positions);
            store_registers(images[i], Registers<access_bytes>{{depth_index, index.coordinates[1], index.coordinates[2],
                                                                static_cast<uint32_t>(index.image / length)}});
            results[i] = index.other;
        }
    }
    // Behind a barrier.
    TALLOW_INLINE void compare() {
        for (uint32_t i = thread_index(); i < count / length; i += block_size) {
            const uint64_t* const offsets = results + i * length;
            uint64_t gaps = 0;
            for (uint32_t j = 1; j < length; ++j)
                gaps |= offsets[j] - offsets[0] - j;
            are_dense[i] = gaps == 0;
        }
    }
};

// The pointer `count` accesses after another, modulo 2**32.
template <typename T> TALLOW_INLINE const T* advance_accesses(const T* first, uint32_t count) {
    return first + static_cast<int64_t>(static_cast<int32_t>(count)) * static_cast<int64_t>(access_bytes / sizeof(T));
}

// The elements of a group. With masks there are registers for what a loop would compute again.
template <typename Gathering, typename T> TALLOW_INLINE const T* elements_of_group(uint64_t address, uint64_t offset) {
    const uint64_t first = address + offset * sizeof(T);
    if constexpr (Gathering::has_masks)
        return opaque_pointer<const T>(first);
    else
        return pointer_to<const T>(first);
}
template <typename Gathering> TALLOW_INLINE uint32_t opaque_word(uint32_t word) {
    return Gathering::has_masks ? opaque(word) : word;
}

// The factors that the image is multiplied with, with zeros for absent rows.
template <typename T, typename Accesses, typename Gathering> struct FactorSource {
    using Indexes = DepthIndexes<T, Gathering>;
    const GatheredLimits& limits;
    const Indexes& indexes;
    const T* factors;
    uint32_t line_offsets[Accesses::lines];
    bool are_lines[Accesses::lines];
    // For each index of the depth in a step.
    uint32_t offsets[Accesses::depths];
    bool are_inside[Accesses::depths];

    TALLOW_INLINE FactorSource(const Gathering& gathering, const Indexes& indexes, const GatheredLimits& limits,
                               uint32_t group, uint32_t first_row)
        : limits(limits), indexes(indexes) {
        const auto& arguments = reread(gathering.arguments);
        factors = elements_of_group<Gathering, T>(arguments.factors, group * arguments.factors_stride_group);
#pragma unroll
        for (uint32_t l = 0; l < Accesses::lines; ++l) {
            const uint32_t row = first_row + Accesses::line(l * Accesses::depths);
            are_lines[l] = row < arguments.rows;
            // With masks the last row is repeated: its other sums are not stored.
            const uint32_t near = Gathering::has_masks && !are_lines[l] ? arguments.rows - 1 : row;
            line_offsets[l] =
                opaque_word<Gathering>(static_cast<uint32_t>(near * arguments.factors_stride_row / Accesses::length));
        }
    }
    TALLOW_INLINE void begin(uint32_t from) {
#pragma unroll
        for (uint32_t p = 0; p < Accesses::depths; ++p) {
            const uint32_t depth_index = from + Accesses::depth_index(p);
            const uint32_t slot = depth_index / Indexes::in_entry % Indexes::size;
            if constexpr (Gathering::has_masks) {
                const Registers<access_bytes> entry = load_registers<access_bytes>(indexes.images[slot]);
                are_inside[p] = (entry.values[0] & Gathering::of_absent) == 0;
                offsets[p] = entry.values[1];
            } else {
                offsets[p] = indexes.others[slot];
                are_inside[p] = depth_index < limits.depth;
            }
        }
    }
    TALLOW_INLINE const T* at(uint32_t, uint32_t i) const {
        return advance_accesses(factors, line_offsets[Accesses::line_number(i)] + offsets[Accesses::depth_number(i)]);
    }
    TALLOW_INLINE bool is_inside(uint32_t, uint32_t i) const {
        return (Gathering::has_masks || are_lines[Accesses::line_number(i)]) && are_inside[Accesses::depth_number(i)];
    }
};

// The image, whose elements may be outside, and are zeros there.
template <typename T, typename Accesses, typename Gathering> struct ImageSource {
    using Indexes = DepthIndexes<T, Gathering>;
    const Gathering& gathering;
    const Indexes& indexes;
    const T* image;
    // For each line of the thread, and each index of the depth in a step.
    uint32_t line_coordinates[Accesses::lines][3];
    uint32_t line_offsets[Accesses::lines];
    Registers<access_bytes> entries[Accesses::depths];

    template <typename Columns>
    TALLOW_INLINE ImageSource(const Gathering& gathering, const Indexes& indexes, const Columns& columns,
                              uint32_t group)
        : gathering(gathering), indexes(indexes) {
        const auto& arguments = reread(gathering.arguments);
        image = elements_of_group<Gathering, T>(arguments.image, group * arguments.image_stride_group);
#pragma unroll
        for (uint32_t l = 0; l < Accesses::lines; ++l) {
            // Threads without accesses may have lines past the last one.
            const uint32_t line = Accesses::line(l * Accesses::depths) % Columns::count;
            const Registers<access_bytes> column = load_registers<access_bytes>(columns.images[line]);
#pragma unroll
            for (uint32_t a = 0; a < 3; ++a)
                line_coordinates[l][a] = opaque_word<Gathering>(column.values[a]);
            line_offsets[l] = opaque_word<Gathering>(column.values[3]);
        }
    }
    TALLOW_INLINE void begin(uint32_t from) {
#pragma unroll
        for (uint32_t p = 0; p < Accesses::depths; ++p) {
            const uint32_t depth_index = from + Accesses::depth_index(p);
            entries[p] = load_registers<access_bytes>(indexes.images[depth_index / Indexes::in_entry % Indexes::size]);
        }
    }
    TALLOW_INLINE const T* at(uint32_t, uint32_t i) const {
        return advance_accesses(image,
                                line_offsets[Accesses::line_number(i)] + entries[Accesses::depth_number(i)].values[3]);
    }
    TALLOW_INLINE bool is_inside(uint32_t, uint32_t i) const {
        const auto& arguments = reread(gathering.arguments);
        const uint32_t* const line = line_coordinates[Accesses::line_number(i)];
        const uint32_t* const term = entries[Accesses::depth_number(i)].values;
        if constexpr (Gathering::has_masks)
            return (line[0] & term[0]) == 0;
        // Without branches: after a branch each access would wait for its own index.
        const uint32_t is_outside = static_cast<uint32_t>(line[0] + term[0] >= arguments.image_d) |
                                    static_cast<uint32_t>(line[1] + term[1] >= arguments.image_h) |
                                    static_cast<uint32_t>(line[2] + term[2] >= arguments.image_w);
        return is_outside == 0;
    }
};

// The sources of a gathering, as loaders name them.
template <typename Gathering> struct SourcesOf {
    template <typename T, typename Accesses> using Factors = FactorSource<T, Accesses, Gathering>;
    template <typename T, typename Accesses> using Image = ImageSource<T, Accesses, Gathering>;
};

// The operands of a pipeline, with the indexes of the depth.
template <typename Operands, typename Indexes, typename Gathering> struct GatheredOperands : Operands {
    Indexes& indexes;
    const Gathering& gathering;
    const GatheredLimits& limits;

    TALLOW_INLINE GatheredOperands(const Operands& operands, Indexes& indexes, const Gathering& gathering,
                                   const GatheredLimits& limits)
        : Operands(operands), indexes(indexes), gathering(gathering), limits(limits) {
    }
    TALLOW_INLINE void write_ahead(uint32_t step) {
        static_assert(Indexes::depth % Operands::depth == 0 && Indexes::depth / Operands::depth > 1);
        const uint32_t from = step * Operands::depth;
        if (from % Indexes::depth == 0)
            indexes.write(gathering, limits, from + Indexes::depth);
    }
    TALLOW_INLINE void begin(uint32_t step, uint32_t slot) {
        write_ahead(step);
        Operands::begin(step, slot);
    }
    TALLOW_INLINE void load(uint32_t step) {
        write_ahead(step);
        Operands::load(step);
    }
};

} // namespace tallow
