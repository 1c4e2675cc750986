/* A call on GPU arrays. rnnlayout/_run/gpu.py reports shapes and lengths that do not fit. */
#include "gpu_arrays.h" /* before the system's headers, as Python.h requires */

#include "dlpack.h"
#include "gpu_rnn.h"

#include <numpy/arrayobject.h>

enum { WORK = NUM_CALL_ARRAYS, NUM_ARRAYS }; /* WORK: a workspace that x's library makes */
enum { NUM_INPUTS = Y };

typedef struct gpu_call {
    PyObject *values[NUM_ARRAYS], *lengths; /* the arguments, or NULL */
    foreign arrays[NUM_ARRAYS];
    foreign_reader reader;
    call_shapes shapes;
    int axes;
    int is_ordered;  /* all arrays are used in the stream of x's library: the call does not wait */
    PyObject *empty; /* x's library makes new arrays; NULL: outputs are DeviceArrays */
    PyObject *new_arrays[NUM_ARRAYS]; /* arrays that this call makes, or NULL */
    rnl_gpu_call core;
} gpu_call;

static int has_c(const gpu_rnn_object *self)
{
    return rnl_cell_facts_of(self->spec.cell)->has_c;
}

/* ---------------------------------------------------------------------------------- arguments */

enum {
    ARG_X,
    ARG_STATE,
    ARG_LENGTHS,
    ARG_OUT,
    ARG_H_OUT,
    ARG_C_OUT,
    ARG_AXES,
    ARG_STREAM,
    ARG_EMPTY,
    ARG_HOME,
    NUM_ARGS
};

static PyObject *null_if_none(PyObject *object)
{
    return object == Py_None ? NULL : object;
}

/* Read h_0, or h_0 and c_0. 1; 0: not a state of this RNN. */
static int read_state(const gpu_rnn_object *self, PyObject *state, PyObject **values)
{
    values[H0] = null_if_none(state);
    if (!values[H0] || !has_c(self))
        return 1;
    const int is_tuple = PyTuple_CheckExact(state);
    if (!is_tuple && !PyList_CheckExact(state))
        return 0;
    if ((is_tuple ? PyTuple_Size(state) : PyList_Size(state)) != 2)
        return 0;
    values[H0] = is_tuple ? PyTuple_GetItem(state, 0) : PyList_GetItem(state, 0);
    values[C0] = is_tuple ? PyTuple_GetItem(state, 1) : PyList_GetItem(state, 1);
    return 1;
}

/* Read the arguments and take references: the functions of exporters, called next, may run any
 * code. 1; 0: not the arguments of a call; -1: an exception. */
static int read_arguments(const gpu_rnn_object *self, PyObject *const *args, gpu_call *call)
{
    PyObject **const values = call->values;
    const long axes = PyLong_AsLong(args[ARG_AXES]);
    if (PyErr_Occurred())
        return -1;
    call->axes = (int)axes;
    values[X] = args[ARG_X];
    values[Y] = null_if_none(args[ARG_OUT]);
    values[HN] = null_if_none(args[ARG_H_OUT]);
    values[CN] = null_if_none(args[ARG_C_OUT]);
    call->empty = null_if_none(args[ARG_EMPTY]);
    const int reads = read_state(self, args[ARG_STATE], values);
    call->lengths = Py_NewRef(args[ARG_LENGTHS]);
    for (int k = 0; k < NUM_ARRAYS; k++)
        Py_XINCREF(values[k]);
    return reads && axes >= STEP && axes < NUM_AXES &&
           !(axes == STEP && self->spec.bidirectional) && (has_c(self) || !values[CN]);
}

/* The legacy default stream in the protocols of exporters: there, 0 is ambiguous. */
static void *const LEGACY = (void *)1;

/* Find the stream in which x's library works: from `number`, or else by a function of the library.
 * NULL: unknown. 0, or -1. */
