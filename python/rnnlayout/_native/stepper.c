/* The type Stepper: a live signal through an RNN on the CPU or a GPU. A call is as cheap as CPython
 * allows: the arguments come from the caller's stack (PEP 590). */
#include "call_shapes.h"
#include "gpu_rnn.h"

#include <numpy/arrayobject.h>
#include <stddef.h>
#include <string.h>
#include <structmember.h>

/* Python's header has these constants for the stable ABI of 3.12 and later only; the numbers are
 * the same since 3.8. */
#define HAS_VECTORCALL (1UL << 11)
#define IS_OFFSET ((size_t)1 << (8 * sizeof(size_t) - 1))
typedef PyObject *call_function(PyObject *object, PyObject *const *args, size_t n, PyObject *names);

typedef struct stepper_object {
    PyObject_HEAD
    call_function *call;
    rnl_stepper *stepper; /* NULL: on a GPU */
    rnl_gpu_stepper *gpu; /* NULL: on the CPU */
    int type, has_c, is_busy;
    int64_t input_size, state_size, hidden_size, num_layers;
    double work; /* multiply-adds of a step; on a GPU, where each step waits, above LONG_WORK */
    PyObject *rnn, *step, *read, *out;
} stepper_object;

/* -------------------------------------------------------------------------------------- calls */

static int is_plain(PyObject *object, int type)
{
    return PyArray_CheckExact(object) && PyArray_TYPE((PyArrayObject *)object) == type &&
           PyArray_ISCARRAY_RO((PyArrayObject *)object);
}

/* Return the number of steps of x, (I,) or (n, I); -1: the core cannot read x. */
static int64_t steps_of(const stepper_object *self, PyObject *x)
{
    if (!is_plain(x, self->type))
        return -1;
    PyArrayObject *const array = (PyArrayObject *)x;
    const int ndim = PyArray_NDIM(array);
    if (ndim < 1 || ndim > 2 || PyArray_DIM(array, ndim - 1) != self->input_size)
        return -1;
    return ndim == 1 ? 1 : PyArray_DIM(array, 0);
}

/* Can the core write y, for this x? y may be x itself. */
static int fits_output(const stepper_object *self, PyObject *out, PyArrayObject *x)
{
    if (!is_plain(out, self->type))
        return 0;
    PyArrayObject *const y = (PyArrayObject *)out;
    const int ndim = PyArray_NDIM(y);
    if (!PyArray_ISWRITEABLE(y) || ndim != PyArray_NDIM(x) ||
        PyArray_DIM(y, ndim - 1) != self->state_size ||
        (ndim == 2 && PyArray_DIM(y, 0) != PyArray_DIM(x, 0)))
        return 0;
    return (PyArray_BYTES(x) == PyArray_BYTES(y) && self->input_size == self->state_size) ||
           !spans_meet(span_of((PyObject *)x), span_of(out));
}

static rnl_status advance(const stepper_object *self, const char *x, char *y, int64_t n,
                          rnl_error *err)
{
    if (self->gpu)
        return rnl_gpu_stepper_run(self->gpu, x, y, n, err);
    rnl_stepper_run(self->stepper, x, y, n);
    return RNL_OK;
}

/* Run n steps. If they take long, Python's threads run meanwhile, and Ctrl-C ends the run. */
static int run(stepper_object *self, const char *x, char *y, int64_t n, npy_intp itemsize)
{
    const int64_t at_once = (int64_t)(LONG_WORK / self->work), most = at_once ? at_once : 1;
    long_call meanwhile;
    rnl_error err;
    rnl_status status = RNL_OK;
    int stop = 0;
    if (n <= at_once) {
        advance(self, x, y, n, &err); /* on the CPU, which cannot fail */
        return 0;
    }
    const native_state *state = PyType_GetModuleState(Py_TYPE((PyObject *)self));
    if (long_call_begin(state, self->work * (double)n, &meanwhile) < 0)
        return -1;
    self->is_busy = 1;
    for (int64_t done = 0, num_steps; done < n && !stop && status == RNL_OK; done += num_steps) {
        num_steps = n - done < most ? n - done : most;
        status = advance(self, x + done * self->input_size * itemsize,
                         y + done * self->state_size * itemsize, num_steps, &err);
        stop = meanwhile.poll && meanwhile.poll(&meanwhile);
    }
    long_call_end(&meanwhile);
    self->is_busy = 0;
    if (status != RNL_OK && !stop)
        raise_status(state, &err);
    return stop || status != RNL_OK ? -1 : 0;
}

static int is_free(const stepper_object *self)
{
    if (self->is_busy)
        PyErr_SetString(PyExc_RuntimeError,
                        "this stepper is running in another thread: make one per thread");
    return !self->is_busy;
}

