/* A DeviceArray exported by DLPack and by the CUDA array interface. */
#include "device_array.h" /* before the system's headers, as Python.h requires */

#include <stdlib.h>

static const char LEGACY[] = "dltensor", VERSIONED[] = "dltensor_versioned";

/* ------------------------------------------------------------------------------------- DLPack --
 */

typedef struct exported {
    union {
        dl_managed legacy;
        dl_managed_versioned versioned;
    } managed;
    PyObject *array;
    int64_t shape[MAX_DIMS], strides[MAX_DIMS];
} exported;

/* Called in any thread, when the consumer no longer needs it. */
static void drop_exported(exported *e)
{
    if (!Py_IsInitialized())
        return; /* Python must not be called any more; the process frees the memory */
    const PyGILState_STATE gil = PyGILState_Ensure();
    Py_DECREF(e->array);
    free(e);
    PyGILState_Release(gil);
}

static void delete_legacy(dl_managed *managed)
{
    drop_exported(managed->context);
}

static void delete_versioned(dl_managed_versioned *managed)
{
    drop_exported(managed->context);
}

/* Only for a capsule without a consumer: a consumer renames it. */
static void drop_capsule(PyObject *capsule)
{
    const char *name = PyCapsule_GetName(capsule);
    if (name == LEGACY || name == VERSIONED)
        drop_exported(PyCapsule_GetContext(capsule));
}

static void fill_tensor(const device_array *self, exported *e, dl_tensor *tensor)
{
    int64_t stride = 1;
    for (int d = self->shape.ndim - 1; d >= 0; d--) {
        e->shape[d] = self->shape.sizes[d];
        e->strides[d] = stride;
        stride *= self->shape.sizes[d];
    }
    tensor->data = self->address;
    tensor->device.type = DL_CUDA;
    tensor->device.id = self->device;
    tensor->ndim = self->shape.ndim;
    tensor->dtype.code = self->dtype == RNL_BFLOAT16 ? DL_BFLOAT : DL_FLOAT;
    tensor->dtype.bits = (uint8_t)(8 * rnl_dtype_nbytes(self->dtype));
    tensor->dtype.lanes = 1;
    tensor->shape = e->shape;
    tensor->strides = e->strides;
}

static PyObject *export(device_array *self, int versioned)
{
    exported *e = calloc(1, sizeof *e);
    if (!e)
        return PyErr_NoMemory();
    if (versioned) {
        dl_managed_versioned *m = &e->managed.versioned;
        m->version = (dl_version){DL_MAJOR, DL_MINOR};
        m->context = e;
        m->deleter = delete_versioned;
        fill_tensor(self, e, &m->tensor);
    } else {
        e->managed.legacy.context = e;
        e->managed.legacy.deleter = delete_legacy;
        fill_tensor(self, e, &e->managed.legacy.tensor);
    }
    PyObject *capsule = PyCapsule_New(&e->managed, versioned ? VERSIONED : LEGACY, NULL);
    if (!capsule) {
        free(e);
        return NULL;
    }
    e->array = Py_NewRef((PyObject *)self);
    PyCapsule_SetContext(capsule, e);
    PyCapsule_SetDestructor(capsule, drop_capsule);
    return capsule;
}

/* Make the consumer's stream wait for the work that writes the array. */
static int order_consumer(const native_state *state, device_array *self, PyObject *stream)
{
    rnl_error err;
    rnl_status status;
    void *consumer = NULL, *const filled = device_array_stream(self);
    if (stream != Py_None) {
        if (PyLong_AsLong(stream) == -1 && !PyErr_Occurred())
            return 0; /* the consumer orders the streams itself */
        PyErr_Clear();
        consumer = stream_from_object(stream);
        if (PyErr_Occurred())
            return -1;
    }
    if (consumer == filled)
        return 0;
    Py_BEGIN_ALLOW_THREADS
    status = rnl_gpu_order(self->device, filled, consumer, &err);
    Py_END_ALLOW_THREADS
    return status == RNL_OK ? 0 : (raise_status(state, &err), -1);
}

PyObject *device_array_dlpack(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    device_array *self = (device_array *)object;
    PyObject *stream = Py_None, *version = Py_None, *device = Py_None, *copy = Py_None;
    int major = 0, minor = 0, type, id;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOO:__dlpack__", names, &stream, &version,
                                     &device, &copy) ||
        (version != Py_None && !PyArg_Parse(version, "(ii)", &major, &minor)))
        return NULL;
    if (device != Py_None) {
        if (!PyArg_Parse(device, "(ii)", &type, &id))
            return NULL;
        if (type != DL_CUDA || id != self->device)
            return PyErr_Format(
                PyExc_BufferError,
                "the array is on cuda:%d, and dl_device asks for another device: use"
                " .numpy()",
                self->device);
    }
    const int copies = copy == Py_None ? 0 : PyObject_IsTrue(copy);
    if (copies < 0)
        return NULL;
    if (copies)
        return PyErr_Format(PyExc_BufferError,
                            "copy=True is not supported: copy the result instead");
    if (order_consumer(PyType_GetModuleState(Py_TYPE(object)), self, stream) < 0)
        return NULL;
    return export(self, major >= 1);
}

PyObject *device_array_dlpack_device(PyObject *object, PyObject *unused)
{
    (void)unused;
    return Py_BuildValue("(ii)", DL_CUDA, ((device_array *)object)->device);
}

/* ----------------------------------------------------------------------- CUDA array interface --
 */

PyObject *device_array_interface(PyObject *object, void *unused)
{
    (void)unused;
    static const char *const types[] = {
        [RNL_FLOAT16] = "<f2", [RNL_FLOAT32] = "<f4", [RNL_FLOAT64] = "<f8"};
    const device_array *self = (device_array *)object;
    if (self->dtype == RNL_BFLOAT16)
        return PyErr_Format(PyExc_AttributeError,
                            "__cuda_array_interface__ does not support bfloat16: use DLPack");
    PyObject *shape = sizes_to_tuple(self->shape.sizes, self->shape.ndim);
    PyObject *address = shape ? PyLong_FromVoidPtr(self->address) : NULL;
    PyObject *stream = address ? stream_to_object(device_array_stream(self)) : NULL;
    if (!stream) {
        Py_XDECREF(shape);
        Py_XDECREF(address);
        return NULL;
    }
    return Py_BuildValue("{sNsss(NO)sOsNsi}", "shape", shape, "typestr", types[self->dtype], "data",
                         address, Py_False, "strides", Py_None, "stream", stream, "version", 3);
}
