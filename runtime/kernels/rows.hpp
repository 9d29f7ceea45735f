// Rows of elements side by side, each taken by a team of threads in whole accesses, wherever it begins and ends.
#pragma once

#include "math.hpp"
#include "reduce.hpp"
#include "row_formula.hpp"

namespace tallow {

// A row is cut where whole accesses are: pack k holds the elements from k * length - lead on. At the two ends some of
// these are not there; such a place numbers them all the same, the ones before the row from 2**32 down. Other rows of
// the op, whose results are dense, are cut at the same places: the host sees to that. It also knows where rows are
// Even, of whole accesses alone, which takes far less code and fewer registers.
template <typename T, bool Even = false> struct Row {
    static constexpr uint32_t pack = access_bytes / sizeof(T);
    using Access = Registers<access_bytes>;
    const T* elements;
    uint32_t length;
    uint32_t lead;

    TALLOW_INLINE Row(const T* elements, uint32_t length)
        : elements(elements), length(length),
          lead(Even ? 0 : static_cast<uint32_t>(reinterpret_cast<uint64_t>(elements) % access_bytes / sizeof(T))) {
    }
    TALLOW_INLINE uint32_t packs() const {
        return length == 0 ? 0 : (lead + length + pack - 1) / pack;
    }
    TALLOW_INLINE uint32_t place(uint32_t k) const {
        return k * pack - lead;
    }
    // Whether it is cut into whole accesses alone.
    TALLOW_INLINE bool is_even() const {
        return Even || (lead == 0 && length % pack == 0);
    }
    TALLOW_INLINE bool is_whole(uint32_t place) const {
        return Even ? place < length : length >= pack && place <= length - pack;
    }
    // The elements of a row from a place on, which Whole says are all there; else `blank` stands for those that are
    // not, which are all or none of an even row.
    template <bool Whole> TALLOW_INLINE Access load(const T* row, uint32_t place, T blank) const {
        if constexpr (Whole) {
            return load_registers<access_bytes>(row + place);
        } else {
            // What compilers knew of it they would keep in registers, for each element and until it is written.
            place = opaque(place);
            Access access{};
#pragma unroll
            for (uint32_t i = 0; i < pack; ++i)
                put_element(access, i, !Even && place + i < length ? row[place + i] : blank);
            return access;
        }
    }
    template <bool Whole> TALLOW_INLINE void store(T* row, uint32_t place, const Access& access) const {
        if constexpr (Whole) {
            store_registers(row + place, access);
        } else {
            place = opaque(place);
#pragma unroll
            for (uint32_t i = 0; i < pack; ++i)
                if (place + i < length)
                    row[place + i] = take_element<T>(access, i);
        }
    }
    TALLOW_INLINE Access load(const T* row, uint32_t place, T blank) const {
        return is_whole(place) ? load<true>(row, place, blank) : load<false>(row, place, blank);
    }
    TALLOW_INLINE void store(T* row, uint32_t place, const Access& access) const {
        if (is_whole(place))
            store<true>(row, place, access);
        else
            store<false>(row, place, access);
    }
    // Elements that are all there, one by one.
    TALLOW_INLINE Access load_singly(const T* elements, uint32_t place) const {
        Access access{};
#pragma unroll
        for (uint32_t i = 0; i < pack; ++i)
            put_element(access, i, elements[place + i]);
        return access;
    }
    // The same of a vector that begins at a whole access, which the row may not do.
    TALLOW_INLINE Access load_vector(const T* vector, uint32_t place) const {
        return lead == 0 || !is_whole(place) ? load(vector, place, T{}) : load_singly(vector, place);
    }
};

// The highest number, which no NaN is: it shows in the sums that come after.
struct JoinHighestNumber {
    template <typename Value> static TALLOW_INLINE Value combine(Value x, Value y) {
        return fmax(x, y);
    }
};

// Threads side by side that take a row together: a power of two of them, a part of a wave or some waves of a block, all
// of whose threads join at the same time.
struct Team {
    uint32_t size;
    uint32_t joins = 0;