static PyObject *step(stepper_object *self, PyObject *x, PyObject *out)
{
    if (!is_free(self))
        return NULL;
    const int64_t n = steps_of(self, x);
    if (n < 0 || (out != Py_None && !fits_output(self, out, (PyArrayObject *)x)))
        return PyObject_CallFunctionObjArgs(self->step, (PyObject *)self, x, out, NULL);
    PyArrayObject *const from = (PyArrayObject *)x;
    npy_intp shape[2] = {(npy_intp)n, (npy_intp)self->state_size};
    PyObject *y = out;
    if (out == Py_None) {
        const int ndim = PyArray_NDIM(from);
        y = PyArray_SimpleNew(ndim, shape + 2 - ndim, self->type);
        if (!y)
            return NULL;
    } else {
        Py_INCREF(y);
    }
    if (run(self, PyArray_BYTES(from), PyArray_BYTES((PyArrayObject *)y), n,
            PyArray_ITEMSIZE(from)) < 0)
        Py_CLEAR(y);
    return y;
}

/* The call s(x, out=None), with arguments in the form of PEP 590. */
static PyObject *stepper_vectorcall(PyObject *object, PyObject *const *args, size_t flags_and_n,
                                    PyObject *names)
{
    stepper_object *self = (stepper_object *)object;
    const Py_ssize_t n = (Py_ssize_t)(flags_and_n & ~IS_OFFSET);
    const Py_ssize_t num_names = names ? PyTuple_Size(names) : 0;
    if (n == 1 && num_names == 0)
        return step(self, args[0], Py_None);
    if ((n == 1 && num_names == 1 && PyTuple_GetItem(names, 0) == self->out) ||
        (n == 2 && num_names == 0))
        return step(self, args[0], args[1]);
    PyErr_SetString(PyExc_TypeError, "a stepper takes x and out=: y = s(x), or s(x, out=y)");
    return NULL;
}

static PyObject *stepper_call(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"x", "out", NULL};
    PyObject *x, *out = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O:Stepper", names, &x, &out))
        return NULL;
    return step((stepper_object *)object, x, out);
}

/* -------------------------------------------------------------------------------------- state */

static PyObject *new_state(const stepper_object *self, int64_t width)
{
    npy_intp shape[2] = {(npy_intp)self->num_layers, (npy_intp)width};
    return PyArray_SimpleNew(2, shape, self->type);
}

/* Copy the state to h and c. */
static int copy_state(stepper_object *self, void *h, void *c)
{
    rnl_error err;
    rnl_status status;
    if (!self->gpu) {
        rnl_stepper_get(self->stepper, h, c);
        return 0;
    }
    self->is_busy = 1;
    Py_BEGIN_ALLOW_THREADS
    status = rnl_gpu_stepper_get(self->gpu, h, c, &err);
    Py_END_ALLOW_THREADS
    self->is_busy = 0;
    if (status != RNL_OK)
        raise_status(PyType_GetModuleState(Py_TYPE((PyObject *)self)), &err);
    return status == RNL_OK ? 0 : -1;
}

/* Replace the state by h and c. NULL: zeros. */
static int replace_state(stepper_object *self, const void *h, const void *c)
{
    rnl_error err;
    rnl_status status;
    if (!self->gpu) {
        rnl_stepper_set(self->stepper, h, c);
        return 0;
    }
    self->is_busy = 1;
    Py_BEGIN_ALLOW_THREADS
    status = rnl_gpu_stepper_set(self->gpu, h, c, &err);
    Py_END_ALLOW_THREADS
    self->is_busy = 0;
    if (status != RNL_OK)
        raise_status(PyType_GetModuleState(Py_TYPE((PyObject *)self)), &err);
    return status == RNL_OK ? 0 : -1;
}

static PyObject *get_state(PyObject *object, void *unused)
{
    (void)unused;
    stepper_object *self = (stepper_object *)object;
    if (!is_free(self))
        return NULL;
    PyObject *h = new_state(self, self->state_size);
    PyObject *c = h && self->has_c ? new_state(self, self->hidden_size) : NULL;
    PyObject *state = NULL;
    if (h && (c || !self->has_c) &&
        copy_state(self, PyArray_DATA((PyArrayObject *)h),
                   c ? PyArray_DATA((PyArrayObject *)c) : NULL) == 0)
        state = c ? PyTuple_Pack(2, h, c) : Py_NewRef(h);
    Py_XDECREF(h);
    Py_XDECREF(c);
    return state;
}

static int set_state(PyObject *object, PyObject *value, void *unused)
{
    (void)unused;
    stepper_object *self = (stepper_object *)object;
    if (!is_free(self))
        return -1;
    if (!value) {
        PyErr_SetString(PyExc_AttributeError, "the state cannot be deleted: set it to None");
        return -1;
    }
    if (value == Py_None)
        return replace_state(self, NULL, NULL);
    const int64_t widths[] = {self->state_size, self->hidden_size};
    const void *data[2] = {NULL, NULL};
    PyObject *read = PyObject_CallFunctionObjArgs(self->read, value, NULL);
    int fits = read && PyTuple_CheckExact(read) && PyTuple_Size(read) == 1 + self->has_c;
    for (int k = 0; fits && k < 1 + self->has_c; k++) {
        PyArrayObject *array = (PyArrayObject *)PyTuple_GetItem(read, k);
        fits = is_plain((PyObject *)array, self->type) && PyArray_NDIM(array) == 2 &&
               PyArray_DIM(array, 0) == self->num_layers && PyArray_DIM(array, 1) == widths[k];
        data[k] = fits ? PyArray_DATA(array) : NULL;
    }
    int failed = -1;
    if (fits)
        failed = replace_state(self, data[0], data[1]);
    else if (!PyErr_Occurred())
        PyErr_SetString(PyExc_TypeError, "read() returned arrays that do not fit");
    Py_XDECREF(read);
    return failed;
}

