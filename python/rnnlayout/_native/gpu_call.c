/* A call on arrays of the GPU by the short way: all can be used as they lie there, all in one
 * stream. rnnlayout/_gpu.py is the long way, whose results and orders these are, and which says
 * what is wrong. */
#include "gpu_rnn.h"

#include "device_array.h"

enum { X, H0, C0, Y, HN, CN, NUM_ARRAYS };
enum { NUM_INPUTS = Y };

typedef struct gpu_call {
    foreign arrays[NUM_ARRAYS];
    foreign_reader reader;
    array_shape shapes[NUM_ARRAYS]; /* as they have to be */
    int axes, asked;                /* asked: the stream is the caller's wish */
    rnl_gpu_call core;
} gpu_call;

static int is_lstm(const gpu_rnn_object *self)
{
    return self->spec.cell == RNL_LSTM;
}

/* ------------------------------------------------------------------------------------ arguments --
 */

/* Those that have a rule of their own are read by the long way's function. */
static int read_stream(PyObject *stream, gpu_call *call)
{
    call->asked = stream != Py_None;
    if (!call->asked || is_stream(stream, &call->core.stream))
        return 1;
    if (PyLong_Check(stream))
        return 0;
    PyObject *module = PyImport_ImportModule("rnnlayout._foreign");
    PyObject *number = module ? PyObject_CallMethod(module, "stream_of", "O", stream) : NULL;
    const int found = number && is_stream(number, &call->core.stream);
    Py_XDECREF(module);
    Py_XDECREF(number);
    if (!number &&
        (!PyErr_ExceptionMatches(PyExc_Exception) || PyErr_ExceptionMatches(PyExc_MemoryError)))
        return -1;
    PyErr_Clear();
    return found;
}

static PyObject *given(PyObject *object)
{
    return object == Py_None ? NULL : object;
}

