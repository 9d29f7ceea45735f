// Launches: what HIP checks, then the blocks over a pool of threads.
#include "allocation.hpp"
#include "fault.hpp"
#include "module.hpp"
#include "stream.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

namespace hip_host {
namespace {

// Blocks in an order that a seed turns (HIP_HOST_SHUFFLE): block i is (i * step + offset) mod count, with step and
// count coprime, so each comes once.
class BlockOrder {
  public:
    BlockOrder(std::uint64_t count, std::uint64_t seed) : count_(count) {
        if (!seed || count < 2)
            return;
        seed *= 0x9e3779b97f4a7c15;
        offset_ = (seed >> 32) % count;
        step_ = (seed >> 7) % count | 1;
        while (std::gcd(step_, count) != 1)
            step_ += 2;
    }
    std::uint64_t operator[](std::uint64_t index) const {
        __extension__ using Wide = unsigned __int128;
        return static_cast<std::uint64_t>((static_cast<Wide>(index) * step_ + offset_) % count_);
    }

  private:
    std::uint64_t count_, step_ = 1, offset_ = 0;
};

struct Grid {
    const KernelCall& call;
    std::uint64_t blocks;
    BlockOrder order;
    std::uint64_t chunk;
    std::atomic<std::uint64_t> next{0};
    std::atomic<bool> failed{false};

    // What each thread of the pool does: takes blocks until none is left.
    void work() {
        watch_faults();
        BlockRunner& runner = block_runner();
        const std::uint64_t rows = call.grid.x, layers = call.grid.y;
        for (std::uint64_t first; (first = next.fetch_add(chunk)) < blocks;) {
            for (std::uint64_t index = first; index < std::min(first + chunk, blocks); ++index) {
                if (failed)
                    return;
                const std::uint64_t block = order[index], row = block / rows;
                const hip_host_index at{static_cast<unsigned>(block % rows), static_cast<unsigned>(row % layers),
                                        static_cast<unsigned>(row / layers)};
                if (!runner.run(call, at))
                    failed = true;
            }
        }
    }
};

// The threads that help the one that launches. They live as long as the process.
class Pool {
  public:
    explicit Pool(int helpers) {
        for (int index = 0; index < helpers; ++index)
            std::thread([this] { help(); }).detach();
        helpers_ = helpers;
    }

    void run(Grid& grid) {
        // Waking the pool takes longer than a small grid; a second launch at the same time runs on its own thread.
        const std::uint64_t threads = grid.blocks * grid.call.block.x * grid.call.block.y * grid.call.block.z;
        std::unique_lock busy(launching_, std::try_to_lock);
        if (!helpers_ || grid.blocks < 2 || threads < 4096 || !busy) {
            grid.work();
            return;
        }
        {
            std::lock_guard lock(mutex_);
            grid_ = &grid;
            ++generation_;
        }
        wake_.notify_all();
        grid.work();
        std::unique_lock lock(mutex_);
        grid_ = nullptr; // a helper that has not woken up by now finds nothing to do
        idle_.wait(lock, [this] { return working_ == 0; });
    }

  private:
    void help() {
        std::unique_lock lock(mutex_);
        for (std::uint64_t seen = 0;;) {
            wake_.wait(lock, [&] { return generation_ != seen; });
            seen = generation_;
            Grid* grid = grid_;
            if (!grid)
                continue;
            ++working_;
            lock.unlock();
            grid->work();
            lock.lock();
            if (--working_ == 0)
                idle_.notify_one();
        }
    }

    std::mutex launching_, mutex_;
    std::condition_variable wake_, idle_;
    Grid* grid_ = nullptr;
    std::uint64_t generation_ = 0;
    int helpers_ = 0, working_ = 0;
};

// Never destroyed: its threads wait on it until the process ends.
Pool& pool() {
    static Pool& instance = *new Pool(multiprocessor_count() - 1);
    return instance;
}

// A kernel's arguments, copied when it is launched, as HIP does.
class Arguments {
  public:
    explicit Arguments(const ihipModuleSymbol_t& function)
        : function_(function), storage_(function.argument_bytes / sizeof(Unit) + 1) {
        for (std::size_t offset : function.offsets)
            pointers_.push_back(data() + offset);
    }

    hipError_t take_parameters(void** parameters) {
        const hip_host_kernel& kernel = *function_.kernel;
        for (unsigned index = 0; index < kernel.parameter_count; ++index) {
            if (!parameters[index])
                return hipErrorInvalidValue;
            std::memcpy(pointers_[index], parameters[index], kernel.parameters[index].size);
        }
        return hipSuccess;
    }

    // `extra` is a list of markers and values. The buffer must be as large as the kernel's arguments: HIP would read
    // what a short one lacks from beyond it.
    hipError_t take_buffer(void** extra) {
        const void* buffer = nullptr;
        std::size_t bytes = 0;
        for (; reinterpret_cast<std::uintptr_t>(*extra) != HIP_LAUNCH_PARAM_END; extra += 2) {
            switch (reinterpret_cast<std::uintptr_t>(extra[0])) {
            case HIP_LAUNCH_PARAM_BUFFER_POINTER:
                buffer = extra[1];
                break;
            case HIP_LAUNCH_PARAM_BUFFER_SIZE:
                bytes = *static_cast<const std::size_t*>(extra[1]);
                break;
            default:
                return hipErrorInvalidValue;
            }
        }
        if (bytes != function_.argument_bytes || (bytes && !buffer))
            return hipErrorInvalidValue;
        std::memcpy(data(), buffer, bytes);
        return hipSuccess;
    }

