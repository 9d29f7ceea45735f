// A pool of threads for work in parts. They end with the process, which waits for none of them: one may still work then
// for a thread that Python has abandoned. Where a library of the process has threads of OpenMP, these are the pool.
#pragma once

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <time.h>

#include "parts.hpp"

namespace tallow {

// Functions of GCC's OpenMP runtime, which LLVM's and Intel's have too: one has `threads` threads call a function, the
// other returns the number of the thread that calls it.
using Parallel = void (*)(void (*function)(void*), void* argument, unsigned threads, unsigned flags);
using ThreadNumber = int (*)();

class Pool {
  public:
    // Have `run` do every part, by this thread and at most `threads - 1` others. While another thread has the pool, or
    // a part asks for it, this thread does all.
    void run(Part part, const void* context, uint64_t parts, uint32_t threads) {
        const uint32_t workers = parts < threads ? static_cast<uint32_t>(parts) : threads;
        if (workers <= 1 || !has_semaphores_ || pthread_mutex_trylock(&callers_) != 0) {
            for (uint64_t i = 0; i < parts; ++i)
                part(context, i);
            return;
        }
        part_ = part;
        context_ = context;
        if (parallel_) {
            divide(parts, workers);
            // The same number in each call: OpenMP ends threads that one call has no work for.
            parallel_([](void* pool) { static_cast<Pool*>(pool)->work_in_team(); }, this, threads, 0);
        } else {
            run_by_helpers(parts, workers);
        }
        pthread_mutex_unlock(&callers_);
    }

    // From now on OpenMP's threads do the parts. After each call they look for work for a while, as the pool's own do:
    // both together take the processors from each other.
    void use(Parallel parallel, ThreadNumber thread_number) {
        pthread_mutex_lock(&callers_);
        thread_number_ = thread_number;
        parallel_ = parallel;
        pthread_mutex_unlock(&callers_);
    }

    // In a new process the threads of the old one are not there.
    void forget() {
        pthread_mutex_init(&callers_, nullptr);
        // Not every system has semaphores without a name.
        has_semaphores_ = sem_init(&helpers_[0].waking, 0, 0) == 0;
        started_ = 0;
        parallel_ = nullptr;
    }

  private:
    static constexpr uint32_t max_helpers = 255;
    // So much work in nanoseconds is worth waking a helper, and so long one waits for the next call before it sleeps:
    // waking takes far longer than a call on few elements.
    static constexpr uint64_t min_work = 10'000;
    static constexpr uint64_t patience = 100'000;

    // The parts of a worker, which in the next call are near it again: in its caches, or in the memory that it wrote
    // first. Who has done all of its own takes those of others.
    struct alignas(64) Range {
        uint64_t next;
        uint64_t end;
    };

    struct alignas(64) Helper {
        enum State : uint32_t { waits, sleeps, is_wanted, works };

        Pool* pool;
        sem_t waking;
        uint32_t number;
        uint32_t state;

        bool change(uint32_t from, uint32_t to) {
            return __atomic_compare_exchange_n(&state, &from, to, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
        }
        // Waits for it if it works; one that has not come yet is wanted no more.
        void release() {
            for (uint32_t spins = 0; !change(is_wanted, waits); ++spins) {
                if (__atomic_load_n(&state, __ATOMIC_ACQUIRE) != works)
                    return;
                pause(spins);
            }
        }
    };

    static uint64_t nanoseconds() {
        timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
    }

    static void pause(uint32_t spins) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
        // Perhaps the other thread has no processor.
        if (spins % 1024 == 1023)
            sched_yield();
    }

    void divide(uint64_t parts, uint32_t workers) {
        workers_ = workers;
        for (uint32_t i = 0; i < workers; ++i) {
            ranges_[i].next = parts * i / workers;
            ranges_[i].end = parts * (i + 1) / workers;
        }
    }

    void work_in_team() {
        const uint32_t number = static_cast<uint32_t>(thread_number_());
        if (number < workers_)
            work(number);
    }

