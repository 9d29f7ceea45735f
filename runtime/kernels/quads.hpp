// Quants by fours: bytes of a word.
#pragma once

#include "access.hpp"
#if defined(TALLOW_VECTOR)
#include "vector.hpp"
#if defined(__AVX2__)
#include <immintrin.h>
#endif
#endif

// A field of a block begins where the spec says. Some versions of NVRTC have no offsetof; their layout is the same.
#if defined(TALLOW_NVIDIA)
#define TALLOW_FIELD(Block, field, offset) static_assert(sizeof(Block) >= offset, "a field is inside")
#else
#define TALLOW_FIELD(Block, field, offset) static_assert(__builtin_offsetof(Block, field) == offset, "another layout")
#endif

namespace tallow {

// One of two numbers that are both worked out, so that no lane waits for others.
template <typename T> TALLOW_INLINE T either(bool is_first, T first, T second) {
    return is_first ? first : second;
}

// The 32 bits of a pair of words that begin at bit `shift` below 32.
TALLOW_INLINE uint32_t shift_pair(uint32_t low, uint32_t high, uint32_t shift) {
#if defined(TALLOW_NVIDIA)
    return __funnelshift_r(low, high, shift);
#elif defined(TALLOW_AMD)
    return __builtin_amdgcn_alignbit(high, low, shift);
#else
    return static_cast<uint32_t>((uint64_t{high} << 32 | low) >> shift);
#endif
}

// Four bytes of a word, from the lowest on.
TALLOW_INLINE uint32_t join_bytes(int a, int b, int c, int d) {
    return static_cast<uint32_t>(a | b << 8 | c << 16 | d << 24);
}

// Consecutive words, whose first is aligned to this many bytes, or to a word. Some begin
// in the middle of a word of memory: many of those, which are in shared memory, are extracted from aligned ones, of
// which the ends reach outside.
#if defined(TALLOW_VECTOR)
// All of them are one vector, so that what is done with a word is done with all.
template <uint32_t N> struct Words {
    Vector<uint32_t, 4 * N> values[1];
};
template <uint32_t, uint32_t N> TALLOW_INLINE Words<N> load_words(const void* pointer) {
    Vector<uint32_t, 4 * N> words;
    __builtin_memcpy(&words, pointer, sizeof words);
    return {{words}};
}

// Bits, one in each byte of such a vector, from the lowest of the first byte on.
template <uint32_t N, typename Positions>
TALLOW_INLINE Vector<uint32_t, 4 * N> spread_bits(const uint8_t* bits, Positions bytes, Positions) {
    using Bytes = Vector<uint8_t, 4 * N>;
    Vector<uint64_t, 4 * N> eights;
#pragma GCC unroll 4
    for (uint32_t i = 0; i < N / 2; ++i)
        eights[i] = bits[bytes[0] + i] * 0x0101010101010101u & 0x8040201008040201u;
    return bit_cast<Vector<uint32_t, 4 * N>>(reinterpret_cast<Bytes>(bit_cast<Bytes>(eights) != 0) & 1);
}
#else
template <uint32_t N> struct Words {
    uint32_t values[N];
};
template <uint32_t Alignment, uint32_t N> TALLOW_INLINE Words<N> load_words(const void* pointer) {
    static_assert(is_power_of_two<Alignment>);
    const uint8_t* const bytes = static_cast<const uint8_t*>(pointer);
    Words<N> words;
    if constexpr (Alignment >= 4) {
        constexpr uint32_t together = Alignment / 4 < N ? Alignment / 4 : N;
#pragma unroll
        for (uint32_t k = 0; k < N; k += together) {
            const auto access = load_registers<4 * together>(bytes + 4 * k);
#pragma unroll
            for (uint32_t i = 0; i < together; ++i)
                words.values[k + i] = access.values[i];
        }
    } else if constexpr (N == 1 && Alignment == 2) {
        words.values[0] = load_registers<2>(bytes).values[0] | load_registers<2>(bytes + 2).values[0] << 16;
    } else if constexpr (N == 1) {
        words.values[0] = join_bytes(bytes[0], bytes[1], bytes[2], bytes[3]);
    } else {
#if defined(TALLOW_NVIDIA)
        // The same bits of an address in shared memory are known without the address that stands for it elsewhere.
        const uint32_t odd = static_cast<uint32_t>(__cvta_generic_to_shared(bytes)) & (4 - Alignment);
#else
        const uint32_t odd = static_cast<uint32_t>(reinterpret_cast<uint64_t>(bytes)) & (4 - Alignment);
#endif
        uint32_t low = load_registers<4>(bytes - odd).values[0];
#pragma unroll
        for (uint32_t k = 0; k < N; ++k) {
            const uint32_t high = load_registers<4>(bytes - odd + 4 * (k + 1)).values[0];
            words.values[k] = shift_pair(low, high, 8 * odd);
            low = high;
        }
    }
    return words;
}

// Four bits of a byte from bit `shift` on, one in each byte of a word.
template <uint32_t> TALLOW_INLINE uint32_t spread_bits(const uint8_t* bits, uint32_t byte, uint32_t shift) {
    return (static_cast<uint32_t>(bits[byte] >> shift) & 15u) * 0x00204081u & 0x01010101u;
}
#endif

// Integers of a format, which kernels look up.
#if defined(TALLOW_HOST)
#define TALLOW_TABLE [[maybe_unused]] static constexpr
#else
#define TALLOW_TABLE [[maybe_unused]] static __device__ const
#endif

// A number of a grid, of which each word has four bytes.
template <uint32_t Columns, int Bias> TALLOW_INLINE int number_at(const uint32_t* grid, uint32_t row, uint32_t column) {
    return static_cast<int>(grid[(row * Columns + column) / 4] >> 8 * (column % 4) & 255u) + Bias;
}

// A grid whose rows are words: eight positions in a list of up to eight bytes, four bits each. Kernels on vectors have
// the bytes themselves.
#if defined(TALLOW_VECTOR)
template <uint32_t Rows> struct RowsOfBytes {
    uint64_t rows[Rows];
};
template <uint64_t Choices, uint32_t Rows> constexpr RowsOfBytes<Rows> rows_of_bytes(const uint32_t (&words)[Rows]) {
    RowsOfBytes<Rows> grid{};
    for (uint32_t row = 0; row < Rows; ++row)
        for (uint32_t k = 0; k < 8; ++k)
            grid.rows[row] |= (Choices >> 8 * (words[row] >> 4 * k & 7u) & 255u) << 8 * k;
    return grid;
}
#define TALLOW_CODED_TABLE(Choices, name, ...)                                                                         \
    static constexpr auto name##_rows = rows_of_bytes<Choices>({__VA_ARGS__});                                         \
    [[maybe_unused]] static constexpr const uint64_t* name = name##_rows.rows

template <uint64_t, int Bias> TALLOW_INLINE int choice_at(const uint64_t* grid, uint32_t row, uint32_t column) {
    return static_cast<int>(grid[row] >> 8 * column & 255u) + Bias;
}
#else
#define TALLOW_CODED_TABLE(Choices, name, ...) TALLOW_TABLE uint32_t name[] = {__VA_ARGS__}

template <uint64_t Choices, int Bias> TALLOW_INLINE int choice_at(const uint32_t* grid, uint32_t row, uint32_t column) {
    return static_cast<int>(Choices >> 8 * (grid[row] >> 4 * column & 7u) & 255u) + Bias;
}

// Four bytes of such a list, by positions in the lower half of a word.
template <uint64_t Choices> TALLOW_INLINE uint32_t choose(uint32_t positions) {
    constexpr auto low = static_cast<uint32_t>(Choices);
    constexpr auto high = static_cast<uint32_t>(Choices >> 32);
#if defined(TALLOW_NVIDIA)
    uint32_t bytes;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(low), "r"(high), "r"(positions));
    return bytes;
#else
    uint32_t selectors = positions & 0xffffu;
    selectors = (selectors | selectors << 8) & 0x00ff00ffu;
    selectors = (selectors | selectors << 4) & 0x0f0f0f0fu;
#if defined(TALLOW_AMD)
    return __builtin_amdgcn_perm(high, low, selectors);
#else
    uint32_t bytes = 0;
    for (uint32_t shift = 0; shift < 32; shift += 8)
        bytes |= static_cast<uint32_t>(Choices >> 8 * (selectors >> shift & 7u) & 255u) << shift;
    return bytes;
#endif
#endif
}
#endif

