// Calls of kernels by plans: functions of Python that make the storages of results, write into a kernel's arguments
// where operands are, and call it. For a tensor of a thousand elements, a kernel takes less time than any of these
// steps takes in Python.
//
// Of Python they use its stable ABI alone, declared here, so that neither its headers nor its version matter.
//
// While Python ends, a thread that asks for the GIL ends inside the call that asks, and its frames are unwound. No
// destructor may run then, because it would give back references without the GIL. Without exceptions none does: what
// such a thread holds stays as it is until the process ends.
#pragma once

#if defined(__cpp_exceptions)
#error "compile with -fno-exceptions: destructors must not run when Python ends a thread"
#endif

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "basic.hpp"
#include "parts.hpp"

extern "C" {
using Py_ssize_t = ptrdiff_t;
struct PyObject;
struct PyThreadState;
struct PyMethodDef {
    const char* name;
    PyObject* (*function)(PyObject*, PyObject* const*, Py_ssize_t);
    int flags;
    const char* doc;
};
struct PyType_Slot {
    int slot;
    void* function;
};
struct PyType_Spec {
    const char* name;
    int bytes;
    int itemsize;
    unsigned flags;
    PyType_Slot* slots;
};
struct Py_buffer;
extern PyObject PyFloat_Type;
extern PyObject _Py_NoneStruct;
extern PyObject _Py_TrueStruct;
extern PyObject* PyExc_TypeError;
int PyBuffer_FillInfo(Py_buffer*, PyObject*, void*, Py_ssize_t, int, int);
PyObject* PyErr_Occurred();
void PyErr_SetString(PyObject*, const char*);
void Py_DecRef(PyObject*);
void Py_IncRef(PyObject*);
int PyBytes_AsStringAndSize(PyObject*, char**, Py_ssize_t*);
PyObject* PyCapsule_New(void*, const char*, void (*)(PyObject*));
void* PyCapsule_GetPointer(PyObject*, const char*);
PyObject* PyCFunction_NewEx(PyMethodDef*, PyObject*, PyObject*);
void PyEval_RestoreThread(PyThreadState*);
PyThreadState* PyEval_SaveThread();
double PyFloat_AsDouble(PyObject*);
unsigned long long PyLong_AsUnsignedLongLong(PyObject*);
PyObject* PyLong_FromLongLong(long long);
PyObject* PyLong_FromVoidPtr(void*);
PyObject* PyObject_CallFunctionObjArgs(PyObject*, ...);
void PyObject_Free(void*);
PyObject* PyObject_GetAttr(PyObject*, PyObject*);
PyObject* PyTuple_GetItem(PyObject*, Py_ssize_t);
PyObject* PyTuple_New(Py_ssize_t);
int PyTuple_SetItem(PyObject*, Py_ssize_t, PyObject*);
Py_ssize_t PyTuple_Size(PyObject*);
PyObject* PyType_FromSpec(PyType_Spec*);
PyObject* PyType_GenericAlloc(PyObject*, Py_ssize_t);
void* PyType_GetSlot(PyObject*, int);
PyObject* PyUnicode_InternFromString(const char*);
}

namespace tallow {

// A reference to an object of Python's, given back in the end.
class Reference {
  public:
    explicit Reference(PyObject* object) : object_(object) {
    }
    Reference(const Reference&) = delete;
    Reference& operator=(const Reference&) = delete;
    ~Reference() {
        if (object_ != nullptr)
            Py_DecRef(object_);
    }
    PyObject* get() const {
        return object_;
    }
    PyObject* release() {
        PyObject* object = object_;
        object_ = nullptr;
        return object;
    }
    bool operator!() const {
        return object_ == nullptr;
    }

