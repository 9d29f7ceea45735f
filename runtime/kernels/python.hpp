// As much of Python as calls of kernels need: its stable ABI alone, declared here, so that neither Python's headers nor
// its version matter.
//
// While Python ends, a thread that asks for the GIL ends inside the call that asks, and its frames are unwound. No
// destructor may run then, because it would give back references without the GIL. Without exceptions none does: what
// such a thread holds stays as it is until the process ends.
#pragma once

#if defined(__cpp_exceptions)
#error "compile with -fno-exceptions: destructors must not run when Python ends a thread"
#endif

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

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
extern PyObject PyLong_Type;
extern PyObject _Py_NoneStruct;
extern PyObject _Py_TrueStruct;
extern PyObject* PyExc_TypeError;
int PyBuffer_FillInfo(Py_buffer*, PyObject*, void*, Py_ssize_t, int, int);
PyObject* PyErr_NoMemory();
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
long long PyLong_AsLongLongAndOverflow(PyObject*, int*);
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

// An owned reference to a Python object.
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

// How many bytes each object begins with. The last of them are its type, whatever else Python counts there.
inline size_t header_bytes = 16;

inline PyObject* type_of(PyObject* object) {
    PyObject* type;
    memcpy(&type, reinterpret_cast<uint8_t*>(object) + header_bytes - sizeof type, sizeof type);
    return type;
}

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

// The elements that the items of a tuple are read as.
template <typename Item> class List {
  public:
    List() = default;
    explicit List(PyObject* tuple) : count(PyTuple_Size(tuple)) {
        items_ = static_cast<Item*>(malloc(static_cast<size_t>(count + 1) * sizeof(Item)));
        for (Py_ssize_t i = 0; i < count; ++i)
            items_[i] = Item{PyTuple_GetItem(tuple, i)};
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

} // namespace tallow