static int find_home(const gpu_rnn_object *self, PyObject *number, const gpu_call *call,
                     void **home)
{
    *home = NULL;
    if (number != Py_None) {
        *home = PyLong_AsVoidPtr(number);
        return PyErr_Occurred() ? -1 : 0;
    }
    if (!call->reader.exchange)
        return 0;
    if (call->reader.exchange->current_stream(DL_CUDA, self->device, home) < 0)
        return -1;
    *home = *home ? *home : LEGACY;
    return 0;
}

/* Choose the stream: the caller's stream, else the stream of x's library, if known, else the legacy
 * default stream. Later work of x's library waits for the call. 1, or -1. */
static int choose_stream(const gpu_rnn_object *self, PyTypeObject *kind, PyObject *number,
                         PyObject *home, gpu_call *call)
{
    foreign_reader *const reader = &call->reader;
    reader->state = PyType_GetModuleState(Py_TYPE((PyObject *)self));
    reader->device = self->device;
    reader->dtype = self->spec.dtype;
    reader->exchange = call->empty ? exchange_of(reader->state, kind) : NULL;
    if (find_home(self, home, call, &call->core.then) < 0)
        return -1;
    call->is_ordered = call->core.then != NULL;
    reader->stream = call->is_ordered ? call->core.then : LEGACY;
    if (number != Py_None)
        reader->stream = PyLong_AsVoidPtr(number);
    if (reader->stream == call->core.then)
        reader->at_home = kind;
    call->core.stream = reader->stream == LEGACY ? NULL : reader->stream;
    return PyErr_Occurred() ? -1 : 1;
}

/* Take all arrays. 1; 0: x is in the host's memory; -1: an exception. */
static int take_arrays(gpu_call *call)
{
    PyObject *const *const values = call->values;
    static const char *const names[NUM_CALL_ARRAYS] = {"x", "h_0", "c_0", "out", "h_out", "c_out"};
    int taken = 1;
    for (int k = 0; k < NUM_CALL_ARRAYS && taken > 0; k++) {
        foreign *const array = &call->arrays[k];
        array->name = names[k];
        if (!values[k])
            continue;
        call->is_ordered &= Py_TYPE(values[k]) == Py_TYPE(values[X]);
        taken = foreign_take(&call->reader, values[k], array);
        if (taken == 0 && k != X)
            taken = foreign_refuse(
                &call->reader, array,
                "without DLPack's methods or not on a GPU, as x is: all arrays of"
                " a call must be in the same memory");
        if (taken > 0 && k >= NUM_INPUTS &&
            Py_TYPE(values[k]) == call->reader.state->device_array_type)
            taken = foreign_refuse(&call->reader, array, "which is not to be written again");
    }
    return taken;
}

/* --------------------------------------------- shapes; the core checks alignment and overlaps */

/* Find the shapes of all arrays. 1; 0: the shape of x does not fit. */
static int find_shapes(const rnl_spec *spec, gpu_call *call)
{
    call_shapes *const shapes = &call->shapes;
    if (!call_shapes_find(spec, call->axes, &call->arrays[X].shape, shapes))
        return 0;
    call->core.T = shapes->T;
    call->core.N = shapes->N;
    call->core.batch_first = shapes->time_axis == 1;
    return 1;
}

static int shapes_equal(const array_shape *a, const array_shape *b)
{
    int equal = a->ndim == b->ndim;
    for (int d = 0; equal && d < a->ndim; d++)
        equal = a->sizes[d] == b->sizes[d];
    return equal;
}

static int shapes_fit(const gpu_call *call)
{
    for (int k = 0; k < NUM_CALL_ARRAYS; k++)
        if (call->arrays[k].value && !shapes_equal(&call->arrays[k].shape, &call->shapes.of[k]))
            return 0;
    return 1;
}

/* Do the lengths have the form that read_lengths() of rnnlayout/_run/call_arrays.py returns? */
static int lengths_fit(PyObject *lengths, gpu_call *call)
{
    PyArrayObject *const array = (PyArrayObject *)lengths;
    if (lengths == Py_None)
        return 1;
    if (call->shapes.batch_axis < 0 || !PyArray_CheckExact(lengths) || PyArray_NDIM(array) != 1 ||
        PyArray_TYPE(array) != NPY_INT64 || !PyArray_IS_C_CONTIGUOUS(array) ||
        !PyArray_ISBEHAVED_RO(array) || PyArray_DIM(array, 0) != call->core.N)
        return 0;
    call->core.lengths = PyArray_DATA(array);
    return 1;
}

