/* NumPy arrays as the core needs them: row-major, aligned, of the right size. */
#define FILLS_NUMPY_TABLE
#include "native.h"

#include <numpy/arrayobject.h>
#include <stdlib.h>

int arrays_import(void)
{
    return PyArray_ImportNumPyAPI();
}

int numpy_type_of(rnl_dtype dtype)
{
    static const int types[] = {[RNL_FLOAT16] = NPY_HALF,
                                [RNL_BFLOAT16] = NPY_UINT16,
                                [RNL_FLOAT32] = NPY_FLOAT,
                                [RNL_FLOAT64] = NPY_DOUBLE};
    return types[dtype];
}

PyObject *bfloat16_dtype(const native_state *state)
{
    PyObject *module = PyImport_ImportModule("ml_dtypes");
    PyObject *type = module ? PyObject_GetAttrString(module, "bfloat16") : NULL;
    PyArray_Descr *dtype = NULL;
    if (type)
        PyArray_DescrConverter(type, &dtype);
    else if (PyErr_ExceptionMatches(PyExc_ImportError))
        PyErr_SetString(state->layout_error,
                        "bfloat16 arrays need the package ml_dtypes, which is not installed: pip"
                        " install \"rnnlayout[bf16]\", or pass another dtype=");
    Py_XDECREF(module);
    Py_XDECREF(type);
    return (PyObject *)dtype;
}

/* Get the product of a shape that the core has computed. */
static int shape_nelems(PyObject *shape, long long *n)
{
    *n = 1;
    const Py_ssize_t ndim = PyTuple_Size(shape);
    for (Py_ssize_t d = 0; d < ndim; d++)
        *n *= PyLong_AsLongLong(PyTuple_GetItem(shape, d));
    return PyErr_Occurred() ? -1 : 0;
}

/* Does `item` fit the tensor? 0, or -1 with an exception. The exceptions are for mistakes of
 * rnnlayout: Python has checked the user's arrays. */
static int fits(PyObject *item, PyObject *tensor, rnl_dtype dtype, int writable, const char *label)
{
    PyObject *name = PyTuple_GetItem(tensor, 0);
    long long nelems;
    if (!name || shape_nelems(PyTuple_GetItem(tensor, 1), &nelems) < 0)
        return -1;
    if (!PyArray_Check(item)) {
        PyErr_Format(PyExc_TypeError, "%s %U: %R is not a NumPy array", label, name, Py_TYPE(item));
        return -1;
    }
    PyArrayObject *array = (PyArrayObject *)item;
    if (PyArray_SIZE(array) != nelems || PyArray_ITEMSIZE(array) != rnl_dtype_nbytes(dtype) ||
        !PyArray_IS_C_CONTIGUOUS(array) || !PyArray_ISALIGNED(array) ||
        (writable && !PyArray_ISWRITEABLE(array))) {
        PyErr_Format(PyExc_TypeError,
                     "%s %U: need %lld elements of %d bytes, C-contiguous, aligned%s", label, name,
                     nelems, (int)rnl_dtype_nbytes(dtype), writable ? ", writable" : "");
        return -1;
    }
    return 0;
}

int arrays_borrow(PyObject *sequence, PyObject *tensors, rnl_dtype dtype, int writable,
                  const char *label, borrowed *out)
{
    *out = (borrowed){.arrays = PySequence_Tuple(sequence)};
    if (!out->arrays)
        return -1;
    out->n = PyTuple_Size(out->arrays);
    if (out->n != PyList_Size(tensors)) {
        PyErr_Format(PyExc_TypeError, "%s: %zd arrays, need %zd", label, out->n,
                     PyList_Size(tensors));
        return -1;
    }
    out->data = PyMem_Malloc((size_t)out->n * sizeof *out->data);
    if (!out->data) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t k = 0; k < out->n; k++) {
        PyObject *item = PyTuple_GetItem(out->arrays, k);
        if (fits(item, PyList_GetItem(tensors, k), dtype, writable, label) < 0)
            return -1;
        out->data[k] = PyArray_DATA((PyArrayObject *)item);
        out->nbytes += PyArray_NBYTES((PyArrayObject *)item);
    }
    return 0;
}

void arrays_release(borrowed *arrays)
{
    PyMem_Free(arrays->data);
    arrays->data = NULL;
    Py_CLEAR(arrays->arrays);
}

int weights_borrow(const native_state *state, const char *layout_name, const rnl_spec *spec,
                   PyObject *weights, borrowed *out)
{
    rnl_error err;
    rnl_layout layout;
    if (rnl_layout_named(layout_name, &layout, &err) != RNL_OK)
        return raise_status(state, &err), -1;
    PyObject *tensors = list_tensors(state, &layout, spec, rnl_spec_optional(spec));
    PyObject *arrays = tensors ? PyTuple_Pack(1, weights) : NULL;
    const int failed = arrays ? arrays_borrow(arrays, tensors, spec->dtype, 0, "weights", out) : -1;
    Py_XDECREF(tensors);
    Py_XDECREF(arrays);
    return failed;
}

/* -------------------------------------------------------------------------------- overlapping */

span span_of(PyObject *object)
{
    PyArrayObject *const array = (PyArrayObject *)object;
    if (!array || PyArray_SIZE(array) == 0)
        return (span){0};
    const char *from = PyArray_BYTES(array), *to = from + PyArray_ITEMSIZE(array);
    for (int axis = 0; axis < PyArray_NDIM(array); axis++) {
        const npy_intp length = (PyArray_DIM(array, axis) - 1) * PyArray_STRIDE(array, axis);
        if (length < 0)
            from += length;
        else
            to += length;
    }
    return (span){(uintptr_t)from, (uintptr_t)to};
}

int spans_meet(span a, span b)
{
    return a.from < b.to && b.from < a.to;
}

typedef struct interval {
    span bytes;
    int written;
} interval;

static int by_address(const void *a, const void *b)
{
    const interval *x = a, *y = b;
    return (x->bytes.from > y->bytes.from) - (x->bytes.from < y->bytes.from);
}

static void add_intervals(const borrowed *arrays, int written, interval *all)
{
    for (Py_ssize_t k = 0; k < arrays->n; k++)
        all[k] = (interval){span_of(PyTuple_GetItem(arrays->arrays, k)), written};
}

int arrays_overlap(const borrowed *a, const borrowed *b)
{
    const Py_ssize_t n = a->n + b->n;
    interval *all = PyMem_Malloc((size_t)n * sizeof *all);
    if (!all) {
        PyErr_NoMemory();
        return -1;
    }
    add_intervals(a, 0, all);
    add_intervals(b, 1, all + a->n);
    qsort(all, (size_t)n, sizeof *all, by_address);
    /* In the order of addresses, an interval overlaps an earlier interval if the start is below the
     * highest end so far. An overlap is an error if one of the two intervals is written. */
    uintptr_t end = 0, written_end = 0;
    int overlap = 0;
    for (Py_ssize_t k = 0; k < n && !overlap; k++) {
        const span bytes = all[k].bytes;
        overlap = bytes.from < bytes.to && bytes.from < (all[k].written ? end : written_end);
        if (bytes.to > end)
            end = bytes.to;
        if (all[k].written && bytes.to > written_end)
            written_end = bytes.to;
    }
    PyMem_Free(all);
    return overlap;
}
