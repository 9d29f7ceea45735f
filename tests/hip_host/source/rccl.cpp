// RCCL: the ranks of a communicator are processes that share memory. Each copies its elements there in parts, and all
// of them join the parts in the order of the ranks, rounding after each as a ring does.
#include "float_types.hpp"
#include "hip_host.hpp"

#include <algorithm>
#include <atomic>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>
#include <vector>

using namespace hip_host;

enum ncclResult_t {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInternalError = 3,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
};
enum ncclRedOp_t { ncclSum = 0, ncclProd = 1, ncclMax = 2, ncclMin = 3, ncclAvg = 4 };
enum ncclDataType_t {
    ncclInt8 = 0,
    ncclUint8 = 1,
    ncclInt32 = 2,
    ncclUint32 = 3,
    ncclInt64 = 4,
    ncclUint64 = 5,
    ncclFloat16 = 6,
    ncclFloat32 = 7,
    ncclFloat64 = 8,
    ncclBfloat16 = 9,
};
struct ncclUniqueId {
    char internal[128];
};

namespace {

// What a rank gives at a time, and what one has under way for another.
constexpr std::size_t part_bytes = 1 << 16;
constexpr std::size_t letter_bytes = 1 << 14;

struct Letter {
    std::atomic<std::size_t> bytes; // 0: empty
    char data[letter_bytes];
};

// The memory that ranks share begins with this, and goes on with a part for each rank and a letter for each pair.
struct Shared {
    std::atomic<int> joined, waiting, phase;
};

} // namespace

struct ncclComm {
    Shared* shared;
    std::size_t bytes;
    int ranks, rank;
    std::atomic<bool> aborted{false};

    char* part(int of) const { return reinterpret_cast<char*>(shared + 1) + std::size_t(of) * part_bytes; }
    Letter& letter(int from, int to) const { return reinterpret_cast<Letter*>(part(ranks))[from * ranks + to]; }
};
using ncclComm_t = ncclComm*;

