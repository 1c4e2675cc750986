/* Recorded calls and their backward passes. The arrays are checked here; Python code passes x, y
 * and their gradients as (T, N, ...) of any outer strides, everything else contiguous. */
#include "call_shapes.h" /* before the system's headers, as Python.h requires */

#include <numpy/arrayobject.h>

enum { TAPE_ALIGNMENT = 64 };

/* The arguments that both functions share. */
typedef struct sizes {
    call_shapes shapes; /* of X, H0 ... CN, and of their gradients */
    int64_t num_params, nbytes;
    int weights_type, gradient_type; /* NumPy's numbers */
    rnl_rnn *rnn;
} sizes;

/* An array of a call: NULL if the argument is None. */
typedef struct tensor_argument {
    void *data;
    int64_t time, batch; /* strides, elements */
} tensor_argument;

static int raise_unfit(const char *name)
{
    PyErr_Format(PyExc_TypeError, "%s does not have the type or shape that the core needs", name);
    return -1;
}

/* Find what follows from T and N. 0, or -1 with an exception. */
static int find_sizes(const native_state *state, PyObject *rnn, int64_t T, int64_t N, sizes *call)
{
    if (!PyObject_TypeCheck(rnn, state->rnn_type)) {
        PyErr_SetString(PyExc_TypeError, "need an Rnn");
        return -1;
    }
    rnl_error err;
    const rnl_spec *const spec = rnn_facts(rnn, &call->num_params);
    const array_shape x = {.ndim = 3, .sizes = {T, N, spec->input_size}};
    call->rnn = rnn_core(rnn);
    call->weights_type = numpy_type_of(spec->dtype);
    call->gradient_type = spec->dtype == RNL_FLOAT64 ? NPY_DOUBLE : NPY_FLOAT;
    call_shapes_find(spec, TIME_FIRST, &x, &call->shapes);
    if (rnl_rnn_tape_nbytes(call->rnn, T, N, &call->nbytes, &err) == RNL_OK)
        return 0;
    raise_status(state, &err);
    return -1;
}

/* Read array k of a call, or its gradient. The outer strides of X and Y are free. 0, or -1 with
 * TypeError. */
static int read_tensor(const sizes *call, int k, PyObject *object, const char *name, int type,
                       int is_output, tensor_argument *argument)
{
    *argument = (tensor_argument){0};
    if (object == Py_None)
        return 0;
    PyArrayObject *const array = (PyArrayObject *)object;
    const int64_t *const shape = call->shapes.of[k].sizes;
    int fits = PyArray_CheckExact(object) && PyArray_TYPE(array) == type &&
               PyArray_ISNOTSWAPPED(array) && PyArray_ISALIGNED(array) &&
               PyArray_NDIM(array) == 3 && (!is_output || PyArray_ISWRITEABLE(array));
    for (int d = 0; fits && d < 3; d++)
        fits = PyArray_DIM(array, d) == shape[d];
    if (fits && k != X && k != Y)
        fits = PyArray_IS_C_CONTIGUOUS(array);
    if (fits) {
        const npy_intp itemsize = PyArray_ITEMSIZE(array);
        const npy_intp *const strides = PyArray_STRIDES(array);
        argument->data = PyArray_DATA(array);
        argument->time = shape[0] > 1 ? strides[0] / itemsize : 0;
        argument->batch = shape[1] > 1 ? strides[1] / itemsize : 0;
        fits = (shape[2] < 2 || strides[2] == itemsize || PyArray_SIZE(array) == 0) &&
               strides[0] % itemsize == 0 && strides[1] % itemsize == 0;
    }
    return fits ? 0 : raise_unfit(name);
}

/* Read the gradient of the weights likewise. */
static int read_weights(const sizes *call, PyObject *object, void **data)
{
    *data = NULL;
    if (object == Py_None)
        return 0;
    PyArrayObject *const array = (PyArrayObject *)object;
    if (!PyArray_CheckExact(object) || PyArray_TYPE(array) != call->gradient_type ||
        PyArray_NDIM(array) != 1 || PyArray_DIM(array, 0) != call->num_params ||
        !PyArray_ISCARRAY(array))
        return raise_unfit("dweights");
    *data = PyArray_DATA(array);
    return 0;
}