/* h_0, or h_0 and c_0. */
static int read_state(const gpu_rnn_object *self, PyObject *state, PyObject **values)
{
    values[H0] = given(state);
    if (!values[H0] || !is_lstm(self))
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

/* References of ours, since what is asked next is code that may run anything. 1: by the short way
 * as far as can be seen; 0: not; -1: an exception. */
static int read_arguments(const gpu_rnn_object *self, PyObject *const *args, PyObject **values,
                          gpu_call *call)
{
    const long axes = PyLong_AsLong(args[5]);
    if (PyErr_Occurred())
        return -1;
    call->axes = (int)axes;
    values[X] = args[0];
    values[Y] = given(args[2]);
    values[HN] = given(args[3]);
    values[CN] = given(args[4]);
    const int reads = read_state(self, args[1], values);
    for (int k = 0; k < NUM_ARRAYS; k++)
        Py_XINCREF(values[k]);
    return reads && axes >= STEP && axes < NUM_AXES &&
           !(axes == STEP && self->spec.bidirectional) && (is_lstm(self) || !values[CN]);
}

/* --------------------------------------------------------------------------------------- arrays --
 */

/* In which stream the call runs, if all arrays are used in that one. */
static int choose_stream(gpu_call *call)
{
    int is_chosen = call->asked;
    for (int k = 0; k < NUM_ARRAYS; k++) {
        const foreign *const array = &call->arrays[k];
        if (!array->value)
            continue;
        if (!array->knows_stream && k >= NUM_INPUTS && !call->asked)
            return 0; /* nobody tells in which one an output is used */
        if (array->knows_stream && !is_chosen)
            call->core.stream = array->stream;
        is_chosen |= array->knows_stream;
        if (array->knows_stream && array->stream != call->core.stream)
            return 0;
    }
    return 1;
}

static int take_arrays(PyObject *const *values, gpu_call *call)
{
    int taken = 1;
    for (int k = 0; k < NUM_ARRAYS && taken > 0; k++)
        if (values[k])
            taken = foreign_look(&call->reader, values[k], &call->arrays[k]);
    if (taken > 0)
        taken = choose_stream(call);
    for (int k = 0; k < NUM_ARRAYS && taken > 0; k++)
        if (call->arrays[k].waits)
            taken = foreign_take(&call->reader, call->core.stream, &call->arrays[k]);
    return taken;
}

/* ----------------------------------------------------------------------------------------- fits --
 */

/* The shapes that follow from that of x. */
static int find_shapes(const gpu_rnn_object *self, gpu_call *call)
{
    const rnl_spec *const spec = &self->spec;
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

/* The core looks at the rest: whose memory it is, alignment, overlaps. */
static int fits(const gpu_rnn_object *self, gpu_call *call)
{
    if (!find_shapes(self, call))
        return 0;
    for (int k = 0; k < NUM_ARRAYS; k++) {
        const foreign *const array = &call->arrays[k];
        if (array->value &&
            (array->dtype != self->spec.dtype || !has_shape(array, &call->shapes[k]) ||
             (k >= NUM_INPUTS && array->read_only)))
            return 0;
    }
    return 1;
}

/* ------------------------------------------------------------------------------------------ run --
 */

/* Of the inputs those whose owner may use the memory for something else once he has it back. */
static PyObject *list_kept(const gpu_call *call)
{
    PyObject *pairs[NUM_INPUTS], *kept = NULL;
    Py_ssize_t n = 0;
    int failed = 0;
    for (int k = 0; k < NUM_INPUTS && !failed; k++) {
        const foreign *const array = &call->arrays[k];
        if (!array->value || array->knows_stream)
            continue;
        pairs[n] = PyTuple_Pack(2, array->value, array->keeps ? array->keeps : Py_None);
        failed = !pairs[n];
        n += !failed;
    }
    kept = failed ? NULL : PyTuple_New(n);
    for (Py_ssize_t k = 0; k < n; k++)
        if (kept)
            PyTuple_SetItem(kept, k, pairs[k]);
        else
            Py_DECREF(pairs[k]);
    return kept;
}

/* The outputs that are not given, in one block. 0, or -1. */
static int make_outputs(const gpu_rnn_object *self, gpu_call *call, PyObject *kept, PyObject **made)
{
    array_shape shapes[NUM_ARRAYS - Y];
    int n = 0, places[NUM_ARRAYS - Y];
    for (int k = Y; k < NUM_ARRAYS; k++)
        if (!call->arrays[k].value && (k != CN || is_lstm(self))) {
            shapes[n] = call->shapes[k];
            places[n++] = k;
        }
    if (!n)
        return 0;
    *made = device_arrays_new(call->reader.state, self->device, self->spec.dtype, shapes, n,
                              call->core.stream, kept);
    for (int k = 0; *made && k < n; k++) {
        foreign *const array = &call->arrays[places[k]];
        array->value = PyTuple_GetItem(*made, k);
        array->address = ((device_array *)array->value)->address;
    }
    return *made ? 0 : -1;
}

/* No new memory keeps what the call reads: until the next such call in its stream. */
static int keep(const gpu_rnn_object *self, const gpu_call *call, PyObject *kept)
{
    PyObject *stream = stream_to_object(call->core.stream);
    const int failed = stream ? PyDict_SetItem(self->kept, stream, kept) : -1;
    Py_XDECREF(stream);
    return failed;
}

static rnl_status run_core(const gpu_rnn_object *self, gpu_call *call, rnl_error *err)
{
    rnl_gpu_call *const core = &call->core;
    const foreign *const arrays = call->arrays;
    rnl_status status;
    core->poll = poll_signals;
    core->x = arrays[X].address;
    core->h0 = arrays[H0].address;
    core->c0 = arrays[C0].address;
    core->y = arrays[Y].address;
    core->hn = arrays[HN].address;
    core->cn = arrays[CN].address;
    Py_BEGIN_ALLOW_THREADS
    status = rnl_gpu_rnn_run(self->rnn, core, err);
    Py_END_ALLOW_THREADS
    return status;
}

static PyObject *result_of(const gpu_call *call)
{
    const foreign *const arrays = call->arrays;
    if (!arrays[CN].value)
        return PyTuple_Pack(2, arrays[Y].value, arrays[HN].value);
    PyObject *last = PyTuple_Pack(2, arrays[HN].value, arrays[CN].value);
    PyObject *result = last ? PyTuple_Pack(2, arrays[Y].value, last) : NULL;
    Py_XDECREF(last);
    return result;
}

/* None: the core refuses it, which the long way says in its words. */
static PyObject *run(const gpu_rnn_object *self, gpu_call *call)
{
    rnl_error err;
    PyObject *made = NULL, *result = NULL, *kept = list_kept(call);
    if (!kept || make_outputs(self, call, kept, &made) < 0)
        goto done;
    const rnl_status status = run_core(self, call, &err);
    if (status == RNL_E_SPEC)
        result = Py_NewRef(Py_None);
    else if (status != RNL_OK)
        raise_status(call->reader.state, &err);
    else if (made || keep(self, call, kept) == 0)
        result = result_of(call);
done:
    Py_XDECREF(made);
    Py_XDECREF(kept);
    return result;
}

PyObject *gpu_rnn_call(PyObject *object, PyObject *const *args, Py_ssize_t n)
{
    const gpu_rnn_object *const self = (gpu_rnn_object *)object;
    PyObject *values[NUM_ARRAYS] = {NULL}, *result = NULL;
    gpu_call call = {
        .reader = {.state = PyType_GetModuleState(Py_TYPE(object)), .device = self->device}};
    if (n != 7)
        return PyErr_Format(PyExc_TypeError, "call() takes 7 arguments, not %zd", n);
    int ready = read_arguments(self, args, values, &call);
    if (ready > 0)
        ready = read_stream(args[6], &call);
    if (ready > 0)
        ready = take_arrays(values, &call);
    if (ready > 0 && fits(self, &call))
        result = run(self, &call);
    else if (ready >= 0)
        result = Py_NewRef(Py_None);
    foreign_end(&call.reader);
    for (int k = 0; k < NUM_ARRAYS; k++) {
        Py_XDECREF(call.arrays[k].keeps);
        Py_XDECREF(values[k]);
    }
    return result;
}
