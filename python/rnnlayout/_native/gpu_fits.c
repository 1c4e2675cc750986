/* Check the shapes and the number of lengths of a call. The core checks the rest:
 * alignment, overlaps, the range of lengths. */
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

int gpu_call_has_shape(const foreign *array, const array_shape *shape)
{
    int equal = array->shape.ndim == shape->ndim;
    for (int d = 0; equal && d < shape->ndim; d++)
        equal = array->shape.sizes[d] == shape->sizes[d];
    return equal;
}

static int shapes_fit(const gpu_call *call)
{
    for (int k = 0; k < NUM_NAMED; k++)
        if (call->arrays[k].value && !gpu_call_has_shape(&call->arrays[k], &call->shapes[k]))
            return 0;
    return 1;
}

/* Lengths as read_lengths() of rnnlayout/_run/call_arrays.py returns them; the core checks their
 * range. */
static int lengths_fit(PyObject *lengths, gpu_call *call)
{
    PyArrayObject *const array = (PyArrayObject *)lengths;
    if (lengths == Py_None)
        return 1;
    if (call->shapes[HN].ndim != 3 || !PyArray_CheckExact(lengths) || PyArray_NDIM(array) != 1 ||
        PyArray_TYPE(array) != NPY_INT64 || !PyArray_IS_C_CONTIGUOUS(array) ||
        !PyArray_ISBEHAVED_RO(array) || PyArray_DIM(array, 0) != call->core.N)
        return 0;
    call->core.lengths = PyArray_DATA(array);
    return 1;
}

int gpu_call_fits(const rnl_spec *spec, PyObject *lengths, gpu_call *call)
{
    return find_shapes(spec, call) && shapes_fit(call) && lengths_fit(lengths, call);
}
