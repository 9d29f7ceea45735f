using uint8_t = unsigned char;
using uint16_t = unsigned short;
using int16_t = short;
struct f16 {};
template <typename T> void fill(const Fill& arguments) {}
template <typename T> void fill_later(const FillLater& arguments) {}