// 2**n, for n from -149 to 127.
TALLOW_INLINE float power_of_two(int n) {
    return bit_cast<float>(n < -126 ? 1u << (n + 149) : static_cast<uint32_t>(n + 127) << 23);
}

TALLOW_INLINE int count_ones(uint32_t bits) {
#if defined(TALLOW_NVIDIA)
    return __popc(bits);
#else
    return __builtin_popcount(bits);
#endif
}

// Four bytes with this alignment.
template <uint32_t Alignment> TALLOW_INLINE uint32_t load_word(const uint8_t* pointer) {
#if defined(TALLOW_VECTOR)
    uint32_t word;
    __builtin_memcpy(&word, pointer, sizeof word);
    return word;
#else
    return load_words<Alignment, 1>(pointer).values[0];
#endif
}

// Words of this many quants from a multiple of them on, each by itself: compilers see the multiple.
template <uint32_t N, typename Function> TALLOW_INLINE Words<N> gather_words(uint32_t first, Function word_of) {
    Words<N> words;
    first = first / (4 * N) * (4 * N);
#if defined(TALLOW_VECTOR)
#pragma GCC unroll 8
    for (uint32_t k = 0; k < N; ++k)
        words.values[0][k] = word_of(first + 4 * k);
#else
#pragma unroll
    for (uint32_t k = 0; k < N; ++k)
        words.values[k] = word_of(first + 4 * k);
#endif
    return words;
}

