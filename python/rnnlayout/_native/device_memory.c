/* Results in one block of a GPU's memory, which is freed with the last of them. */
#include "device_array.h" /* before the system's headers, as Python.h requires */

#include <stdlib.h>

enum { ALIGNED = 256 };

static const char BLOCK[] = "rnnlayout.block";

/* -------------------------------------------------------------------------------- the memory -- */

typedef struct block {
    void *address, *stream; /* stream: in whose order it is freed ... */
    int device, in_order;   /* ... if in_order, else freeing waits for the device */
    PyObject *keeps;        /* what the work that writes the block still reads */
} block;

static void free_block(PyObject *capsule)
{
    block *b = PyCapsule_GetPointer(capsule, BLOCK);
    Py_BEGIN_ALLOW_THREADS
    if (b->in_order)
        rnl_gpu_free_in_order(b->device, b->address, b->stream);
    else
        rnl_gpu_free(b->device, b->address);
    Py_END_ALLOW_THREADS
    Py_XDECREF(b->keeps);
    free(b);
}

void device_array_is_used_in(device_array *self, void *stream)
{
    ((block *)PyCapsule_GetPointer(self->block, BLOCK))->stream = stream;
}

static PyObject *new_block(const native_state *state, int device, int64_t nbytes, void *stream,
                           int in_order, PyObject *keeps)
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
    status = nbytes ? rnl_gpu_alloc(device, nbytes, stream, in_order, &b->address, &err) : RNL_OK;
    Py_END_ALLOW_THREADS
    if (status != RNL_OK) {
        free(b);
        Py_DECREF(capsule);
        return raise_status(state, &err);
    }
    b->device = device;
    b->stream = stream;
    b->in_order = in_order;
    b->keeps = Py_NewRef(keeps);
    PyCapsule_SetDestructor(capsule, free_block);
    return capsule;
}

/* ------------------------------------------------------------------------------- new arrays --
 */

static PyObject *new_array(const native_state *state, const array_shape *shape)
{
    device_array *self = (device_array *)object_new(state->device_array_type);
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

/* Arrays of these shapes, still without memory; nbytes: their sizes, each rounded up, in all. */
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
                            const array_shape *shapes, int n, void *stream, int in_order,
                            PyObject *keeps)
{
    int64_t nbytes;
    PyObject *arrays = new_arrays(state, shapes, n, dtype, &nbytes);
    PyObject *capsule = arrays ? new_block(state, device, nbytes, stream, in_order, keeps) : NULL;
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
        device_array_fill_in(self, stream);
    }
    Py_DECREF(capsule);
    return arrays;
}