    void run_by_helpers(uint64_t parts, uint32_t workers) {
        const uint32_t helpers = start(workers - 1);
        divide(parts, helpers + 1);
        for (uint32_t i = 0; i < helpers; ++i)
            helpers_[i].change(Helper::waits, Helper::is_wanted);
        const uint64_t begin = nanoseconds();
        do_next(ranges_[0]);
        // The time of a part decides how many sleeping helpers are worth waking.
        const uint64_t worth = (nanoseconds() - begin) * (parts - 1) / min_work;
        for (uint32_t i = 0; i < helpers && i < worth; ++i)
            if (helpers_[i].change(Helper::sleeps, Helper::is_wanted))
                sem_post(&helpers_[i].waking);
        work(0);
        for (uint32_t i = 0; i < helpers; ++i)
            helpers_[i].release();
    }

    // The number of helpers that run, of up to `count`.
    uint32_t start(uint32_t count) {
        for (; started_ < count && started_ < max_helpers; ++started_) {
            Helper& helper = helpers_[started_];
            helper.pool = this;
            helper.number = started_ + 1;
            helper.state = Helper::waits;
            sem_init(&helper.waking, 0, 0);
            pthread_t thread;
            if (pthread_create(&thread, nullptr, &Pool::serve, &helper) != 0)
                break;
        }
        return count < started_ ? count : started_;
    }

    bool do_next(Range& range) {
        if (__atomic_load_n(&range.next, __ATOMIC_RELAXED) >= range.end)
            return false;
        const uint64_t part = __atomic_fetch_add(&range.next, 1, __ATOMIC_RELAXED);
        if (part >= range.end)
            return false;
        part_(context_, part);
        return true;
    }

    void work(uint32_t number) {
        for (uint32_t i = 0; i < workers_; ++i)
            while (do_next(ranges_[(number + i) % workers_])) {
            }
    }

    static void* serve(void* argument) {
        Helper& helper = *static_cast<Helper*>(argument);
        Pool& pool = *helper.pool;
        for (;;) {
            const uint64_t begin = nanoseconds();
            for (uint32_t spins = 0; __atomic_load_n(&helper.state, __ATOMIC_RELAXED) == Helper::waits; ++spins) {
                pause(spins);
                if (spins % 64 == 63 && nanoseconds() - begin > patience &&
                    helper.change(Helper::waits, Helper::sleeps))
                    // A signal interrupts it.
                    while (sem_wait(&helper.waking) != 0) {
                    }
            }
            if (!helper.change(Helper::is_wanted, Helper::works))
                continue;
            pool.work(helper.number);
            __atomic_store_n(&helper.state, Helper::waits, __ATOMIC_RELEASE);
        }
    }

    pthread_mutex_t callers_ = PTHREAD_MUTEX_INITIALIZER;
    Part part_ = nullptr;
    const void* context_ = nullptr;
    uint32_t workers_ = 0;
    uint32_t started_ = 0;
    bool has_semaphores_ = false;
    Parallel parallel_ = nullptr;
    ThreadNumber thread_number_ = nullptr;
    Range ranges_[max_helpers + 1] = {};
    Helper helpers_[max_helpers] = {};
};

inline Pool pool;

__attribute__((constructor, used)) inline void prepare_pool() {
    pool.forget();
    pthread_atfork(nullptr, nullptr, [] { pool.forget(); });
}

// The callback by which kernels of other libraries run their parts.
extern "C" __attribute__((visibility("default"), used)) inline void run_parts(Part part, const void* context,
                                                                              uint64_t parts, uint32_t threads) {
    pool.run(part, context, parts, threads);
}

// Called once a library of the process has loaded an OpenMP runtime.
extern "C" __attribute__((visibility("default"), used)) inline void use_openmp(Parallel parallel,
                                                                               ThreadNumber thread_number) {
    pool.use(parallel, thread_number);
}

// Whether this machine has the instructions of the target that all this was compiled for.
extern "C" __attribute__((visibility("default"), used)) inline bool is_supported() {
#if defined(__x86_64__)
    return __builtin_cpu_supports(TALLOW_TARGET);
#else
    return true;
#endif
}

} // namespace tallow