// A word that all quants of a run share: compilers do not see that those of its parts are the same.
template <uint32_t N, typename Function> TALLOW_INLINE Words<N> repeat_word(uint32_t first, Function word_of) {
#if defined(TALLOW_VECTOR)
    static_assert(4 * N == 32, "a run is decoded at once");
    return {{Vector<uint32_t, 32>{} + word_of(first / 32 * 32)}};
#else
    return gather_words<N>(first, word_of);
#endif
}

// Rows of a grid, each of four bytes; and the bytes of those whose words have positions in a list, a row for each eight
// quants.
template <uint32_t N, typename Function>
TALLOW_INLINE Words<N> gather_cells(const uint32_t* grid, uint32_t first, Function row_of) {
    return gather_words<N>(first, [&](uint32_t i) { return grid[static_cast<uint32_t>(row_of(i))]; });
}
#if defined(TALLOW_VECTOR)
template <uint64_t, uint32_t N, typename Function>
TALLOW_INLINE Words<N> gather_rows(const uint64_t* grid, uint32_t first, Function row_of) {
    Vector<uint64_t, 4 * N> rows;
    first = first / (4 * N) * (4 * N);
#pragma GCC unroll 4
    for (uint32_t k = 0; k < N / 2; ++k)
        rows[k] = grid[static_cast<uint32_t>(row_of(first + 8 * k))];
    return {{bit_cast<Vector<uint32_t, 4 * N>>(rows)}};
}
#else
template <uint64_t Choices, uint32_t N, typename Function>
TALLOW_INLINE Words<N> gather_rows(const uint32_t* grid, uint32_t first, Function row_of) {
    return gather_words<N>(first, [&](uint32_t i) { return choose<Choices>(grid[row_of(i)] >> 4 * (i % 8)); });
}
#endif

