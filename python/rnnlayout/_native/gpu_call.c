/* A call on GPU arrays. rnnlayout/_run/gpu.py reports shapes and lengths that do not fit. */
#include "gpu_call.h"

static int has_c(const gpu_rnn_object *self)
{
    return rnl_cell_facts_of(self->spec.cell)->has_c;
}

/* ------------------------------------------------------------------------------------ arguments --
 */

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

static PyObject *given(PyObject *object)
{
    return object == Py_None ? NULL : object;
}

/* h_0, or h_0 and c_0. */
static int read_state(const gpu_rnn_object *self, PyObject *state, PyObject **values)
{
    values[H0] = given(state);
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

/* Takes references, because exporters' functions that are called next may run any code. 1; 0: these
 * are not the arguments of a call; -1: an exception. */
static int read_arguments(const gpu_rnn_object *self, PyObject *const *args, PyObject **values,
                          gpu_call *call)
{
    const long axes = PyLong_AsLong(args[ARG_AXES]);
    if (PyErr_Occurred())
        return -1;
    call->axes = (int)axes;
    values[X] = args[ARG_X];
    values[Y] = given(args[ARG_OUT]);
    values[HN] = given(args[ARG_H_OUT]);
    values[CN] = given(args[ARG_C_OUT]);
    if (args[ARG_HOME] != Py_None) {
        call->reader.has_home = 1;
        call->reader.like = Py_TYPE(values[X]);
        call->reader.home = stream_from_object(args[ARG_HOME]);
    }
    const int reads = read_state(self, args[ARG_STATE], values);
    for (int k = 0; k < NUM_ARRAYS; k++)
        Py_XINCREF(values[k]);
    return reads && axes >= STEP && axes < NUM_AXES &&
           !(axes == STEP && self->spec.bidirectional) && (has_c(self) || !values[CN]);
}

/* 1; 0: x is in the host's memory; -1: an exception. */
static int take_arrays(PyObject *const *values, gpu_call *call)
{
    static const char *const names[NUM_NAMED] = {"x", "h_0", "c_0", "out", "h_out", "c_out"};
    int taken = 1;
    for (int k = 0; k < NUM_NAMED && taken > 0; k++) {
        call->arrays[k].what = names[k];
        if (values[k])
            taken = foreign_look(&call->reader, values[k], &call->arrays[k]);
        if (taken == 0 && k != X)
            taken = foreign_refuse(
                &call->reader, &call->arrays[k],
                "without DLPack's methods or not on a GPU, as x is: all arrays of"
                " a call must be in the same memory");
    }
    if (taken > 0)
        taken = gpu_call_choose_stream(call);
    for (int k = 0; k < NUM_NAMED && taken > 0; k++) {
        if (call->arrays[k].waits)
            taken = foreign_take(&call->reader, call->core.stream, &call->arrays[k]);
        if (taken > 0 && k >= NUM_INPUTS && call->arrays[k].read_only)
            taken = foreign_refuse(&call->reader, &call->arrays[k], "that is read-only");
    }
    return taken;
}

/* ------------------------------------------------------------------------------------------ run --
 */

/* Make an output: by the library that x is from, if Python has passed its function for that, else a
 * DeviceArray. 1, or -1. */
static int make_output(const gpu_rnn_object *self, gpu_call *call, PyObject *empty, PyObject *kept,
                       int k)
{
    const array_shape *const shape = &call->shapes[k];
    foreign *const array = &call->arrays[k];
    PyObject *sizes = NULL;
    if (!empty)
        call->made[k] = device_array_new(call->reader.state, self->device, self->spec.dtype, shape,
                                         call->core.stream, kept);
    else if ((sizes = sizes_to_tuple(shape->sizes, shape->ndim)))
        call->made[k] = PyObject_CallFunctionObjArgs(empty, sizes, NULL);
    Py_XDECREF(sizes);
    if (!call->made[k])
        return -1;
    array->what = array->what ? array->what : "the workspace";
    array->is_new = 1;
    int result = foreign_look(&call->reader, call->made[k], array);
    if (result > 0 && array->waits)
        result = foreign_take(&call->reader, call->core.stream, array);
    if (result < 0 || (result > 0 && gpu_call_has_shape(array, shape)))
        return result;
    return foreign_refuse(&call->reader, array,
                          "that its library has made in another shape or not on a GPU");
}

/* Make the outputs that are not given. 1, or -1. */
static int make_outputs(const gpu_rnn_object *self, gpu_call *call, PyObject *empty, PyObject *kept)
{
    int result = 1;
    for (int k = Y; k <= CN && result > 0; k++)
        if (!call->arrays[k].value && (k != CN || has_c(self)))
            result = make_output(self, call, empty, kept, k);
    return result;
}

/* Tell the core which arrays to use. */
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
static int make_workspace(const gpu_rnn_object *self, gpu_call *call, PyObject *empty)
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
    call->shapes[WORK] = (array_shape){1, {(nbytes + unit - 1) / unit}};
    if (make_output(self, call, empty, NULL, WORK) < 0)
        return -1;
    call->core.workspace = call->arrays[WORK].address;
    call->core.workspace_nbytes = nbytes;
    return 1;
}

