// Row formulas: functors that compute every element of a row from reductions over the row. Kernels for GPUs
// (row_kernels.hpp) and for the host take any such functor:
//
//     struct Softmin {
//         static constexpr uint32_t operands = 1;    // elements at each position, all of type T
//         static constexpr uint32_t results = 1;
//         static constexpr uint32_t parameters = 1;
//         static constexpr uint32_t passes = 2;      // reductions, each of which may use those before it
//         static constexpr uint32_t known = 2;       // numbers of the row: reduced, or computed from these in `finish`
//         static constexpr uint32_t in_registers = 1;  // optional, see operands_in_registers
//         static constexpr uint32_t rescaled = 2;      // optional, see is_rescaled
//         static constexpr uint32_t padding = 1;       // optional, see has_padding
//         static constexpr uint32_t totals = 1;        // optional, see row_totals
//         static constexpr uint32_t optional = 2;      // optional, see optional_operands
//         static constexpr float absent(uint32_t operand);
//         static constexpr bool adds_residual = true;  // optional, see adds_residual
//         static constexpr bool has_index = true;      // optional, see has_row_index
//         static constexpr uint32_t at_index = 1;
//         static constexpr uint32_t numbers = 1;       // optional, see row_numbers
//         static constexpr uint32_t number_results = 1;   // optional, see number_results
//         static constexpr bool has_begin = true;         // optional, see begin_constants
//         template <uint32_t Pass> struct Reduced;    // RowJoins: what pass Pass reduces
//         // What one element contributes to each of the joins of a pass: numbers of the compute type, or products.
//         template <uint32_t Pass, typename T, typename Number>
//         static void contribute(const RowOf<T, Softmin>& row, const compute_type<T> (&elements)[operands],
//                                compute_type<T> position, Number (&numbers)[Reduced<Pass>::count]);
//         // Sets numbers of the row that follow from those reduced so far.
//         template <uint32_t Pass, typename T> static void finish(RowOf<T, Softmin>& row);
//         // The results at one position. Of functors with `number_results`, `conclude` sets those of the row instead.
//         template <typename T>
//         static void compute(const RowOf<T, Softmin>& row, const compute_type<T> (&elements)[operands],
//                             compute_type<T> position, compute_type<T> (&outputs)[results]);
//     };
//     template <> struct Softmin::Reduced<0> : RowJoins<0, JoinHighest> {};
//     template <> struct Softmin::Reduced<1> : RowJoins<1, JoinSums> {};
#pragma once

#include "arithmetic.hpp"
#include "fast_math.hpp"
#include "types.hpp"

