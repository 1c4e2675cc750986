/* Check the shapes, dtypes and lengths of a call. The core checks the rest: the device of the
 * memory, alignment, overlaps, the range of lengths. */
#include "gpu_call.h"

#include <numpy/arrayobject.h>

/* The shapes that follow from that of x. */
static int find_shapes(const rnl_spec *spec, gpu_call *call)
{
    const array_shape *const x = &call->arrays[X].shape;
    rnl_gpu_call *const core = &call->core;
    const int has_time = call->axes != STEP, batched = x->ndim == 2 + has_time, last = x->ndim - 1;
    if ((!batched && x->ndim != 1 + has_time) || x->sizes[last] != spec->input_size)
        return 0;
    core->batch_first = batched && call->axes == BATCH_FIRST;
    core->T = has_time ? x->sizes[core->batch_first] : 1;
    core->N = batched ? x->sizes[call->axes == TIME_FIRST] : 1;
    const int64_t directions = spec->bidirectional ? 2 : 1;
    const int64_t width = spec->proj_size ? spec->proj_size : spec->hidden_size;
    array_shape state = {.ndim = 2 + batched, .sizes = {spec->num_layers * directions, core->N}};
    state.sizes[state.ndim - 1] = spec->hidden_size;
    call->shapes[C0] = call->shapes[CN] = state;
    state.sizes[state.ndim - 1] = width;
    call->shapes[H0] = call->shapes[HN] = state;
    call->shapes[X] = call->shapes[Y] = *x;
    call->shapes[Y].sizes[last] = directions * width;
    return 1;
}

static int has_shape(const foreign *array, const array_shape *shape)
{
    int equal = array->shape.ndim == shape->ndim;
    for (int d = 0; equal && d < shape->ndim; d++)
        equal = array->shape.sizes[d] == shape->sizes[d];
    return equal;
}

static int arrays_fit(const rnl_spec *spec, const gpu_call *call)
{
    for (int k = 0; k < NUM_ARRAYS; k++) {
        const foreign *const array = &call->arrays[k];
        if (array->value && (array->dtype != spec->dtype || !has_shape(array, &call->shapes[k]) ||
                             (k >= NUM_INPUTS && array->read_only)))
            return 0;
    }
    return 1;
}

/* ------------------------------------------------------------------------------------- lengths --
 */

/* The number of lengths; -1: this type is not read here. */
static int64_t count(PyObject *lengths)
{
    if (PyList_CheckExact(lengths))
        return PyList_Size(lengths);
    if (PyTuple_CheckExact(lengths))
        return PyTuple_Size(lengths);
    if (!PyArray_CheckExact(lengths))
        return -1;
    PyArrayObject *const array = (PyArrayObject *)lengths;
    const int type = PyArray_TYPE(array);
    return (type == NPY_INT64 || type == NPY_INT32) && PyArray_NDIM(array) == 1 &&
                   PyArray_ISNOTSWAPPED(array) && PyArray_ISALIGNED(array)
               ? PyArray_DIM(array, 0)
               : -1;
}

static int read_array(PyArrayObject *array, int64_t n, int64_t *into)
{
    const int wide = PyArray_TYPE(array) == NPY_INT64;
    for (int64_t k = 0; k < n; k++) {
        const void *const at = PyArray_GETPTR1(array, k);
        into[k] = wide ? *(const int64_t *)at : *(const int32_t *)at;
    }
    return 1;
}

/* Only of ints: the Python path decides on bools and other types. */
static int read_sequence(PyObject *sequence, int64_t n, int64_t *into)
{
    const int is_list = PyList_CheckExact(sequence);
    for (int64_t k = 0; k < n; k++) {
        PyObject *length = is_list ? PyList_GetItem(sequence, k) : PyTuple_GetItem(sequence, k);
        if (!PyLong_CheckExact(length))
            return 0;
        into[k] = PyLong_AsLongLong(length);
        if (into[k] == -1) /* negative or too large: the core refuses -1 */
            PyErr_Clear();
    }
    return 1;
}

/* Like read_lengths() in rnnlayout/_shapes.py. */
static int read_lengths(PyObject *lengths, gpu_call *call)
{
    const int batched = call->shapes[HN].ndim == 3;
    const int64_t n = call->core.N;
    if (!batched || count(lengths) != n)
        return 0;
    call->lengths = PyMem_Malloc((size_t)n * sizeof *call->lengths);
    if (!call->lengths) {
        PyErr_NoMemory();
        return -1;
    }
    call->core.lengths = call->lengths;
    return PyArray_Check(lengths) ? read_array((PyArrayObject *)lengths, n, call->lengths)
                                  : read_sequence(lengths, n, call->lengths);
}

int gpu_call_fits(const rnl_spec *spec, PyObject *lengths, gpu_call *call)
{
    if (!find_shapes(spec, call) || !arrays_fit(spec, call))
        return 0;
    return lengths == Py_None ? 1 : read_lengths(lengths, call);
}
