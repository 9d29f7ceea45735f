// The passes of kernels of row formulas (see row_formula.hpp) over vectors of elements: reductions, results and how
// these are stored.
#pragma once

#include "row_vectors.hpp"

namespace tallow {

// The bits of a mask that are set, and the mask without its highest ones, so that at most `Most` are.
template <uint32_t Mask> constexpr uint32_t bits_set = bits_set<Mask / 2> + Mask % 2;
template <> constexpr uint32_t bits_set<0> = 0;
template <uint32_t Mask, uint32_t Most, uint32_t Bit = 31>
constexpr uint32_t lowest_bits = bits_set<Mask> > Most ? lowest_bits<(Mask & ~(1u << Bit)), Most, Bit - 1> : Mask;
template <uint32_t Mask, uint32_t Most> constexpr uint32_t lowest_bits<Mask, Most, 0> = Mask;

// The bytes of an element of each operand of a mask, and of each result that has elements.
template <uint32_t Mask, typename List> constexpr uint32_t bytes_of_types = 0;
template <uint32_t Mask, typename First, typename... Others>
constexpr uint32_t bytes_of_types<Mask, Types<First, Others...>> =
    Mask % 2 * sizeof(First) + bytes_of_types<Mask / 2, Types<Others...>>;
template <typename Functor>
constexpr uint32_t results_of_elements = ((1u << Functor::results) - 1) & ~results_of_rows<Functor>;
template <typename Functor, typename T, uint32_t Mask, typename = void>
constexpr uint32_t bytes_of_operands = bits_set<Mask> * sizeof(T);
template <typename Functor, typename T, uint32_t Mask>
constexpr uint32_t bytes_of_operands<Functor, T, Mask, typename VoidOf<typename Functor::Operands>::type> =
    bytes_of_types<Mask, typename Functor::Operands>;
template <typename Functor, typename T, typename = void>
constexpr uint32_t bytes_of_results = bits_set<results_of_elements<Functor>> * sizeof(T);
template <typename Functor, typename T>
constexpr uint32_t bytes_of_results<Functor, T, typename VoidOf<typename Functor::Results>::type> =
    bytes_of_types<results_of_elements<Functor>, typename Functor::Results>;

// Which operands stay in registers between passes, where a thread has this many vectors of each: as many as fit. The
// others come from the cache again.
constexpr uint32_t row_registers = 64;
// How many vectors of a thread are reduced side by side, and the bytes that a thread has of a short row.
constexpr uint32_t reduce_chains = 4;
constexpr uint32_t short_row_bytes = 32;
template <typename Functor, typename T, uint32_t N, uint32_t Vectors>
constexpr uint32_t resident_operands =
    lowest_bits<operands_in_registers<Functor>, row_registers / Vectors / ((N * operand_bytes<Functor, T> + 3) / 4)>;

// Whether what a thread keeps of a row is hidden between passes, see `packed`: numbers that take no more registers than
// elements, and those of 16 bits of which it has too few registers for unpacked ones. LLVM would spill scalar
// registers, in which it keeps which vectors there are.
#if defined(TALLOW_NVIDIA)
constexpr uint32_t unpacked_registers = 32;
#else
constexpr uint32_t unpacked_registers = 0;
#endif
template <typename Functor, typename T, uint32_t N, uint32_t Vectors>
constexpr bool stays_packed = sizeof(T) == sizeof(compute_type<T>) ||
                              N * Vectors * bits_set<resident_operands<Functor, T, N, Vectors>> > unpacked_registers;

// How many vectors of each operand a thread that reads them in every pass loads at once: more of single elements, fewer
// of f64, which fill more registers as they are computed with. Sums are rescaled once for these, in all functors alike:
// a composed one has the bits of its formulas.
template <typename Functor, typename T, uint32_t N>
constexpr uint32_t vectors_in_flight =
    sizeof(T) == 8
        ? reduce_in_flight / 2
        : (N == 1 ? 2 : 1) * (Functor::operands == 1 || rescaled_passes<Functor> != 0 ? 2 : 1) * reduce_in_flight / 2;

template <typename Value, typename Vector> struct TakeElement {
    const Vector& vector;
    uint32_t i;
    Value& element;
    template <typename Type> TALLOW_INLINE void operator()(TypeOf<Type>) const {
        element = convert<Value>(to_compute(take_element<Type>(vector, i)));
    }
};

// Element i of each operand, in the compute type.
template <typename Functor, typename T, uint32_t N>
TALLOW_INLINE void take_elements(const OperandVector<Functor, T, N> (&vectors)[Functor::operands], uint32_t i,
                                 compute_type<T> (&elements)[row_elements<Functor>]) {
#pragma unroll
    for (uint32_t k = 0; k < Functor::operands; ++k) {
        if constexpr (has_types<Functor>)
            visit_type(typename Functor::Operands{}, k,
                       TakeElement<compute_type<T>, OperandVector<Functor, T, N>>{vectors[k], i, elements[k]});
        else
            elements[k] = to_compute(take_element<T>(vectors[k], i));
    }
}

// The row before its first pass.
template <typename Functor, typename T, typename Arguments>
TALLOW_INLINE RowOf<T, Functor> begin_row(const Arguments& arguments) {
    using Value = compute_type<T>;
    RowOf<T, Functor> row{};
    row.count = RowCount<Value>(static_cast<Value>(arguments.length));
    if constexpr (Functor::parameters > 0) {
#pragma unroll
        for (uint32_t i = 0; i < Functor::parameters; ++i)
            row.parameters[i] = from_bits<Value>(arguments.parameters[i]);
    }
    return row;
}

template <uint32_t Count, typename Value, uint32_t To, uint32_t From>
TALLOW_INLINE void copy_numbers(Value (&to)[To], const Value (&from)[From]) {
#pragma unroll
    for (uint32_t j = 0; j < Count; ++j)
        to[j] = from[j];
}

// Ends a pass whose reductions are known.
template <uint32_t Pass, typename Functor, typename T, typename Value, uint32_t Count>
TALLOW_INLINE void finish_pass(RowOf<T, Functor>& row, const Value (&numbers)[Count]) {
#pragma unroll
    for (uint32_t j = 0; j < Count; ++j)
        row.known[Functor::template Reduced<Pass>::first + j] = numbers[j];
    Functor::template finish<Pass, T>(row);
}

// Ends a pass that joins a maximum, and the next one.
template <uint32_t Pass, typename Functor, typename T, typename Value, uint32_t Count>
TALLOW_INLINE void finish_both(RowOf<T, Functor>& row, const Value (&numbers)[Count]) {
    const Value maximum[1] = {numbers[0]};
    Value sums[Count - 1];
#pragma unroll
    for (uint32_t j = 1; j < Count; ++j)
        sums[j - 1] = numbers[j];
    finish_pass<Pass>(row, maximum);
    finish_pass<Pass + 1>(row, sums);
}

// Combines numbers with terms unless these are of elements past the end of the row.
template <typename Joins, typename Value, typename Term>
TALLOW_INLINE void combine_valid(Value (&numbers)[Joins::count], const Term (&terms)[Joins::count], bool is_valid) {
    Value combined[Joins::count];
    copy_numbers<Joins::count>(combined, numbers);
    Joins::combine(combined, terms);
#pragma unroll
    for (uint32_t j = 0; j < Joins::count; ++j)
        numbers[j] = is_valid ? combined[j] : numbers[j];
}

// What is subtracted from exponents where the maximum so far may be -inf.
template <typename Value> TALLOW_INLINE Value finite_maximum(Value maximum) {
    return maximum == -infinity(Value{}) ? Value{0} : maximum;
}
// Rescales sums of e**(.. - maximum) to another maximum.
template <typename Value, uint32_t Count> TALLOW_INLINE void rescale(Value (&sums)[Count], Value maximum, Value other) {
    const Value factor = exp(maximum - finite_maximum(other));
#pragma unroll
    for (uint32_t j = 0; j < Count; ++j)
        sums[j] *= factor;
}

// Puts elements that contribute nothing, if there are such, instead of those past the end of the row: of a
// vector that is not valid, or of the second element of a pair that is not complete.
template <typename Functor, typename T, uint32_t N>
TALLOW_INLINE void pad_vectors(OperandVector<Functor, T, N> (&vectors)[Functor::operands], bool is_valid,
                               [[maybe_unused]] bool is_complete) {
    if constexpr (has_padding<Functor>) {
#pragma unroll
        for (uint32_t k = 0; k < Functor::operands; ++k) {
            const T padding = (Functor::padding >> k & 1) != 0 ? convert<T>(-infinity(compute_type<T>{})) : T{};
            const RowVector<T, N> padded = splat<T, N>(padding);
            if constexpr (are_pairs<T, N>) {
                const uint32_t first = (vectors[k].values[0] & 0xFFFF) | (padded.values[0] & 0xFFFF0000);
                vectors[k].values[0] = is_complete ? vectors[k].values[0] : first;
            }
#pragma unroll
            for (uint32_t word = 0; word < sizeof(padded) / 4; ++word)
                vectors[k].values[word] = is_valid ? vectors[k].values[word] : padded.values[word];
        }
    }
}

// The reduction of N elements of a row from `index` on, one after the other. Where the row is not padded, the second
// one of a pair may be past its end.
template <uint32_t Pass, typename Functor, typename T, uint32_t N, typename Derived, typename Value, uint32_t Count>
TALLOW_INLINE void reduce_vector(const RowOf<T, Functor>& row,
                                 const OperandVector<Functor, T, N> (&vectors)[Functor::operands], Derived& derived,
                                 uint32_t index, [[maybe_unused]] bool is_complete, Value (&numbers)[Count]) {
    derived.template hide<Pass>();
#pragma unroll
    for (uint32_t i = 0; i < N; ++i) {
        const uint32_t position = index + i;
        Value elements[row_elements<Functor>];
        take_elements<Functor, T, N>(vectors, i, elements);
        derived.template derive<Pass>(row, elements, i, position);
        Product<Value> terms[Count];
        Functor::template contribute<Pass, T>(row, elements, position, terms);
        if (i == 0) {
#pragma unroll
            for (uint32_t j = 0; j < Count; ++j)
                numbers[j] = terms[j];
        } else {
            if constexpr (are_pairs<T, N> && !has_padding<Functor>)
                combine_valid<typename Functor::template Reduced<Pass>>(numbers, terms, is_complete);
            else
                Functor::template Reduced<Pass>::combine(numbers, terms);
        }
    }
}

// Element i of each output, from element i of each operand.
template <typename Functor, typename T, uint32_t N, typename Derived>
TALLOW_INLINE void
compute_element(const RowOf<T, Functor>& row, const OperandVector<Functor, T, N> (&vectors)[Functor::operands],
                Derived& derived, uint32_t i, uint32_t position, compute_type<T> (&results)[output_slots<Functor>][N]) {
    using Value = compute_type<T>;
    Value elements[row_elements<Functor>], outputs[output_slots<Functor>];
    take_elements<Functor, T, N>(vectors, i, elements);
    derived.template derive<Functor::passes>(row, elements, i, position);
    Functor::template compute<T>(row, elements, position, outputs);
#pragma unroll
    for (uint32_t r = 0; r < row_outputs<Functor>; ++r)
        results[r][i] =
            has_row_index<Functor> && !is_composed<Functor> && row.index == no_index ? Value{0} : outputs[r];
}

template <typename Value> struct StoreNumber {
    Value value;
    uint64_t result, number;
    template <typename Type> TALLOW_INLINE void operator()(TypeOf<Type>) const {
        pointer_to<Type>(result)[number] = narrow<Type>(value);
    }
};

// Writes the results that are one number a row, those of row `number`, if element i is the first of it.
template <typename Functor, typename T, uint32_t N, typename Arguments>
TALLOW_INLINE void store_numbers([[maybe_unused]] const Arguments& arguments,
                                 [[maybe_unused]] const compute_type<T> (&results)[output_slots<Functor>][N],
                                 [[maybe_unused]] uint32_t i, [[maybe_unused]] uint64_t number,
                                 [[maybe_unused]] bool is_first) {
    if constexpr (results_of_rows<Functor> != 0) {
#pragma unroll
        for (uint32_t r = 0; r < Functor::results; ++r) {
            const StoreNumber<compute_type<T>> store{results[r][i], arguments.results[r], number};
            if (!is_first || !is_of_rows<Functor>(r))
                continue;
            if constexpr (has_types<Functor>)
                visit_type(typename Functor::Results{}, r, store);
            else
                store(TypeOf<T>{});
        }
    }
}

// Writes a vector `index` elements from the first one on if it is valid, or the first element of a pair that is not
// complete.
template <typename T, uint32_t N>
TALLOW_INLINE void store_one(T* first, uint64_t index, const RowVector<T, N>& vector, bool is_valid,
                             [[maybe_unused]] bool is_complete) {
    if constexpr (are_pairs<T, N>)
        store_pair<T>(first, index, vector, is_valid, is_complete);
    else if constexpr (sizeof(T) * N < access_bytes)
        store_where(is_valid, first + index, vector);
    else if (is_valid)
        store_elements<T, N>(first + index, vector);
}

// Whether lanes exchange halves of vectors of two accesses each, so that each access of two lanes is of adjacent
// memory: NVIDIA GPUs write half of a sector of 32 bytes as slowly as a whole one.
#if defined(TALLOW_AMD)
constexpr bool exchanges_halves = false;
#else
constexpr bool exchanges_halves = true;
#endif
template <typename Type, uint32_t N>
constexpr bool has_halves = exchanges_halves && sizeof(Type) * N == 2 * access_bytes;
template <uint32_t N, typename List> constexpr bool any_has_halves = false;
template <uint32_t N, typename... Type> constexpr bool any_has_halves<N, Types<Type...>> = (has_halves<Type, N> || ...);
template <typename Functor, uint32_t N, typename = void> constexpr bool writes_halves = false;
template <typename Functor, uint32_t N>
constexpr bool writes_halves<Functor, N, typename VoidOf<typename Functor::Results>::type> =
    row_totals<Functor> == 0 && any_has_halves<N, typename Functor::Results>;

// Writes vectors that are next to those of the lane whose index differs in the last bit; all lanes take part.
template <typename Type, uint32_t N>
TALLOW_INLINE void store_halves(Type* elements, const RowVector<Type, N>& vector, bool is_valid) {
    constexpr uint32_t words = access_bytes / 4;
    const bool is_second = lane_index() % 2 != 0;
    Registers<access_bytes> halves[2];
#pragma unroll
    for (uint32_t word = 0; word < words; ++word) {
        const uint32_t low = vector.values[word], high = vector.values[words + word];
        const uint32_t other = shuffle_xor(is_second ? low : high, 1);
        halves[0].values[word] = is_second ? other : low;
        halves[1].values[word] = is_second ? high : other;
    }
    if (!is_valid)
        return;
    elements -= is_second ? N / 2 : 0;
    store_access(elements, halves[0]);
    store_access(elements + N, halves[1]);
}

template <typename Value, uint32_t N, bool Pairs> struct StoreVector {
    const Value (&numbers)[N];
    void* first;
    uint64_t index;
    bool is_valid;
    bool is_complete;
    bool in_halves;
    template <typename Type> TALLOW_INLINE void operator()(TypeOf<Type>) const {
        Type* const elements = static_cast<Type*>(first) + index;
        if constexpr (has_halves<Type, N>)
            if (in_halves) {
                store_halves<Type, N>(elements, round_vector<Type, N>(numbers), is_valid);
                return;
            }
        if (!is_valid)
            return;
        if constexpr (Pairs) {
            elements[0] = convert<Type>(numbers[0]);
            if (is_complete)
                elements[1] = convert<Type>(numbers[1]);
        } else {
            store_elements<Type, N>(elements, round_vector<Type, N>(numbers));
        }
    }
};
struct OffsetAddress {
    uint64_t& address;
    uint64_t offset;
    template <typename Type> TALLOW_INLINE void operator()(TypeOf<Type>) const {
        address += offset * sizeof(Type);
    }
};

// The results from element `first` on.
template <typename Functor, typename T, uint32_t N> struct RowTargets {
    T* targets[output_slots<Functor>];

    template <typename Arguments> TALLOW_INLINE RowTargets(const Arguments& arguments, uint64_t first) {
#pragma unroll
        for (uint32_t r = 0; r < Functor::results; ++r) {
            uint64_t address = arguments.results[r];
            if constexpr (has_types<Functor>)
                visit_type(typename Functor::Results{}, r, OffsetAddress{address, first});
            else
                address += first * sizeof(T);
            targets[r] = opaque_pointer<T>(address);
        }
    }
    // Writes a vector of each result, `index` elements from the first one on; in halves see store_halves.
    TALLOW_INLINE void store(const compute_type<T> (&results)[output_slots<Functor>][N], uint64_t index, bool is_valid,
                             bool is_complete, bool in_halves = false) const {
#pragma unroll
        for (uint32_t r = 0; r < Functor::results; ++r) {
            if (is_of_rows<Functor>(r))
                continue;
            if constexpr (has_types<Functor>)
                visit_type(typename Functor::Results{}, r,
                           StoreVector<compute_type<T>, N, are_pairs<T, N>>{results[r], targets[r], index, is_valid,
                                                                            is_complete, in_halves});
            else
                store_one<T, N>(targets[r], index, round_vector<T, N>(results[r]), is_valid, is_complete);
        }
    }
};

// The bytes of elements side by side of operand k.
template <typename Functor, typename T> TALLOW_INLINE uint32_t row_bytes(uint32_t k, uint32_t length) {
    return static_cast<uint32_t>(reinterpret_cast<uint64_t>(operand_at<Functor, T>(nullptr, k, length)));
}

// The sums of elements and those of a residual, rounded.
template <typename T, uint32_t N>
TALLOW_INLINE RowVector<T, N> add_vectors(const RowVector<T, N>& vector, const RowVector<T, N>& residual) {
    compute_type<T> sums[N];
#pragma unroll
    for (uint32_t i = 0; i < N; ++i)
        sums[i] = to_compute(take_element<T>(vector, i)) + to_compute(take_element<T>(residual, i));
    return round_vector<T, N>(sums);
}

// Begins a kernel of rows. Operands that all rows share come to the cache while it waits for the kernel before, if they
// are short: one block fetches them.
template <typename Functor, typename T, typename Arguments>
TALLOW_INLINE void begin_rows(const Arguments& arguments, bool are_short) {
    let_next_kernel_begin();
    if (are_short && block_index() == 0) {
#pragma unroll
        for (uint32_t k = 0; k < Functor::operands; ++k)
            if ((operands_in_registers<Functor> >> k & 1) == 0 && !is_number_of_row<Functor>(k) &&
                (arguments.varying >> k & 1) != 0)
                fetch_to_cache(arguments.sources[k], row_bytes<Functor, T>(k, arguments.length));
    }
    await_previous_kernel();
}

} // namespace tallow
