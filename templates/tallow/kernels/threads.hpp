// A pool of threads for work in parts.
#pragma once

#include <pthread.h>
#include <semaphore.h>

#include "parts.hpp"

namespace tallow {

class Pool {
  public:
    // Have `run` do every part, by this thread and at most `threads - 1` others. While another thread has the pool, or
    // a part asks for it, this thread does all.
    void run(Part part, const void* context, uint64_t parts, uint32_t threads) {
        if (threads > parts)
            threads = static_cast<uint32_t>(parts);
        if (threads <= 1 || !has_semaphores_ || pthread_mutex_trylock(&callers_) != 0) {
            for (uint64_t i = 0; i < parts; ++i)
                part(context, i);
            return;
        }
        part_ = part;
        context_ = context;
        parts_ = parts;
        next_ = 0;
        const uint32_t others = start(threads - 1);
        __atomic_store_n(&busy_, others, __ATOMIC_RELEASE);
        // None is woken but those that are wanted.
        for (uint32_t i = 0; i < others; ++i)
            sem_post(&helpers_[i].wanted);
        work();
        if (others != 0)
            wait(&done_);
        pthread_mutex_unlock(&callers_);
    }

    // Ends the threads; another call starts new ones.
    void stop() {
        is_stopping_ = true;
        for (uint32_t i = 0; i < started_; ++i)
            sem_post(&helpers_[i].wanted);
        for (uint32_t i = 0; i < started_; ++i)
            pthread_join(helpers_[i].thread, nullptr);
        started_ = 0;
        is_stopping_ = false;
    }

    // In a new process the threads of the old one are not there.
    void forget() {
        pthread_mutex_init(&callers_, nullptr);
        // Not every system has semaphores without a name.
        has_semaphores_ = sem_init(&done_, 0, 0) == 0;
        started_ = 0;
    }

  private:
    static constexpr uint32_t most_helpers = 255;
    // Some microseconds, in which a call that follows finds threads awake.
    static constexpr uint32_t turns = 200;

    struct Helper {
        Pool* pool;
        pthread_t thread;
        sem_t wanted;
    };

    // How many helpers there are, of so many.
    uint32_t start(uint32_t count) {
        for (; started_ < count && started_ < most_helpers; ++started_) {
            Helper& helper = helpers_[started_];
            helper.pool = this;
            sem_init(&helper.wanted, 0, 0);
            if (pthread_create(&helper.thread, nullptr, &Pool::serve, &helper) != 0)
                break;
        }
        return count < started_ ? count : started_;
    }

    static void wait(sem_t* semaphore) {
        for (uint32_t turn = 0; turn < turns; ++turn) {
            if (sem_trywait(semaphore) == 0)
                return;
#if defined(__x86_64__)
            __builtin_ia32_pause();
#endif
        }
        // A signal interrupts it.
        while (sem_wait(semaphore) != 0) {
        }
    }

    void work() {
        for (;;) {
            const uint64_t part = __atomic_fetch_add(&next_, 1, __ATOMIC_RELAXED);
            if (part >= parts_)
                return;
            part_(context_, part);
        }
    }

    static void* serve(void* argument) {
        Helper& helper = *static_cast<Helper*>(argument);
        Pool& pool = *helper.pool;
        for (;;) {
            wait(&helper.wanted);
            if (pool.is_stopping_)
                return nullptr;
            pool.work();
            if (__atomic_sub_fetch(&pool.busy_, 1, __ATOMIC_ACQ_REL) == 0)
                sem_post(&pool.done_);
        }
    }

    pthread_mutex_t callers_ = PTHREAD_MUTEX_INITIALIZER;
    sem_t done_ = {};
    Part part_ = nullptr;
    const void* context_ = nullptr;
    uint64_t parts_ = 0;
    uint64_t next_ = 0;
    uint32_t busy_ = 0;
    uint32_t started_ = 0;
    bool is_stopping_ = false;
    bool has_semaphores_ = false;
    Helper helpers_[most_helpers] = {};
};

inline Pool pool;

__attribute__((constructor, used)) inline void prepare_pool() {
    pool.forget();
    pthread_atfork(nullptr, nullptr, [] { pool.forget(); });
}
__attribute__((destructor, used)) inline void stop_pool() {
    pool.stop();
}

// What kernels of other libraries are given to have their parts done.
extern "C" __attribute__((visibility("default"), used)) inline void run_parts(Part part, const void* context,
                                                                              uint64_t parts, uint32_t threads) {
    pool.run(part, context, parts, threads);
}

// Whether this machine has the instructions of the target that all this was compiled for.
extern "C" __attribute__((visibility("default"), used)) inline bool is_supported() {
    return __builtin_cpu_supports(TALLOW_TARGET);
}

} // namespace tallow
