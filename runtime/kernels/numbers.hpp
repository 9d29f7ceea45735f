// Numbers as types.
#pragma once

#include "platform.hpp"

namespace tallow {

// 0, 1, .. Count - 1 as a type, by which each source of a function finds its own strides.
template <uint32_t... K> struct Numbers {};
template <uint32_t Count, uint32_t... K> struct CountUp : CountUp<Count - 1, Count - 1, K...> {};
template <uint32_t... K> struct CountUp<0, K...> {
    using type = Numbers<K...>;
};

} // namespace tallow
