/* The type DeviceArray: a result in a GPU's memory, for DLPack. */
#include "device_array.h" /* before the system's headers, as Python.h requires */

#include <numpy/arrayobject.h>
#include <stdlib.h>

static const char LEGACY[] = "dltensor", VERSIONED[] = "dltensor_versioned";

/* --------------------------------------------------------------------------------- attributes --
 */

static PyObject *get_shape(PyObject *object, void *unused)
{
    (void)unused;
    const array_shape *shape = &((device_array *)object)->shape;
    return sizes_to_tuple(shape->sizes, shape->ndim);
}

static PyObject *get_dtype(PyObject *object, void *unused)
{
    (void)unused;
    return PyUnicode_FromString(rnl_name(RNL_NAMES_DTYPE, (int)((device_array *)object)->dtype));
}

static PyObject *get_device(PyObject *object, void *unused)
{
    (void)unused;
    return PyUnicode_FromFormat("cuda:%d", ((device_array *)object)->device);
}

static PyObject *get_stream(PyObject *object, void *unused)
{
    (void)unused;
    return stream_to_object(((device_array *)object)->stream);
}

static Py_ssize_t array_length(PyObject *object)
{
    return (Py_ssize_t)((device_array *)object)->shape.sizes[0];
}

static PyObject *array_repr(PyObject *object)
{
    const device_array *self = (device_array *)object;
    PyObject *shape = sizes_to_tuple(self->shape.sizes, self->shape.ndim);
    if (!shape)
        return NULL;
    PyObject *text = PyUnicode_FromFormat("<DeviceArray of shape %R, %s, on cuda:%d>", shape,
                                          rnl_name(RNL_NAMES_DTYPE, (int)self->dtype),
                                          self->device);
    Py_DECREF(shape);
    return text;
}

/* -------------------------------------------------------------------------------- to the host --
 */

static PyObject *array_copy_out(PyObject *object, PyObject *unused)
{
    (void)unused;
    const device_array *self = (device_array *)object;
    rnl_error err;
    rnl_status status = RNL_OK;
    npy_intp shape[MAX_DIMS];
    for (int d = 0; d < self->shape.ndim; d++)
        shape[d] = (npy_intp)self->shape.sizes[d];
    PyObject *array = PyArray_SimpleNew(self->shape.ndim, shape, numpy_type_of(self->dtype));
    if (!array)
        return NULL;
    void *host = PyArray_DATA((PyArrayObject *)array);
    void *const stream = self->stream;
    Py_BEGIN_ALLOW_THREADS
    if (self->nbytes)
        status = rnl_gpu_copy_out(self->device, self->address, host, self->nbytes, stream, &err);
    Py_END_ALLOW_THREADS
    if (status == RNL_OK)
        return array;
    Py_DECREF(array);
    return raise_status(PyType_GetModuleState(Py_TYPE(object)), &err);
}

static PyObject *array_numpy(PyObject *object, PyObject *unused)
{
    const device_array *self = (device_array *)object;
    if (self->dtype != RNL_BFLOAT16)
        return array_copy_out(object, unused);
    PyObject *dtype = bfloat16_dtype(PyType_GetModuleState(Py_TYPE(object))), *result = NULL;
    PyObject *bits = dtype ? array_copy_out(object, unused) : NULL;
    if (bits)
        result = PyObject_CallMethod(bits, "view", "O", dtype);
    Py_XDECREF(dtype);
    Py_XDECREF(bits);
    return result;
}

static PyObject *array_refuse(PyObject *object, PyObject *args, PyObject *kwargs)
{
    (void)args;
    (void)kwargs;
    PyErr_Format(
        PyExc_TypeError,
        "this array is in the memory of cuda:%d: use .numpy(), which waits for it and copies"
        " it to the host",
        ((device_array *)object)->device);
    return NULL;
}

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
    void *consumer = NULL, *const filled = self->stream;
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

static PyObject *array_dlpack(PyObject *object, PyObject *args, PyObject *kwargs)
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

static PyObject *array_dlpack_device(PyObject *object, PyObject *unused)
{
    (void)unused;
    return Py_BuildValue("(ii)", DL_CUDA, ((device_array *)object)->device);
}

