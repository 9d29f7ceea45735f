// Reductions of spans. Parts of them are combined in an order that depends on their length alone.
#pragma once

#include "fold_state.hpp"

namespace tallow {

// Floats that bf16 represents exactly are combined as bf16: that code is compiled once.
template <typename T, bool IsWithin = is_within_bf16<T>> struct Joinable {
    using type = T;
};
template <typename T> struct Joinable<T, true> {
    using type = bf16;
};

// What a reduction does with its elements, states and results, for what calls it without their types.
struct FoldSteps {
    uint64_t source_bytes;
    uint64_t state_bytes;
    uint64_t result_bytes;
    // The states of spans of elements side by side, or in runs, with a stride of `stride` bytes; the first element has
    // this index.
    void (*of_spans)(void* states, const void* source, const Runs& runs, uint64_t spans, uint64_t length,
                     uint64_t stride, uint64_t index);
    // The states of columns of the rows [begin, end), with a stride of `stride` elements; `source` is the first of
    // them.
    void (*of_columns)(void* states, const void* source, uint64_t width, uint64_t stride, uint64_t begin, uint64_t end);
    void (*join)(void* states, const void* others, uint64_t count);
    // The state of all of these.
    void (*join_all)(void* state, const void* states, uint64_t count);
    void (*finish)(void* results, const void* states, uint64_t count, uint64_t length, const uint64_t* parameters);
};

template <template <typename> typename Op, typename T> struct Fold {
    using Of = Op<T>;
    using State = typename Of::State;
    using Result = typename Of::Result;
    using Converted = typename Joinable<T>::type;
    using Proxy = decltype(proxy_of<Op, T, uint8_t, uint64_t, bf16, double, complex128>());
    using Shared = States<typename Op<Proxy>::Joining>;
    using Joins = ElementFold<typename Op<Converted>::Joining, Converted, Shared>;
    static constexpr bool is_converted = !is_same<T, Converted>;

    static __attribute__((noinline)) void convert_to(Converted* converted, const T* source, uint64_t count) {
        map_span(count, [](T x) { return convert<Converted>(x); }, converted, source);
    }
    static void of_spans(void* states, const void* source, const Runs& runs, uint64_t spans, uint64_t length,
                         uint64_t stride, uint64_t index) {
        const auto results = static_cast<State*>(states);
        const auto first = static_cast<const uint8_t*>(source);
        if (runs.elements != 0) {
            of_gathered(results, first, runs, spans, length, stride, index);
            return;
        }
        for (uint64_t i = 0; i < spans; ++i)
            results[i] = of_span({reinterpret_cast<const T*>(first + i * stride) + index}, length, index);
    }
    static __attribute__((noinline)) void of_gathered(State* states, const uint8_t* first, const Runs& runs,
                                                      uint64_t spans, uint64_t length, uint64_t stride,
                                                      uint64_t index) {
        T gathered[fold_piece];
        RunSource<T> in_runs = {first, runs, index, gathered};
        for (uint64_t i = 0; i < spans; ++i, in_runs.source += stride)
            states[i] = of_span({nullptr, &in_runs}, length, index);
    }
    static TALLOW_INLINE State of_span(SpanSource<T> elements, uint64_t length, uint64_t index) {
        if constexpr (is_converted) {
            Converted converted[fold_length];
            for (uint64_t first = 0, count = 0; first < length; first += count) {
                count = elements.together(first, length - first);
                convert_to(converted + first, elements.at(first, count), count);
            }
            return Joins::of_elements({converted}, length, index);
        } else {
            return Joins::of_elements(elements, length, index);
        }
    }
    static void of_columns(void* states, const void* source, uint64_t width, uint64_t stride, uint64_t begin,
                           uint64_t end) {
        const auto columns = static_cast<State*>(states);
        const T* const first = static_cast<const T*>(source);
        if constexpr (is_converted) {
            Converted converted[fold_height * fold_columns];
            State near[fold_columns];
            for (uint64_t row = begin; row < end; row += fold_height) {
                const uint64_t last = end - row < fold_height ? end : row + fold_height;
                for (uint64_t i = row; i < last; ++i)
                    convert_to(converted + (i - row) * width, first + (i - begin) * stride, width);
                Joins::of_columns(row == begin ? columns : near, width, converted, width, row, last);
                if (row != begin)
                    Shared::join(columns, near, width);
            }
        } else {
            Joins::of_columns(columns, width, first, stride, begin, end);
        }
    }
    static void join(void* states, const void* others, uint64_t count) {
        Shared::join(static_cast<State*>(states), static_cast<const State*>(others), count);
    }
    static void join_all(void* state, const void* states, uint64_t count) {
        *static_cast<State*>(state) = Shared::combine_all(static_cast<const State*>(states), count);
    }
    static void finish(void* results, const void* states, uint64_t count, uint64_t length, const uint64_t* parameters) {
        struct {
            const uint64_t* parameters;
        } const arguments = {parameters};
        TALLOW_SELDOM
        for (uint64_t i = 0; i < count; ++i)
            static_cast<Result*>(results)[i] = Of::result(static_cast<const State*>(states)[i], length, arguments);
    }
    static_assert(sizeof(State) <= max_state_bytes, "states need more bytes");
    static constexpr FoldSteps steps = {sizeof(T),  sizeof(State), sizeof(Result), of_spans,
                                        of_columns, join,          join_all,       finish};
};

// How many bytes a row, or a group of columns, is from the first one.
template <typename Arguments> TALLOW_INLINE int64_t outer_offset(const Arguments& arguments, uint64_t number) {
    return static_cast<int64_t>(number / arguments.outer_run) * arguments.outer_run_stride +
           static_cast<int64_t>(number % arguments.outer_run) * arguments.outer_stride;
}

// Rows, of which each is dense or gathered a piece at a time.
template <typename Arguments>
__attribute__((noinline)) void fold_rows_by(const FoldSteps& steps, const Arguments& arguments) {
    const uint64_t length = arguments.length;
    const auto source = pointer_to<const uint8_t>(arguments.source);
    const auto result = pointer_to<char>(arguments.result);
    const auto finish = [=, &steps, &arguments](uint64_t row, const void* states, uint64_t count) {
        steps.finish(result + row * steps.result_bytes, states, count, length, arguments.parameters);
    };
    const Runs runs = {arguments.run, static_cast<uint64_t>(arguments.run_stride),
                       static_cast<uint64_t>(arguments.step)};
    // The states of parts of rows.
    const auto find_states = [=, &steps, &arguments](void* states, uint64_t row, uint64_t rows, uint64_t first,
                                                     uint64_t count) {
        for (uint64_t done = 0, together = 0; done < rows; done += together) {
            const uint64_t left = arguments.outer_run - (row + done) % arguments.outer_run;
            together = left < rows - done ? left : rows - done;
            steps.of_spans(static_cast<char*>(states) + done * steps.state_bytes,
                           source + outer_offset(arguments, row + done), runs, together, count, arguments.outer_stride,
                           first);
        }
    };
    const uint64_t parts = (length + fold_length - 1) / fold_length;
    if (parts <= 1) {
        const uint64_t together = fold_length / (length + 1) + 1;
        do_parts(arguments, (arguments.outputs + together - 1) / together, [=, &arguments](uint64_t part) {
            alignas(64) char states[spans_at_once * max_state_bytes];
            const uint64_t end = (part + 1) * together < arguments.outputs ? (part + 1) * together : arguments.outputs;
            for (uint64_t row = part * together; row < end; row += spans_at_once) {
                const uint64_t count = end - row < spans_at_once ? end - row : spans_at_once;
                find_states(states, row, count, 0, length);
                finish(row, states, count);
            }
        });
        return;
    }
    const auto states = pointer_to<char>(arguments.states);
    do_parts(arguments, arguments.outputs * parts, [=, &steps](uint64_t part) {
        const uint64_t first = part % parts * fold_length;
        const uint64_t left = length - first;
        find_states(states + part * steps.state_bytes, part / parts, 1, first, left < fold_length ? left : fold_length);
    });
    for (uint64_t row = 0; row < arguments.outputs; ++row) {
        alignas(64) char state[max_state_bytes];
        steps.join_all(state, states + row * parts * steps.state_bytes, parts);
        finish(row, state, 1);
    }
}

// Dense columns of rows, which are as far from each other as elements of runs are: in parts of rows where there are few
// columns.
template <typename Arguments>
__attribute__((noinline)) void fold_columns_by(const FoldSteps& steps, const Arguments& arguments) {
    const uint64_t length = arguments.length;
    const uint64_t inner = arguments.inner;
    const auto source = pointer_to<const uint8_t>(arguments.source);
    const auto result = pointer_to<char>(arguments.result);
    const auto states = pointer_to<char>(arguments.states);
    const auto finish = [=, &steps, &arguments](uint64_t index, const void* columns, uint64_t count) {
        steps.finish(result + index * steps.result_bytes, columns, count, length, arguments.parameters);
    };
    const bool is_gathered = arguments.run != length;
    const auto find_states = [=, &steps, &arguments](char* columns, const uint8_t* from, uint64_t width, uint64_t begin,
                                                     uint64_t end) {
        if (!is_gathered) {
            const int64_t stride = arguments.step / static_cast<int64_t>(steps.source_bytes);
            steps.of_columns(columns, from + begin * arguments.step, width, stride, begin, end);
            return;
        }
        alignas(64) uint8_t gathered[fold_height * gathered_row_bytes];
        alignas(64) char near[gathered_row_bytes * max_state_bytes];
        const uint64_t bytes = width * steps.source_bytes;
        for (uint64_t row = begin; row < end; row += fold_height) {
            const uint64_t last = end - row < fold_height ? end : row + fold_height;
            uint64_t run = row / arguments.run, element = row % arguments.run;
            for (uint64_t i = row; i < last; ++i) {
                copy_bytes(gathered + (i - row) * bytes, from + run * arguments.run_stride + element * arguments.step,
                           bytes);
                if (++element == arguments.run) {
                    element = 0;
                    ++run;
                }
            }
            steps.of_columns(row == begin ? columns : near, gathered, width, width, row, last);
            if (row != begin)
                steps.join(columns, near, width);
        }
    };
    const uint64_t piece = is_gathered ? gathered_row_bytes / steps.source_bytes : fold_columns;
    const uint64_t pieces = (inner + piece - 1) / piece;
    const uint64_t height = arguments.split;
    const uint64_t splits = (length + height - 1) / height;
    do_parts(arguments, arguments.outputs / inner * pieces * splits, [=, &steps, &arguments](uint64_t part) {
        alignas(64) char own[fold_columns * max_state_bytes];
        const uint64_t split = part % splits;
        const uint64_t column = part / splits % pieces * piece;
        const uint64_t outer = part / splits / pieces;
        const uint64_t width = inner - column < piece ? inner - column : piece;
        const uint64_t begin = split * height;
        const uint64_t index = outer * inner + column;
        char* const columns = splits == 1 ? own : states + (split * arguments.outputs + index) * steps.state_bytes;
        find_states(columns, source + outer_offset(arguments, outer) + column * steps.source_bytes, width, begin,
                    begin + height < length ? begin + height : length);
        if (splits == 1)
            finish(index, columns, width);
    });
    if (splits == 1)
        return;
    do_parts(arguments, (arguments.outputs + fold_columns - 1) / fold_columns, [=, &steps, &arguments](uint64_t part) {
        const uint64_t first = part * fold_columns;
        const uint64_t left = arguments.outputs - first;
        const uint64_t width = left < fold_columns ? left : fold_columns;
        char* const columns = states + first * steps.state_bytes;
        for (uint64_t split = 1; split < splits; ++split)
            steps.join(columns, columns + split * arguments.outputs * steps.state_bytes, width);
        finish(first, columns, width);
    });
}

template <template <typename> typename Op, typename T, typename Arguments>
TALLOW_INLINE void fold_rows(const Arguments& arguments) {
    fold_rows_by(Fold<Op, T>::steps, arguments);
}
template <template <typename> typename Op, typename T, typename Arguments>
TALLOW_INLINE void fold_columns_of(const Arguments& arguments) {
    fold_columns_by(Fold<Op, T>::steps, arguments);
}

} // namespace tallow
