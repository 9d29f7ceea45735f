// Blocks of `block` threads, tiles of `tile` elements. Callers know FillAgain.
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using int16_t = short;
using uint32_t = unsigned int;
struct f16 {};
template <typename T> void fill(const Fill& arguments) {}
template <typename T> void fill_later(const FillLater& arguments) {}