/* ----------------------------------------------------------------------------------- the type --
 */

static int64_t nbytes_of(rnl_dtype dtype, const array_shape *shape)
{
    int64_t nbytes = rnl_dtype_nbytes(dtype);
    for (int d = 0; d < shape->ndim; d++)
        if (__builtin_mul_overflow(nbytes, shape->sizes[d], &nbytes))
            return -1;
    return nbytes;
}

void device_array_fill_in(device_array *self, void *stream)
{
    self->stream = stream == (void *)2 ? NULL : stream;
}

PyObject *device_array_new(const native_state *state, int device, rnl_dtype dtype,
                           const array_shape *shape, void *stream, PyObject *keeps)
{
    rnl_error err;
    rnl_status status = RNL_OK;
    const int64_t nbytes = nbytes_of(dtype, shape);
    if (nbytes < 0)
        return PyErr_NoMemory();
    device_array *self = (device_array *)object_new(state->device_array_type);
    if (!self)
        return NULL;
    self->device = device;
    self->dtype = dtype;
    self->shape = *shape;
    self->nbytes = nbytes;
    self->keeps = Py_NewRef(keeps);
    device_array_fill_in(self, stream);
    Py_BEGIN_ALLOW_THREADS
    if (nbytes)
        status = rnl_gpu_alloc(device, nbytes, stream, &self->address, &err);
    Py_END_ALLOW_THREADS
    if (status == RNL_OK)
        return (PyObject *)self;
    Py_DECREF(self);
    return raise_status(state, &err);
}

/* Freeing waits for the work that still uses the memory. */
static void array_dealloc(PyObject *object)
{
    device_array *self = (device_array *)object;
    Py_BEGIN_ALLOW_THREADS
    rnl_gpu_free(self->device, self->address);
    Py_END_ALLOW_THREADS
    Py_CLEAR(self->keeps);
    object_free(object);
}

static PyMethodDef array_methods[] = {
    {"numpy", array_numpy, METH_NOARGS,
     "numpy($self)\n--\n\nWait for the work that fills the array and return a NumPy copy of it."},
    {"__array__", (PyCFunction)(void (*)(void))array_refuse, METH_VARARGS | METH_KEYWORDS,
     "__array__($self, dtype=None, copy=None)\n--\n\nRaise TypeError: use numpy() to copy from the"
     " GPU."},
    {"__dlpack__", (PyCFunction)(void (*)(void))array_dlpack, METH_VARARGS | METH_KEYWORDS,
     "__dlpack__($self, *, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\nExport"
     " the array as in the array API: without a copy; the stream waits for the array."},
    {"__dlpack_device__", array_dlpack_device, METH_NOARGS,
     "__dlpack_device__($self)\n--\n\nReturn (2, number of the GPU)."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef array_attributes[] = {
    {"shape", get_shape, NULL, "The size of each axis; elements are row-major, without gaps.",
     NULL},
    {"dtype", get_dtype, NULL, "\"float16\", \"bfloat16\", \"float32\" or \"float64\".", NULL},
    {"device", get_device, NULL, "The GPU: \"cuda:0\" ...", NULL},
    {"stream", get_stream, NULL,
     "The stream in which the array is written, an int: 1 is the legacy default stream.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot array_slots[] = {
    {Py_tp_doc,
     "A result in a GPU's memory: what an RNN returns for arrays on a GPU.\n\nIt has no array"
     " operations. torch.from_dlpack(), cupy.from_dlpack() and jax.dlpack.from_dlpack() use it"
     " without a copy; numpy() copies it to the host. The memory is freed once the array and all arrays made from it are"
     " gone."},
    {Py_tp_dealloc, array_dealloc},
    {Py_tp_repr, array_repr},
    {Py_sq_length, array_length},
    {Py_tp_methods, array_methods},
    {Py_tp_getset, array_attributes},
    {0, NULL}};

PyType_Spec device_array_type_spec = {.name = "rnnlayout.DeviceArray",
                                      .basicsize = sizeof(device_array),
                                      .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE |
                                               Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                      .slots = array_slots};
