// Derived values of row formulas (see row_vectors.hpp) on GPUs: a row in registers keeps them between stages, as far as
// they fit, and other kernels compute them again in each stage.
#pragma once

#include "row_passes.hpp"

namespace tallow {

template <typename Value, typename Vector> struct PutElement {
    Vector& vector;
    uint32_t i;
    Value element;
    template <typename Type> TALLOW_INLINE void operator()(TypeOf<Type>) const {
        put_element(vector, i, narrow<Type>(element));
    }
};

// Which derived values stay in registers where a thread has this many vectors of a row. The others are recomputed.
constexpr uint32_t derived_registers = 32;
template <typename Functor, uint32_t N, uint32_t Vectors>
constexpr uint32_t resident_values =
    lowest_bits<(1u << Functor::derived) - 1,
                derived_registers / Vectors / ((N * largest_type<typename Functor::Derived> + 3) / 4)>;

// The derived values of a vector, of which those of the mask `Resident` stay in registers, and stay packed there if
// `IsPacked`.
template <typename Functor, typename T, uint32_t N, uint32_t Resident, bool IsPacked = true,
          bool Derives = derived_values<Functor> != 0>
struct DerivedValues {
    using Value = compute_type<T>;
    using Vector = Registers<largest_type<typename Functor::Derived> * N>;
    Vector vectors[Functor::derived] = {};

    // Computes the values that a stage needs of element i, and takes those that are resident since an earlier one.
    template <uint32_t Stage, uint32_t At = 0>
    TALLOW_INLINE void derive(const RowOf<T, Functor>& row, Value (&elements)[row_elements<Functor>], uint32_t i,
                              uint32_t position) {
        Functor::template derive<At, T>(row, elements, position);
#pragma unroll
        for (uint32_t d = 0; d < Functor::derived; ++d) {
            if ((Resident & Functor::template derives<At>) >> d & 1) {
                Value& element = elements[Functor::operands + d];
                if constexpr (At < Stage)
                    visit_type(typename Functor::Derived{}, d, TakeElement<Value, Vector>{vectors[d], i, element});
                else
                    visit_type(typename Functor::Derived{}, d, PutElement<Value, Vector>{vectors[d], i, element});
            }
        }
        if constexpr (At < Stage)
            derive<Stage, At + 1>(row, elements, i, position);
    }
    // As `packed`, of what is resident when a stage begins.
    template <uint32_t Stage> TALLOW_INLINE void hide() {
        if constexpr (IsPacked && Stage > 0) {
#pragma unroll
            for (uint32_t d = 0; d < Functor::derived; ++d)
                if ((Resident & Functor::template derives<Stage - 1>) >> d & 1)
                    visit_type(typename Functor::Derived{}, d, HideVector<N, Vector>{vectors[d]});
            hide<Stage - 1>();
        }
    }
};
template <typename Functor, typename T, uint32_t N, uint32_t Resident, bool IsPacked>
struct DerivedValues<Functor, T, N, Resident, IsPacked, false> {
    using Value = compute_type<T>;
    template <uint32_t Stage>
    TALLOW_INLINE void derive(const RowOf<T, Functor>&, Value (&)[row_elements<Functor>], uint32_t, uint32_t) const {
    }
    template <uint32_t Stage> TALLOW_INLINE void hide() const {
    }
};

// The derived values of a vector, for a thread with this many vectors of a row in registers.
template <typename Functor, typename T, uint32_t N, uint32_t Vectors, bool Derives = derived_values<Functor> != 0>
struct DerivedOf {
    using type =
        DerivedValues<Functor, T, N, resident_values<Functor, N, Vectors>, stays_packed<Functor, T, N, Vectors>>;
};
template <typename Functor, typename T, uint32_t N, uint32_t Vectors> struct DerivedOf<Functor, T, N, Vectors, false> {
    using type = DerivedValues<Functor, T, N, 0>;
};

} // namespace tallow