/* ---------------------------------------------------------------------------------------- run */

/* Have x's library make array k. 1, or -1. */
static int make_array(gpu_call *call, int k, const array_shape *shape)
{
    foreign *const array = &call->arrays[k];
    PyObject *sizes = sizes_to_tuple(shape->sizes, shape->ndim);
    if (sizes)
        call->new_arrays[k] = PyObject_CallFunctionObjArgs(call->empty, sizes, NULL);
    Py_XDECREF(sizes);
    if (!call->new_arrays[k])
        return -1;
    array->name = k == WORK ? "the workspace" : array->name;
    const int result = foreign_take(&call->reader, call->new_arrays[k], array);
    if (result < 0 || (result > 0 && shapes_equal(&array->shape, shape)))
        return result;
    return foreign_refuse(&call->reader, array,
                          "that its library has made in another shape or not on a GPU");
}

/* Make the outputs that the caller does not pass. 1, or -1. */
static int make_outputs(const gpu_rnn_object *self, gpu_call *call)
{
    int result = 1;
    for (int k = Y; k <= CN && result > 0; k++) {
        foreign *const array = &call->arrays[k];
        if (array->value || (k == CN && !has_c(self)))
            continue;
        if (call->empty) {
            result = make_array(call, k, &call->shapes.of[k]);
            continue;
        }
        call->is_ordered = 0;
        array->value = call->new_arrays[k] = device_array_new(call->reader.state, self->device,
                                                              self->spec.dtype, &call->shapes.of[k],
                                                              &array->address);
        result = call->new_arrays[k] ? 1 : -1;
    }
    return result;
}

/* Pass the addresses of the arrays to the core. */
static void set_arrays(gpu_call *call)
{
    const foreign *const arrays = call->arrays;
    call->core.x = arrays[X].address;
    call->core.h0 = arrays[H0].address;
    call->core.c0 = arrays[C0].address;
    call->core.y = arrays[Y].address;
    call->core.hn = arrays[HN].address;
    call->core.cn = arrays[CN].address;
}

/* Have x's library make the workspace. 1, or -1. */
static int make_workspace(const gpu_rnn_object *self, gpu_call *call)
{
    const int64_t unit = rnl_dtype_nbytes(self->spec.dtype);
    rnl_error err;
    rnl_status status;
    int64_t nbytes = 0;
    Py_BEGIN_ALLOW_THREADS
    status = rnl_gpu_rnn_workspace(self->rnn, &call->core, &nbytes, &err);
    Py_END_ALLOW_THREADS
    if (status != RNL_OK) {
        raise_status(call->reader.state, &err);
        return -1;
    }
    if (!nbytes)
        return 1;
    if (make_array(call, WORK, &(array_shape){1, {(nbytes + unit - 1) / unit}}) < 0)
        return -1;
    call->core.workspace = call->arrays[WORK].address;
    call->core.workspace_nbytes = nbytes;
    return 1;
}

/* Make what the call needs besides the arguments: outputs, and the workspace of a call that does
 * not wait. 0, or -1. */
static int make_arrays(const gpu_rnn_object *self, gpu_call *call)
{
    if (make_outputs(self, call) < 0)
        return -1;
    set_arrays(call);
    return call->is_ordered && call->empty && make_workspace(self, call) < 0 ? -1 : 0;
}

/* 0, or -1. */
static int run(const native_state *state, const gpu_rnn_object *self, const gpu_call *call)
{
    rnl_error err;
    rnl_status status;
    Py_BEGIN_ALLOW_THREADS /* a call without a workspace waits */
    status = rnl_gpu_rnn_run(self->rnn, &call->core, &err);
    Py_END_ALLOW_THREADS
    if (status != RNL_OK)
        raise_status(state, &err);
    return status == RNL_OK ? 0 : -1;
}

