// Row formulas that are composed when a program runs: the maps and row formulas of a fused function as one functor, see
// row_formula.hpp. Its text calls those of its ops: what it knows of a row contains what each of them does.
#pragma once

#include "functor.hpp"
#include "row_formula.hpp"

namespace tallow {

// One of the joins of a pass.
template <typename List, uint32_t Index> struct TypeAt;
template <typename First, typename... Others> struct TypeAt<Types<First, Others...>, 0> {
    using type = First;
};
template <typename First, typename... Others, uint32_t Index>
struct TypeAt<Types<First, Others...>, Index> : TypeAt<Types<Others...>, Index - 1> {};
template <typename Reduced, uint32_t Index> using JoinAt = typename TypeAt<typename Reduced::List, Index>::type;

// Sets a number, if there is one at this position.
template <uint32_t Target, typename Number, uint32_t Count>
TALLOW_INLINE void put_number([[maybe_unused]] Number (&numbers)[Count], [[maybe_unused]] Number number) {
    if constexpr (Target < Count)
        numbers[Target] = number;
}

// The bits of a number of each call, which the row has as one of the compute type.
template <typename Value> TALLOW_INLINE uint64_t bits_of(Value number) {
    return bit_cast<typename Word<sizeof(Value)>::type>(number);
}

// The power of two by which floats of 16 bits with f32's exponents are multiplied before they are divided by a number,
// so that the reciprocal of this product is neither subnormal nor infinite.
template <typename T> TALLOW_INLINE float unit_of_quotients(float divisor) {
    const float size = fabs(divisor);
    return T::bias < 127 ? 1.0f : size > 0x1p100f ? 0x1p-64f : size < 0x1p-100f ? 0x1p64f : 1.0f;
}
template <typename T> TALLOW_INLINE float reciprocal_of_number(T y) {
    const float divisor = to_compute(y);
    return 1.0f / unit_of_quotients<T>(divisor) / divisor;
}
// A float that is rounded to x / y, of elements of 16 bits and a number of their row, by the reciprocal of the number.
// That is off by 2**-23 of the quotient at most, and a quotient of numbers of n bits is 2**(-2n - 1) of itself and more
// away from any number of n + 1 bits: so it is rounded to the same. A subnormal quotient may be such a number: with
// f32's exponents the product is rounded to it, else the residual corrects the product.
template <typename T> TALLOW_INLINE float divide_by_number(T x, T y, float reciprocal) {
    const float dividend = to_compute(x), divisor = to_compute(y);
    const float quotient = dividend * unit_of_quotients<T>(divisor) * reciprocal, size = fabs(quotient);
    const float nearer = fma(fma(-quotient, divisor, dividend), reciprocal, quotient);
    const bool is_subnormal = T::bias < 127 && size < bit_cast<float>((128u - T::bias) << 23) && size > 0.0f;
    return is_subnormal ? nearer : quotient;
}

// The results of elements and, after these, what sums over rows would add up.
template <typename Functor, typename T> struct RowResults {
    compute_type<T> values[output_slots<Functor>];
};

// The numbers that an op gives for a row.
template <typename Functor, typename T> struct RowConclusion {
    compute_type<T> values[number_results<Functor>];
};

// A row formula in a composed one: its known numbers and parameters are the ones of these positions there.
template <typename Functor, typename Known, typename Parameters> struct ComposedRow;
template <typename Functor, uint32_t... Known, uint32_t... Parameter>
struct ComposedRow<Functor, Numbers<Known...>, Numbers<Parameter...>> {
    // T is the dtype of the formula, whose compute type is that of the row.
    template <typename T, typename Row> static TALLOW_INLINE RowOf<T, Functor> row_of(const Row& row) {
        RowOf<T, Functor> own{};
        own.count = row.count;
        own.index = row.index;
        uint32_t i = 0, j = 0;
        ((own.known[i++] = row.known[Known]), ...);
        ((own.parameters[j++] = row.parameters[Parameter]), ...);
        return own;
    }
    // Sets numbers to what an element contributes to a pass: for each of its joins the one at its target, if any.
    template <uint32_t Pass, typename T, uint32_t... Target, typename Row, typename Position, typename Number,
              uint32_t Count, typename... Elements>
    static TALLOW_INLINE void contribute(Numbers<Target...>, const Row& row, Position position,
                                         Number (&numbers)[Count], Elements... elements) {
        using Joins = typename Functor::template Reduced<Pass>;
        using Value = typename Row::Value;
        const Value own[] = {convert<Value>(to_compute(elements))...};
        Number contributions[Joins::count];
        Functor::template contribute<Pass, T>(row_of<T>(row), own, position, contributions);
        uint32_t i = 0;
        (put_number<Target>(numbers, contributions[i++]), ...);
    }
    template <uint32_t Pass, typename T, typename Row> static TALLOW_INLINE void finish(Row& row) {
        RowOf<T, Functor> own = row_of<T>(row);
        Functor::template finish<Pass, T>(own);
        uint32_t i = 0;
        ((row.known[Known] = own.known[i++]), ...);
    }
    // Sets what follows from the numbers that are operands of the formula.
    template <typename T, typename Row> static TALLOW_INLINE void begin(Row& row) {
        RowOf<T, Functor> own = row_of<T>(row);
        begin_constants(own);
        uint32_t i = 0;
        ((row.known[Known] = own.known[i++]), ...);
    }
    // The result of a reduction, rounded.
    template <typename T, typename Row> static TALLOW_INLINE T reduced(const Row& row) {
        const compute_type<T> elements[Functor::operands] = {};
        compute_type<T> result[1];
        Functor::template compute<T>(row_of<T>(row), elements, compute_type<T>{0}, result);
        return convert<T>(result[0]);
    }
    // The numbers of the row, which are 0 if its index does not count.
    template <typename T, typename Row> static TALLOW_INLINE RowConclusion<Functor, T> concluded(const Row& row) {
        RowConclusion<Functor, T> numbers;
        Functor::template conclude<T>(row_of<T>(row), numbers.values);
#pragma unroll
        for (uint32_t r = 0; r < number_results<Functor>; ++r)
            numbers.values[r] =
                has_row_index<Functor> && row.index == no_index ? compute_type<T>{0} : numbers.values[r];
        return numbers;
    }
    template <typename T, typename Row, typename Position, typename... Elements>
    static TALLOW_INLINE RowResults<Functor, T> compute(const Row& row, Position position, Elements... elements) {
        using Value = typename Row::Value;
        const Value own[] = {convert<Value>(to_compute(elements))...};
        RowResults<Functor, T> own_results;
        Functor::template compute<T>(row_of<T>(row), own, position, own_results.values);
        return own_results;
    }
};

} // namespace tallow