/* Read the tape: as many bytes as the call needs, or more, aligned. */
static int read_tape(const sizes *call, PyObject *object, void **tape)
{
    PyArrayObject *const array = (PyArrayObject *)object;
    if (!PyArray_CheckExact(object) || PyArray_TYPE(array) != NPY_UINT8 ||
        PyArray_NDIM(array) != 1 || !PyArray_ISCARRAY_RO(array) ||
        PyArray_DIM(array, 0) < call->nbytes ||
        (uintptr_t)PyArray_DATA(array) % TAPE_ALIGNMENT != 0)
        return raise_unfit("the tape");
    *tape = PyArray_DATA(array);
    return 0;
}

/* Copy the lengths, (N,) int64 or None: the core first checks and later uses them, and meanwhile
 * another thread may change the caller's array. NULL: an exception is set. */
static PyObject *copy_lengths(const sizes *call, PyObject *lengths, const int64_t **data)
{
    *data = NULL;
    if (lengths == Py_None)
        return Py_NewRef(Py_None);
    PyArrayObject *const array = (PyArrayObject *)lengths;
    if (!PyArray_CheckExact(lengths) || PyArray_TYPE(array) != NPY_INT64 ||
        PyArray_NDIM(array) != 1 || PyArray_DIM(array, 0) != call->shapes.N) {
        raise_unfit("lengths");
        return NULL;
    }
    PyObject *const copy = PyArray_NewCopy(array, NPY_CORDER);
    *data = copy ? PyArray_DATA((PyArrayObject *)copy) : NULL;
    return copy;
}

/* Run a forward pass into the tape, or a backward pass from it. Releases the lengths. */
static PyObject *run(const native_state *state, const sizes *call, rnl_rnn_call *forward,
                     rnl_gradients *backward, void *tape, PyObject *lengths)
{
    rnl_error err;
    long_call meanwhile;
    rnl_status status = RNL_OK;
    const double work = rnn_work(call->num_params, call->shapes.T, call->shapes.N);
    const int failed = long_call_begin(state, forward ? work : 2 * work, &meanwhile);
    if (!failed) {
        if (forward) {
            forward->poll = meanwhile.poll;
            forward->poll_arg = &meanwhile;
            status = rnl_rnn_record(call->rnn, forward, tape, &err);
        } else {
            backward->poll = meanwhile.poll;
            backward->poll_arg = &meanwhile;
            status = rnl_rnn_backward(call->rnn, tape, backward, &err);
        }
        long_call_end(&meanwhile);
    }
    Py_DECREF(lengths);
    if (status != RNL_OK)
        return raise_status(state, &err);
    return failed ? NULL : Py_NewRef(Py_None);
}

PyObject *native_tape_nbytes(PyObject *module, PyObject *args)
{
    PyObject *rnn;
    long long T, N;
    sizes call;
    if (!PyArg_ParseTuple(args, "OLL:tape_nbytes", &rnn, &T, &N) ||
        find_sizes(PyModule_GetState(module), rnn, T, N, &call) < 0)
        return NULL;
    return PyLong_FromLongLong(call.nbytes);
}

