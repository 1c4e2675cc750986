/* The type DeviceArray: a result in a GPU's memory, for whoever knows one of the two protocols. */
#include "device_array.h" /* before the system's headers, as Python.h wants it */

#include <numpy/arrayobject.h>
#include <stdlib.h>

enum { ALIGNED = 256, MAX_ARRAYS = 3 };

static const char BLOCK[] = "rnnlayout.block";
static const char LEGACY[] = "dltensor", VERSIONED[] = "dltensor_versioned";

/* -------------------------------------------------------------------------------- the memory -- */

typedef struct block {
    void *address;
    int device;
    PyObject *keeps; /* what the work that fills it still reads */
} block;

static void free_block(PyObject *capsule)
{
    block *b = PyCapsule_GetPointer(capsule, BLOCK);
    Py_BEGIN_ALLOW_THREADS /* it waits for the device */
    rnl_gpu_free(b->device, b->address);
    Py_END_ALLOW_THREADS
    Py_XDECREF(b->keeps);
    free(b);
}

static PyObject *new_block(const native_state *state, int device, int64_t nbytes, PyObject *keeps)
{
    rnl_error err;
    rnl_status status;
    block *b = calloc(1, sizeof *b);
    if (!b)
        return PyErr_NoMemory();
    PyObject *capsule = PyCapsule_New(b, BLOCK, NULL);
    if (!capsule) {
        free(b);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = nbytes ? rnl_gpu_alloc(device, nbytes, &b->address, &err) : RNL_OK;
    Py_END_ALLOW_THREADS
    if (status != RNL_OK) {
        free(b);
        Py_DECREF(capsule);
        return raise_status(state, &err);
    }
    b->device = device;
    b->keeps = Py_NewRef(keeps);
    PyCapsule_SetDestructor(capsule, free_block);
    return capsule;
}

/* ------------------------------------------------------------------------------------- making --
 */

static PyObject *new_array(const native_state *state, const array_shape *shape)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(state->device_array_type, Py_tp_alloc);
    device_array *self = (device_array *)alloc(state->device_array_type, 0);
    if (!self)
        return NULL;
    self->shape = *shape;
    self->nelems = 1;
    for (int d = 0; d < shape->ndim; d++)
        if (__builtin_mul_overflow(self->nelems, shape->sizes[d], &self->nelems)) {
            Py_DECREF(self);
            return PyErr_NoMemory();
        }
    return (PyObject *)self;
}

/* Arrays of these shapes, without memory; their bytes, each rounded up. */
static PyObject *new_arrays(const native_state *state, const array_shape *shapes, int n,
                            rnl_dtype dtype, int64_t *nbytes)
{
    PyObject *arrays = PyTuple_New(n);
    *nbytes = 0;
    for (int k = 0; arrays && k < n; k++) {
        int64_t bytes;
        PyObject *array = new_array(state, &shapes[k]);
        if (!array) {
            Py_DECREF(arrays);
            return NULL;
        }
        device_array *self = (device_array *)array;
        self->dtype = dtype;
        self->at = *nbytes;
        if (__builtin_mul_overflow(self->nelems, rnl_dtype_nbytes(dtype), &bytes) ||
            __builtin_add_overflow(bytes, ALIGNED - 1, &bytes) ||
            __builtin_add_overflow(*nbytes, bytes / ALIGNED * ALIGNED, nbytes))
            PyErr_NoMemory();
        if (PyTuple_SetItem(arrays, k, array) < 0 || PyErr_Occurred())
            Py_CLEAR(arrays);
    }
    return arrays;
}

PyObject *device_arrays_new(const native_state *state, int device, rnl_dtype dtype,
                            const array_shape *shapes, int n, void *stream, PyObject *keeps)
{
    int64_t nbytes;
    PyObject *arrays = new_arrays(state, shapes, n, dtype, &nbytes);
    PyObject *capsule = arrays ? new_block(state, device, nbytes, keeps) : NULL;
    if (!capsule) {
        Py_XDECREF(arrays);
        return NULL;
    }
    const block *b = PyCapsule_GetPointer(capsule, BLOCK);
    for (int k = 0; k < n; k++) {
        device_array *self = (device_array *)PyTuple_GetItem(arrays, k);
        self->block = Py_NewRef(capsule);
        self->address = self->nelems ? (char *)b->address + self->at : NULL;
        self->device = device;
        self->stream = stream;
    }
    Py_DECREF(capsule);
    return arrays;
}