namespace {

Registry<ncclComm>& communicators() {
    static auto& instance = *new Registry<ncclComm>("rccl communicator");
    return instance;
}

template <class Body> ncclResult_t call(const char* function, Body&& body) {
    if (const int injected = injected_failure(function, ncclSystemError))
        return static_cast<ncclResult_t>(injected);
    return body();
}

// Waits for other ranks; false where the communicator is aborted.
template <class Condition> bool wait_until(const ncclComm& comm, Condition&& holds) {
    for (int turn = 0; !holds(); ++turn) {
        if (comm.aborted)
            return false;
        if (turn > 100)
            usleep(50);
        else
            sched_yield();
    }
    return true;
}

bool meet(const ncclComm& comm) {
    Shared& shared = *comm.shared;
    const int phase = shared.phase;
    if (++shared.waiting == comm.ranks) {
        shared.waiting = 0;
        ++shared.phase;
        return true;
    }
    return wait_until(comm, [&] { return shared.phase != phase; });
}

std::size_t size_of(ncclDataType_t type) {
    switch (type) {
    case ncclInt8:
    case ncclUint8:
        return 1;
    case ncclFloat16:
    case ncclBfloat16:
        return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
        return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
        return 8;
    }
    return 0;
}

template <class Element, class Compute> Element join(Element x, Element y, ncclRedOp_t op) {
    const Compute a = static_cast<Compute>(x), b = static_cast<Compute>(y);
    switch (op) {
    case ncclProd:
        return static_cast<Element>(a * b);
    case ncclMax:
        return a < b ? y : x;
    case ncclMin:
        return b < a ? y : x;
    default:
        return static_cast<Element>(a + b);
    }
}

template <class Element, class Compute>
void join_parts(const ncclComm& comm, void* to, std::size_t count, ncclRedOp_t op) {
    auto* result = static_cast<Element*>(to);
    std::copy_n(reinterpret_cast<const Element*>(comm.part(0)), count, result);
    for (int rank = 1; rank < comm.ranks; ++rank) {
        const auto* other = reinterpret_cast<const Element*>(comm.part(rank));
        for (std::size_t index = 0; index < count; ++index)
            result[index] = join<Element, Compute>(result[index], other[index], op);
    }
    if (op == ncclAvg)
        for (std::size_t index = 0; index < count; ++index)
            result[index] =
                static_cast<Element>(static_cast<Compute>(result[index]) / static_cast<Compute>(comm.ranks));
}

void join_parts(const ncclComm& comm, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op) {
    switch (type) {
    case ncclInt8:
    case ncclUint8: // integers wrap, as those without a sign do; the order of those with one is another
        return type == ncclInt8 && op != ncclSum ? join_parts<std::int8_t, int>(comm, to, count, op)
                                                 : join_parts<std::uint8_t, unsigned>(comm, to, count, op);
    case ncclInt32:
        return op == ncclSum || op == ncclProd ? join_parts<std::uint32_t, std::uint32_t>(comm, to, count, op)
                                               : join_parts<std::int32_t, std::int32_t>(comm, to, count, op);
    case ncclUint32:
        return join_parts<std::uint32_t, std::uint32_t>(comm, to, count, op);
    case ncclInt64:
        return op == ncclSum || op == ncclProd ? join_parts<std::uint64_t, std::uint64_t>(comm, to, count, op)
                                               : join_parts<std::int64_t, std::int64_t>(comm, to, count, op);
    case ncclUint64:
        return join_parts<std::uint64_t, std::uint64_t>(comm, to, count, op);
    case ncclFloat16:
        return join_parts<Half, float>(comm, to, count, op);
    case ncclFloat32:
        return join_parts<float, float>(comm, to, count, op);
    case ncclFloat64:
        return join_parts<double, double>(comm, to, count, op);
    case ncclBfloat16:
        return join_parts<BFloat16, float>(comm, to, count, op);
    }
}

// What all ranks do with a part after the other: `give` fills this rank's, `take` reads those of all.
template <class Give, class Take>
hipError_t in_parts(const ncclComm& comm, std::size_t count, std::size_t size, Give&& give, Take&& take) {
    const std::size_t most = part_bytes / size;
    for (std::size_t begin = 0; begin < count; begin += most) {
        const std::size_t some = std::min(most, count - begin);
        give(begin, some);
        if (!meet(comm))
            return hipErrorUnknown;
        take(begin, some);
        if (!meet(comm))
            return hipErrorUnknown;
    }
    return hipSuccess;
}

struct Call {
    const char* function;
    const void* source;
    std::size_t source_count;
    void* result;
    std::size_t result_count;
    ncclDataType_t type;
    ncclComm_t comm;
    hipStream_t stream;
};

// Checks a call, and enqueues `work(comm, source, result, bytes of an element)`.
template <class Work> ncclResult_t enqueue(const Call& given, Work&& work) {
    return call(given.function, [&] {
        const std::size_t size = size_of(given.type);
        if (!size || !communicators().contains(given.comm) || !stream_is_live(given.stream))
            return ncclInvalidArgument;
        if ((given.source_count && !given.source) || (given.result_count && !given.result))
            return ncclInvalidArgument;
        if (given.comm->aborted)
            return ncclRemoteError;
        LogLine(given.function)
            .integer("count", static_cast<long long>(given.source_count))
            .integer("type", given.type);
        const hipError_t error = submit(given.stream, [given, size, work] {
            if ((given.source_count &&
                 !check_access(given.function, "source", given.source, given.source_count * size)) ||
                (given.result_count &&
                 !check_access(given.function, "result", given.result, given.result_count * size)))
                return sticky_error();
            return work(*given.comm, static_cast<const char*>(given.source), static_cast<char*>(given.result), size);
        });
        return error ? ncclUnhandledCudaError : ncclSuccess;
    });
}

bool is_op(ncclRedOp_t op) { return op >= ncclSum && op <= ncclAvg; }

// A message between two ranks, and how far it is.
struct Message {
    bool is_sent;
    char* data;
    std::size_t bytes;
    int peer;
    std::size_t done = 0;
};

// Moves what can be moved of a message; whether all of it was.
bool advance(const ncclComm& comm, Message& message) {
    Letter& letter = message.is_sent ? comm.letter(comm.rank, message.peer) : comm.letter(message.peer, comm.rank);
    while (message.done < message.bytes) {
        const std::size_t waiting = letter.bytes;
        if (message.is_sent) {
            if (waiting)
                return false;
            const std::size_t some = std::min(letter_bytes, message.bytes - message.done);
            std::copy_n(message.data + message.done, some, letter.data);
            message.done += some;
            letter.bytes = some;
        } else {
            if (!waiting)
                return false;
            std::copy_n(letter.data, std::min(waiting, message.bytes - message.done), message.data + message.done);
            message.done += waiting;
            letter.bytes = 0;
        }
    }
    return true;
}

hipError_t exchange(const ncclComm& comm, std::vector<Message> messages) {
    const bool is_done = wait_until(comm, [&] {
        bool is_over = true;
        for (Message& message : messages)
            is_over &= advance(comm, message);
        return is_over;
    });
    return is_done ? hipSuccess : hipErrorUnknown;
}

// The messages between ncclGroupStart and ncclGroupEnd, which go at the same time.
thread_local int open_groups = 0;
thread_local std::vector<std::pair<Call, Message>> grouped;

ncclResult_t send_together(const std::vector<std::pair<Call, Message>>& calls) {
    std::vector<Message> messages;
    for (const auto& [given, message] : calls) {
        if (given.comm != calls[0].first.comm || given.stream != calls[0].first.stream)
            return ncclInvalidUsage;
        messages.push_back(message);
    }
    const auto all = [calls, messages](const ncclComm& comm, const char*, char*, std::size_t) {
        for (const auto& [given, message] : calls)
            if (!check_access(given.function, "buffer", message.data, message.bytes))
                return sticky_error();
        return exchange(comm, messages);
    };
    Call first = calls[0].first;
    first.source_count = first.result_count = 0;
    return enqueue(first, all);
}

ncclResult_t send_or_receive(const Call& given, void* data, std::size_t count, int peer, bool is_sent) {
    if (!size_of(given.type) || !communicators().contains(given.comm) || peer < 0 || peer >= given.comm->ranks)
        return ncclInvalidArgument;
    grouped.push_back({given, {is_sent, static_cast<char*>(data), count * size_of(given.type), peer}});
    if (open_groups)
        return ncclSuccess;
    const auto calls = std::move(grouped);
    grouped.clear();
    return send_together(calls);
}

} // namespace