// Bytes of a list of 16, which has four words, by the lower half of each byte of a word or, where the shift is 4, by
// the upper one. Both are looked up together where possible: compilers do so once for both shifts.
template <uint32_t A, uint32_t B, uint32_t C, uint32_t D>
TALLOW_INLINE uint32_t look_up(uint32_t word, uint32_t shift) {
#if defined(TALLOW_NVIDIA)
    // Half bytes of half a word are selectors. Their highest bit, which would repeat a sign, selects from what the
    // lower and the upper half of the list have for the others.
    const uint32_t selectors = word & 0x77777777u;
    const uint32_t selected_halves = 0x32103210u | (word & 0x88888888u) >> 1;
    const uint32_t low = __byte_perm(__byte_perm(A, B, selectors), __byte_perm(C, D, selectors), selected_halves);
    const uint32_t high =
        __byte_perm(__byte_perm(A, B, selectors >> 16), __byte_perm(C, D, selectors >> 16), selected_halves >> 16);
    return __byte_perm(low, high, 0x6420u + shift / 4 * 0x1111u);
#elif defined(TALLOW_AMD)
    const uint32_t low = __builtin_amdgcn_perm(B, A, word >> shift & 0x07070707u);
    const uint32_t high = __builtin_amdgcn_perm(D, C, word >> shift & 0x07070707u);
    return __builtin_amdgcn_perm(high, low, 0x03020100u | (word >> shift & 0x08080808u) >> 1);
#else
    const uint32_t list[] = {A, B, C, D};
    uint32_t bytes = 0;
    for (uint32_t byte = 0; byte < 32; byte += 8) {
        const uint32_t number = word >> (byte + shift) & 15u;
        bytes |= (list[number / 4] >> 8 * (number % 4) & 255u) << byte;
    }
    return bytes;
#endif
}
#if defined(TALLOW_VECTOR)
template <uint32_t A, uint32_t B, uint32_t C, uint32_t D, typename Shift>
TALLOW_INLINE Vector<uint32_t, 32> look_up(Vector<uint32_t, 32> words, Shift shift) {
    using Words = Vector<uint32_t, 32>;
    const Words list = {A, B, C, D, A, B, C, D};
    const Words numbers = words >> shift & 0x0f0f0f0fu;
#if defined(__AVX2__)
    return (Words)_mm256_shuffle_epi8((__m256i)list, (__m256i)numbers);
#else
    using Bytes = Vector<uint8_t, 32>;
    const Bytes bytes = bit_cast<Bytes>(list);
    const Bytes indexes = bit_cast<Bytes>(numbers);
    Bytes looked_up;
    for (uint32_t i = 0; i < 32; ++i)
        looked_up[i] = bytes[indexes[i]];
    return bit_cast<Words>(looked_up);
#endif
}
#endif

// Signs of eight quants, a bit each, of which the last makes the number of ones even. The others are seven bits of a
// field: those of eight k of a run, from bit First + Step * k of its unit on. The host completes several runs at once.
#if defined(TALLOW_VECTOR)
template <typename Unit, uint32_t First, uint32_t Step> struct EvenSigns {
    const void* field;

    // Wider vectors would slow down those around them.
    TALLOW_INLINE uint32_t of_run(uint32_t run) const {
        using Units = Vector<Unit, 32>;
        constexpr uint32_t together = 32 / sizeof(Unit);
        const Unit* source = static_cast<const Unit*>(field) + run / together * together;
        // Compilers would take the bytes of other loads out of this vector.
        asm("" : "+r"(source));
        Units units;
        __builtin_memcpy(&units, source, sizeof units);
        Units signs = units >> First & 127;
#pragma GCC unroll 3
        for (uint32_t k = 1; k < 4; ++k)
            signs |= (units >> (First + Step * k) & 127) << 8 * k;
        const auto words = bit_cast<Vector<uint32_t, 32>>(signs);
        // The highest bit of bytes with an odd number of ones.
        const auto last = look_up<0x00808000u, 0x80000080u, 0x80000080u, 0x00808000u>(words ^ words >> 4, 0);
        return static_cast<uint32_t>((signs | bit_cast<Units>(last))[run % together]);
    }
};
template <typename Unit, uint32_t First, uint32_t Step, typename Function>
TALLOW_INLINE EvenSigns<Unit, First, Step> even_signs(const void* field, Function) {
    return {field};
}
#else
template <typename, uint32_t, uint32_t, typename Function>
TALLOW_INLINE auto even_signs(const void*, Function seven_of) {
    return [=](uint32_t i) {
        const uint32_t seven = seven_of(i);
        return seven | (static_cast<uint32_t>(count_ones(seven)) & 1u) << 7;
    };
}
#endif

// Numbers up to Highest, those whose byte of the masks is ones with the other sign, plus Highest: none takes one from
// the next.
template <uint32_t Highest, typename Word> TALLOW_INLINE Word apply_masks(Word numbers, Word masks) {
    return numbers - 2 * (numbers & masks) + Highest * 0x01010101u;
}