static int shape_from_tuple(PyObject *tuple, array_shape *shape)
{
    const Py_ssize_t ndim = PyTuple_Size(tuple);
    if (ndim < 0 || ndim > MAX_DIMS) {
        PyErr_Format(PyExc_TypeError, "%R is no shape of at most three axes", tuple);
        return -1;
    }
    shape->ndim = (int)ndim;
    for (int d = 0; d < ndim; d++)
        shape->sizes[d] = PyLong_AsLongLong(PyTuple_GetItem(tuple, d));
    return PyErr_Occurred() ? -1 : 0;
}

PyObject *native_device_arrays(PyObject *module, PyObject *args)
{
    const native_state *state = PyModule_GetState(module);
    PyObject *tuples, *name, *stream, *keeps;
    array_shape shapes[MAX_ARRAYS] = {{0}};
    int device, dtype;
    if (!PyArg_ParseTuple(args, "iOO!OO:device_arrays", &device, &name, &PyTuple_Type, &tuples,
                          &stream, &keeps) ||
        value_from_name(state, RNL_NAMES_DTYPE, name, &dtype) < 0)
        return NULL;
    const Py_ssize_t n = PyTuple_Size(tuples);
    if (n > MAX_ARRAYS)
        return PyErr_Format(PyExc_TypeError, "%zd arrays, at most %d are made at once", n,
                            MAX_ARRAYS);
    void *on = stream_from_object(stream);
    if (PyErr_Occurred())
        return NULL;
    for (Py_ssize_t k = 0; k < n; k++)
        if (shape_from_tuple(PyTuple_GetItem(tuples, k), &shapes[k]) < 0)
            return NULL;
    return device_arrays_new(state, device, (rnl_dtype)dtype, shapes, (int)n, on, keeps);
}

static void array_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    Py_CLEAR(((device_array *)object)->block);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

/* --------------------------------------------------------------------------------- attributes --
 */