static PyObject *result_of(const gpu_call *call)
{
    return result_to_tuple(call->arrays[Y].value, call->arrays[HN].value, call->arrays[CN].value);
}

/* Return the shapes of x, h_0, c_0, out, h_out and c_out; None for an argument that is None. */
static PyObject *list_shapes(const gpu_call *call)
{
    PyObject *list = PyList_New(NUM_CALL_ARRAYS);
    for (int k = 0; list && k < NUM_CALL_ARRAYS; k++) {
        const foreign *const array = &call->arrays[k];
        PyObject *shape = array->value ? sizes_to_tuple(array->shape.sizes, array->shape.ndim)
                                       : Py_NewRef(Py_None);
        if (!shape || PyList_SetItem(list, k, shape) < 0)
            Py_CLEAR(list);
    }
    return list;
}

/* Release all arrays. Code that the release runs must not see the exception of the call. */
static void end(gpu_call *call)
{
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    for (int k = 0; k < NUM_ARRAYS; k++) {
        Py_XDECREF(call->arrays[k].keeps);
        Py_XDECREF(call->new_arrays[k]);
        Py_XDECREF(call->values[k]);
    }
    Py_XDECREF(call->lengths);
    PyErr_Restore(type, error, traceback);
}

/* Read the arguments: 1; 0: *result is what call() returns then; -1: an exception. */
static int read_call(const gpu_rnn_object *self, PyObject *const *args, gpu_call *call,
                     PyObject **result)
{
    int ready = read_arguments(self, args, call);
    if (ready > 0)
        ready = choose_stream(self, Py_TYPE(call->values[X]), args[ARG_STREAM], args[ARG_HOME],
                              call);
    if (ready > 0)
        ready = take_arrays(call);
    if (ready == 0)
        *result = Py_NewRef(Py_None);
    if (ready <= 0 || (find_shapes(&self->spec, call) && shapes_fit(call) &&
                       lengths_fit(args[ARG_LENGTHS], call)))
        return ready;
    *result = list_shapes(call);
    return *result ? 0 : -1;
}

PyObject *gpu_rnn_call(PyObject *object, PyObject *const *args, Py_ssize_t n)
{
    const gpu_rnn_object *const self = (gpu_rnn_object *)object;
    PyObject *result = NULL;
    gpu_call call = {0};
    if (n != NUM_ARGS)
        return PyErr_Format(PyExc_TypeError, "call() takes %d arguments, got %zd", NUM_ARGS, n);
    if (read_call(self, args, &call, &result) > 0 && make_arrays(self, &call) == 0 &&
        run(call.reader.state, self, &call) == 0)
        result = result_of(&call);
    end(&call);
    return result;
}

/* --------------------------------------------------------------------------------- bound calls */

static int bound_call_run(const native_state *state, PyObject *native, void *call)
{
    return run(state, (gpu_rnn_object *)native, call);
}

static void bound_call_end(void *call)
{
    end(call);
    PyMem_Free(call);
}

PyObject *gpu_rnn_bind(PyObject *object, PyObject *const *args, Py_ssize_t n)
{
    static const bound_kind kind = {bound_call_run, bound_call_end};
    const gpu_rnn_object *const self = (gpu_rnn_object *)object;
    PyObject *result = NULL;
    if (n != NUM_ARGS + 1)
        return PyErr_Format(PyExc_TypeError, "bind() takes %d arguments, got %zd", NUM_ARGS + 1, n);
    gpu_call *const call = PyMem_Calloc(1, sizeof *call);
    if (!call)
        return PyErr_NoMemory();
    if (read_call(self, args, call, &result) > 0 && make_arrays(self, call) == 0) {
        PyObject *const outputs = result_of(call);
        if (outputs) {
            result = bound_call_new(call->reader.state, &kind, call, args[NUM_ARGS], outputs);
            Py_DECREF(outputs);
            return result;
        }
    }
    bound_call_end(call);
    return result;
}