HIP_HOST_API ncclResult_t ncclGetVersion(int* version) {
    return version ? (*version = 22707, ncclSuccess) : ncclInvalidArgument;
}

HIP_HOST_API ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    return call("ncclGetUniqueId", [&] {
        if (!id)
            return ncclInvalidArgument;
        unsigned char random[16];
        if (getentropy(random, sizeof random))
            return ncclSystemError;
        std::string name = "/hip_host_rccl_";
        for (const unsigned char byte : random)
            name += "0123456789abcdef"[byte >> 4], name += "0123456789abcdef"[byte & 15];
        std::fill_n(id->internal, sizeof id->internal, '\0');
        name.copy(id->internal, sizeof id->internal - 1);
        return ncclSuccess;
    });
}

HIP_HOST_API ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
    return call("ncclCommInitRank", [&] {
        if (!comm || ranks < 1 || rank < 0 || rank >= ranks || id.internal[0] != '/')
            return ncclInvalidArgument;
        const std::size_t count = static_cast<std::size_t>(ranks);
        const std::size_t bytes = sizeof(Shared) + count * part_bytes + count * count * sizeof(Letter);
        const int file = shm_open(id.internal, O_CREAT | O_RDWR, 0600);
        if (file < 0)
            return ncclSystemError;
        // Fresh memory is zero: nobody has joined, and all letters are empty.
        const bool is_there = ftruncate(file, static_cast<off_t>(bytes)) == 0;
        void* memory = is_there ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
        close(file);
        if (memory == MAP_FAILED)
            return ncclSystemError;
        *comm = communicators().add(new ncclComm{static_cast<Shared*>(memory), bytes, ranks, rank});
        LogLine("ncclCommInitRank").integer("ranks", ranks).integer("rank", rank);
        Shared& shared = *(*comm)->shared;
        if (++shared.joined == ranks)
            shm_unlink(id.internal);
        wait_until(**comm, [&] { return shared.joined == ranks; });
        return ncclSuccess;
    });
}

HIP_HOST_API ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    return call("ncclCommDestroy", [&] {
        if (!communicators().contains(comm))
            return ncclInvalidArgument;
        LogLine("ncclCommDestroy").integer("rank", comm->rank);
        munmap(comm->shared, comm->bytes);
        communicators().destroy(comm);
        return ncclSuccess;
    });
}

// Ends what waits for other ranks. The communicator stays, because what waits still looks at it.
HIP_HOST_API ncclResult_t ncclCommAbort(ncclComm_t comm) {
    if (!communicators().contains(comm))
        return ncclInvalidArgument;
    comm->aborted = true;
    return ncclSuccess;
}

HIP_HOST_API ncclResult_t ncclAllReduce(const void* source, void* result, std::size_t count, ncclDataType_t type,
                                        ncclRedOp_t op, ncclComm_t comm, hipStream_t stream) {
    if (!is_op(op))
        return ncclInvalidArgument;
    return enqueue(
        {"ncclAllReduce", source, count, result, count, type, comm, stream},
        [=](const ncclComm& ranks, const char* from, char* to, std::size_t size) {
            return in_parts(
                ranks, count, size,
                [&](std::size_t begin, std::size_t some) {
                    std::copy_n(from + begin * size, some * size, ranks.part(ranks.rank));
                },
                [&](std::size_t begin, std::size_t some) { join_parts(ranks, to + begin * size, some, type, op); });
        });
}