static PyObject *get_shape(PyObject *object, void *unused)
{
    (void)unused;
    const device_array *self = (device_array *)object;
    PyObject *shape = PyTuple_New(self->shape.ndim);
    for (int d = 0; shape && d < self->shape.ndim; d++) {
        PyObject *size = PyLong_FromLongLong(self->shape.sizes[d]);
        if (!size || PyTuple_SetItem(shape, d, size) < 0)
            Py_CLEAR(shape);
    }
    return shape;
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

static PyObject *get_address(PyObject *object, void *unused)
{
    (void)unused;
    return PyLong_FromVoidPtr(((device_array *)object)->address);
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
    PyObject *shape = get_shape(object, NULL);
    if (!shape)
        return NULL;
    const device_array *self = (device_array *)object;
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
    const int64_t nbytes = self->nelems * rnl_dtype_nbytes(self->dtype);
    Py_BEGIN_ALLOW_THREADS
    if (nbytes)
        status = rnl_gpu_copy_out(self->device, self->address, host, nbytes, self->stream, &err);
    Py_END_ALLOW_THREADS
    if (status == RNL_OK)
        return array;
    Py_DECREF(array);
    return raise_status(PyType_GetModuleState(Py_TYPE(object)), &err);
}

static PyObject *array_numpy(PyObject *object, PyObject *unused)
{
    PyObject *module = PyImport_ImportModule("rnnlayout._dtypes"), *result = NULL;
    PyObject *name = module ? get_dtype(object, NULL) : NULL;
    PyObject *array = name ? array_copy_out(object, unused) : NULL;
    if (array)
        result = PyObject_CallMethod(module, "present", "OO", array, name);
    Py_XDECREF(module);
    Py_XDECREF(name);
    Py_XDECREF(array);
    return result;
}

static PyObject *array_refuse(PyObject *object, PyObject *args, PyObject *kwargs)
{
    (void)args;
    (void)kwargs;
    PyErr_Format(PyExc_TypeError,
                 "this array is in the memory of cuda:%d: use .numpy(), which waits for it and"
                 " copies it",
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

/* In any thread, whenever the consumer has done with it. */
static void drop_exported(exported *e)
{
    if (!Py_IsInitialized())
        return; /* nothing of Python may be touched; the memory goes with the process */
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

/* Of a capsule that nobody took: a consumer has renamed it. */
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

/* Let the consumer's stream wait for the work that fills the array. */
static int order_consumer(const native_state *state, const device_array *self, PyObject *stream)
{
    rnl_error err;
    rnl_status status;
    void *consumer = NULL;
    if (stream != Py_None) {
        if (PyLong_AsLong(stream) == -1 && !PyErr_Occurred())
            return 0; /* it asks for no order */
        PyErr_Clear();
        consumer = stream_from_object(stream);
        if (PyErr_Occurred())
            return -1;
    }
    if (consumer == self->stream)
        return 0;
    Py_BEGIN_ALLOW_THREADS
    status = rnl_gpu_order(self->device, self->stream, consumer, &err);
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
            return PyErr_Format(PyExc_BufferError,
                                "it is on cuda:%d, and is not copied elsewhere: use .numpy()",
                                self->device);
    }
    const int copies = copy == Py_None ? 0 : PyObject_IsTrue(copy);
    if (copies < 0)
        return NULL;
    if (copies)
        return PyErr_Format(PyExc_BufferError, "copy=True: no copy is made here, copy the result");
    if (order_consumer(PyType_GetModuleState(Py_TYPE(object)), self, stream) < 0)
        return NULL;
    return export(self, major >= 1);
}

static PyObject *array_dlpack_device(PyObject *object, PyObject *unused)
{
    (void)unused;
    return Py_BuildValue("(ii)", DL_CUDA, ((device_array *)object)->device);
}

/* ----------------------------------------------------------------------- CUDA array interface --
 */

static PyObject *get_interface(PyObject *object, void *unused)
{
    static const char *const types[] = {
        [RNL_FLOAT16] = "<f2", [RNL_FLOAT32] = "<f4", [RNL_FLOAT64] = "<f8"};
    const device_array *self = (device_array *)object;
    if (self->dtype == RNL_BFLOAT16)
        return PyErr_Format(PyExc_AttributeError,
                            "__cuda_array_interface__ knows no bfloat16: use DLPack");
    PyObject *shape = get_shape(object, unused);
    PyObject *address = shape ? get_address(object, unused) : NULL;
    PyObject *stream = address ? get_stream(object, unused) : NULL;
    if (!stream) {
        Py_XDECREF(shape);
        Py_XDECREF(address);
        return NULL;
    }
    return Py_BuildValue("{sNsss(NO)sOsNsi}", "shape", shape, "typestr", types[self->dtype], "data",
                         address, Py_False, "strides", Py_None, "stream", stream, "version", 3);
}

static PyObject *array_filled_in(PyObject *object, PyObject *number)
{
    void *stream = stream_from_object(number);
    if (PyErr_Occurred())
        return NULL;
    ((device_array *)object)->stream = stream;
    Py_RETURN_NONE;
}

static PyMethodDef array_methods[] = {
    {"_filled_in", array_filled_in, METH_O,
     "_filled_in($self, stream, /)\n--\n\nFrom now on it is filled in this stream."},
    {"numpy", array_numpy, METH_NOARGS,
     "numpy($self)\n--\n\nA copy in the host's memory, once the work that fills the array is done."},
    {"__array__", (PyCFunction)(void (*)(void))array_refuse, METH_VARARGS | METH_KEYWORDS,
     "__array__($self, dtype=None, copy=None)\n--\n\nTypeError: a copy from the GPU is asked for by"
     " numpy()."},
    {"__dlpack__", (PyCFunction)(void (*)(void))array_dlpack, METH_VARARGS | METH_KEYWORDS,
     "__dlpack__($self, *, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\nAs the"
     " array API has it: without a copy, and the stream waits for the array."},
    {"__dlpack_device__", array_dlpack_device, METH_NOARGS,
     "__dlpack_device__($self)\n--\n\n(2, number of the GPU)"},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef array_attributes[] = {
    {"shape", get_shape, NULL, "The length of each axis; row-major, without gaps.", NULL},
    {"dtype", get_dtype, NULL, "\"float16\", \"bfloat16\", \"float32\" or \"float64\".", NULL},
    {"device", get_device, NULL, "\"cuda:0\" ...", NULL},
    {"address", get_address, NULL, "Of the first element; 0 where there is none.", NULL},
    {"stream", get_stream, NULL,
     "The stream in which it is filled, an int: 1 is the legacy default stream.", NULL},
    {"__cuda_array_interface__", get_interface, NULL,
     "Version 3; AttributeError for bfloat16, which it does not know.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot array_slots[] = {
    {Py_tp_doc,
     "A result in a GPU's memory, which an RNN gives for arrays on a GPU.\n\nNo array"
     " class: torch.from_dlpack(), cupy.from_dlpack(), jax.dlpack.from_dlpack() and"
     " whatever takes __cuda_array_interface__ make one of it without a copy, numpy() one"
     " on the host with a copy. The memory lives as long as it or one of those does."},
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
