// Vectors of elements of rows, of which kernels of row formulas (see row_formula.hpp) load, reduce and compute one at a
// time: N elements side by side along a row, or N columns side by side.
#pragma once

#include "row_pairs.hpp"
#include "rows.hpp"

namespace tallow {

// Composed functors may give results that are one number a row: bit r of `row_results` is set where result r is the one
// that `compute` gives at position 0.
template <typename Functor, typename = void> constexpr uint32_t results_of_rows = 0;
template <typename Functor>
constexpr uint32_t results_of_rows<Functor, typename VoidOf<decltype(Functor::row_results)>::type> =
    Functor::row_results;
template <typename Functor>
constexpr bool has_results_of_elements =
    results_of_rows<Functor> != (1u << Functor::results) - 1 || row_totals<Functor> != 0;
template <typename Functor> TALLOW_INLINE bool is_of_rows(uint32_t result) {
    return (results_of_rows<Functor> >> result & 1) != 0;
}

// Composed functors derive values of the elements, after the operands in `elements`, which several stages need:
// passes, and the results as the last one. They say their types, and which of them each stage is the first to need:
//
//     static constexpr uint32_t derived = 2;
//     using Derived = Types<float, bf16>;
//     template <uint32_t Stage> static constexpr uint32_t derives = ...;
//     // Sets the values that are new in a stage.
//     template <uint32_t Stage, typename T>
//     static void derive(const RowOf<T, Softmin>& row, compute_type<T> (&elements)[operands + derived],
//                        uint32_t position);
template <typename Functor, typename = void> constexpr uint32_t derived_values = 0;
template <typename Functor>
constexpr uint32_t derived_values<Functor, typename VoidOf<decltype(Functor::derived)>::type> = Functor::derived;
template <typename Functor> constexpr uint32_t row_elements = Functor::operands + derived_values<Functor>;

// N equal elements.
template <typename T, uint32_t N> TALLOW_INLINE RowVector<T, N> splat(T element) {
    RowVector<T, N> vector{};
#pragma unroll
    for (uint32_t i = 0; i < N; ++i)
        put_element(vector, i, element);
    return vector;
}

// N numbers rounded to elements.
template <typename T, uint32_t N, typename Value>
TALLOW_INLINE RowVector<T, N> round_vector(const Value (&numbers)[N]) {
    RowVector<T, N> vector{};
#pragma unroll
    for (uint32_t i = 0; i < N; ++i) {
        if constexpr (is_small_float<T> && sizeof(T) == 2 && sizeof(Value) == 4 && N > 1)
            vector.values[i / 2] = round_pair<T>(numbers[i & ~1u], numbers[i | 1u]);
        else
            put_element(vector, i, convert<T>(numbers[i]));
    }
    return vector;
}

// The vectors of a row that a thread of a subgroup has in registers: `counts` of each of its sets, all but the last one
// of which are complete. Those of row_subgroup threads follow each other, and the ones of a thread have a constant
// stride; short rows have fewer threads. Each of several sets is what a thread would have of as many times the threads,
// so that a row is added up in the same order by either.
template <bool IsShort, uint32_t Sets = 1, uint32_t SetVectors = 1> struct ThreadVectors {
    uint32_t first;
    uint32_t counts[Sets];
    uint32_t complete;
    uint32_t slots;
    uint32_t step;

    // Of a row of vectors of N elements, of which each thread of the subgroup has up to `slots`, which are divided
    // among the sets.
    TALLOW_INLINE ThreadVectors(uint32_t lane, uint32_t subgroup_size, uint32_t length, uint32_t n, uint32_t slots)
        : slots((slots + Sets - 1) / Sets),
          // Opaque, or compilers would keep multiples of it in scalar registers.
          step(IsShort ? opaque(subgroup_size) : row_subgroup) {
        const uint32_t all = row_subgroup * this->slots;
        first = IsShort ? lane : lane / row_subgroup * (all * Sets) + lane % row_subgroup;
#pragma unroll
        for (uint32_t set = 0; set < Sets; ++set)
            counts[set] = count_of((length + n - 1) / n, first + set * all);
        complete = count_of(length / n, first);
    }
    // The distance of vector `v` from the first one.
    TALLOW_INLINE uint32_t vector_offset(uint32_t v) const {
        if constexpr (Sets > 1)
            return (v / SetVectors * slots + v % SetVectors) * row_subgroup;
        return v * (IsShort ? step : row_subgroup);
    }
    TALLOW_INLINE bool has(uint32_t v) const {
        if constexpr (Sets > 1)
            return v % SetVectors < counts[v / SetVectors];
        return v < counts[0];
    }
    // Rows of several sets have complete vectors alone.
    TALLOW_INLINE bool is_complete(uint32_t v) const {
        return Sets > 1 ? has(v) : v < complete;
    }

  private:
    // How many vectors a set has, which begins with vector `begin`.
    TALLOW_INLINE uint32_t count_of(uint32_t vectors, uint32_t begin) const {
        const uint32_t left = begin < vectors ? vectors - begin : 0;
        const uint32_t all =
            IsShort ? (left + step - 1) >> count_bits(step - 1) : (left + row_subgroup - 1) / row_subgroup;
        return all < slots ? all : slots;
    }
};

// N elements of an operand, which are of the widest type at most.
template <typename Functor, typename T, typename = void> constexpr uint32_t operand_bytes = sizeof(T);
template <typename Functor, typename T>
constexpr uint32_t operand_bytes<Functor, T, typename VoidOf<typename Functor::Operands>::type> =
    largest_type<typename Functor::Operands>;
template <typename Functor, typename T, uint32_t N> using OperandVector = Registers<operand_bytes<Functor, T> * N>;

template <typename T> struct OffsetPointer {
    const T*& first;
    uint64_t offset;
    template <typename Type> TALLOW_INLINE void operator()(TypeOf<Type>) const {
        first = reinterpret_cast<const T*>(reinterpret_cast<const Type*>(first) + offset);
    }
};

// Element `offset` of operand k. Elements of another type than T are read as such by visit_type.
template <typename Functor, typename T> TALLOW_INLINE const T* operand_at(const T* first, uint32_t k, uint64_t offset) {
    if constexpr (has_types<Functor>) {
        visit_type(typename Functor::Operands{}, k, OffsetPointer<T>{first, offset});
        return first;
    } else {
        return first + offset;
    }
}

// N elements side by side from an address that is a multiple of their bytes, or of 16 where they are more.
template <typename T, uint32_t N, uint32_t Bytes>
TALLOW_INLINE void load_elements(Registers<Bytes>& vector, const T* elements) {
    constexpr uint32_t length = pack_length<T> < N ? pack_length<T> : N, words = (sizeof(T) * length + 3) / 4;
#pragma unroll
    for (uint32_t i = 0; i < N; i += length) {
        const RowVector<T, length> loaded = load_registers<sizeof(T) * length>(elements + i);
#pragma unroll
        for (uint32_t word = 0; word < words; ++word)
            vector.values[i * sizeof(T) / 4 + word] = loaded.values[word];
    }
}
// One access, which NVIDIA's compiler would split into words where the address is that of a pointer without an offset.
template <uint32_t Bytes> TALLOW_INLINE void store_access(void* pointer, const Registers<Bytes>& registers) {
#if defined(TALLOW_NVIDIA)
    if constexpr (Bytes == 16) {
        asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(pointer), "r"(registers.values[0]),
                     "r"(registers.values[1]), "r"(registers.values[2]), "r"(registers.values[3])
                     : "memory");
        return;
    }
#endif
    store_registers(pointer, registers);
}
template <typename T, uint32_t N> TALLOW_INLINE void store_elements(T* elements, const RowVector<T, N>& vector) {
    constexpr uint32_t length = pack_length<T> < N ? pack_length<T> : N, words = (sizeof(T) * length + 3) / 4;
#pragma unroll
    for (uint32_t i = 0; i < N; i += length) {
        RowVector<T, length> stored;
#pragma unroll
        for (uint32_t word = 0; word < words; ++word)
            stored.values[word] = vector.values[i * sizeof(T) / 4 + word];
        store_access(elements + i, stored);
    }
}