namespace tallow {

// How many elements a row has. On GPUs division by it multiplies by its reciprocal, which is known before the first
// pass is over; on the host it is a number, of which loops over lanes of rows are vectorised.
#if defined(TALLOW_VECTOR)
template <typename Value> using RowCount = Value;
#else
template <typename Value> struct RowCount {
    Value value;
    Value reciprocal;

    RowCount() = default;
    TALLOW_INLINE explicit RowCount(Value value) : value(value), reciprocal(1 / value) {
    }
    TALLOW_INLINE operator Value() const {
        return value;
    }
    friend TALLOW_INLINE Value operator/(Value sum, RowCount count) {
        return sum * count.reciprocal;
    }
};
#endif

// What is known of a row of `count` elements.
template <typename T, typename Functor> struct RowOf {
    using Value = compute_type<T>;
    RowCount<Value> count;
    uint64_t index; // the position that has_row_index speaks of
    Value parameters[Functor::parameters ? Functor::parameters : 1];
    Value known[Functor::known ? Functor::known : 1];
};

// A product that a sum takes by one instruction, which rounds once; or a number, times 1.
template <typename Value> struct Product {
    Value x;
    Value y;

    Product() = default;
    TALLOW_INLINE Product(Value x, Value y = 1) : x(x), y(y) {
    }
    TALLOW_INLINE operator Value() const {
        return x * y;
    }
};
template <typename Value> TALLOW_INLINE Product<Value> product(Value x, Value y) {
    return {x, y};
}

// NaN wins. Of 0.0 and -0.0 NVIDIA's instruction takes the larger one, and the others take the second operand.
template <typename Value> TALLOW_INLINE Value join_maximum(Value x, Value y) {
#if defined(TALLOW_NVIDIA)
    if constexpr (sizeof(Value) == 4) {
        asm("max.NaN.f32 %0, %1, %2;" : "=f"(x) : "f"(x), "f"(y));
        return x;
    }
#endif
    return maximum(x, y);
}
template <typename Value> TALLOW_INLINE Value join_minimum(Value x, Value y) {
#if defined(TALLOW_NVIDIA)
    if constexpr (sizeof(Value) == 4) {
        asm("min.NaN.f32 %0, %1, %2;" : "=f"(x) : "f"(x), "f"(y));
        return x;
    }
#endif
    return minimum(x, y);
}

// Reductions. NaN wins in maxima and minima.
struct JoinSums {
    static constexpr bool is_commutative = true;
    template <typename Value> static TALLOW_INLINE Value identity() {
        return Value{0};
    }
    template <typename Value> static TALLOW_INLINE Value combine(Value x, Value y) {
        return x + y;
    }
    template <typename Value> static TALLOW_INLINE Value combine(Value sum, Product<Value> term) {
        return fma(term.x, term.y, sum);
    }
};
// Not commutative where the second one of 0.0 and -0.0 is taken.
struct JoinHighest {
    static constexpr bool is_commutative = false;
    template <typename Value> static TALLOW_INLINE Value identity() {
        return -infinity(Value{});
    }
    template <typename Value> static TALLOW_INLINE Value combine(Value x, Value y) {
        return join_maximum(x, y);
    }
    template <typename Value> static TALLOW_INLINE Value combine(Value x, Product<Value> term) {
        return join_maximum(x, static_cast<Value>(term));
    }
};
struct JoinLowest {
    static constexpr bool is_commutative = false;
    template <typename Value> static TALLOW_INLINE Value identity() {
        return infinity(Value{});
    }
    template <typename Value> static TALLOW_INLINE Value combine(Value x, Value y) {
        return join_minimum(x, y);
    }
    template <typename Value> static TALLOW_INLINE Value combine(Value x, Product<Value> term) {
        return join_minimum(x, static_cast<Value>(term));
    }
};

template <typename... T> struct Types {};

// The reductions of a pass. Their results are the row's known numbers from `First` on.
template <uint32_t First, typename... Joins> struct RowJoins {
    using List = Types<Joins...>;
    static constexpr uint32_t first = First;
    static constexpr uint32_t count = sizeof...(Joins);
    // Whether all combine to the same bits in either order.
    static constexpr bool are_commutative = (Joins::is_commutative && ...);

    template <typename Value> static TALLOW_INLINE void identities(Value (&numbers)[count]) {
        uint32_t i = 0;
        ((numbers[i++] = Joins::template identity<Value>()), ...);
    }
    template <typename Value> static TALLOW_INLINE void combine(Value (&numbers)[count], const Value (&others)[count]) {
        uint32_t i = 0;
        ((numbers[i] = Joins::combine(numbers[i], others[i]), ++i), ...);
    }
    // The same of what elements contribute.
    template <typename Value>
    static TALLOW_INLINE void combine(Value (&numbers)[count], const Product<Value> (&terms)[count]) {
        uint32_t i = 0;
        ((numbers[i] = Joins::combine(numbers[i], terms[i]), ++i), ...);
    }
};

// Functors that are composed when a program runs say the types of their operands and results where these are not all T:
//
//     using Operands = Types<bf16, boolean>;
//     using Results = Types<float>;
//
// The numbers of these types are exact in the compute type of T, in which functors get and give them.
template <typename...> struct VoidOf {
    using type = void;
};
template <typename Functor, typename = void> constexpr bool has_types = false;
template <typename Functor> constexpr bool has_types<Functor, typename VoidOf<typename Functor::Operands>::type> = true;
template <typename T> struct TypeOf {
    using type = T;
};
template <typename Functor, typename = void> constexpr bool is_composed = false;
template <typename Functor>
constexpr bool is_composed<Functor, typename VoidOf<decltype(Functor::is_composed)>::type> = Functor::is_composed;

// The bytes of the largest type of a list.
template <typename List> constexpr uint32_t largest_type = 0;
template <typename First, typename... Others>
constexpr uint32_t largest_type<Types<First, Others...>> = sizeof(First) > largest_type<Types<Others...>>
                                                               ? sizeof(First)
                                                               : largest_type<Types<Others...>>;

// A number of T that was widened, which needs no rounding.
template <typename T, typename Value> TALLOW_INLINE T narrow(Value value) {
    if constexpr (is_same<T, bf16>)
        return bit_cast<bf16>(static_cast<uint16_t>(bit_cast<uint32_t>(static_cast<float>(value)) >> 16));
    else
        return convert<T>(value);
}

// Calls visit(TypeOf<type>{}) for type k of a list. NVRTC 13.0 takes no generic lambda, so visitors are structs.
template <typename Visit> TALLOW_INLINE void visit_type(Types<>, uint32_t, const Visit&) {
}
template <typename First, typename... Others, typename Visit>
TALLOW_INLINE void visit_type(Types<First, Others...>, uint32_t k, const Visit& visit) {
    if (k == 0)
        visit(TypeOf<First>{});
    else
        visit_type(Types<Others...>{}, k - 1, visit);
}

// Bit k is set if operand k is read in several passes, the results among them. Kernels keep these in registers, and
// load the others where they are read. A functor that does not say which they are has all its operands in registers,
// and so has one without passes that is not composed; results do not depend on it.
template <typename Functor, typename = void> constexpr uint32_t operands_in_registers = (1u << Functor::operands) - 1;
template <typename Functor>
constexpr uint32_t operands_in_registers<Functor, typename VoidOf<decltype(Functor::in_registers)>::type> =
    Functor::passes == 0 && !is_composed<Functor> ? (1u << Functor::operands) - 1 : Functor::in_registers;

// Whether pass `Pass` sums terms e**(.. - m) * .., where m is the maximum that the pass before joins, alone: bit `Pass`
// of `rescaled` is set. Kernels that read a row again in each pass do both in one: they multiply the sums by e**(m - n)
// when they find a maximum n > m.
template <typename Functor, typename = void> constexpr uint32_t rescaled_passes = 0;
template <typename Functor>
constexpr uint32_t rescaled_passes<Functor, typename VoidOf<decltype(Functor::rescaled)>::type> = Functor::rescaled;
template <typename Functor, uint32_t Pass>
constexpr bool is_rescaled = Pass < Functor::passes && (rescaled_passes<Functor> >> Pass & 1) != 0;

// Whether there are elements that contribute nothing to any reduction, which pad the end of a row: -inf
// of operand k where bit k of `padding` is set, and 0 where it is clear.
template <typename Functor, typename = void> constexpr bool has_padding = false;
template <typename Functor>
constexpr bool has_padding<Functor, typename VoidOf<decltype(Functor::padding)>::type> = true;
// How many outputs after the results are sums over all rows: `compute` gives what an element adds to the sum of its
// position.
template <typename Functor, typename = void> constexpr uint32_t row_totals = 0;
template <typename Functor>
constexpr uint32_t row_totals<Functor, typename VoidOf<decltype(Functor::totals)>::type> = Functor::totals;
template <typename Functor> constexpr uint32_t row_outputs = Functor::results + row_totals<Functor>;
// The length of arrays of outputs: NVRTC has none of 0, as where only numbers of rows are written.
template <typename Functor> constexpr uint32_t output_slots = row_outputs<Functor> == 0 ? 1 : row_outputs<Functor>;

// Bit k is set if operand k may be left out, which the address 0 says: then the number absent(k) stands for it.
template <typename Functor, typename = void> constexpr uint32_t optional_operands = 0;
template <typename Functor>
constexpr uint32_t optional_operands<Functor, typename VoidOf<decltype(Functor::optional)>::type> = Functor::optional;
template <typename Functor> TALLOW_INLINE bool is_absent(uint32_t operand, uint64_t address) {
    return (optional_operands<Functor> >> operand & 1) != 0 && address == 0;
}
template <typename Functor> TALLOW_INLINE float absent_number(uint32_t operand) {
    if constexpr (optional_operands<Functor> != 0)
        return Functor::absent(operand);
    else
        return 0.0f;
}

// Whether a residual may follow the operands: then operand 0 is the sum of both, rounded, which is
// written after the results and totals.
template <typename Functor, typename = void> constexpr bool adds_residual = false;
template <typename Functor>
constexpr bool adds_residual<Functor, typename VoidOf<decltype(Functor::adds_residual)>::type> = Functor::adds_residual;

// Whether rows have an index, the position of an element, or `no_index`: then results but those of composed functors
// are 0. What is known of a row begins with its numbers, and then has the element at the index of each operand k of
// which bit k of `at_index` is set.
constexpr uint64_t no_index = ~uint64_t{0};
template <typename Functor, typename = void> constexpr bool has_row_index = false;
template <typename Functor>
constexpr bool has_row_index<Functor, typename VoidOf<decltype(Functor::has_index)>::type> = Functor::has_index;
// Bit k is set if operand k of a composed functor has one number a row, which kernels of rows load before the first
// pass: what is known begins with these numbers.
template <typename Functor, typename = void> constexpr uint32_t operands_of_rows = 0;
template <typename Functor>
constexpr uint32_t operands_of_rows<Functor, typename VoidOf<decltype(Functor::of_rows)>::type> = Functor::of_rows;
template <typename Functor> TALLOW_INLINE constexpr bool is_number_of_row(uint32_t operand) {
    return (operands_of_rows<Functor> >> operand & 1) != 0;
}
// Bit k is set if operand k of a composed functor is known to have elements along the row.
template <typename Functor, typename = void> constexpr uint32_t operands_along_rows = 0;
template <typename Functor>
constexpr uint32_t operands_along_rows<Functor, typename VoidOf<decltype(Functor::along_rows)>::type> =
    Functor::along_rows;
// How many operands have a number for each row, of the compute type.
template <typename Functor, typename = void> constexpr uint32_t row_numbers = 0;
template <typename Functor>
constexpr uint32_t row_numbers<Functor, typename VoidOf<decltype(Functor::numbers)>::type> = Functor::numbers;
// How many results are a number for each row, of the compute type; with an index the second one is what the row counts
// for.
template <typename Functor, typename = void> constexpr uint32_t number_results = 0;
template <typename Functor>
constexpr uint32_t number_results<Functor, typename VoidOf<decltype(Functor::number_results)>::type> =
    Functor::number_results;

// Whether numbers of a row follow from its operands alone: then begin(row) sets them before the first pass,
// after those.
template <typename Functor, typename = void> constexpr bool has_begin = false;
template <typename Functor>
constexpr bool has_begin<Functor, typename VoidOf<decltype(Functor::has_begin)>::type> = Functor::has_begin;
template <typename T, typename Functor> TALLOW_INLINE void begin_constants(RowOf<T, Functor>& row) {
    if constexpr (has_begin<Functor>)
        Functor::template begin<T>(row);
}

template <typename Functor> constexpr uint32_t stored_operands = Functor::operands + (adds_residual<Functor> ? 1 : 0);

} // namespace tallow