  private:
    PyObject* object_;
};

inline uint64_t as_number(PyObject* object) {
    return PyLong_AsUnsignedLongLong(object);
}

inline uint64_t number_at(PyObject* items, Py_ssize_t place) {
    return as_number(PyTuple_GetItem(items, place));
}

// How many bytes each object begins with. The last of them are its type, whatever else Python counts there.
inline size_t header_bytes = 16;

inline PyObject* type_of(PyObject* object) {
    PyObject* type;
    memcpy(&type, reinterpret_cast<uint8_t*>(object) + header_bytes - sizeof type, sizeof type);
    return type;
}

// Memory for the elements of a result, which a NumPy array shows once somebody asks for that: making one takes
// longer than many a kernel. This follows the header of an object.
struct Memory {
    void* begin;
    Py_ssize_t bytes;
    void* whole;

    static Memory* of(PyObject* object) {
        return reinterpret_cast<Memory*>(reinterpret_cast<uint8_t*>(object) + header_bytes);
    }
    // Null and no exception where there is none.
    static PyObject* allocate(size_t bytes) {
        void* whole = malloc(bytes + line_bytes);
        if (whole == nullptr)
            return nullptr;
        PyObject* made = PyType_GenericAlloc(type(), 0);
        if (made == nullptr) {
            free(whole);
            return nullptr;
        }
        // Vectors that begin with a line of the cache take one of them.
        const uint64_t begin = (reinterpret_cast<uint64_t>(whole) + line_bytes - 1) / line_bytes * line_bytes;
        *of(made) = {pointer_to<void>(begin), static_cast<Py_ssize_t>(bytes), whole};
        return made;
    }
    static void deallocate(PyObject* object) {
        PyObject* type = type_of(object);
        free(of(object)->whole);
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

// An attribute that is one of a class's `__slots__`, without looking it up by its name.
class Slot {
  public:
    explicit Slot(PyObject* descriptor) : descriptor_(descriptor) {
        constexpr int descr_get = 54, descr_set = 55;
        Py_IncRef(descriptor);
        get_ = reinterpret_cast<Get>(PyType_GetSlot(type_of(descriptor), descr_get));
        set_ = reinterpret_cast<Set>(PyType_GetSlot(type_of(descriptor), descr_set));
    }
    PyObject* get(PyObject* object) const {
        return get_(descriptor_, object, nullptr);
    }
    bool set(PyObject* object, PyObject* value) const {
        return value != nullptr && set_(descriptor_, object, value) == 0;
    }

  private:
    using Get = PyObject* (*)(PyObject*, PyObject*, PyObject*);
    using Set = int (*)(PyObject*, PyObject*, PyObject*);
    PyObject* descriptor_;
    Get get_;
    Set set_;
};

// What all calls share. The constructor reads a tuple that `HostKernels` gives.
struct Shared {
    explicit Shared(PyObject* items)
        : storage_class(PyTuple_GetItem(items, 0)), threads(PyTuple_GetItem(items, 1)),
          large_array(PyTuple_GetItem(items, 2)), no_memory(PyTuple_GetItem(items, 3)),
          bits_of(PyTuple_GetItem(items, 4)), device(PyTuple_GetItem(items, 5)), dtype(PyTuple_GetItem(items, 6)),
          length(PyTuple_GetItem(items, 7)), kind(PyTuple_GetItem(items, 8)), memory(PyTuple_GetItem(items, 9)),
          address(PyTuple_GetItem(items, 10)) {
        Py_IncRef(items);
    }
    PyObject* storage_class;
    PyObject* threads;
    PyObject* large_array;
    PyObject* no_memory;
    PyObject* bits_of;
    Slot device, dtype, length, kind, memory, address;
    PyObject* address_name = PyUnicode_InternFromString("address");
};

// The call of a kernel with other storages and numbers. It is made of a tuple, whose items the constructor reads in
// order; `HostKernels.call` gives it.
class Call {
  public:
    explicit Call(PyObject* items) : items_(items) {
        Py_IncRef(items);
        char* bytes = nullptr;
        Py_ssize_t size = 0;
        shared_ = reinterpret_cast<const Shared*>(as_number(item(items)));
        kernel_ = reinterpret_cast<void (*)(const void*)>(as_number(item(items)));
        if (PyBytes_AsStringAndSize(item(items), &bytes, &size) != 0)
            return;
        if (size > static_cast<Py_ssize_t>(sizeof arguments_)) {
            PyErr_SetString(PyExc_TypeError, "a kernel takes too many arguments");
            return;
        }
        size_ = static_cast<size_t>(size);
        memcpy(arguments_, bytes, size_);
        threads_place_ = as_number(item(items));
        is_brief_ = as_number(item(items)) != 0;
        makes_several_ = as_number(item(items)) != 0;
        device_ = item(items);
        compute_ = item(items);
        compute_bytes_ = as_number(item(items));
        results_ = List<Result>(item(items));
        scratch_ = List<Result>(item(items));
        sources_ = List<Source>(item(items));
        unaliased_ = List<Unaliased>(item(items));
        if (unaliased_.count > Copies::most) {
            PyErr_SetString(PyExc_TypeError, "a kernel reads too much of what it writes");
            return;
        }
        stored_ = static_cast<Py_ssize_t>(as_number(item(items)));
        numbers_ = List<Place>(item(items));
        wrong_ = item(items);
    }
    ~Call() {
        Py_DecRef(items_);
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    // Of storages and then all numbers or none: storages of results, or True where there are none; null and an
    // exception where something fails.
    PyObject* operator()(PyObject* const* given, Py_ssize_t count) const {
        const Py_ssize_t numbers = count - stored_;
        if (numbers != 0 && numbers != numbers_.count) {
            PyErr_SetString(PyExc_TypeError, "a plan was given another number of arguments");
            return nullptr;
        }
        alignas(8) uint8_t arguments[sizeof arguments_];
        memcpy(arguments, arguments_, size_);
        for (Py_ssize_t i = 0; i < sources_.count; ++i) {
            uint64_t address = 0;
            if (!find_address(given[sources_[i].given], address))
                return nullptr;
            put(arguments, sources_[i].place, address + sources_[i].offset);
        }
        for (Py_ssize_t i = 0; i < numbers; ++i) {
            uint64_t bits = 0;
            if (!bits_of(given[stored_ + i], bits))
                return nullptr;
            put(arguments, numbers_[i].place, bits);
        }
        Copies copies;
        for (Py_ssize_t i = 0; i < unaliased_.count; ++i)
            if (!keep_unaliased(arguments, unaliased_[i], given, copies))
                return nullptr;
        if (results_.count == 0) {
            Py_IncRef(&_Py_TrueStruct);
            Reference made(&_Py_TrueStruct);
            return called(arguments, made);
        }
        Reference made(makes_several_ ? PyTuple_New(results_.count) : nullptr);
        for (Py_ssize_t i = 0; i < results_.count; ++i) {
            Reference storage(storage_of(arguments, results_[i]));
            if (!storage)
                return nullptr;
            if (!makes_several_)
                return called(arguments, storage);
            PyTuple_SetItem(made.get(), i, storage.release());
        }
        return called(arguments, made);
    }

  private:
    // Where eight bytes are written among the arguments.
    struct Place {
        explicit Place(PyObject* items) : place(number_at(items, 0)) {
        }
        uint64_t place;
    };
    // The address of one of the given storages.
    struct Source : Place {
        explicit Source(PyObject* items) : Place(items), offset(number_at(items, 1)), given(number_at(items, 2)) {
        }
        uint64_t offset;
        uint64_t given;
    };
    // A source, by its number, which is read as it was before bytes of another given storage are written.
    struct Unaliased {
        explicit Unaliased(PyObject* items)
            : source(number_at(items, 0)), first(number_at(items, 1)), last(number_at(items, 2)),
              written(number_at(items, 3)), begin(number_at(items, 4)), end(number_at(items, 5)),
              copy(PyTuple_GetItem(items, 6)) {
        }
        uint64_t source, first, last, written, begin, end;
        PyObject* copy;
    };
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
    struct Result : Place {
        explicit Result(PyObject* items)
            : Place(items), bytes(number_at(items, 1)), length(PyTuple_GetItem(items, 2)),
              dtype(PyTuple_GetItem(items, 3)), kind(PyTuple_GetItem(items, 4)), is_large(number_at(items, 5) != 0) {
        }
        size_t bytes;
        PyObject* length;
        PyObject* dtype;
        PyObject* kind;
        bool is_large;
    };
    // What is made of the items of a tuple.
    template <typename Item> class List {
      public:
        List() = default;
        explicit List(PyObject* tuple) : count(PyTuple_Size(tuple)) {
            items_ = static_cast<Item*>(malloc(static_cast<size_t>(count + 1) * sizeof(Item)));
            for (Py_ssize_t i = 0; i < count; ++i)
                items_[i] = Item(PyTuple_GetItem(tuple, i));
        }
        ~List() {
            free(items_);
        }
        List(const List&) = delete;
        List& operator=(const List&) = delete;
        List& operator=(List&& other) {
            count = other.count;
            items_ = other.items_;
            other.items_ = nullptr;
            return *this;
        }
        const Item& operator[](Py_ssize_t i) const {
            return items_[i];
        }
        Py_ssize_t count = 0;

      private:
        Item* items_ = nullptr;
    };

    PyObject* item(PyObject* items) {
        return PyTuple_GetItem(items, next_++);
    }
    static void put(uint8_t* arguments, uint64_t place, uint64_t value) {
        memcpy(arguments + place, &value, sizeof value);
    }

    PyObject* address_of(PyObject* storage) const {
        if (type_of(storage) == shared_->storage_class) {
            Reference address(shared_->address.get(storage));
            if (address.get() != &_Py_NoneStruct)
                return address.release();
        }
        return PyObject_GetAttr(storage, shared_->address_name);
    }
    bool find_address(PyObject* storage, uint64_t& address) const {
        const Reference found(address_of(storage));
        address = !found ? 0 : as_number(found.get());
        return !!found;
    }

    // Has a source that shares bytes with what is written read from a copy; false and an exception where that fails.
    bool keep_unaliased(uint8_t* arguments, const Unaliased& apart, PyObject* const* given, Copies& copies) const {
        const Source& source = sources_[static_cast<Py_ssize_t>(apart.source)];
        uint64_t from = 0, to = 0;
        if (!find_address(given[source.given], from) || !find_address(given[apart.written], to))
            return false;
        if (to + apart.end <= from + apart.first || from + apart.last <= to + apart.begin)
            return true;
        PyObject* const copy = PyObject_CallFunctionObjArgs(apart.copy, given[source.given], nullptr);
        if (copy == nullptr)
            return false;
        copies.storages[copies.count++] = copy;
        if (!find_address(copy, from))
            return false;
        put(arguments, source.place, from + source.offset);
        return true;
    }

    // The bits of a number in the compute dtype, or of an integer where there is none; false and an exception where
    // something fails.
    bool bits_of(PyObject* number, uint64_t& bits) const {
        if (compute_ == &_Py_NoneStruct) {
            bits = as_number(number);
            return true;
        }
        if (compute_bytes_ != 0 && type_of(number) == &PyFloat_Type) {
            const double wide = PyFloat_AsDouble(number);
            const float narrow = static_cast<float>(wide);
            memcpy(&bits, compute_bytes_ == sizeof wide ? static_cast<const void*>(&wide) : &narrow, compute_bytes_);
            return true;
        }
        const Reference found(PyObject_CallFunctionObjArgs(shared_->bits_of, number, compute_, nullptr));
        if (!found)
            return false;
        bits = as_number(found.get());
        return true;
    }

    PyObject* memory(const Result& result) const {
        PyObject* made = Memory::allocate(result.bytes);
        return made != nullptr || PyErr_Occurred() != nullptr
                   ? made
                   : PyObject_CallFunctionObjArgs(shared_->no_memory, result.length, result.dtype, nullptr);
    }

    // A new storage, whose address is written into the arguments.
    PyObject* storage_of(uint8_t* arguments, const Result& result) const {
        const Reference held(
            result.is_large ? PyObject_CallFunctionObjArgs(shared_->large_array, result.length, result.dtype, nullptr)
                            : memory(result));
        Reference storage(held.get() == nullptr ? nullptr : PyType_GenericAlloc(shared_->storage_class, 0));
        if (!storage || !shared_->device.set(storage.get(), device_) ||
            !shared_->dtype.set(storage.get(), result.dtype) || !shared_->length.set(storage.get(), result.length) ||
            !shared_->kind.set(storage.get(), result.kind) || !shared_->memory.set(storage.get(), held.get()))
            return nullptr;
        const Reference begin(result.is_large ? nullptr : PyLong_FromVoidPtr(Memory::of(held.get())->begin));
        if (!shared_->address.set(storage.get(), result.is_large ? &_Py_NoneStruct : begin.get()))
            return nullptr;
        const Reference address(address_of(storage.get()));
        if (!address)
            return nullptr;
        put(arguments, result.place, as_number(address.get()));
        return storage.release();
    }

    // What was made, once the kernel has been called.
    PyObject* called(uint8_t* arguments, Reference& made) const {
        const bool has_scratch = scratch_.count != 0;
        const Reference scratch(has_scratch ? memory(scratch_[0]) : nullptr);
        if (has_scratch) {
            if (!scratch)
                return nullptr;
            put(arguments, scratch_[0].place, reinterpret_cast<uint64_t>(Memory::of(scratch.get())->begin));
        }
        // Whether an index is out of range, and which.
        int64_t wrong[2] = {};
        if (PyTuple_Size(wrong_) != 0)
            put(arguments, number_at(wrong_, 0), reinterpret_cast<uint64_t>(wrong));
        if (is_brief_) {
            kernel_(arguments);
        } else {
            const Reference threads(PyObject_CallFunctionObjArgs(shared_->threads, nullptr));
            if (!threads)
                return nullptr;
            const uint32_t count = static_cast<uint32_t>(as_number(threads.get()));
            memcpy(arguments + threads_place_, &count, sizeof count);
            PyThreadState* state = PyEval_SaveThread();
            kernel_(arguments);
            PyEval_RestoreThread(state);
        }
        if (wrong[0] == 0)
            return made.release();
        const Reference index(PyLong_FromLongLong(wrong[1]));
        return !index ? nullptr : PyObject_CallFunctionObjArgs(PyTuple_GetItem(wrong_, 1), index.get(), nullptr);
    }

    static constexpr size_t most_bytes = 512;

    PyObject* items_;
    Py_ssize_t next_ = 0;
    const Shared* shared_ = nullptr;
    void (*kernel_)(const void*) = nullptr;
    alignas(8) uint8_t arguments_[most_bytes] = {};
    size_t size_ = 0;
    uint64_t threads_place_ = 0;
    bool is_brief_ = false;
    bool makes_several_ = false;
    PyObject* device_ = nullptr;
    PyObject* compute_ = nullptr;
    // Of a compute dtype that C++ has.
    size_t compute_bytes_ = 0;
    List<Result> results_;
    List<Result> scratch_;
    List<Source> sources_;
    List<Unaliased> unaliased_;
    Py_ssize_t stored_ = 0;
    List<Place> numbers_;
    PyObject* wrong_ = nullptr;
};

inline PyObject* run_call(PyObject* capsule, PyObject* const* given, Py_ssize_t count) {
    return (*static_cast<const Call*>(PyCapsule_GetPointer(capsule, nullptr)))(given, count);
}

// What calls share, for as long as the process lives, and how many bytes an object begins with.
extern "C" __attribute__((visibility("default"), used)) inline void* make_shared(PyObject* items, size_t bytes) {
    header_bytes = bytes;
    return new Shared(items);
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