/* If no new DeviceArray keeps what the call reads, keep it until the next such call in its stream.
 */
static int keep(const gpu_rnn_object *self, const gpu_call *call, PyObject *kept)
{
    for (int k = Y; k < NUM_ARRAYS; k++)
        if (call->arrays[k].is_new && call->arrays[k].is_ours)
            return 0;
    PyObject *stream = stream_to_object(call->core.stream);
    const int failed = stream ? PyDict_SetItem(self->kept, stream, kept) : -1;
    Py_XDECREF(stream);
    return failed;
}

static rnl_status run_core(const gpu_rnn_object *self, gpu_call *call, rnl_error *err)
{
    rnl_status status;
    Py_BEGIN_ALLOW_THREADS
    status = gpu_call_order_before(call, err);
    if (status == RNL_OK)
        status = rnl_gpu_rnn_run(self->rnn, &call->core, err);
    Py_END_ALLOW_THREADS
    return status;
}

/* Once the work is submitted: note it in our outputs, and make the other owners' streams wait. */
static rnl_status order_owners(gpu_call *call, rnl_error *err)
{
    rnl_status status;
    for (int k = Y; k < NUM_ARRAYS; k++)
        if (call->arrays[k].is_ours)
            device_array_fill_in((device_array *)call->arrays[k].value, call->core.stream);
    Py_BEGIN_ALLOW_THREADS
    status = gpu_call_order_behind(call, err);
    Py_END_ALLOW_THREADS
    return status;
}

static PyObject *run(const gpu_rnn_object *self, gpu_call *call, PyObject *empty)
{
    rnl_error err;
    PyObject *result = NULL, *kept = gpu_call_list_kept(call);
    if (!kept || make_outputs(self, call, empty, kept) < 0)
        goto done;
    set_arrays(call);
    /* in another stream than x's library works in, a graph would not keep the workspace */
    const foreign *const x = &call->arrays[X];
    const int is_at_home = empty && x->knows_stream && x->stream == call->core.stream;
    if (is_at_home && make_workspace(self, call, empty) < 0)
        goto done;
    rnl_status status = run_core(self, call, &err);
    if (status == RNL_OK && keep(self, call, kept) < 0)
        goto done;
    if (status == RNL_OK)
        status = order_owners(call, &err);
    result = status == RNL_OK ? result_to_tuple(call->arrays[Y].value, call->arrays[HN].value,
                                                call->arrays[CN].value)
                              : raise_status(call->reader.state, &err);
done:
    Py_XDECREF(kept);
    return result;
}

/* The shapes of x, h_0, c_0, out, h_out and c_out, None for those that are not given. */
static PyObject *list_shapes(const gpu_call *call)
{
    PyObject *list = PyList_New(NUM_NAMED);
    for (int k = 0; list && k < NUM_NAMED; k++) {
        const foreign *const array = &call->arrays[k];
        PyObject *shape = array->value ? sizes_to_tuple(array->shape.sizes, array->shape.ndim)
                                       : Py_NewRef(Py_None);
        if (!shape || PyList_SetItem(list, k, shape) < 0)
            Py_CLEAR(list);
    }
    return list;
}

PyObject *gpu_rnn_call(PyObject *object, PyObject *const *args, Py_ssize_t n)
{
    const gpu_rnn_object *const self = (gpu_rnn_object *)object;
    PyObject *values[NUM_ARRAYS] = {NULL}, *result = NULL;
    gpu_call call = {.reader = {.state = PyType_GetModuleState(Py_TYPE(object)),
                                .device = self->device,
                                .dtype = self->spec.dtype}};
    if (n != NUM_ARGS)
        return PyErr_Format(PyExc_TypeError, "call() takes %d arguments, got %zd", NUM_ARGS, n);
    int ready = read_arguments(self, args, values, &call);
    if (ready > 0)
        ready = gpu_call_read_stream(args[ARG_STREAM], &call);
    if (ready > 0)
        ready = take_arrays(values, &call);
    if (ready == 0)
        result = Py_NewRef(Py_None);
    else if (ready > 0 && !gpu_call_fits(&self->spec, args[ARG_LENGTHS], &call))
        result = list_shapes(&call);
    else if (ready > 0)
        result = run(self, &call, given(args[ARG_EMPTY]));
    foreign_end(&call.reader);
    for (int k = 0; k < NUM_ARRAYS; k++) {
        Py_XDECREF(call.arrays[k].keeps);
        Py_XDECREF(call.made[k]);
        Py_XDECREF(values[k]);
    }
    return result;
}
