// A pool of threads for work in parts.
#pragma once

#include <pthread.h>

#include "parts.hpp"

namespace tallow {

class Pool {
  public:
    // Have `run` do every part, by this thread and at most `threads - 1` others. While another thread has the pool, or
    // a part asks for it, this thread does all.
    void run(Part part, const void* context, uint64_t parts, uint32_t threads) {
        if (threads > parts)
            threads = static_cast<uint32_t>(parts);
        if (threads <= 1 || pthread_mutex_trylock(&callers_) != 0) {
            for (uint64_t i = 0; i < parts; ++i)
                part(context, i);
            return;
        }
        pthread_mutex_lock(&state_);
        start(threads - 1);
        part_ = part;
        context_ = context;
        parts_ = parts;
        next_ = 0;
        wanted_ = threads - 1 < started_ ? threads - 1 : started_;
        busy_ = wanted_;
        __atomic_fetch_add(&call_, 1, __ATOMIC_RELEASE);
        pthread_cond_broadcast(&begun_);
        pthread_mutex_unlock(&state_);
        work();
        for (uint32_t turn = 0; turn < spins && __atomic_load_n(&busy_, __ATOMIC_ACQUIRE) != 0; ++turn)
            pause();
        pthread_mutex_lock(&state_);
        while (busy_ != 0)
            pthread_cond_wait(&done_, &state_);
        pthread_mutex_unlock(&state_);
        pthread_mutex_unlock(&callers_);
    }

    // Ends the threads; another call starts new ones.
    void stop() {
        pthread_mutex_lock(&state_);
        is_stopping_ = true;
        __atomic_fetch_add(&call_, 1, __ATOMIC_RELEASE);
        pthread_cond_broadcast(&begun_);
        pthread_mutex_unlock(&state_);
        for (uint32_t i = 0; i < started_; ++i)
            pthread_join(threads_[i], nullptr);
        started_ = 0;
        is_stopping_ = false;
    }

    // In a new process the threads of the old one are not there.
    void forget() {
        pthread_mutex_init(&callers_, nullptr);
        pthread_mutex_init(&state_, nullptr);
        pthread_cond_init(&begun_, nullptr);
        pthread_cond_init(&done_, nullptr);
        started_ = 0;
    }

  private:
    static constexpr uint32_t most_threads = 256;
    // Some microseconds, in which a call that follows finds threads awake.
    static constexpr uint32_t spins = 400;

    static void pause() {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#else
        asm volatile("yield");
#endif
    }

    void start(uint32_t threads) {
        for (; started_ < threads && started_ < most_threads; ++started_) {
            places_[started_] = {this, started_, call_};
            if (pthread_create(&threads_[started_], nullptr, &Pool::enter, &places_[started_]) != 0)
                return;
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

    struct Place {
        Pool* pool;
        uint32_t number;
        uint64_t call;
    };
    static void* enter(void* place) {
        const Place own = *static_cast<Place*>(place);
        own.pool->serve(own.number, own.call);
        return nullptr;
    }
    void serve(uint32_t number, uint64_t seen) {
        for (;;) {
            for (uint32_t turn = 0; turn < spins && __atomic_load_n(&call_, __ATOMIC_ACQUIRE) == seen; ++turn)
                pause();
            pthread_mutex_lock(&state_);
            while (call_ == seen)
                pthread_cond_wait(&begun_, &state_);
            seen = call_;
            const bool is_stopping = is_stopping_;
            const bool is_wanted = number < wanted_;
            pthread_mutex_unlock(&state_);
            if (is_stopping)
                return;
            if (!is_wanted)
                continue;
            work();
            pthread_mutex_lock(&state_);
            if (__atomic_sub_fetch(&busy_, 1, __ATOMIC_RELEASE) == 0)
                pthread_cond_signal(&done_);
            pthread_mutex_unlock(&state_);
        }
    }

    pthread_mutex_t callers_ = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_t state_ = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t begun_ = PTHREAD_COND_INITIALIZER;
    pthread_cond_t done_ = PTHREAD_COND_INITIALIZER;
    Part part_ = nullptr;
    const void* context_ = nullptr;
    uint64_t parts_ = 0;
    uint64_t next_ = 0;
    uint64_t call_ = 0;
    uint32_t wanted_ = 0;
    uint32_t busy_ = 0;
    uint32_t started_ = 0;
    bool is_stopping_ = false;
    pthread_t threads_[most_threads] = {};
    Place places_[most_threads] = {};
};

inline Pool pool;

__attribute__((constructor, used)) inline void prepare_pool() {
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
