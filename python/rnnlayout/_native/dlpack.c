/* Arrays of other libraries by DLPack: memory, shape and dtype, kept alive by a capsule of ours. */
#include "device_array.h" /* before the system's headers, as Python.h requires */

static const char LEGACY[] = "dltensor", VERSIONED[] = "dltensor_versioned";
static const char USED_LEGACY[] = "used_dltensor", USED_VERSIONED[] = "used_dltensor_versioned";
static const char KEPT[] = "rnnlayout.kept", EXCHANGE[] = "dlpack_exchange_api";

/* ------------------------------------------------------------------------------ ownership -- */

/* A deleter is the exporter's code: it may run Python, which must not see our exception. */
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

PyObject *dlpack_dtype_to_text(const dl_tensor *tensor)
{
    static const char *const kinds[] = {"int",    "uint",    "float", "opaque",
                                        "bfloat", "complex", "bool"};
    const unsigned code = tensor->dtype.code, bits = tensor->dtype.bits;
    const unsigned lanes = tensor->dtype.lanes;
    if (code > DL_BOOL)
        return PyUnicode_FromFormat("DLPack type %u with %u bits", code, bits);
    if (lanes != 1)
        return PyUnicode_FromFormat("%s%ux%u", kinds[code], bits, lanes);
    return PyUnicode_FromFormat("%s%u", kinds[code], bits);
}

/* -------------------------------------------------------------------------------- capsules -- */

static int take_legacy(PyObject *capsule, dl_taken *taken)
{
    dl_managed *managed = PyCapsule_GetPointer(capsule, LEGACY);
    PyObject *kept = PyCapsule_New(managed, KEPT, NULL);
    if (!kept)
        return -1;
    PyCapsule_SetName(capsule, USED_LEGACY); /* from now on we delete it */
    PyCapsule_SetDestructor(kept, drop_legacy);
    *taken = (dl_taken){kept, &managed->tensor, 0};
    return 0;
}

/* Steals the reference to kept, also on failure. */
static int take_versioned(const native_state *state, PyObject *kept,
                          const dl_managed_versioned *managed, dl_taken *taken)
{
    if (managed->version.major == DL_MAJOR) {
        *taken = (dl_taken){kept, &managed->tensor, (managed->flags & DL_READ_ONLY) != 0};
        return 0;
    }
    /* in another major version only the deleter has the same place */
    PyErr_Format(state->layout_error, "DLPack %u.%u is not supported, need 1.x",
                 managed->version.major, managed->version.minor);
    Py_DECREF(kept);
    return -1;
}

int dlpack_take(const native_state *state, PyObject *capsule, dl_taken *taken)
{
    if (PyCapsule_IsValid(capsule, LEGACY))
        return take_legacy(capsule, taken);
    if (!PyCapsule_IsValid(capsule, VERSIONED)) {
        PyErr_SetString(state->layout_error,
                        "__dlpack__() did not return a capsule, or returned a used one");
        return -1;
    }
    dl_managed_versioned *managed = PyCapsule_GetPointer(capsule, VERSIONED);
    PyObject *kept = PyCapsule_New(managed, KEPT, NULL);
    if (!kept)
        return -1;
    PyCapsule_SetName(capsule, USED_VERSIONED);
    PyCapsule_SetDestructor(kept, drop_versioned);
    return take_versioned(state, kept, managed, taken);
}

/* ---------------------------------------------------------------------------- exchange API -- */

int dlpack_exchange_of(const native_state *state, PyTypeObject *type, const dl_exchange **table)
{
    PyObject *capsule = PyObject_GetAttr((PyObject *)type, state->words[WORD_EXCHANGE]);
    if (!capsule && !PyErr_ExceptionMatches(PyExc_AttributeError))
        return -1;
    PyErr_Clear();
    *table = NULL;
    if (capsule && PyCapsule_IsValid(capsule, EXCHANGE))
        *table = PyCapsule_GetPointer(capsule, EXCHANGE); /* static, as the protocol requires */
    Py_XDECREF(capsule);
    return *table && (*table)->version.major == DL_MAJOR && (*table)->from_object &&
           (*table)->current_stream;
}

int dlpack_take_by(const native_state *state, const dl_exchange *table, PyObject *array,
                   dl_taken *taken, void **stream)
{
    dl_managed_versioned *managed = NULL;
    *stream = NULL;
    if (table->from_object(array, &managed) != 0)
        return -1;
    PyObject *kept = PyCapsule_New(managed, KEPT, drop_versioned);
    if (!kept) {
        delete_versioned(managed);
        return -1;
    }
    if (take_versioned(state, kept, managed, taken) < 0)
        return -1;
    if (managed->tensor.device.type == DL_CUDA &&
        table->current_stream(DL_CUDA, managed->tensor.device.id, stream) != 0) {
        Py_DECREF(kept);
        return -1;
    }
    return 0;
}
