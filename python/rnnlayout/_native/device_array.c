/* The type DeviceArray: a result in a GPU's memory, for DLPack. */
#include "gpu_arrays.h" /* before the system's headers, as Python.h requires */

#include "dlpack.h"

#include <numpy/arrayobject.h>
#include <stddef.h>
#include <structmember.h>

typedef struct device_array {
    PyObject_HEAD
    PyObject *shape, *dtype, *device;
    rnl_dtype type;
    dl_managed managed; /* of all capsules: each has a reference to the array */
    int64_t sizes[MAX_DIMS], strides[MAX_DIMS];
} device_array;

static PyObject *array_repr(PyObject *object)
{
    const device_array *self = (device_array *)object;
    return PyUnicode_FromFormat("<DeviceArray of shape %R, %U, on %U>", self->shape, self->dtype,
                                self->device);
}

static PyObject *array_refuse(PyObject *object, PyObject *args, PyObject *kwargs)
{
    (void)args;
    (void)kwargs;
    return PyErr_Format(PyExc_TypeError,
                        "this array is in the memory of %U: .numpy() copies it to the host",
                        ((device_array *)object)->device);
}

static PyObject *array_numpy(PyObject *object, PyObject *unused)
{
    const device_array *self = (device_array *)object;
    const native_state *state = PyType_GetModuleState(Py_TYPE(object));
    const dl_tensor *const tensor = &self->managed.tensor;
    npy_intp sizes[MAX_DIMS];
    rnl_error err;
    rnl_status status;
    (void)unused;
    for (int d = 0; d < tensor->ndim; d++)
        sizes[d] = (npy_intp)self->sizes[d];
    PyObject *dtype = self->type == RNL_BFLOAT16
                          ? bfloat16_dtype(state)
                          : (PyObject *)PyArray_DescrFromType(numpy_type_of(self->type));
    PyObject *array = dtype ? PyArray_Empty(tensor->ndim, sizes, (PyArray_Descr *)dtype, 0) : NULL;
    if (!array)
        return NULL;
    const int64_t nbytes = PyArray_NBYTES((PyArrayObject *)array);
    void *const to = PyArray_DATA((PyArrayObject *)array);
    Py_BEGIN_ALLOW_THREADS
    status = rnl_gpu_read(tensor->device.id, tensor->data, nbytes, to, &err);
    Py_END_ALLOW_THREADS
    if (status == RNL_OK)
        return array;
    Py_DECREF(array);
    return raise_status(state, &err);
}

/* ------------------------------------------------------------------------------------- DLPack */

/* Called in any thread, when a consumer no longer needs the memory. */
static void drop(dl_managed *managed)
{
    if (!Py_IsInitialized())
        return; /* Python must not be called any more; the process frees the memory */
    const PyGILState_STATE gil = PyGILState_Ensure();
    Py_DECREF((PyObject *)managed->context);
    PyGILState_Release(gil);
}

/* Release the memory of a capsule without a consumer. A consumer renames the capsule. */
static void drop_capsule(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, DL_CAPSULE))
        drop(PyCapsule_GetPointer(capsule, DL_CAPSULE));
}

static PyObject *array_dlpack_device(PyObject *object, PyObject *unused)
{
    (void)unused;
    return Py_BuildValue("(ii)", DL_CUDA, ((device_array *)object)->managed.tensor.device.id);
}

/* The array is complete before the export, so the consumer's stream does not matter. */
static PyObject *array_dlpack(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    device_array *self = (device_array *)object;
    PyObject *stream, *version, *device = Py_None, *copy = Py_None;
    int type = DL_CUDA, id = self->managed.tensor.device.id;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOO:__dlpack__", names, &stream, &version,
                                     &device, &copy) ||
        (device != Py_None && !PyArg_Parse(device, "(ii)", &type, &id)))
        return NULL;
    if (type != DL_CUDA || id != self->managed.tensor.device.id || copy == Py_True)
        return PyErr_Format(PyExc_BufferError,
                            "the array is on %U: it is exported there, and without a copy",
                            self->device);
    PyObject *capsule = PyCapsule_New(&self->managed, DL_CAPSULE, drop_capsule);
    if (capsule)
        Py_INCREF(object);
    return capsule;
}

/* ----------------------------------------------------------------------------------- the type */

