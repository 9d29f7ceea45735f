// Kernels on spans: elements side by side, which compilers take as vectors. What calls them brings operands of any
// layout into spans.
#pragma once

#include "functor.hpp"
#include "math.hpp"

#if defined(__F16C__) && !defined(__clang__)
#include <immintrin.h>
#define TALLOW_F16C 1
#endif

// The iterations of the loop below are independent, even if results overwrite operands.
#if defined(__clang__)
#define TALLOW_INDEPENDENT _Pragma("clang loop vectorize(assume_safety) interleave_count(2)")
#else
#define TALLOW_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace tallow {

// The parameter holds the bits of the one value.
template <typename Word, typename Arguments> TALLOW_INLINE void fill_span(const Arguments& arguments) {
    const auto result = pointer_to<Word>(arguments.results[0]);
    const auto value = static_cast<Word>(arguments.parameters[0]);
    for (uint64_t i = 0; i < arguments.count; ++i)
        result[i] = value;
}

// Floats that are computed in another type: they are converted for parts of a span, which stay in the cache, so that
// one function of floats serves all.
template <typename T, bool Small = is_small_float<T>> struct Widened {
    using type = T;
};
template <typename T> struct Widened<T, true> {
    using type = float;
};
template <typename T> using widened = typename Widened<T>::type;
constexpr uint64_t span_part = 512;

template <typename Function, typename Result, typename... Sources>
TALLOW_INLINE void map_span(uint64_t count, Function function, Result* result, const Sources*... sources) {
    TALLOW_INDEPENDENT
    for (uint64_t i = 0; i < count; ++i)
        result[i] = function(sources[i]...);
}

template <typename T> __attribute__((noinline)) void convert_span(uint64_t count, float* result, const T* source) {
    map_span(count, [](T x) { return to_float(x); }, result, source);
}
template <typename T> __attribute__((noinline)) void convert_span(uint64_t count, T* result, const float* source) {
    map_span(count, [](float x) { return round_from<T>(x); }, result, source);
}

// gcc converts f16 one by one.
#if defined(TALLOW_F16C)
template <> __attribute__((noinline)) inline void convert_span(uint64_t count, float* result, const f16* source) {
    uint64_t i = 0;
    for (; i + 8 <= count; i += 8)
        _mm256_storeu_ps(result + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(source + i))));
    for (; i < count; ++i)
        result[i] = to_float(source[i]);
}
template <> __attribute__((noinline)) inline void convert_span(uint64_t count, f16* result, const float* source) {
    uint64_t i = 0;
    for (; i + 8 <= count; i += 8)
        _mm_storeu_si128(reinterpret_cast<__m128i*>(result + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(source + i), _MM_FROUND_TO_NEAREST_INT));
    for (; i < count; ++i)
        result[i] = round_from<f16>(source[i]);
}
#endif

// Elements in the type in which they are computed: the source itself, or converted into the buffer. Zeros if there is
// no source.
template <typename T>
TALLOW_INLINE const widened<T>* computed_span(uint64_t count, const T* source, widened<T>* buffer) {
    if constexpr (is_small_float<T>) {
        if (source) {
            convert_span(count, buffer, source);
            return buffer;
        }
    } else {
        if (source)
            return source;
    }
    for (uint64_t i = 0; i < count; ++i)
        buffer[i] = 0;
    return buffer;
}
// The memory in which a result is computed: the result itself, or the buffer from which finish_span converts.
template <typename T> TALLOW_INLINE widened<T>* result_span(T* result, widened<T>* buffer) {
    if constexpr (is_small_float<T>)
        return buffer;
    else
        return result ? result : buffer;
}
template <typename T> TALLOW_INLINE void finish_span(uint64_t count, T* result, const widened<T>* computed) {
    if constexpr (is_small_float<T>) {
        if (result)
            convert_span(count, result, computed);
    }
}

template <typename T> TALLOW_INLINE T* optional_pointer(uint64_t address, uint64_t offset) {
    return address ? pointer_to<T>(address) + offset : nullptr;
}

// A functor of floats that are nearly always bounded: its variant is chosen for each part of the span.
template <typename Functor> TALLOW_INLINE void map_bounded_span(uint64_t count, float* result, const float* source) {
    for (uint64_t first = 0; first < count; first += span_part) {
        const uint64_t length = count - first < span_part ? count - first : span_part;
        uint32_t beyond = 0;
        for (uint64_t i = 0; i < length; ++i)
            beyond |= fabs(source[first + i]) <= Bounded::limit ? 0u : 1u;
        if (beyond)
            map_span(length, [](float x) { return Functor::apply(x); }, result + first, source + first);
        else
            map_span(length, [](float x) { return Functor::apply(Bounded(x)).value; }, result + first, source + first);
    }
}

