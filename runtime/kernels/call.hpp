// Calls of kernels by plans: functions of Python that make the storages of results, write into a kernel's arguments
// where operands are, and call it. For a tensor of a thousand elements, a kernel takes less time than any of these
// steps takes in Python.
#pragma once

#include "basic.hpp"
#include "buffer_pool.hpp"
#include "parts.hpp"
#include "tuples.hpp"

namespace tallow {

// Memory for the elements of a result, which a NumPy array shows on demand: making one takes
// longer than many a kernel. This follows the header of an object.
struct Memory {
    void* begin;
    Py_ssize_t bytes;
    BufferPool::Piece piece;

    static Memory* of(PyObject* object) {
        return reinterpret_cast<Memory*>(reinterpret_cast<uint8_t*>(object) + header_bytes);
    }
    // Null and no exception where there is none.
    static PyObject* allocate(size_t bytes) {
        const BufferPool::Piece piece = bytes < BufferPool::large ? small(bytes) : buffer_pool.allocate(bytes);
        if (piece.allocation == nullptr)
            return nullptr;
        PyObject* object = PyType_GenericAlloc(type(), 0);
        if (object == nullptr)
            release(piece);
        else
            *of(object) = {piece.begin, static_cast<Py_ssize_t>(bytes), piece};
        return object;
    }
    // Vectors that begin with a line of the cache take one of them.
    static BufferPool::Piece small(size_t bytes) {
        void* allocation = malloc(bytes + line_bytes);
        const uint64_t begin = (reinterpret_cast<uint64_t>(allocation) + line_bytes - 1) / line_bytes * line_bytes;
        return {pointer_to<void>(begin), allocation, 0};
    }
    static void release(const BufferPool::Piece& piece) {
        if (piece.bytes == 0)
            free(piece.allocation);
        else
            buffer_pool.release(piece);
    }
    static void deallocate(PyObject* object) {
        PyObject* type = type_of(object);
        release(of(object)->piece);
        PyObject_Free(object);
        Py_DecRef(type);
    }
    static int show(PyObject* object, Py_buffer* buffer, int flags) {
        const Memory* memory = of(object);
        return PyBuffer_FillInfo(buffer, object, memory->begin, memory->bytes, 0, flags);
    }
    static PyObject* type() {
        // Numbers of the stable ABI.
        constexpr int getbuffer = 1, dealloc = 52;
        constexpr unsigned cannot_be_made_in_python = 1 << 7;
        static PyType_Slot slots[] = {
            {getbuffer, reinterpret_cast<void*>(&show)}, {dealloc, reinterpret_cast<void*>(&deallocate)}, {}};
        static PyType_Spec spec = {"tallow.Memory", static_cast<int>(header_bytes + sizeof(Memory)), 0,
                                   cannot_be_made_in_python, slots};
        static PyObject* type = PyType_FromSpec(&spec);
        return type;
    }
};

// The call of a kernel with other storages and numbers.
class Call {
  public:
    explicit Call(PyObject* tuple) : items_{tuple} {
        Py_IncRef(tuple);
        char* bytes = nullptr;
        Py_ssize_t size = 0;
        if (PyBytes_AsStringAndSize(items_.arguments, &bytes, &size) != 0)
            return;
        if (size > static_cast<Py_ssize_t>(max_bytes)) {
            PyErr_SetString(PyExc_TypeError, "a kernel takes too many arguments");
            return;
        }
        size_ = static_cast<size_t>(size);
        arguments_ = bytes;
        if (items_.unaliased.count > Copies::most)
            PyErr_SetString(PyExc_TypeError, "a kernel reads too much of what it writes");
    }
    ~Call() {
        Py_DecRef(items_.items);
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    // Of storages and then all numbers or none: storages of results, or True where there are none; null and an
    // exception where something fails.
    PyObject* operator()(PyObject* const* operands, Py_ssize_t count) const {
        const Py_ssize_t stored = static_cast<Py_ssize_t>(items_.stored), numbers = count - stored;
        if (numbers != 0 && numbers != items_.numbers.count) {
            PyErr_SetString(PyExc_TypeError, "a plan got another number of arguments");
            return nullptr;
        }
        alignas(8) uint8_t arguments[max_bytes];
        memcpy(arguments, arguments_, size_);
        for (Py_ssize_t i = 0; i < items_.sources.count; ++i) {
            uint64_t address = 0;
            if (!find_address(operands[items_.sources[i].operand], address))
                return nullptr;
            put(arguments, items_.sources[i].field_offset, address + items_.sources[i].offset);
        }
        for (Py_ssize_t i = 0; i < numbers; ++i) {
            uint64_t bits = 0;
            if (!bits_of(operands[stored + i], bits))
                return nullptr;
            put(arguments, items_.numbers[i].field_offset, bits);
        }
        Copies copies;
        for (Py_ssize_t i = 0; i < items_.unaliased.count; ++i)
            if (!keep_unaliased(arguments, items_.unaliased[i], operands, copies))
                return nullptr;
        if (items_.results.count == 0) {
            Py_IncRef(&_Py_TrueStruct);
            Reference results(&_Py_TrueStruct);
            return called(arguments, results);
        }
        Reference results(items_.makes_tuple ? PyTuple_New(items_.results.count) : nullptr);
        for (Py_ssize_t i = 0; i < items_.results.count; ++i) {
            Reference storage(storage_of(arguments, items_.results[i]));
            if (!storage)
                return nullptr;
            if (!items_.makes_tuple)
                return called(arguments, storage);
            PyTuple_SetItem(results.get(), i, storage.release());
        }
        return called(arguments, results);
    }

  private:
    // What lives as long as a call.
    struct Copies {
        ~Copies() {
            for (Py_ssize_t i = 0; i < count; ++i)
                Py_DecRef(storages[i]);
        }
        static constexpr Py_ssize_t most = 2;
        PyObject* storages[most];
        Py_ssize_t count = 0;
    };
    static void put(uint8_t* arguments, uint64_t offset, uint64_t value) {
        memcpy(arguments + offset, &value, sizeof value);
    }

    PyObject* address_of(PyObject* storage) const {
        if (type_of(storage) == shared_.storage_class) {
            Reference address(shared_.address.get(storage));
            if (address.get() != &_Py_NoneStruct)
                return address.release();
        }
        return PyObject_GetAttr(storage, shared_.address_name);
    }
    bool find_address(PyObject* storage, uint64_t& address) const {
        const Reference number(address_of(storage));
        address = !number ? 0 : as_number(number.get());
        return !!number;
    }

    // Has a source that shares bytes with what is written read from a copy; false and an exception where that fails.
    bool keep_unaliased(uint8_t* arguments, const UnaliasedItems& unaliased, PyObject* const* operands,
                        Copies& copies) const {
        const SourceItems& source = items_.sources[static_cast<Py_ssize_t>(unaliased.source)];
        uint64_t from = 0, to = 0;
        if (!find_address(operands[source.operand], from) || !find_address(operands[unaliased.written], to))
            return false;
        if (to + unaliased.end <= from + unaliased.first || from + unaliased.last <= to + unaliased.begin)
            return true;
        PyObject* const copy = PyObject_CallFunctionObjArgs(unaliased.copy, operands[source.operand], nullptr);
        if (copy == nullptr)
            return false;
        copies.storages[copies.count++] = copy;
        if (!find_address(copy, from))
            return false;
        put(arguments, source.field_offset, from + source.offset);
        return true;
    }

    // Whether a number is a float, or an integer that every float has.
    static bool is_real(PyObject* number, double& real) {
        if (type_of(number) == &PyFloat_Type) {
            real = PyFloat_AsDouble(number);
            return true;
        }
        if (type_of(number) != &PyLong_Type)
            return false;
        constexpr long long most = 1 << 24;
        int overflow = 0;
        const long long integer = PyLong_AsLongLongAndOverflow(number, &overflow);
        real = static_cast<double>(integer);
        return overflow == 0 && -most <= integer && integer <= most;
    }

    // The bits of a number in the compute dtype, or of an integer where there is none; false and an exception where
    // something fails.
    bool bits_of(PyObject* number, uint64_t& bits) const {
        if (items_.compute == &_Py_NoneStruct) {
            bits = as_number(number);
            return true;
        }
        double wide;
        if (items_.compute_bytes != 0 && is_real(number, wide)) {
            const float narrow = static_cast<float>(wide);
            const bool is_wide = items_.compute_bytes == sizeof wide;
            memcpy(&bits, is_wide ? static_cast<const void*>(&wide) : &narrow, items_.compute_bytes);
            return true;
        }
        const Reference converted(PyObject_CallFunctionObjArgs(shared_.bits_of, number, items_.compute, nullptr));
        if (!converted)
            return false;
        bits = as_number(converted.get());
        return true;
    }

    PyObject* memory(const ResultItems& result) const {
        PyObject* object = Memory::allocate(result.bytes);
        return object != nullptr || PyErr_Occurred() != nullptr
                   ? object
                   : PyObject_CallFunctionObjArgs(shared_.no_memory, result.length, result.dtype, nullptr);
    }

    // A new storage, whose address is written into the arguments.
    PyObject* storage_of(uint8_t* arguments, const ResultItems& result) const {
        const Reference object(memory(result));
        Reference storage(object.get() == nullptr ? nullptr : PyType_GenericAlloc(shared_.storage_class, 0));
        if (!storage || !shared_.device.set(storage.get(), items_.device) ||
            !shared_.dtype.set(storage.get(), result.dtype) || !shared_.length.set(storage.get(), result.length) ||
            !shared_.kind.set(storage.get(), result.kind) || !shared_.memory.set(storage.get(), object.get()))
            return nullptr;
        void* const begin = Memory::of(object.get())->begin;
        const Reference address(PyLong_FromVoidPtr(begin));
        if (!shared_.address.set(storage.get(), address.get()))
            return nullptr;
        put(arguments, result.field_offset, reinterpret_cast<uint64_t>(begin));
        return storage.release();
    }

    // Calls the kernel, and returns the results.
    PyObject* called(uint8_t* arguments, Reference& results) const {
        const bool has_scratch = items_.scratch.count != 0;
        const Reference scratch(has_scratch ? memory(items_.scratch[0]) : nullptr);
        if (has_scratch) {
            if (!scratch)
                return nullptr;
            put(arguments, items_.scratch[0].field_offset,
                reinterpret_cast<uint64_t>(Memory::of(scratch.get())->begin));
        }
        // Whether an index is out of range, and which.
        int64_t wrong[2] = {};
        if (items_.wrong.count != 0)
            put(arguments, items_.wrong[0].field_offset, reinterpret_cast<uint64_t>(wrong));
        if (items_.is_brief) {
            kernel_(arguments);
        } else {
            const Reference threads(PyObject_CallFunctionObjArgs(shared_.threads, nullptr));
            if (!threads)
                return nullptr;
            const uint32_t count = static_cast<uint32_t>(as_number(threads.get()));
            memcpy(arguments + items_.threads_field_offset, &count, sizeof count);
            PyThreadState* state = PyEval_SaveThread();
            kernel_(arguments);
            PyEval_RestoreThread(state);
        }
        if (wrong[0] == 0)
            return results.release();
        const Reference index(PyLong_FromLongLong(wrong[1]));
        return !index ? nullptr : PyObject_CallFunctionObjArgs(items_.wrong[0].fail, index.get(), nullptr);
    }

    static constexpr size_t max_bytes = 1536;

    CallItems items_;
    const SharedItems& shared_ = *pointer_to<const SharedItems>(items_.shared);
    void (*kernel_)(const void*) = reinterpret_cast<void (*)(const void*)>(items_.kernel);
    // Bytes of an object among the items.
    const char* arguments_ = nullptr;
    size_t size_ = 0;
};

inline PyObject* run_call(PyObject* capsule, PyObject* const* operands, Py_ssize_t count) {
    return (*static_cast<const Call*>(PyCapsule_GetPointer(capsule, nullptr)))(operands, count);
}

// What calls share, for as long as the process lives, and how many bytes an object begins with.
extern "C" __attribute__((visibility("default"), used)) inline void* make_shared(PyObject* items, size_t bytes) {
    header_bytes = bytes;
    Py_IncRef(items);
    return new SharedItems{items};
}

// Memory of this many bytes, as an object with a buffer.
extern "C" __attribute__((visibility("default"), used)) inline PyObject* allocate_memory(size_t bytes) {
    PyObject* object = Memory::allocate(bytes);
    return object != nullptr || PyErr_Occurred() != nullptr ? object : PyErr_NoMemory();
}
// See BufferPool.
extern "C" __attribute__((visibility("default"), used)) inline size_t cache_at_most(size_t bytes) {
    return buffer_pool.cache_at_most(bytes);
}

// A function of Python's: the call that a tuple describes.
extern "C" __attribute__((visibility("default"), used)) inline PyObject* make_call(PyObject* items) {
    constexpr int takes_an_array_of_arguments = 0x80;
    static PyMethodDef method = {"call", &run_call, takes_an_array_of_arguments, nullptr};
    Call* call = new Call(items);
    const Reference capsule(PyCapsule_New(
        call, nullptr, [](PyObject* object) { delete static_cast<Call*>(PyCapsule_GetPointer(object, nullptr)); }));
    return !capsule || PyErr_Occurred() != nullptr ? nullptr : PyCFunction_NewEx(&method, capsule.get(), nullptr);
}

} // namespace tallow