template <typename Value> struct LoadElement {
    const void* source;
    Value& element;
    template <typename Type> TALLOW_INLINE void operator()(TypeOf<Type>) const {
        element = convert<Value>(to_compute(*static_cast<const Type*>(source)));
    }
};

template <uint32_t N, bool Pairs, typename Vector> struct LoadTyped {
    Vector& vector;
    const void* first;
    bool is_number;
    bool is_complete;
    template <typename Type> TALLOW_INLINE void operator()(TypeOf<Type>) const {
        const Type* const elements = reinterpret_cast<const Type*>(first);
        if (N > 1 && is_number) {
            const Type element = *elements;
#pragma unroll
            for (uint32_t i = 0; i < N; ++i)
                put_element(vector, i, element);
        } else if constexpr (!Pairs) {
            load_elements<Type, N>(vector, elements);
        } else {
            put_element(vector, 0, elements[0]);
            put_element(vector, 1, is_complete ? elements[1] : Type{});
        }
    }
};

// N elements of operand k of any type, or one repeated. Pairs lie anywhere; of one that is not complete the first
// element exists.
template <typename Functor, typename T, uint32_t N, bool Pairs>
TALLOW_INLINE OperandVector<Functor, T, N> load_typed(uint32_t k, const T* first, bool is_number, bool is_complete) {
    using Vector = OperandVector<Functor, T, N>;
    Vector vector{};
    visit_type(typename Functor::Operands{}, k, LoadTyped<N, Pairs, Vector>{vector, first, is_number, is_complete});
    return vector;
}

template <uint32_t N, typename Vector> struct HideVector {
    Vector& vector;
    template <typename Type> TALLOW_INLINE void operator()(TypeOf<Type>) const {
#pragma unroll
        for (uint32_t word = 0; word < (sizeof(Type) * N + 3) / 4; ++word)
            vector.values[word] = opaque(vector.values[word]);
    }
};

// The same vector of operand k, of which compilers know nothing any more. They would keep what a pass has computed of
// elements to the next one, such as floats of elements of 16 bits, and unpack those of all vectors at once; or all that
// composed functors compute of them.
template <typename Functor, typename T, uint32_t N>
TALLOW_INLINE const OperandVector<Functor, T, N>& packed([[maybe_unused]] uint32_t k,
                                                         OperandVector<Functor, T, N>& vector) {
    if constexpr (has_types<Functor>)
        visit_type(typename Functor::Operands{}, k, HideVector<N, OperandVector<Functor, T, N>>{vector});
    else if constexpr (sizeof(T) < sizeof(compute_type<T>) || is_composed<Functor>)
        vector = opaque(vector);
    return vector;
}

} // namespace tallow