// One copy for all dtypes that are computed in the sources' type.
template <typename Functor, typename Result, typename Arguments, typename... Sources>
__attribute__((noinline)) void compute_span(const Arguments& arguments, uint64_t count, Result* result,
                                            const Sources*... sources) {
    if constexpr (Functor::as_bounded && is_same<Result, float>)
        map_bounded_span<Functor>(count, result, sources...);
    else
        map_span(count, ElementFunction<Functor, Result, typename Last<Sources...>::type>(arguments), result,
                 sources...);
}

template <typename Functor, typename T, typename Result, typename... Sources, typename Arguments, uint32_t... K>
TALLOW_INLINE void widened_span(const Arguments& arguments, Result* result, Numbers<K...>) {
    float converted[sizeof...(Sources)][span_part];
    widened<Result> computed[is_small_float<Result> ? span_part : 1];
    for (uint64_t first = 0; first < arguments.count; first += span_part) {
        const uint64_t length = arguments.count - first < span_part ? arguments.count - first : span_part;
        (convert_span(length, converted[K], pointer_to<const T>(arguments.sources[K]) + first), ...);
        if constexpr (is_small_float<Result>) {
            compute_span<Functor>(arguments, length, computed, static_cast<const float*>(converted[K])...);
            convert_span(length, result + first, static_cast<const float*>(computed));
        } else {
            compute_span<Functor>(arguments, length, result + first, static_cast<const float*>(converted[K])...);
        }
    }
}

template <typename Functor, typename Result, typename... Sources, typename Arguments, uint32_t... K>
TALLOW_INLINE void plain_span(const Arguments& arguments, Result* result, Numbers<K...>) {
    compute_span<Functor>(arguments, arguments.count, result, pointer_to<const Sources>(arguments.sources[K])...);
}

// A functor of every element of the sources.
template <typename Functor, typename Result, typename... Sources, typename Arguments>
TALLOW_INLINE void elementwise_span(const Arguments& arguments) {
    using T = typename Last<Sources...>::type;
    const auto result = pointer_to<Result>(arguments.results[0]);
    const typename CountUp<sizeof...(Sources)>::type order;
    if constexpr (is_small_float<Result> && is_same<T, float>)
        // Nothing but a conversion makes such a result of floats.
        convert_span(arguments.count, result, pointer_to<const float>(arguments.sources[0]));
    else if constexpr (is_small_float<T> && !Functor::of_element)
        widened_span<Functor, T, Result, Sources...>(arguments, result, order);
    else
        plain_span<Functor, Result, Sources...>(arguments, result, order);
}

// A functor of two results.
template <typename Functor, typename T, typename Arguments, typename... Sources>
__attribute__((noinline)) void compute_joint_span(const Arguments& arguments, uint64_t count, T* first, T* second,
                                                  const Sources*... sources) {
    const ElementFunction<Functor, T, T> function(arguments);
    TALLOW_INDEPENDENT
    for (uint64_t i = 0; i < count; ++i) {
        const auto values = function(sources[i]...);
        first[i] = values.first;
        second[i] = values.second;
    }
}

template <typename Functor, typename... Sources, typename Arguments, uint32_t... K>
TALLOW_INLINE void joint_spans(const Arguments& arguments, Numbers<K...>) {
    using T = typename Last<Sources...>::type;
    T* const results[] = {pointer_to<T>(arguments.results[0]), pointer_to<T>(arguments.results[1])};
    if constexpr (is_small_float<T>) {
        float converted[sizeof...(K)][span_part], computed[2][span_part];
        for (uint64_t first = 0; first < arguments.count; first += span_part) {
            const uint64_t length = arguments.count - first < span_part ? arguments.count - first : span_part;
            (convert_span(length, converted[K], pointer_to<const T>(arguments.sources[K]) + first), ...);
            compute_joint_span<Functor>(arguments, length, computed[0], computed[1],
                                        static_cast<const float*>(converted[K])...);
            for (uint32_t r = 0; r < 2; ++r)
                convert_span(length, results[r] + first, static_cast<const float*>(computed[r]));
        }
    } else {
        compute_joint_span<Functor>(arguments, arguments.count, results[0], results[1],
                                    pointer_to<const Sources>(arguments.sources[K])...);
    }
}
template <typename Functor, typename... Sources, typename Arguments>
TALLOW_INLINE void joint_span(const Arguments& arguments) {
    joint_spans<Functor, Sources...>(arguments, typename CountUp<sizeof...(Sources)>::type{});
}

} // namespace tallow