HIP_HOST_API ncclResult_t ncclReduce(const void* source, void* result, std::size_t count, ncclDataType_t type,
                                     ncclRedOp_t op, int root, ncclComm_t comm, hipStream_t stream) {
    if (!is_op(op) || !communicators().contains(comm) || root < 0 || root >= comm->ranks)
        return ncclInvalidArgument;
    return enqueue({"ncclReduce", source, count, result, comm->rank == root ? count : 0, type, comm, stream},
                   [=](const ncclComm& ranks, const char* from, char* to, std::size_t size) {
                       return in_parts(
                           ranks, count, size,
                           [&](std::size_t begin, std::size_t some) {
                               std::copy_n(from + begin * size, some * size, ranks.part(ranks.rank));
                           },
                           [&](std::size_t begin, std::size_t some) {
                               if (ranks.rank == root)
                                   join_parts(ranks, to + begin * size, some, type, op);
                           });
                   });
}

HIP_HOST_API ncclResult_t ncclReduceScatter(const void* source, void* result, std::size_t count, ncclDataType_t type,
                                            ncclRedOp_t op, ncclComm_t comm, hipStream_t stream) {
    if (!is_op(op) || !communicators().contains(comm))
        return ncclInvalidArgument;
    const std::size_t all = count * static_cast<std::size_t>(comm->ranks);
    return enqueue({"ncclReduceScatter", source, all, result, count, type, comm, stream},
                   [=](const ncclComm& ranks, const char* from, char* to, std::size_t size) {
                       for (int owner = 0; owner < ranks.ranks; ++owner) {
                           const char* own = from + static_cast<std::size_t>(owner) * count * size;
                           const hipError_t error = in_parts(
                               ranks, count, size,
                               [&](std::size_t begin, std::size_t some) {
                                   std::copy_n(own + begin * size, some * size, ranks.part(ranks.rank));
                               },
                               [&](std::size_t begin, std::size_t some) {
                                   if (owner == ranks.rank)
                                       join_parts(ranks, to + begin * size, some, type, op);
                               });
                           if (error)
                               return error;
                       }
                       return hipSuccess;
                   });
}

HIP_HOST_API ncclResult_t ncclAllGather(const void* source, void* result, std::size_t count, ncclDataType_t type,
                                        ncclComm_t comm, hipStream_t stream) {
    if (!communicators().contains(comm))
        return ncclInvalidArgument;
    const std::size_t all = count * static_cast<std::size_t>(comm->ranks);
    return enqueue({"ncclAllGather", source, count, result, all, type, comm, stream},
                   [=](const ncclComm& ranks, const char* from, char* to, std::size_t size) {
                       return in_parts(
                           ranks, count, size,
                           [&](std::size_t begin, std::size_t some) {
                               std::copy_n(from + begin * size, some * size, ranks.part(ranks.rank));
                           },
                           [&](std::size_t begin, std::size_t some) {
                               for (int rank = 0; rank < ranks.ranks; ++rank) {
                                   const std::size_t first = static_cast<std::size_t>(rank) * count + begin;
                                   std::copy_n(ranks.part(rank), some * size, to + first * size);
                               }
                           });
                   });
}

HIP_HOST_API ncclResult_t ncclBroadcast(const void* source, void* result, std::size_t count, ncclDataType_t type,
                                        int root, ncclComm_t comm, hipStream_t stream) {
    if (!communicators().contains(comm) || root < 0 || root >= comm->ranks)
        return ncclInvalidArgument;
    return enqueue({"ncclBroadcast", source, comm->rank == root ? count : 0, result, count, type, comm, stream},
                   [=](const ncclComm& ranks, const char* from, char* to, std::size_t size) {
                       return in_parts(
                           ranks, count, size,
                           [&](std::size_t begin, std::size_t some) {
                               if (ranks.rank == root)
                                   std::copy_n(from + begin * size, some * size, ranks.part(root));
                           },
                           [&](std::size_t begin, std::size_t some) {
                               std::copy_n(ranks.part(root), some * size, to + begin * size);
                           });
                   });
}

HIP_HOST_API ncclResult_t ncclSend(const void* source, std::size_t count, ncclDataType_t type, int peer,
                                   ncclComm_t comm, hipStream_t stream) {
    const Call given{"ncclSend", source, count, nullptr, 0, type, comm, stream};
    return send_or_receive(given, const_cast<void*>(source), count, peer, true);
}

HIP_HOST_API ncclResult_t ncclRecv(void* result, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                                   hipStream_t stream) {
    return send_or_receive({"ncclRecv", nullptr, 0, result, count, type, comm, stream}, result, count, peer, false);
}

HIP_HOST_API ncclResult_t ncclGroupStart() {
    ++open_groups;
    return ncclSuccess;
}

HIP_HOST_API ncclResult_t ncclGroupEnd() {
    if (!open_groups)
        return ncclInvalidUsage;
    if (--open_groups || grouped.empty())
        return ncclSuccess;
    const auto calls = std::move(grouped);
    grouped.clear();
    return send_together(calls);
}
