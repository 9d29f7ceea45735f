// The dims of a call on several operands.
#pragma once

#include "platform.hpp"

namespace tallow {

// Dims merged where all operands allow it, the innermost first: that in which elements of operand 0, which is written,
// are nearest to each other. Those of other dims follow in its order.
class Dims {
  public:
    // `strides` has max_rank of them for each operand.
    Dims(uint32_t operands, uint32_t rank, const uint64_t* sizes, const int64_t* strides) : operands_(operands) {
        uint32_t order[max_rank];
        for (uint32_t d = 0; d < rank; ++d) {
            uint32_t slot = d;
            for (; slot > 0 && strides[order[slot - 1]] > strides[d]; --slot)
                order[slot] = order[slot - 1];
            order[slot] = d;
        }
        for (uint32_t d = 0; d < rank; ++d)
            if (sizes[order[d]] != 1)
                add(sizes[order[d]], strides + order[d]);
        if (rank_ == 0) {
            sizes_[0] = rank_ = 1;
            for (uint32_t k = 0; k < operands_; ++k)
                strides_[k][0] = 1;
        }
        for (uint32_t k = 0; k < operands_; ++k) {
            int64_t length = 1;
            is_dense_[k] = true;
            for (uint32_t d = 0; d < rank_; ++d) {
                is_dense_[k] = is_dense_[k] && strides_[k][d] == length;
                length *= static_cast<int64_t>(sizes_[d]);
            }
        }
    }

    uint32_t rank() const {
        return rank_;
    }
    uint64_t size(uint32_t d) const {
        return sizes_[d];
    }
    int64_t stride(uint32_t k, uint32_t d) const {
        return strides_[k][d];
    }
    // Whether an operand's elements are side by side in the order of the dims.
    bool is_dense(uint32_t k) const {
        return is_dense_[k];
    }
    // Where an operand has the element of this number.
    int64_t offset_of(uint32_t k, uint64_t number) const {
        if (is_dense_[k])
            return static_cast<int64_t>(number);
        int64_t result = 0;
        for (uint32_t d = 0; d < rank_; ++d) {
            result += static_cast<int64_t>(number % sizes_[d]) * strides_[k][d];
            number /= sizes_[d];
        }
        return result;
    }

  private:
    void add(uint64_t size, const int64_t* strides) {
        bool merges = rank_ > 0;
        for (uint32_t k = 0; k < operands_ && merges; ++k)
            merges = strides[k * max_rank] == strides_[k][rank_ - 1] * static_cast<int64_t>(sizes_[rank_ - 1]);
        if (merges) {
            sizes_[rank_ - 1] *= size;
            return;
        }
        sizes_[rank_] = size;
        for (uint32_t k = 0; k < operands_; ++k)
            strides_[k][rank_] = strides[k * max_rank];
        ++rank_;
    }

    uint32_t operands_;
    uint32_t rank_ = 0;
    uint64_t sizes_[max_rank] = {};
    int64_t strides_[max_operands][max_rank] = {};
    bool is_dense_[max_operands] = {};
};

// Goes from element to element in the order of the dims, and knows where the operands have it.
class Cursor {
  public:
    Cursor(const Dims& dims, uint32_t operands, uint64_t number) : dims_(dims), operands_(operands) {
        for (uint32_t k = 0; k < operands; ++k)
            offsets_[k] = dims.offset_of(k, number);
        for (uint32_t d = 0; d < dims.rank(); ++d) {
            at_[d] = number % dims.size(d);
            number /= dims.size(d);
        }
    }
    int64_t offset(uint32_t k) const {
        return offsets_[k];
    }
    // How many elements are left of the row.
    uint64_t left() const {
        return dims_.size(0) - at_[0];
    }
    // At most to the end of the row.
    TALLOW_INLINE void advance(uint64_t count) {
        step(0, count);
        for (uint32_t d = 0; d + 1 < dims_.rank() && at_[d] == dims_.size(d); ++d) {
            for (uint32_t k = 0; k < operands_; ++k)
                offsets_[k] -= static_cast<int64_t>(at_[d]) * dims_.stride(k, d);
            at_[d] = 0;
            step(d + 1, 1);
        }
    }

  private:
    TALLOW_INLINE void step(uint32_t d, uint64_t count) {
        at_[d] += count;
        for (uint32_t k = 0; k < operands_; ++k)
            offsets_[k] += static_cast<int64_t>(count) * dims_.stride(k, d);
    }

    const Dims& dims_;
    const uint32_t operands_;
    int64_t offsets_[max_operands] = {};
    uint64_t at_[max_rank] = {};
};

} // namespace tallow