/* -------------------------------------------------------------------------- making and ending */

/* Make the core's stepper of an Rnn or a GpuRnn. */
static int make_core(const native_state *state, stepper_object *self, rnl_dtype dtype)
{
    rnl_error err;
    rnl_status status;
    if (Py_TYPE(self->rnn) == state->rnn_type) {
        status = rnl_stepper_new(rnn_core(self->rnn), dtype, &self->stepper, &err);
    } else {
        Py_BEGIN_ALLOW_THREADS
        status = rnl_gpu_stepper_new(((gpu_rnn_object *)self->rnn)->rnn, &self->gpu, &err);
        Py_END_ALLOW_THREADS
    }
    if (status != RNL_OK)
        raise_status(state, &err);
    return status == RNL_OK ? 0 : -1;
}

static PyObject *stepper_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"rnn", "step", "read", NULL};
    const native_state *state = PyType_GetModuleState(type);
    PyObject *rnn, *step_function, *read;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO:Stepper", names, &rnn, &step_function,
                                     &read))
        return NULL;
    const int on_gpu = Py_TYPE(rnn) == state->gpu_rnn_type;
    if (!on_gpu && Py_TYPE(rnn) != state->rnn_type) {
        PyErr_SetString(PyExc_TypeError, "rnn is no Rnn and no GpuRnn");
        return NULL;
    }
    stepper_object *self = (stepper_object *)object_new(type);
    if (!self)
        return NULL;
    int64_t num_params = 0;
    const rnl_spec *spec = on_gpu ? &((gpu_rnn_object *)rnn)->spec : rnn_facts(rnn, &num_params);
    const rnl_dtype widened = spec->dtype == RNL_FLOAT64 ? RNL_FLOAT64 : RNL_FLOAT32;
    const rnl_dtype dtype = on_gpu ? spec->dtype : widened;
    self->call = stepper_vectorcall;
    self->type = numpy_type_of(dtype);
    self->has_c = rnl_cell_facts_of(spec->cell)->has_c;
    self->input_size = spec->input_size;
    self->hidden_size = spec->hidden_size;
    self->state_size = state_size_of(spec);
    self->num_layers = spec->num_layers;
    self->work = on_gpu ? 2.0 * LONG_WORK : (double)num_params + 1000; /* 1000 for the gates */
    self->rnn = Py_NewRef(rnn);
    self->step = Py_NewRef(step_function);
    self->read = Py_NewRef(read);
    self->out = PyUnicode_InternFromString("out");
    if (!self->out || make_core(state, self, dtype) < 0) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    return (PyObject *)self;
}

static void stepper_dealloc(PyObject *object)
{
    stepper_object *self = (stepper_object *)object;
    rnl_stepper_free(self->stepper);
    Py_BEGIN_ALLOW_THREADS /* waits for the device */
    rnl_gpu_stepper_free(self->gpu);
    Py_END_ALLOW_THREADS
    Py_XDECREF(self->rnn);
    Py_XDECREF(self->step);
    Py_XDECREF(self->read);
    Py_XDECREF(self->out);
    object_free(object);
}

static PyMemberDef stepper_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(stepper_object, call), READONLY, NULL},
    {NULL, 0, 0, 0, NULL}};

static PyGetSetDef stepper_attributes[] = {
    {"state", get_state, set_state,
     "The state after the last step: h, (L, P), or (h, c) for an LSTM, c (L, H); new arrays. Set"
     " the state to continue from there, or to None for zeros.",
     NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot stepper_slots[] = {
    {Py_tp_doc, "A live signal through an RNN, from RNN.stepper(): y = s(x), and s.state.\n"
                "\n"
                "Steps are computed in the order of the calls. A call returns the y of x: (P,) for"
                " x of shape\n(I,), a single step, or (n, P) for (n, I). out: the array for y, or"
                " x itself."},
    {Py_tp_new, stepper_new},
    {Py_tp_dealloc, stepper_dealloc},
    {Py_tp_call, stepper_call},
    {Py_tp_members, stepper_members},
    {Py_tp_getset, stepper_attributes},
    {0, NULL}};

PyType_Spec stepper_type_spec = TYPE_SPEC("rnnlayout.Stepper", stepper_object, HAS_VECTORCALL,
                                          stepper_slots);
