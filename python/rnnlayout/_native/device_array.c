/* The type DeviceArray: a result in a GPU's memory, for whoever knows one of the two protocols. */
#include "device_array.h" /* before the system's headers, as Python.h wants it */

#include <numpy/arrayobject.h>

/* ------------------------------------------------------------------------------------- streams --
 */

#define LEGACY_STREAM NULL
#define PER_THREAD_STREAM ((void *)2)

/* No other thread ever has the same number. */
static uint64_t this_thread(void)
{
    return PyThreadState_GetID(PyThreadState_Get());
}

void device_array_fill_in(device_array *self, void *stream)
{
    self->stream = stream;
    self->thread = this_thread();
}

void *device_array_stream(const device_array *self)
{
    const int is_anothers = self->stream == PER_THREAD_STREAM && self->thread != this_thread();
    return is_anothers ? LEGACY_STREAM : self->stream;
}

/* --------------------------------------------------------------------------------- attributes --
 */

PyObject *device_array_shape(const device_array *self)
{
    PyObject *shape = PyTuple_New(self->shape.ndim);
    for (int d = 0; shape && d < self->shape.ndim; d++) {
        PyObject *size = PyLong_FromLongLong(self->shape.sizes[d]);
        if (!size || PyTuple_SetItem(shape, d, size) < 0)
            Py_CLEAR(shape);
    }
    return shape;
}

static PyObject *get_shape(PyObject *object, void *unused)
{
    (void)unused;
    return device_array_shape((device_array *)object);
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
    return stream_to_object(device_array_stream((device_array *)object));
}

static PyObject *array_filled_in(PyObject *object, PyObject *number)
{
    void *stream = stream_from_object(number);
    if (PyErr_Occurred())
        return NULL;
    device_array_fill_in((device_array *)object, stream);
    Py_RETURN_NONE;
}

static Py_ssize_t array_length(PyObject *object)
{
    return (Py_ssize_t)((device_array *)object)->shape.sizes[0];
}

static PyObject *array_repr(PyObject *object)
{
    const device_array *self = (device_array *)object;
    PyObject *shape = device_array_shape(self);
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
    const int64_t nbytes = self->nelems * rnl_dtype_nbytes(self->dtype);
    void *const stream = device_array_stream(self);
    Py_BEGIN_ALLOW_THREADS
    if (nbytes)
        status = rnl_gpu_copy_out(self->device, self->address, host, nbytes, stream, &err);
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
    PyErr_Format(PyExc_TypeError,
                 "this array is in the memory of cuda:%d: use .numpy(), which waits for it and"
                 " copies it",
                 ((device_array *)object)->device);
    return NULL;
}

/* ----------------------------------------------------------------------------------- the type --
 */

static void array_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    Py_CLEAR(((device_array *)object)->block);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static PyMethodDef array_methods[] = {
    {"_filled_in", array_filled_in, METH_O,
     "_filled_in($self, stream, /)\n--\n\nFrom now on it is filled in this stream."},
    {"numpy", array_numpy, METH_NOARGS,
     "numpy($self)\n--\n\nA copy in the host's memory, once the work that fills the array is done."},
    {"__array__", (PyCFunction)(void (*)(void))array_refuse, METH_VARARGS | METH_KEYWORDS,
     "__array__($self, dtype=None, copy=None)\n--\n\nTypeError: a copy from the GPU is asked for by"
     " numpy()."},
    {"__dlpack__", (PyCFunction)(void (*)(void))device_array_dlpack, METH_VARARGS | METH_KEYWORDS,
     "__dlpack__($self, *, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\nAs the"
     " array API has it: without a copy, and the stream waits for the array."},
    {"__dlpack_device__", device_array_dlpack_device, METH_NOARGS,
     "__dlpack_device__($self)\n--\n\n(2, number of the GPU)"},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef array_attributes[] = {
    {"shape", get_shape, NULL, "The length of each axis; row-major, without gaps.", NULL},
    {"dtype", get_dtype, NULL, "\"float16\", \"bfloat16\", \"float32\" or \"float64\".", NULL},
    {"device", get_device, NULL, "\"cuda:0\" ...", NULL},
    {"address", get_address, NULL, "Of the first element; 0 where there is none.", NULL},
    {"stream", get_stream, NULL,
     "The stream in which it is filled, an int: 1 is the legacy default stream.", NULL},
    {"__cuda_array_interface__", device_array_interface, NULL,
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