    void* const* pointers() const { return pointers_.data(); }

  private:
    struct alignas(16) Unit {
        char bytes[16];
    };

    char* data() { return reinterpret_cast<char*>(storage_.data()); }

    const ihipModuleSymbol_t& function_;
    std::vector<Unit> storage_;
    std::vector<void*> pointers_;
};

hipError_t check_shape(const hip_host_kernel& kernel, hip_host_index grid, hip_host_index block, unsigned shared) {
    const auto threads = [](hip_host_index index) { return std::uint64_t{index.x} * index.y * index.z; };
    constexpr std::uint64_t most = std::uint64_t{1} << 32; // threads in one dimension
    const std::uint64_t limit = kernel.max_threads ? kernel.max_threads : max_threads_per_block;
    if (!threads(grid) || !threads(block) || std::uint64_t{grid.x} * block.x >= most ||
        std::uint64_t{grid.y} * block.y >= most || std::uint64_t{grid.z} * block.z >= most)
        return hipErrorInvalidConfiguration;
    if (threads(block) > max_threads_per_block || block.x > max_threads_per_block || block.y > max_threads_per_block ||
        block.z > max_threads_per_block)
        return hipErrorInvalidConfiguration;
    if (threads(block) > limit)
        return hipErrorLaunchFailure;
    return shared > max_shared_memory ? hipErrorInvalidValue : hipSuccess;
}

// The blocks of a cooperative launch, each on a thread of its own: they may wait for each other.
void run_together(Grid& grid) {
    std::vector<std::thread> threads;
    for (std::uint64_t block = 0; block < grid.blocks; ++block)
        threads.emplace_back([&grid] { grid.work(); });
    for (std::thread& thread : threads)
        thread.join();
}

hipError_t run_grid(const ihipModuleSymbol_t& function, hip_host_index grid, hip_host_index block, unsigned shared,
                    const Arguments& arguments, bool cooperative) {
    static const auto seed = static_cast<std::uint64_t>(setting("HIP_HOST_SHUFFLE", 0));
    const hip_host_kernel& kernel = *function.kernel;
    const KernelTurn turn(function.module->device);
    const KernelCall call{kernel.name, kernel.invoke, arguments.pointers(),     grid,
                          block,       shared,        &function.module->shared, (seed & 1) != 0};
    const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z;
    const std::uint64_t chunk =
        std::clamp<std::uint64_t>(blocks / (8u * static_cast<unsigned>(multiprocessor_count())), 1, 64);
    Grid work{call, blocks, BlockOrder(blocks, seed), cooperative ? 1 : chunk};
    if (cooperative)
        run_together(work);
    else
        pool().run(work);
    return work.failed ? sticky_error() : hipSuccess;
}

hipError_t launch(const char* name, hipFunction_t function, hip_host_index grid, hip_host_index block,
                  unsigned dynamic_shared, hipStream_t stream, void** parameters, void** extra, bool cooperative) {
    return api(name, hipErrorLaunchFailure, [&] {
        if (!functions().contains(function))
            return hipErrorInvalidDeviceFunction;
        if (!stream_is_live(stream))
            return hipErrorInvalidHandle;
        // HIP 7 takes a launch for the current device only. The handles are compared before anything else, as there.
        const int device = current_device();
        if (device_of(stream) != device || function->module->device != device)
            return hipErrorInvalidHandle;
        const hip_host_kernel& kernel = *function->kernel;
        hipError_t error = check_shape(kernel, grid, block, dynamic_shared);
        if (error)
            return error;
        if (cooperative && std::uint64_t{grid.x} * grid.y * grid.z > static_cast<unsigned>(multiprocessor_count()))
            return hipErrorCooperativeLaunchTooLarge;
        if ((parameters && extra) || (!parameters && !extra && kernel.parameter_count))
            return hipErrorInvalidValue;
        Arguments arguments(*function);
        if (parameters)
            error = arguments.take_parameters(parameters);
        else if (extra)
            error = arguments.take_buffer(extra);
        if (error)
            return error;
        LogLine(name)
            .text("kernel", kernel.name)
            .list("grid", std::initializer_list<unsigned>{grid.x, grid.y, grid.z})
            .list("block", std::initializer_list<unsigned>{block.x, block.y, block.z})
            .integer("shared", dynamic_shared)
            .address("stream", stream);
        if (!lazy() && !stream_is_captured(stream))
            return run_grid(*function, grid, block, dynamic_shared, arguments, cooperative);
        return submit(stream, [=, arguments = std::make_shared<Arguments>(std::move(arguments))] {
            return run_grid(*function, grid, block, dynamic_shared, *arguments, cooperative);
        });
    });
}

} // namespace
} // namespace hip_host

using namespace hip_host;

HIP_HOST_API hipError_t hipModuleLaunchKernel(hipFunction_t function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                              unsigned block_x, unsigned block_y, unsigned block_z,
                                              unsigned dynamic_shared, hipStream_t stream, void** parameters,
                                              void** extra) {
    return launch("hipModuleLaunchKernel", function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z},
                  dynamic_shared, stream, parameters, extra, false);
}

HIP_HOST_API hipError_t hipModuleLaunchCooperativeKernel(hipFunction_t function, unsigned grid_x, unsigned grid_y,
                                                         unsigned grid_z, unsigned block_x, unsigned block_y,
                                                         unsigned block_z, unsigned dynamic_shared, hipStream_t stream,
                                                         void** parameters) {
    return launch("hipModuleLaunchCooperativeKernel", function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z},
                  dynamic_shared, stream, parameters, nullptr, true);
}