PyObject *native_record(PyObject *module, PyObject *args)
{
    const native_state *const state = PyModule_GetState(module);
    PyObject *rnn, *objects[NUM_CALL_ARRAYS], *lengths, *tape_object;
    sizes call;
    tensor_argument x, h0, c0, y, hn, cn;
    void *tape;
    if (!PyArg_ParseTuple(args, "OOOOOOOOO:record", &rnn, &objects[X], &objects[H0], &objects[C0],
                          &lengths, &objects[Y], &objects[HN], &objects[CN], &tape_object))
        return NULL;
    PyArrayObject *const input = (PyArrayObject *)objects[X];
    if (!PyArray_CheckExact(objects[X]) || PyArray_NDIM(input) != 3)
        return PyErr_Format(PyExc_TypeError, "x must be an array with three axes");
    if (find_sizes(state, rnn, PyArray_DIM(input, 0), PyArray_DIM(input, 1), &call) < 0)
        return NULL;
    const int is_float = PyArray_TYPE(input) == NPY_FLOAT && call.gradient_type == NPY_FLOAT;
    const int type = is_float ? NPY_FLOAT : call.weights_type;
    if (read_tensor(&call, X, objects[X], "x", type, 0, &x) < 0 ||
        read_tensor(&call, H0, objects[H0], "h_0", type, 0, &h0) < 0 ||
        read_tensor(&call, C0, objects[C0], "c_0", type, 0, &c0) < 0 ||
        read_tensor(&call, Y, objects[Y], "y", type, 1, &y) < 0 ||
        read_tensor(&call, HN, objects[HN], "h_n", type, 1, &hn) < 0 ||
        read_tensor(&call, CN, objects[CN], "c_n", type, 1, &cn) < 0 ||
        read_tape(&call, tape_object, &tape) < 0)
        return NULL;
    int64_t num_params;
    rnl_rnn_call core = {.T = call.shapes.T,
                         .N = call.shapes.N,
                         .dtype = is_float ? RNL_FLOAT32 : rnn_facts(rnn, &num_params)->dtype,
                         .x = x.data,
                         .x_time = x.time,
                         .x_batch = x.batch,
                         .h0 = h0.data,
                         .c0 = c0.data,
                         .y = y.data,
                         .y_time = y.time,
                         .y_batch = y.batch,
                         .hn = hn.data,
                         .cn = cn.data};
    PyObject *const copy = copy_lengths(&call, lengths, &core.lengths);
    return copy ? run(state, &call, &core, NULL, tape, copy) : NULL;
}

PyObject *native_backward(PyObject *module, PyObject *args)
{
    const native_state *const state = PyModule_GetState(module);
    PyObject *rnn, *objects[NUM_CALL_ARRAYS], *lengths, *tape_object, *dweights;
    long long T, N;
    int adds;
    sizes call;
    tensor_argument dy, dhn, dcn, dx, dh0, dc0;
    void *tape, *weights;
    if (!PyArg_ParseTuple(args, "OOLLOOOOOOOOp:backward", &rnn, &tape_object, &T, &N, &lengths,
                          &objects[Y], &objects[HN], &objects[CN], &objects[X], &objects[H0],
                          &objects[C0], &dweights, &adds) ||
        find_sizes(state, rnn, T, N, &call) < 0)
        return NULL;
    const int type = call.gradient_type;
    if (read_tensor(&call, Y, objects[Y], "dy", type, 0, &dy) < 0 ||
        read_tensor(&call, HN, objects[HN], "dh_n", type, 0, &dhn) < 0 ||
        read_tensor(&call, CN, objects[CN], "dc_n", type, 0, &dcn) < 0 ||
        read_tensor(&call, X, objects[X], "dx", type, 1, &dx) < 0 ||
        read_tensor(&call, H0, objects[H0], "dh_0", type, 1, &dh0) < 0 ||
        read_tensor(&call, C0, objects[C0], "dc_0", type, 1, &dc0) < 0 ||
        read_weights(&call, dweights, &weights) < 0 || read_tape(&call, tape_object, &tape) < 0)
        return NULL;
    rnl_gradients core = {.T = T,
                          .N = N,
                          .dy = dy.data,
                          .dy_time = dy.time,
                          .dy_batch = dy.batch,
                          .dhn = dhn.data,
                          .dcn = dcn.data,
                          .dx = dx.data,
                          .dx_time = dx.time,
                          .dx_batch = dx.batch,
                          .dh0 = dh0.data,
                          .dc0 = dc0.data,
                          .dweights = weights,
                          .adds = adds};
    PyObject *const copy = copy_lengths(&call, lengths, &core.lengths);
    return copy ? run(state, &call, NULL, &core, tape, copy) : NULL;
}