// The signs of quants, a byte of bits for each eight of them, and numbers with these signs as above. Signs are bytes of
// ones or zeros; those of vectors are the 32 bits of a run, which masks of AVX-512 are too.
#if defined(TALLOW_VECTOR)
template <uint32_t N, typename Function> TALLOW_INLINE Words<N> gather_signs(uint32_t first, Function byte_of) {
    static_assert(4 * N == 32, "a run is decoded at once");
    first = first / 32 * 32;
    return {{Vector<uint32_t, 32>{} +
             (byte_of(first) | byte_of(first + 8) << 8 | byte_of(first + 16) << 16 | byte_of(first + 24) << 24)}};
}
template <uint32_t N, typename Unit, uint32_t First, uint32_t Step>
TALLOW_INLINE Words<N> gather_signs(uint32_t first, EvenSigns<Unit, First, Step> signs) {
    return {{Vector<uint32_t, 32>{} + signs.of_run(first / 32)}};
}
template <uint32_t Highest>
TALLOW_INLINE Vector<uint32_t, 32> apply_signs(Vector<uint32_t, 32> numbers, Vector<uint32_t, 32> signs) {
    using Words = Vector<uint32_t, 32>;
#if defined(__AVX512BW__) && defined(__AVX512VL__)
    const __m256i highest = _mm256_set1_epi8(Highest);
    const __m256i sums = _mm256_add_epi8(highest, (__m256i)numbers);
    return (Words)_mm256_mask_sub_epi8(sums, _cvtu32_mask32(signs[0]), highest, (__m256i)numbers);
#else
    using Bytes = Vector<uint8_t, 32>;
    const Bytes bytes = bit_cast<Bytes>(signs);
    const Bytes eights = __builtin_shufflevector(bytes, bytes, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2,
                                                 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
    const Bytes bits = bit_cast<Bytes>(Vector<uint64_t, 32>{} + 0x8040201008040201u);
    return apply_masks<Highest>(numbers, bit_cast<Words>((eights & bits) != 0));
#endif
}
#else
template <uint32_t N, typename Function> TALLOW_INLINE Words<N> gather_signs(uint32_t first, Function byte_of) {
    return gather_words<N>(first, [&](uint32_t i) {
        const uint32_t bits = byte_of(i) >> i % 8 & 15u;
#if defined(TALLOW_NVIDIA)
        // Bit k becomes the sign of byte k, which the permutation repeats.
        uint32_t masks;
        asm("prmt.b32 %0, %1, 0, 0xba98;" : "=r"(masks) : "r"(bits * 0x10204080u));
        return masks;
#else
        return (bits * 0x00204081u & 0x01010101u) * 255u;
#endif
    });
}
template <uint32_t Highest, typename Word> TALLOW_INLINE Word apply_signs(Word numbers, Word signs) {
    return apply_masks<Highest>(numbers, signs);
}
#endif

// Rows of a grid with signs. The list has its four numbers plus the highest, then the negative ones plus it.
#if defined(TALLOW_VECTOR)
template <uint64_t Choices, uint32_t Highest, uint32_t N, typename Row, typename Signs>
TALLOW_INLINE Words<N> gather_signed_rows(const uint64_t* grid, uint32_t first, Row row_of, Signs byte_of) {
    return {{apply_signs<Highest>(gather_rows<Choices, N>(grid, first, row_of).values[0],
                                  gather_signs<N>(first, byte_of).values[0])}};
}
#else
template <uint64_t Choices, uint32_t, uint32_t N, typename Row, typename Signs>
TALLOW_INLINE Words<N> gather_signed_rows(const uint32_t* grid, uint32_t first, Row row_of, Signs byte_of) {
    return gather_words<N>(first, [&](uint32_t i) {
        // Bit k comes to bit 2 of the four that are the position of number k.
        uint32_t signs = byte_of(i) * 0x4004u & 0x003c003cu;
        signs = signs * 0x41u & 0x0c0c0c0cu;
        signs = signs * 9u & 0x44444444u;
        return choose<Choices>((grid[row_of(i)] | signs) >> 4 * (i % 8));
    });
}
#endif

// A field with this many elements for each run of quants, by the index in the field: where lanes decode a run, they
// load them as words. Compilers extend signed indexes of grids at a cost, so elements are unsigned.
template <typename T, uint32_t Count> struct Window {
#if defined(TALLOW_VECTOR)
    const T* field;

    TALLOW_INLINE uint32_t operator[](uint32_t index) const {
        return field[index];
    }
#else
    Words<Count * sizeof(T) / 4> words;

    TALLOW_INLINE uint32_t operator[](uint32_t index) const {
        constexpr uint32_t in_word = 4 / sizeof(T);
        constexpr uint32_t mask = (1u << 8 * sizeof(T)) - 1;
        return words.values[index % Count / in_word] >> 8 * sizeof(T) * (index % in_word) & mask;
    }
#endif
};
template <uint32_t N, uint32_t Count, uint32_t Alignment, typename T>
TALLOW_INLINE auto window(const T* field, [[maybe_unused]] uint32_t run) {
#if defined(TALLOW_VECTOR)
    return Window<T, Count>{field};
#else
    if constexpr (N == 8)
        return Window<T, Count>{load_words<Alignment, Count * sizeof(T) / 4>(field + Count * run)};
    else
        return field;
#endif
}

// The four lowest bits of a number, one in each byte of a word.
template <typename Word> TALLOW_INLINE Word spread_bits(Word bits) {
    return (bits & 15u) * 0x00204081u & 0x01010101u;
}

// The grid of a format, if it has one.
template <typename Block> TALLOW_INLINE auto grid_of() {
    if constexpr (Block::grid_words != 0)
        return Block::grid();
    else
        return static_cast<const uint32_t*>(nullptr);
}

// The bytes of a word in 16 bits each, for what bytes do not hold.
template <typename Word> struct Halves {
    Word even;
    Word odd;

    TALLOW_INLINE Halves(Word even, Word odd) : even(even), odd(odd) {
    }
    TALLOW_INLINE explicit Halves(Word bytes) : even(bytes & 0x00ff00ffu), odd(bytes >> 8 & 0x00ff00ffu) {
    }
    TALLOW_INLINE Halves operator+(Halves other) const {
        return {even + other.even, odd + other.odd};
    }
    template <typename Factor> TALLOW_INLINE Halves operator*(Factor factor) const {
        return {even * factor, odd * factor};
    }
    TALLOW_INLINE Halves operator&(uint32_t mask) const {
        return {even & mask * 0x00010001u, odd & mask * 0x00010001u};
    }
    TALLOW_INLINE Halves operator>>(uint32_t shift) const {
        const uint32_t mask = (0xffffu >> shift) * 0x00010001u;
        return {even >> shift & mask, odd >> shift & mask};
    }
};

template <typename Word> TALLOW_INLINE Word bytes_of(Halves<Word> pair) {
    return pair.even | pair.odd << 8;
}

// Byte i of a word and a bias as a float. 2**23 and an integer below it are exact, and so is their difference; where
// there is an instruction for bytes, it is selected.
template <int Bias> TALLOW_INLINE float quant_of(uint32_t quads, uint32_t i) {
#if defined(TALLOW_NVIDIA)
    const uint32_t raised = __byte_perm(quads, 0x4b000000u, 0x7440u + i);
    return bit_cast<float>(raised) - (8388608.0f - static_cast<float>(Bias));
#else
    return static_cast<float>(quads >> 8 * i & 255u) + static_cast<float>(Bias);
#endif
}

// A sum and the products of signed bytes, one in each quarter of two words.
TALLOW_INLINE int dot_of_bytes(uint32_t x, uint32_t y, int sum) {
#if defined(TALLOW_NVIDIA)
    asm("dp4a.s32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(x), "r"(y));
    return sum;
#elif defined(TALLOW_AMD) && defined(TALLOW_HAS_SUDOT4)
    return __builtin_amdgcn_sudot4(true, static_cast<int>(x), true, static_cast<int>(y), sum, false);
#elif defined(TALLOW_AMD) && defined(TALLOW_HAS_SDOT4)
    return __builtin_amdgcn_sdot4(static_cast<int>(x), static_cast<int>(y), sum, false);
#else
    for (uint32_t shift = 0; shift < 32; shift += 8)
        sum += static_cast<int8_t>(x >> shift) * static_cast<int8_t>(y >> shift);
    return sum;
#endif
}

} // namespace tallow
