// Calls of kernels by plans: functions of Python that make the storages of results, write into a kernel's arguments
// where operands are, and call it. For a tensor of a thousand elements, a kernel takes less time than any of these
// steps takes in Python.
//
// Of Python they use its stable ABI alone, declared here, so that neither its headers nor its version matter.
#pragma once

#include <stddef.h>
#include <string.h>

#include "basic.hpp"

extern "C" {
struct PyObject;
struct PyThreadState;
using Py_ssize_t = ptrdiff_t;
struct PyMethodDef {
    const char* name;
    PyObject* (*function)(PyObject*, PyObject* const*, Py_ssize_t);
    int flags;
    const char* doc;
};
struct Py_buffer {
    void* data;
    PyObject* object;
    Py_ssize_t bytes;
    Py_ssize_t itemsize;
    int is_readonly;
    int rank;
    char* format;
    Py_ssize_t* shape;
    Py_ssize_t* strides;
    Py_ssize_t* suboffsets;
    void* internal;
};
extern PyObject* PyExc_MemoryError;
extern PyObject* PyExc_TypeError;
void PyErr_Clear();
int PyErr_ExceptionMatches(PyObject*);
PyObject* PyErr_Occurred();
void PyErr_SetString(PyObject*, const char*);
void Py_DecRef(PyObject*);
void Py_IncRef(PyObject*);
int PyBytes_AsStringAndSize(PyObject*, char**, Py_ssize_t*);
void PyBuffer_Release(Py_buffer*);
PyObject* PyCapsule_New(void*, const char*, void (*)(PyObject*));
void* PyCapsule_GetPointer(PyObject*, const char*);
PyObject* PyCFunction_NewEx(PyMethodDef*, PyObject*, PyObject*);
void PyEval_RestoreThread(PyThreadState*);
PyThreadState* PyEval_SaveThread();
unsigned long long PyLong_AsUnsignedLongLong(PyObject*);
PyObject* PyLong_FromLongLong(long long);
PyObject* PyLong_FromVoidPtr(void*);
PyObject* PyObject_CallFunctionObjArgs(PyObject*, ...);
PyObject* PyObject_GetAttr(PyObject*, PyObject*);
int PyObject_GetBuffer(PyObject*, Py_buffer*, int);
int PyObject_SetAttr(PyObject*, PyObject*, PyObject*);
PyObject* PyTuple_GetItem(PyObject*, Py_ssize_t);
PyObject* PyTuple_New(Py_ssize_t);
int PyTuple_SetItem(PyObject*, Py_ssize_t, PyObject*);
Py_ssize_t PyTuple_Size(PyObject*);
PyObject* PyType_GenericAlloc(PyObject*, Py_ssize_t);
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

// The call of a kernel with other storages and numbers. It is made of a tuple, whose items the constructor reads in
// order; `HostKernels.call` gives it.
class Call {
  public:
    explicit Call(PyObject* items) : items_(items) {
        Py_IncRef(items);
        char* bytes = nullptr;
        Py_ssize_t size = 0;
        kernel_ = reinterpret_cast<void (*)(const void*)>(number(item(items)));
        if (PyBytes_AsStringAndSize(item(items), &bytes, &size) != 0)
            return;
        if (size > static_cast<Py_ssize_t>(sizeof arguments_)) {
            PyErr_SetString(PyExc_TypeError, "a kernel takes too many arguments");
            return;
        }
        size_ = static_cast<size_t>(size);
        memcpy(arguments_, bytes, size_);
        threads_place_ = number(item(items));
        threads_ = item(items);
        is_brief_ = number(item(items)) != 0;
        makes_several_ = number(item(items)) != 0;
        storage_class_ = item(items);
        device_ = item(items);
        empty_ = item(items);
        no_memory_ = item(items);
        bits_of_ = item(items);
        compute_ = item(items);
        results_ = item(items);
        scratch_ = item(items);
        sources_ = item(items);
        numbers_ = item(items);
        wrong_ = item(items);
    }
    ~Call() {
        Py_DecRef(items_);
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    // Storages of results, of the sources and then all numbers or none; null and an exception where something fails.
    PyObject* operator()(PyObject* const* given, Py_ssize_t count) const {
        const Py_ssize_t results = PyTuple_Size(results_), sources = PyTuple_Size(sources_);
        const Py_ssize_t numbers = count - sources;
        if (numbers != 0 && numbers != PyTuple_Size(numbers_)) {
            PyErr_SetString(PyExc_TypeError, "a plan was given another number of arguments");
            return nullptr;
        }
        alignas(8) uint8_t arguments[sizeof arguments_];
        memcpy(arguments, arguments_, size_);
        for (Py_ssize_t i = 0; i < sources; ++i) {
            const Reference address(PyObject_GetAttr(given[i], names().address));
            if (!address)
                return nullptr;
            PyObject* source = PyTuple_GetItem(sources_, i);
            put(arguments, source, number(address.get()) + number(PyTuple_GetItem(source, 1)));
        }
        for (Py_ssize_t i = 0; i < numbers; ++i) {
            const Reference bits(PyObject_CallFunctionObjArgs(bits_of_, given[sources + i], compute_, nullptr));
            if (!bits)
                return nullptr;
            put(arguments, PyTuple_GetItem(numbers_, i), number(bits.get()));
        }
        Reference made(makes_several_ ? PyTuple_New(results) : nullptr);
        for (Py_ssize_t i = 0; i < results; ++i) {
            Reference storage(result(arguments, PyTuple_GetItem(results_, i)));
            if (!storage)
                return nullptr;
            if (!makes_several_)
                return called(arguments, storage);
            PyTuple_SetItem(made.get(), i, storage.release());
        }
        return called(arguments, made);
    }

  private:
    struct Names {
        PyObject* address = PyUnicode_InternFromString("address");
        PyObject* data = PyUnicode_InternFromString("data");
        PyObject* device = PyUnicode_InternFromString("device");
        PyObject* dtype = PyUnicode_InternFromString("dtype");
        PyObject* kind = PyUnicode_InternFromString("kind");
        PyObject* length = PyUnicode_InternFromString("length");
    };
    static const Names& names() {
        static const Names names;
        return names;
    }

    PyObject* item(PyObject* items) {
        return PyTuple_GetItem(items, next_++);
    }
    static uint64_t number(PyObject* object) {
        return PyLong_AsUnsignedLongLong(object);
    }
    // Writes eight bytes to where the first of some items says.
    static void put(uint8_t* arguments, PyObject* items, uint64_t value) {
        memcpy(arguments + number(PyTuple_GetItem(items, 0)), &value, sizeof value);
    }

    // A new array of NumPy's, whose address is written into the arguments. The items: its place among them, how many
    // elements, their type in NumPy, and their dtype.
    PyObject* array(uint8_t* arguments, PyObject* items, void** address) const {
        PyObject* length = PyTuple_GetItem(items, 1);
        Reference data(PyObject_CallFunctionObjArgs(empty_, length, PyTuple_GetItem(items, 2), nullptr));
        if (!data) {
            if (PyErr_ExceptionMatches(PyExc_MemoryError) == 0)
                return nullptr;
            PyErr_Clear();
            return PyObject_CallFunctionObjArgs(no_memory_, length, PyTuple_GetItem(items, 3), nullptr);
        }
        Py_buffer buffer;
        if (PyObject_GetBuffer(data.get(), &buffer, 0) != 0)
            return nullptr;
        *address = buffer.data;
        PyBuffer_Release(&buffer);
        put(arguments, items, reinterpret_cast<uint64_t>(*address));
        return data.release();
    }

    // A new storage of such an array; the item after the others is its kind.
    PyObject* result(uint8_t* arguments, PyObject* items) const {
        void* place = nullptr;
        const Reference data(array(arguments, items, &place));
        if (!data)
            return nullptr;
        const Reference address(PyLong_FromVoidPtr(place));
        Reference storage(PyType_GenericAlloc(storage_class_, 0));
        if (!address || !storage || PyObject_SetAttr(storage.get(), names().data, data.get()) != 0 ||
            PyObject_SetAttr(storage.get(), names().address, address.get()) != 0 ||
            PyObject_SetAttr(storage.get(), names().device, device_) != 0 ||
            PyObject_SetAttr(storage.get(), names().dtype, PyTuple_GetItem(items, 3)) != 0 ||
            PyObject_SetAttr(storage.get(), names().length, PyTuple_GetItem(items, 1)) != 0 ||
            PyObject_SetAttr(storage.get(), names().kind, PyTuple_GetItem(items, 4)) != 0)
            return nullptr;
        return storage.release();
    }

    // What was made, once the kernel has been called.
    PyObject* called(uint8_t* arguments, Reference& made) const {
        void* place = nullptr;
        const bool has_scratch = PyTuple_Size(scratch_) != 0;
        const Reference scratch(has_scratch ? array(arguments, scratch_, &place) : nullptr);
        if (has_scratch && !scratch)
            return nullptr;
        // Whether an index is out of range, and which.
        int64_t wrong[2] = {};
        const bool has_indexes = PyTuple_Size(wrong_) != 0;
        if (has_indexes)
            put(arguments, wrong_, reinterpret_cast<uint64_t>(wrong));
        if (is_brief_) {
            kernel_(arguments);
        } else {
            const Reference threads(PyObject_CallFunctionObjArgs(threads_, nullptr));
            if (!threads)
                return nullptr;
            const uint32_t count = static_cast<uint32_t>(number(threads.get()));
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
    void (*kernel_)(const void*) = nullptr;
    alignas(8) uint8_t arguments_[most_bytes] = {};
    size_t size_ = 0;
    uint64_t threads_place_ = 0;
    PyObject* threads_ = nullptr;
    bool is_brief_ = false;
    bool makes_several_ = false;
    PyObject* storage_class_ = nullptr;
    PyObject* device_ = nullptr;
    PyObject* empty_ = nullptr;
    PyObject* no_memory_ = nullptr;
    PyObject* bits_of_ = nullptr;
    PyObject* compute_ = nullptr;
    PyObject* results_ = nullptr;
    PyObject* scratch_ = nullptr;
    PyObject* sources_ = nullptr;
    PyObject* numbers_ = nullptr;
    PyObject* wrong_ = nullptr;
};

inline PyObject* run_call(PyObject* capsule, PyObject* const* given, Py_ssize_t count) {
    return (*static_cast<const Call*>(PyCapsule_GetPointer(capsule, nullptr)))(given, count);
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
