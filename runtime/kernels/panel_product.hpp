// Products of rows with the weight of a recurrent layer, which lies in panels of vectors because every step has it.
#pragma once

#include "packed_product.hpp"

namespace tallow {

// Where products of rows with the vectors of a panel are written.
template <typename T> struct PanelResult {
    T* first;
    uint64_t row_step;
    uint64_t vector_step;

    TALLOW_INLINE T* at(uint64_t row, uint64_t vector) const {
        return first + row * row_step + vector * vector_step;
    }
};

// The columns of the products of a step, in vectors of which each panel has one for each gate: those of the same units
// of all gates or, of the products of gradients, consecutive ones.
template <uint32_t Gates, uint32_t Lanes, bool OfGradients> struct StepColumns {
    static constexpr uint32_t lanes = Lanes;
    // Units whose products one panel has.
    static constexpr uint64_t panel_units = OfGradients ? Gates * Lanes : Lanes;
    uint64_t length;

    TALLOW_INLINE uint64_t count() const {
        return OfGradients ? length : Gates * length;
    }
    TALLOW_INLINE uint64_t terms() const {
        return OfGradients ? Gates * length : length;
    }
    TALLOW_INLINE uint64_t panels() const {
        return (length + panel_units - 1) / panel_units;
    }
    TALLOW_INLINE uint64_t first(uint64_t panel, uint64_t vector) const {
        return panel * panel_units + vector * (OfGradients ? Lanes : length);
    }
    // How many columns a vector has, of which the last ones may have fewer.
    TALLOW_INLINE uint32_t size(uint64_t panel, uint64_t vector) const {
        const uint64_t unit = panel * panel_units + (OfGradients ? vector * Lanes : 0);
        return static_cast<uint32_t>(unit >= length ? 0 : length - unit < Lanes ? length - unit : Lanes);
    }
    // The weight is (gates * length, length).
    TALLOW_INLINE int64_t column_step() const {
        return OfGradients ? 1 : static_cast<int64_t>(length);
    }
    TALLOW_INLINE int64_t term_step() const {
        return OfGradients ? static_cast<int64_t>(length) : 1;
    }
    // Writes products with a panel, of `rows` rows from `row` on, to rows of all products.
    template <typename T>
    TALLOW_INLINE void store(uint64_t panel, uint64_t row, uint64_t rows, const PanelResult<T>& products,
                             T* result) const {
        for (uint64_t i = 0; i < rows; ++i)
            for (uint32_t j = 0; j < Gates; ++j) {
                T* const target = result + (row + i) * count() + first(panel, j);
                if (size(panel, j) == Lanes)
                    __builtin_memcpy(target, products.at(i, j), Lanes * sizeof(T));
                else
                    __builtin_memcpy(target, products.at(i, j), size(panel, j) * sizeof(T));
            }
    }
};

// Sums that stay in registers, of which AVX2 has 16 and AVX-512 32.
constexpr uint32_t panel_sums = vector_bytes == 64 ? 24 : 12;
// Terms that are added up before their sums are added to those of others, and rows that have the same ones of a panel
// one after the other: the nearest cache holds these.
constexpr uint64_t panel_terms = 128;
constexpr uint64_t near_panel_rows = 64;

// Adds the products of rows with a panel of `Vectors` vectors for each term.
template <uint32_t Rows, uint32_t Vectors, typename Compute>
TALLOW_JOINING void multiply_panel(const Compute* x, uint64_t step, const Compute* panel, uint64_t terms,
                                   Compute* result) {
    TALLOW_JOIN
    using Register = Vector<Compute, vector_bytes>;
    Register sums[Rows][Vectors] = {}, totals[Rows][Vectors];
    for (uint64_t k = 0; k < terms; ++k) {
        Register right[Vectors];
        __builtin_memcpy(right, panel + k * Vectors * vector_bytes / sizeof(Compute), sizeof right);
        for (uint32_t row = 0; row < Rows; ++row)
            for (uint32_t j = 0; j < Vectors; ++j)
                sums[row][j] += x[row * step + k] * right[j];
    }
    __builtin_memcpy(totals, result, sizeof totals);
    for (uint32_t row = 0; row < Rows; ++row)
        for (uint32_t j = 0; j < Vectors; ++j)
            totals[row][j] += sums[row][j];
    __builtin_memcpy(result, totals, sizeof totals);
}

template <uint32_t Rows, uint32_t Vectors, typename Compute>
TALLOW_INLINE void multiply_panel_rows(uint64_t rows, const Compute* x, uint64_t step, const Compute* panel,
                                       uint64_t terms, Compute* result) {
    if (rows == Rows)
        multiply_panel<Rows, Vectors>(x, step, panel, terms, result);
    else if constexpr (Rows > 1)
        multiply_panel_rows<Rows - 1, Vectors>(rows, x, step, panel, terms, result);
}

// Products of numbers with the weight of a sequence, in the compute type.
template <typename T, uint32_t Gates, bool OfGradients> struct PanelProducts {
    using Compute = widened<T>;
    using Columns = StepColumns<Gates, vector_bytes / sizeof(Compute), OfGradients>;
    static constexpr uint32_t lanes = Columns::lanes;
    static constexpr uint64_t max_panel_rows = panel_sums / Gates;
    // The units whose products are computed before their cells: the nearest cache holds these.
    static constexpr uint64_t near_units = 128 / sizeof(T);

    Columns columns;
    Compute* panels;
    Compute* numbers;

    template <typename Arguments>
    TALLOW_INLINE explicit PanelProducts(const Arguments& arguments)
        : columns{arguments.length}, panels(pointer_to<Compute>(arguments.packed)),
          numbers(panels + columns.panels() * columns.terms() * Gates * lanes) {
        do_parts(arguments, columns.panels(),
                 [&](uint64_t panel) { pack(pointer_to<const T>(arguments.weight), panel); });
    }
    TALLOW_INLINE uint64_t bytes() const {
        return static_cast<uint64_t>(numbers - panels) * sizeof(Compute);
    }
    TALLOW_INLINE void pack(const T* weight, uint64_t panel) const {
        const int64_t column_step = columns.column_step(), term_step = columns.term_step();
        for (uint32_t j = 0; j < Gates; ++j) {
            const uint32_t size = columns.size(panel, j);
            const T* const source = weight + static_cast<int64_t>(columns.first(panel, j)) * column_step;
            Compute* const target = panels + (panel * columns.terms() * Gates + j) * lanes;
            for (uint64_t k = 0; k < columns.terms(); ++k)
                for (uint32_t lane = 0; lane < lanes; ++lane)
                    target[k * Gates * lanes + lane] =
                        lane < size ? to_compute(source[static_cast<int64_t>(k) * term_step + lane * column_step])
                                    : Compute{0};
        }
    }
    // Rows of x, as they are multiplied.
    TALLOW_INLINE const Compute* take(const T* x, uint64_t row, uint64_t rows) const {
        if constexpr (is_small_float<T>) {
            convert_span(rows * columns.terms(), numbers + row * columns.terms(), x);
            return numbers + row * columns.terms();
        } else {
            return x;
        }
    }
    // Writes the products of some rows from `row` on with each panel from `begin` to `end` to result(panel), and calls
    // finish(panel, row, rows).
    template <typename Result, typename Finish>
    TALLOW_INLINE void multiply(const Compute* x, uint64_t rows, uint64_t begin, uint64_t end, const Result& result,
                                const Finish& finish) const {
        const uint64_t terms = columns.terms();
        alignas(64) Compute sums[near_panel_rows][Gates][lanes];
        T rounded[near_panel_rows][Gates][lanes];
        for (uint64_t row = 0; row < rows; row += near_panel_rows) {
            const uint64_t count = rows - row < near_panel_rows ? rows - row : near_panel_rows;
            for (uint64_t panel = begin; panel < end; ++panel) {
                __builtin_memset(sums, 0, count * sizeof sums[0]);
                for (uint64_t term = 0; term < terms; term += panel_terms)
                    add_products(x + row * terms + term, count, panels + (panel * terms + term) * Gates * lanes,
                                 terms - term < panel_terms ? terms - term : panel_terms, sums);
                if constexpr (is_small_float<T>)
                    convert_span(count * Gates * lanes, &rounded[0][0][0], &sums[0][0][0]);
                const PanelResult<T> target = result(panel);
                for (uint64_t i = 0; i < count; ++i)
                    for (uint32_t j = 0; j < Gates; ++j)
                        if constexpr (is_small_float<T>)
                            __builtin_memcpy(target.at(i, j), rounded[i][j], sizeof rounded[i][j]);
                        else
                            __builtin_memcpy(target.at(i, j), sums[i][j], sizeof sums[i][j]);
                finish(panel, row, count);
            }
        }
    }
    TALLOW_INLINE void add_products(const Compute* x, uint64_t rows, const Compute* panel, uint64_t terms,
                                    Compute (*sums)[Gates][lanes]) const {
        const uint64_t step = columns.terms(), blocks = (rows + max_panel_rows - 1) / max_panel_rows;
        for (uint64_t block = 0; block < blocks; ++block) {
            const uint64_t first = rows * block / blocks, count = rows * (block + 1) / blocks - first;
            multiply_panel_rows<max_panel_rows, Gates>(count, x + first * step, step, panel, terms, &sums[first][0][0]);
        }
    }
};

#if defined(TALLOW_PAIRS)
// Products of bf16, by tiles.
template <uint32_t Gates, bool OfGradients> struct TileProducts {
    using Columns = StepColumns<Gates, pair_side, OfGradients>;
    // As above. Products by tiles take so little time that switching to cells and back more often costs more.
    static constexpr uint64_t near_units = 256;

    Columns columns;
    uint32_t* panels;
    uint32_t* pairs;

    template <typename Arguments>
    TALLOW_INLINE explicit TileProducts(const Arguments& arguments)
        : columns{arguments.length}, panels(pointer_to<uint32_t>(arguments.packed)),
          pairs(panels + columns.panels() * Gates * pairs_of_lines(columns.terms())) {
        const int64_t steps[2] = {columns.column_step(), columns.term_step()};
        do_parts(arguments, columns.panels(), [&](uint64_t panel) {
            for (uint32_t j = 0; j < Gates; ++j)
                take_pairs<0, false>(pointer_to<const bf16>(arguments.weight) +
                                         static_cast<int64_t>(columns.first(panel, j)) * steps[0],
                                     steps, columns.size(panel, j), static_cast<uint32_t>(columns.terms()),
                                     panels + (panel * Gates + j) * pairs_of_lines(columns.terms()));
        });
    }
    TALLOW_INLINE uint64_t bytes() const {
        return static_cast<uint64_t>(pairs - panels) * sizeof(uint32_t);
    }
    // Rows of x, as they are multiplied. Tiles are as high as each other, so those of 16 rows may have one row more.
    TALLOW_INLINE RowTiles take(const bf16* x, uint64_t row, uint64_t rows) const {
        const uint64_t begin = (row + row / pair_side) * (pairs_of_lines(columns.terms()) / pair_side);
        return RowTiles(rows, columns.terms(), x, pairs + begin);
    }
    // As PanelProducts does.
    template <typename Result, typename Finish>
    TALLOW_INLINE void multiply(const RowTiles& x, uint64_t, uint64_t begin, uint64_t end, const Result& result,
                                const Finish& finish) const {
        const UsesTiles tiles(x.tile_rows);
        const uint64_t step = Gates * pairs_of_lines(columns.terms());
        for (uint32_t tile = 0; tile < x.count; tile += near_row_tiles)
            for (uint64_t panel = begin; panel < end; ++panel) {
                const PanelResult<bf16> target = result(panel);
                const auto [row, rows] = multiply_packed<Gates>(x, tile, panels + panel * step, target);
                finish(panel, row, rows);
            }
    }
};
#endif

} // namespace tallow