    TALLOW_INLINE uint32_t lane() const {
        return place_in_team(size);
    }
    // What the values of all its threads join to, for each of them.
    template <typename Join, typename Value> TALLOW_INLINE Value join(Value value) {
        const uint32_t lanes = size < wave_size ? size : wave_size;
        for (uint32_t mask = lanes / 2; mask > 0; mask /= 2)
            value = Join::combine(value, shuffle_xor(value, mask));
        if (size <= wave_size)
            return value;
        // Two arrays alternate: a wave that is ahead writes to the one that no other wave still reads.
        __shared__ Value waves[2][waves_per_block];
        Value* const joined = waves[joins++ % 2];
        if (lane_index() == 0)
            joined[wave_index()] = value;
        synchronize_block();
        const uint32_t first = wave_index() & ~(size / wave_size - 1);
        value = joined[first];
        for (uint32_t wave = 1; wave < size / wave_size; ++wave)
            value = Join::combine(value, joined[first + wave]);
        return value;
    }
    template <typename Value> TALLOW_INLINE Value sum(Value value) {
        return join<JoinSums>(value);
    }
    template <typename Value> TALLOW_INLINE Value highest(Value value) {
        return join<JoinHighestNumber>(value);
    }
};

// Brings the line of an address to the cache that all blocks share.
TALLOW_INLINE void fetch_line([[maybe_unused]] const void* address) {
#if defined(TALLOW_NVIDIA)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
#endif
}
// Has a block bring memory there; an address of 0 is of none.
TALLOW_INLINE void fetch_to_cache(uint64_t address, uint32_t bytes) {
    constexpr uint32_t line = 128;
    for (uint32_t byte = thread_index() * line; address != 0 && byte < bytes; byte += block_size * line)
        fetch_line(pointer_to<const void>(address + byte));
}

// The same pack, whose elements are unpacked anew by what follows. Compilers would keep them as numbers of the compute
// dtype, which take twice the registers.
template <typename T> TALLOW_INLINE Registers<access_bytes> opaque_pack(Registers<access_bytes> pack) {
    return sizeof(T) < sizeof(compute_type<T>) ? opaque(pack) : pack;
}

// What a thread of a team holds of a row in registers: every team-th pack. The ends of the row, of which there are two
// at most, go through the registers of one pack, so that code for single elements is there once.
template <typename T, uint32_t Packs, bool Even> struct HeldRow {
    using Value = compute_type<T>;
    using Access = Registers<access_bytes>;
    const Row<T, Even>& row;
    uint32_t lane;
    uint32_t team;
    Access held[Packs];

    TALLOW_INLINE HeldRow(const Row<T, Even>& row, uint32_t team, T blank)
        : row(row), lane(place_in_team(team)), team(team) {
        Access blanks{};
#pragma unroll
        for (uint32_t i = 0; i < Row<T>::pack; ++i)
            put_element(blanks, i, blank);
#pragma unroll
        for (uint32_t p = 0; p < Packs; ++p)
            held[p] = blanks;
        load(row.elements, blank, held);
    }
    // The packs of another row, which begins within an access as this one does; those that no pack of it has are left
    // as they are.
    TALLOW_INLINE void load(const T* elements, T blank, Access (&packs)[Packs]) const {
#pragma unroll
        for (uint32_t p = 0; p < Packs; ++p)
            if (row.is_whole(place(p)))
                packs[p] = row.template load<true>(elements, place(p), blank);
        load_ends(elements, blank, packs);
    }
    TALLOW_INLINE uint32_t place(uint32_t p) const {
        return row.place(lane + p * team);
    }
    TALLOW_INLINE Value value(uint32_t p, uint32_t i) const {
        return to_compute(take_element<T>(held[p], i));
    }
    TALLOW_INLINE void keep_packed() {
        keep_packed(held);
    }
    static TALLOW_INLINE void keep_packed(Access (&packs)[Packs]) {
#pragma unroll
        for (uint32_t p = 0; p < Packs; ++p)
            packs[p] = opaque_pack<T>(packs[p]);
    }
    // function(.. function(function(first, element), element) .., element): a chain for each pack, which Join joins.
    template <typename Join, typename Function> TALLOW_INLINE Value fold(Value first, Function function) const {
        return fold_places<Join>(first,
                                 [&](Value folded, uint32_t p, uint32_t i) { return function(folded, value(p, i)); });
    }
    // The same, where each element is told by its pack and its place there.
    template <typename Join, typename Function> TALLOW_INLINE Value fold_places(Value first, Function function) const {
        Value folded[Packs];
#pragma unroll
        for (uint32_t p = 0; p < Packs; ++p) {
            folded[p] = first;
#pragma unroll
            for (uint32_t i = 0; i < Row<T>::pack; ++i)
                folded[p] = function(folded[p], p, i);
        }
        return join<Join>(folded);
    }
    // The same of sums, without blanks.
    template <typename Function> TALLOW_INLINE Value fold_sums(Function function) const {
        Value sums[Packs];
#pragma unroll
        for (uint32_t p = 0; p < Packs; ++p) {
            Value sum = 0;
#pragma unroll
            for (uint32_t i = 0; i < Row<T>::pack; ++i)
                sum = function(sum, value(p, i));
            sums[p] = row.is_whole(place(p)) ? sum : Value{0};
        }
        visit_ends([&](uint32_t end, uint32_t place) {
            const Access pack = pack_of(held, end);
#pragma unroll
            for (uint32_t i = 0; i < Row<T>::pack; ++i)
                if (place + i < row.length)
                    sums[0] = function(sums[0], to_compute(take_element<T>(pack, i)));
        });
        return join<JoinSums>(sums);
    }
    // Puts make(pack, its number) in the place of each pack.
    template <typename Make> TALLOW_INLINE void replace(Make make) {
#pragma unroll
        for (uint32_t p = 0; p < Packs; ++p)
            held[p] = make(held[p], p);
    }
    // Writes make(pack, its place) of each pack to a row of the result, which begins within an access as this one does.
    template <typename Make> TALLOW_INLINE void store(T* result, Make make) const {
#pragma unroll
        for (uint32_t p = 0; p < Packs; ++p)
            if (row.is_whole(place(p)))
                row.template store<true>(result, place(p), make(held[p], place(p)));
        visit_ends([&](uint32_t end, uint32_t place) {
            row.template store<false>(result, place, make(pack_of(held, end), place));
        });
    }

    // A pack by a number that is known at run time alone. All are read, as registers have no addresses.
    static TALLOW_INLINE Access pack_of(const Access (&packs)[Packs], uint32_t number) {
        Access pack = packs[0];
#pragma unroll
        for (uint32_t p = 1; p < Packs; ++p)
            pack = choose(p == number, packs[p], pack);
        return pack;
    }

  private:
    TALLOW_INLINE void load_ends(const T* elements, T blank, Access (&packs)[Packs]) const {
        visit_ends([&](uint32_t end, uint32_t place) {
            const Access loaded = row.template load<false>(elements, place, blank);
#pragma unroll
            for (uint32_t p = 0; p < Packs; ++p)
                packs[p] = choose(p == end, loaded, packs[p]);
        });
    }
    template <typename Join> static TALLOW_INLINE Value join(Value (&parts)[Packs]) {
#pragma unroll
        for (uint32_t half = Packs / 2; half > 0; half /= 2)
#pragma unroll
            for (uint32_t p = 0; p < half; ++p)
                parts[p] = Join::combine(parts[p], parts[p + half]);
        return parts[0];
    }
    static TALLOW_INLINE Access choose(bool first, const Access& x, const Access& y) {
        Access chosen;
#pragma unroll
        for (uint32_t word = 0; word < access_bytes / 4; ++word) {
            const uint32_t one = x.values[word];
            const uint32_t other = y.values[word];
            chosen.values[word] = first ? one : other;
        }
        return chosen;
    }
    // Calls visit(p, place) for each held pack that is not whole.
    template <typename Visit> TALLOW_INLINE void visit_ends(Visit visit) const {
        if (row.is_even())
            return;
        const uint32_t packs = row.packs();
#pragma unroll 1
        for (uint32_t k = 0; k < packs; k += k + 1 < packs ? packs - 1 : 1)
            if ((k & (team - 1)) == lane && !row.is_whole(row.place(k)))
                visit(k >> count_bits(team - 1), row.place(k));
    }
};

// Calls visit(number, offsets) for each row, for a team of threads: its number and where it begins in each operand.
// Teams behind the last row are called too, with a number that no row has, since all lanes of a wave exchange what they
// have.
template <uint32_t Operands, typename Arguments, typename Visit>
TALLOW_INLINE void visit_rows(const Arguments& arguments, Visit visit) {
    const uint32_t rows_per_block = teams_in(block_size, arguments.team);
    for (uint32_t base = block_index() * rows_per_block; base < arguments.rows;
         base += grid_blocks() * rows_per_block) {
        const uint32_t row = base + teams_in(thread_index(), arguments.team);
        uint64_t offsets[Operands];
        locate(arguments, row < arguments.rows ? row : 0, offsets);
        visit(row, offsets);
    }
}

// The part of a row that a block takes: packs [begin, end) of row `number`.
struct RowPart {
    uint32_t part;
    uint32_t number;
    uint32_t begin;
    uint32_t end;
};

// Calls visit(part, row, offsets) for each part of each row, which is cut into `splits` parts of `chunk` packs; operand
// 0 is the source, which is read from its aligned places on.
template <typename T, uint32_t Operands, typename Arguments, typename Visit>
TALLOW_INLINE void visit_parts(const Arguments& arguments, Visit visit) {
    for (uint32_t part = block_index(); part < arguments.rows * arguments.splits; part += grid_blocks()) {
        const uint32_t number = part / arguments.splits;
        uint64_t offsets[Operands];
        locate(arguments, number, offsets);
        const Row<T> row(pointer_to<const T>(arguments.source) + offsets[0], arguments.length);
        const uint32_t packs = row.packs();
        const uint32_t begin = (part - number * arguments.splits) * arguments.chunk;
        // Where the row begins at a whole access, there may be a pack less than the host has counted.
        const uint32_t last = begin < packs ? packs : begin;
        visit(RowPart{part, number, begin, last - begin < arguments.chunk ? last : begin + arguments.chunk}, row,
              offsets);
    }
}

} // namespace tallow
