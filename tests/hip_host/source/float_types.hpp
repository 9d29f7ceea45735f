// The 16-bit floats of the libraries' operands. Both round to nearest, ties to even.
#pragma once

#include <cstdint>
#include <cstring>

namespace hip_host {

template <class To, class From> To bits_as(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    std::memcpy(&to, &from, sizeof(To));
    return to;
}

struct BFloat16 {
    std::uint16_t bits;

    BFloat16() = default;
    explicit BFloat16(float value) {
        const auto wide = bits_as<std::uint32_t>(value);
        const bool is_nan = (wide & 0x7fffffff) > 0x7f800000;
        bits = static_cast<std::uint16_t>(is_nan ? wide >> 16 | 0x40 : (wide + 0x7fff + (wide >> 16 & 1)) >> 16);
    }
    explicit operator float() const { return bits_as<float>(static_cast<std::uint32_t>(bits) << 16); }
};

struct Half {
    std::uint16_t bits;

    Half() = default;
    explicit Half(float value) {
        const auto wide = bits_as<std::uint32_t>(value);
        const std::uint32_t sign = wide >> 16 & 0x8000, magnitude = wide & 0x7fffffff;
        std::uint32_t result;
        if (magnitude > 0x7f800000)
            result = 0x7e00;
        else if (magnitude >= 0x477ff000) // what would round up to 2^16
            result = 0x7c00;
        else if (magnitude < 0x38800000) // subnormal: adding 1/2 moves its last place to the float's last place
            result = bits_as<std::uint32_t>(bits_as<float>(magnitude) + 0.5f) - 0x3f000000;
        else
            result = (magnitude + 0xfff + (magnitude >> 13 & 1) - 0x38000000) >> 13;
        bits = static_cast<std::uint16_t>(sign | result);
    }
    explicit operator float() const {
        const std::uint32_t sign = (bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
        if (magnitude >= 0x7c00)
            return bits_as<float>(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
        const float scaled = bits_as<float>(magnitude << 13) * 0x1p112f; // also right for subnormals
        return bits_as<float>(sign | bits_as<std::uint32_t>(scaled));
    }
};

} // namespace hip_host
