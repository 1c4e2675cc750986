/* Arrays of others by DLPack: their memory, shape and dtype, kept alive by a capsule of ours. */
#include "native.h" /* before the system's headers, as Python.h wants it */

#include "dlpack.h"

static const char LEGACY[] = "dltensor", VERSIONED[] = "dltensor_versioned";
static const char USED_LEGACY[] = "used_dltensor", USED_VERSIONED[] = "used_dltensor_versioned";
static const char KEPT[] = "rnnlayout.kept", EXCHANGE[] = "dlpack_exchange_api";

/* ------------------------------------------------------------------------------ ownership -- */

/* A deleter is the exporter's: it may run Python, which must not see an exception of ours. */
static void delete_legacy(dl_managed *managed)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (managed->deleter)
        managed->deleter(managed);
    PyErr_Restore(type, value, traceback);
}

static void delete_versioned(dl_managed_versioned *managed)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (managed->deleter)
        managed->deleter(managed);
    PyErr_Restore(type, value, traceback);
}

static void drop_legacy(PyObject *kept)
{
    delete_legacy(PyCapsule_GetPointer(kept, KEPT));
}

static void drop_versioned(PyObject *kept)
{
    delete_versioned(PyCapsule_GetPointer(kept, KEPT));
}

/* ------------------------------------------------------------------------------ what it is -- */

static PyObject *dtype_to_text(const dl_tensor *tensor)
{
    static const char *const kinds[] = {"int",    "uint",    "float", "opaque",
                                        "bfloat", "complex", "bool"};
    const unsigned code = tensor->dtype.code, bits = tensor->dtype.bits;
    const unsigned lanes = tensor->dtype.lanes;
    if (code > DL_BOOL)
        return PyUnicode_FromFormat("DLPack's type %u of %u bits", code, bits);
    if (lanes != 1)
        return PyUnicode_FromFormat("%s%ux%u", kinds[code], bits, lanes);
    return PyUnicode_FromFormat("%s%u", kinds[code], bits);
}

static PyObject *sizes_to_tuple(const int64_t *sizes, int32_t n)
{
    if (!sizes && n > 0)
        Py_RETURN_NONE;
    PyObject *tuple = PyTuple_New(n);
    for (int32_t k = 0; tuple && k < n; k++) {
        PyObject *size = PyLong_FromLongLong(sizes[k]);
        if (!size || PyTuple_SetItem(tuple, k, size) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

/* (kept, address, shape, strides, dtype, device type, device, is it read-only?); takes the
 * reference of kept, also where it fails. */
static PyObject *describe(PyObject *kept, const dl_tensor *tensor, int read_only)
{
    PyObject *dtype = NULL, *shape = NULL, *strides = NULL, *address = NULL, *result = NULL;
    dtype = dtype_to_text(tensor);
    shape = dtype ? sizes_to_tuple(tensor->shape, tensor->ndim) : NULL;
    strides = shape ? sizes_to_tuple(tensor->strides, tensor->ndim) : NULL;
    if (strides)
        address = PyLong_FromVoidPtr(tensor->data ? (char *)tensor->data + tensor->byte_offset
                                                  : NULL);
    if (address)
        result = Py_BuildValue("(OOOOOiiO)", kept, address, shape, strides, dtype,
                               tensor->device.type, tensor->device.id,
                               read_only ? Py_True : Py_False);
    Py_XDECREF(dtype);
    Py_XDECREF(shape);
    Py_XDECREF(strides);
    Py_XDECREF(address);
    Py_DECREF(kept);
    return result;
}

/* -------------------------------------------------------------------------------- capsules -- */

static PyObject *take_legacy(PyObject *capsule)
{
    dl_managed *managed = PyCapsule_GetPointer(capsule, LEGACY);
    PyObject *kept = PyCapsule_New(managed, KEPT, NULL);
    if (!kept)
        return NULL;
    PyCapsule_SetName(capsule, USED_LEGACY); /* from here on it is ours to delete */
    PyCapsule_SetDestructor(kept, drop_legacy);
    return describe(kept, &managed->tensor, 0);
}

static PyObject *take_versioned(const native_state *state, PyObject *kept,
                                const dl_managed_versioned *managed)
{
    if (managed->version.major == DL_MAJOR)
        return describe(kept, &managed->tensor, (managed->flags & DL_READ_ONLY) != 0);
    /* all but the place of the deleter may be different there */
    PyErr_Format(state->layout_error, "DLPack %u.%u, of which nothing is known here, need 1.x",
                 managed->version.major, managed->version.minor);
    Py_DECREF(kept);
    return NULL;
}

PyObject *native_take_dlpack(PyObject *module, PyObject *capsule)
{
    const native_state *state = PyModule_GetState(module);
    if (PyCapsule_IsValid(capsule, LEGACY))
        return take_legacy(capsule);
    if (!PyCapsule_IsValid(capsule, VERSIONED)) {
        PyErr_SetString(state->layout_error,
                        "__dlpack__() gave no capsule, or one that has been used");
        return NULL;
    }
    dl_managed_versioned *managed = PyCapsule_GetPointer(capsule, VERSIONED);
    PyObject *kept = PyCapsule_New(managed, KEPT, NULL);
    if (!kept)
        return NULL;
    PyCapsule_SetName(capsule, USED_VERSIONED);
    PyCapsule_SetDestructor(kept, drop_versioned);
    return take_versioned(state, kept, managed);
}

/* ---------------------------------------------------------------------------- exchange API -- */

/* The table of the array's type: 1, or 0: it has none that is known here; -1 on error. */
static int exchange_of(PyObject *array, const dl_exchange **table)
{
    PyObject *capsule = PyObject_GetAttrString((PyObject *)Py_TYPE(array),
                                               "__dlpack_c_exchange_api__");
    if (!capsule && !PyErr_ExceptionMatches(PyExc_AttributeError))
        return -1;
    PyErr_Clear();
    *table = NULL;
    if (capsule && PyCapsule_IsValid(capsule, EXCHANGE))
        *table = PyCapsule_GetPointer(capsule, EXCHANGE); /* static, by the protocol */
    Py_XDECREF(capsule);
    return *table && (*table)->version.major == DL_MAJOR && (*table)->from_object &&
           (*table)->current_stream;
}

PyObject *native_exchange(PyObject *module, PyObject *array)
{
    const dl_exchange *table;
    dl_managed_versioned *managed = NULL;
    void *stream = NULL;
    const int found = exchange_of(array, &table);
    if (found < 0)
        return NULL;
    if (!found)
        Py_RETURN_NONE;
    if (table->from_object(array, &managed) != 0)
        return NULL;
    PyObject *kept = PyCapsule_New(managed, KEPT, drop_versioned);
    if (!kept) {
        delete_versioned(managed);
        return NULL;
    }
    PyObject *taken = take_versioned(PyModule_GetState(module), kept, managed);
    if (!taken || managed->tensor.device.type != DL_CUDA)
        return taken ? Py_BuildValue("(NO)", taken, Py_None) : NULL;
    if (table->current_stream(DL_CUDA, managed->tensor.device.id, &stream) != 0) {
        Py_DECREF(taken);
        return NULL;
    }
    return Py_BuildValue("(NN)", taken, PyLong_FromVoidPtr(stream));
}