/* Describe the array to consumers, and return the number of bytes; -1: too many bytes. */
static int64_t describe(device_array *self, int device, rnl_dtype dtype, const array_shape *shape)
{
    dl_tensor *const tensor = &self->managed.tensor;
    int64_t nbytes = rnl_dtype_nbytes(dtype), stride = 1;
    tensor->device.type = DL_CUDA;
    tensor->device.id = device;
    tensor->ndim = shape->ndim;
    tensor->dtype.code = dtype == RNL_BFLOAT16 ? DL_BFLOAT : DL_FLOAT;
    tensor->dtype.bits = (uint8_t)(8 * nbytes);
    tensor->dtype.lanes = 1;
    tensor->shape = self->sizes;
    tensor->strides = self->strides;
    self->type = dtype;
    self->managed.context = self;
    self->managed.deleter = drop;
    for (int d = shape->ndim - 1; d >= 0; d--) {
        self->sizes[d] = shape->sizes[d];
        self->strides[d] = stride;
        if (__builtin_mul_overflow(nbytes, shape->sizes[d], &nbytes))
            return -1;
        stride *= shape->sizes[d];
    }
    return nbytes;
}

PyObject *device_array_new(const native_state *state, int device, rnl_dtype dtype,
                           const array_shape *shape, void **address)
{
    rnl_error err;
    rnl_status status = RNL_OK;
    device_array *self = (device_array *)object_new(state->device_array_type);
    if (!self)
        return NULL;
    const int64_t nbytes = describe(self, device, dtype, shape);
    self->shape = sizes_to_tuple(shape->sizes, shape->ndim);
    self->dtype = PyUnicode_FromString(rnl_name(RNL_NAMES_DTYPE, (int)dtype));
    self->device = PyUnicode_FromFormat("cuda:%d", device);
    if (nbytes < 0)
        PyErr_NoMemory();
    if (!PyErr_Occurred() && nbytes) {
        Py_BEGIN_ALLOW_THREADS
        status = rnl_gpu_alloc(device, nbytes, &self->managed.tensor.data, &err);
        Py_END_ALLOW_THREADS
        if (status != RNL_OK)
            raise_status(state, &err);
    }
    *address = self->managed.tensor.data;
    if (PyErr_Occurred())
        Py_CLEAR(self);
    return (PyObject *)self;
}

/* Freeing waits for the work that still uses the memory. */
static void array_dealloc(PyObject *object)
{
    device_array *self = (device_array *)object;
    Py_BEGIN_ALLOW_THREADS
    rnl_gpu_free(self->managed.tensor.device.id, self->managed.tensor.data);
    Py_END_ALLOW_THREADS
    Py_XDECREF(self->shape);
    Py_XDECREF(self->dtype);
    Py_XDECREF(self->device);
    object_free(object);
}

static PyMethodDef array_methods[] = {
    {"__array__", (PyCFunction)(void (*)(void))array_refuse, METH_VARARGS | METH_KEYWORDS,
     "__array__($self, dtype=None, copy=None)\n--\n\nRaise TypeError: the array is on a GPU."},
    {"numpy", array_numpy, METH_NOARGS,
     "numpy($self)\n--\n\nReturn a NumPy array with a copy, without waiting for queued writes of"
     " another library."},
    {"__dlpack__", (PyCFunction)(void (*)(void))array_dlpack, METH_VARARGS | METH_KEYWORDS,
     "__dlpack__($self, *, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\nExport"
     " the array as in the array API, without a copy. It is complete: no stream has to wait."},
    {"__dlpack_device__", array_dlpack_device, METH_NOARGS,
     "__dlpack_device__($self)\n--\n\nReturn (2, number of the GPU)."},
    {NULL, NULL, 0, NULL}};

static PyMemberDef array_members[] = {
    {"shape", T_OBJECT, offsetof(device_array, shape), READONLY,
     "The size of each axis; elements are row-major, without gaps."},
    {"dtype", T_OBJECT, offsetof(device_array, dtype), READONLY,
     "\"float16\", \"bfloat16\", \"float32\" or \"float64\"."},
    {"device", T_OBJECT, offsetof(device_array, device), READONLY, "The GPU: \"cuda:0\" ..."},
    {NULL, 0, 0, 0, NULL}};

static PyType_Slot array_slots[] = {
    {Py_tp_doc,
     "A result in a GPU's memory, for x of a library that rnnlayout does not know.\n\nA"
     " DeviceArray has no array operations. torch.from_dlpack(), cupy.from_dlpack() and"
     " jax.dlpack.from_dlpack() share the memory, numpy() copies the numbers to the host. The memory"
     " is freed once the array and all arrays on the memory are gone."},
    {Py_tp_dealloc, array_dealloc},
    {Py_tp_repr, array_repr},
    {Py_tp_methods, array_methods},
    {Py_tp_members, array_members},
    {0, NULL}};

PyType_Spec device_array_type_spec = TYPE_SPEC("rnnlayout.DeviceArray", device_array,
                                               Py_TPFLAGS_DISALLOW_INSTANTIATION, array_slots);
