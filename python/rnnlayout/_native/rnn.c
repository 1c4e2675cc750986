/* The type Rnn: an RNN prepared for the CPU, to be run on many arrays. */
#include "call_shapes.h" /* before the system's headers, as Python.h requires */

#include <numpy/arrayobject.h>
#include <string.h>

typedef struct rnn_object {
    PyObject_HEAD
    rnl_rnn *rnn;
    rnl_spec spec;
    int64_t num_params;
    borrowed weights; /* only of an Rnn that borrows */
} rnn_object;

/* -------------------------------------------------------------------------- making and ending */

static int prepare(rnn_object *self, const native_state *state, PyObject *weights,
                   const rnl_rnn_options *options)
{
    rnl_error err;
    long_call meanwhile;
    borrowed *const in = &self->weights;
    int failed = weights_borrow(state, RNL_FORWARD_LAYOUT, &self->spec, weights, in);
    if (!failed)
        failed = long_call_begin(state, (double)in->nbytes, &meanwhile);
    if (!failed) {
        self->num_params = PyArray_SIZE((PyArrayObject *)weights);
        failed = rnl_rnn_new(&self->spec, in->data[0], options, &self->rnn, &err) != RNL_OK;
        long_call_end(&meanwhile);
        if (failed)
            raise_status(state, &err);
    }
    if (!options->borrows)
        arrays_release(in);
    return failed ? -1 : 0;
}

/* Return the rnl_cpu_math of a name, or -1 with an exception. */
static int math_of(const char *name)
{
    static const char *const names[] = {[RNL_CPU_MATH_DEFAULT] = "default",
                                        [RNL_CPU_MATH_BFLOAT16] = "bfloat16",
                                        [RNL_CPU_MATH_INT8] = "int8"};
    for (int k = 0; k < (int)(sizeof names / sizeof *names); k++)
        if (strcmp(names[k], name) == 0)
            return k;
    PyErr_Format(PyExc_TypeError, "math is '%s': not supported", name);
    return -1;
}

static PyObject *rnn_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"spec", "weights", "clip", "math", "borrows", NULL};
    const native_state *state = PyType_GetModuleState(type);
    PyObject *spec_object, *weights, *clip = Py_None;
    rnl_spec spec;
    const char *math = "default";
    rnl_rnn_options options = {0};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|Osp:Rnn", names, &spec_object, &weights,
                                     &clip, &math, &options.borrows) ||
        spec_from_object(state, spec_object, &spec) < 0 ||
        clip_from_object(clip, &options.clips, &options.clip_low, &options.clip_high) < 0)
        return NULL;
    const int number = math_of(math);
    if (number < 0)
        return NULL;
    options.math = (rnl_cpu_math)number;
    rnn_object *self = (rnn_object *)object_new(type);
    if (!self)
        return NULL;
    self->spec = spec;
    if (prepare(self, state, weights, &options) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void rnn_dealloc(PyObject *object)
{
    rnn_object *self = (rnn_object *)object;
    rnl_rnn_free(self->rnn);
    arrays_release(&self->weights);
    object_free(object);
}

static PyObject *rnn_weights(PyObject *object, PyObject *unused)
{
    (void)unused;
    rnn_object *self = (rnn_object *)object;
    npy_intp nelems = (npy_intp)self->num_params;
    PyObject *array = PyArray_SimpleNew(1, &nelems, numpy_type_of(self->spec.dtype));
    if (!array)
        return NULL;
    void *const into = PyArray_DATA((PyArrayObject *)array);
    const borrowed *const callers = &self->weights; /* with weights only in an Rnn that borrows */
    Py_BEGIN_ALLOW_THREADS
    if (callers->data)
        memcpy(into, callers->data[0], (size_t)PyArray_NBYTES((PyArrayObject *)array));
    else
        rnl_rnn_weights(self->rnn, into);
    Py_END_ALLOW_THREADS
    return array;
}

/* --------------------------------------------------------------------------- arrays of a call */

typedef struct rnn_call {
    PyArrayObject *arrays[NUM_CALL_ARRAYS], *lengths, *mask; /* NULL: no array */
    PyObject *new_arrays[NUM_CALL_ARRAYS],
        *new_lengths; /* made by the call: references to release */
    int axes, type;
    call_shapes shapes;
    rnl_rnn_call core;
} rnn_call;

/* Does the array have this type and a form that the core can read? */
static int is_plain(PyArrayObject *array, int type)
{
    return PyArray_CheckExact((PyObject *)array) && PyArray_TYPE(array) == type &&
           PyArray_ISNOTSWAPPED(array) && PyArray_ISALIGNED(array);
}

static void *data_of(PyArrayObject *array)
{
    return array ? PyArray_DATA(array) : NULL;
}

/* Get the elements between neighbours along an axis; -1: not a whole number of elements. */
static int stride_of(PyArrayObject *array, int axis, int64_t *stride)
{
    *stride = 0;
    if (axis < 0 || PyArray_DIM(array, axis) <= 1)
        return 0;
    const npy_intp nbytes = PyArray_STRIDE(array, axis), itemsize = PyArray_ITEMSIZE(array);
    *stride = nbytes / itemsize;
    return nbytes % itemsize ? -1 : 0;
}

/* Get the elements from time to time and from sequence to sequence, in x or y; -1: the core cannot
 * read such rows. */
static int find_strides(PyArrayObject *array, const call_shapes *shapes, int64_t *time,
                        int64_t *batch)
{
    const int last = PyArray_NDIM(array) - 1;
    int64_t last_stride;
    if (stride_of(array, last, &last_stride) < 0 || stride_of(array, shapes->time_axis, time) < 0 ||
        stride_of(array, shapes->batch_axis, batch) < 0)
        return -1;
    return PyArray_DIM(array, last) > 1 && last_stride != 1 && PyArray_SIZE(array) > 0 ? -1 : 0;
}

/* Get a shape. 0: too many dimensions for an array of a call. */
static int shape_of(PyArrayObject *array, array_shape *shape)
{
    shape->ndim = PyArray_NDIM(array);
    for (int d = 0; d < MAX_DIMS; d++)
        shape->sizes[d] = d < shape->ndim ? PyArray_DIM(array, d) : 0;
    return shape->ndim <= MAX_DIMS;
}

/* Does array k have the type, the shape and the form of the call? The strides of y are free, see
 * find_strides(). An array that the call has made fits. */
static int fits(const rnn_call *call, int k)
{
    PyArrayObject *const array = call->arrays[k];
    const array_shape *const shape = &call->shapes.of[k];
    if (!array || call->new_arrays[k])
        return 1;
    int equal = is_plain(array, call->type) && PyArray_NDIM(array) == shape->ndim;
    for (int d = 0; equal && d < shape->ndim; d++)
        equal = PyArray_DIM(array, d) == shape->sizes[d];
    return equal && (k == Y || PyArray_IS_C_CONTIGUOUS(array)) &&
           (k < Y || PyArray_ISWRITEABLE(array));
}

/* Find the dtype of x: 0; -1: the weights do not support this dtype. Only the Python path passes
 * bfloat16: a user's uint16 array contains integers. */
static int find_dtype(const rnn_object *self, PyArrayObject *x, int checked, rnn_call *call)
{
    const rnl_dtype weights = self->spec.dtype;
    if (!PyArray_CheckExact((PyObject *)x))
        return -1;
    call->type = PyArray_TYPE(x);
    call->core.dtype = weights;
    if (call->type == numpy_type_of(weights))
        return weights == RNL_BFLOAT16 && !checked ? -1 : 0;
    call->core.dtype = RNL_FLOAT32;
    return call->type == NPY_FLOAT && rnl_dtype_nbytes(weights) < rnl_dtype_nbytes(RNL_FLOAT32)
               ? 0
               : -1;
}

/* Does a mask, of bools of any strides, have the shape of x without the last axis? */
static int fits_mask(rnn_call *call, const array_shape *x)
{
    PyArrayObject *const mask = call->mask;
    if (!mask)
        return 1;
    int equal = is_plain(mask, NPY_BOOL) && PyArray_NDIM(mask) == x->ndim - 1 && !call->lengths;
    for (int d = 0; equal && d < x->ndim - 1 && d < MAX_DIMS; d++)
        equal = PyArray_DIM(mask, d) == x->sizes[d];
    return equal && stride_of(mask, call->shapes.time_axis, &call->core.mask_time) == 0 &&
           stride_of(mask, call->shapes.batch_axis, &call->core.mask_batch) == 0;
}

static int fits_input(const rnn_object *self, int checked, rnn_call *call)
{
    PyArrayObject *const x = call->arrays[X], *const lengths = call->lengths;
    rnl_rnn_call *core = &call->core;
    array_shape shape;
    if (find_dtype(self, x, checked, call) < 0 || !is_plain(x, call->type) ||
        !shape_of(x, &shape) || !call_shapes_find(&self->spec, call->axes, &shape, &call->shapes) ||
        find_strides(x, &call->shapes, &core->x_time, &core->x_batch) < 0)
        return 0;
    core->T = call->shapes.T;
    core->N = call->shapes.N;
    if (lengths && !(call->shapes.batch_axis >= 0 && is_plain(lengths, NPY_INT64) &&
                     PyArray_NDIM(lengths) == 1 && PyArray_IS_C_CONTIGUOUS(lengths) &&
                     PyArray_DIM(lengths, 0) == core->N))
        return 0;
    return fits_mask(call, &shape) && fits(call, H0) && fits(call, C0);
}

/* Are the rows of y apart? The stride of the outer axis must be at least the extent of the inner
 * axis. */
static int is_apart(const rnl_rnn_call *core, int64_t width)
{
    int64_t inner = core->y_batch, n_inner = core->N, outer = core->y_time, n_outer = core->T;
    if (core->T == 0 || core->N == 0)
        return 1;
    inner = inner < 0 ? -inner : inner;
    outer = outer < 0 ? -outer : outer;
    if (n_inner > 1 && n_outer > 1 && inner > outer) {
        const int64_t stride = inner, n = n_inner;
        inner = outer, n_inner = n_outer;
        outer = stride, n_outer = n;
    }
    if (n_inner > 1 && inner < width)
        return 0;
    const int64_t extent = n_inner > 1 ? (n_inner - 1) * inner + width : width;
    return n_outer == 1 || outer >= extent;
}

static int fits_output(rnn_call *call)
{
    PyArrayObject *const y = call->arrays[Y];
    rnl_rnn_call *core = &call->core;
    return fits(call, Y) && find_strides(y, &call->shapes, &core->y_time, &core->y_batch) == 0 &&
           is_apart(core, PyArray_DIM(y, PyArray_NDIM(y) - 1)) && fits(call, HN) && fits(call, CN);
}

/* May an output of the caller overlap another array? A new state may be written over the old state,
 * and the output of a step over the input. */
static int may_overlap(const rnn_call *call)
{
    const rnl_rnn_call *core = &call->core;
    span bytes[NUM_CALL_ARRAYS];
    for (int k = 0; k < NUM_CALL_ARRAYS; k++)
        bytes[k] = span_of((PyObject *)call->arrays[k]);
    for (int k = Y; k <= CN; k++)
        for (int j = X; j < k; j++) {
            const int may_be_same = j == k - Y && (k != Y || (call->axes == STEP &&
                                                              core->y_batch == core->x_batch));
            if (spans_meet(bytes[k], bytes[j]) &&
                !(may_be_same && data_of(call->arrays[k]) == data_of(call->arrays[j])))
                return 1;
        }
    return 0;
}

/* -------------------------------------------------------------------------------------- calls */

/* Copy the lengths: the core first checks and later uses the lengths, and meanwhile another thread
 * may change the caller's array. */
static int copy_lengths(rnn_call *call)
{
    if (!call->lengths)
        return 0;
    call->new_lengths = PyArray_NewCopy(call->lengths, NPY_CORDER);
    call->lengths = (PyArrayObject *)call->new_lengths;
    return call->lengths ? 0 : -1;
}

/* Make the outputs that the caller does not pass. */
static int make_outputs(const rnn_object *self, rnn_call *call)
{
    for (int k = Y; k <= CN; k++) {
        if (call->arrays[k] || (k == CN && !rnl_cell_facts_of(self->spec.cell)->has_c))
            continue;
        const array_shape *const shape = &call->shapes.of[k];
        npy_intp sizes[MAX_DIMS];
        for (int d = 0; d < shape->ndim; d++)
            sizes[d] = (npy_intp)shape->sizes[d];
        call->new_arrays[k] = PyArray_SimpleNew(shape->ndim, sizes, call->type);
        call->arrays[k] = (PyArrayObject *)call->new_arrays[k];
        if (!call->arrays[k])
            return -1;
    }
    return 0;
}

/* Run a copy of the core's call, so that a bound call may run in several threads. 0, or -1. */
static int run(const native_state *state, const rnn_object *self, rnl_rnn_call core)
{
    rnl_error err;
    long_call meanwhile;
    if (long_call_begin(state, rnn_work(self->num_params, core.T, core.N), &meanwhile) < 0)
        return -1;
    core.poll = meanwhile.poll;
    core.poll_arg = &meanwhile;
    const rnl_status status = rnl_rnn_run(self->rnn, &core, &err);
    long_call_end(&meanwhile);
    if (status != RNL_OK)
        raise_status(state, &err);
    return status == RNL_OK ? 0 : -1;
}

/* 1: ready to run; 0: an array does not fit; -1: an exception is set. */
static int prepare_call(const rnn_object *self, rnn_call *call, int checked)
{
    PyArrayObject *const *const arrays = call->arrays;
    rnl_rnn_call *core = &call->core;
    const int has_output = arrays[Y] || arrays[HN] || arrays[CN];
    if ((call->axes == STEP && self->spec.bidirectional) || !fits_input(self, checked, call))
        return 0;
    if (copy_lengths(call) < 0 || make_outputs(self, call) < 0)
        return -1;
    if (!fits_output(call))
        return 0;
    core->x = data_of(arrays[X]);
    core->lengths = data_of(call->lengths);
    core->mask = data_of(call->mask);
    core->h0 = data_of(arrays[H0]);
    core->c0 = data_of(arrays[C0]);
    core->y = data_of(arrays[Y]);
    core->hn = data_of(arrays[HN]);
    core->cn = data_of(arrays[CN]);
    return checked || !has_output || !may_overlap(call);
}

/* Is the argument an array or None? The Python path converts or refuses everything else. */
static int array_of(PyObject *object, PyArrayObject **array)
{
    *array = object == Py_None ? NULL : (PyArrayObject *)object;
    return object == Py_None || PyArray_CheckExact(object);
}

static int states_of(const rnn_object *self, PyObject *state, PyArrayObject **arrays)
{
    if (!rnl_cell_facts_of(self->spec.cell)->has_c || state == Py_None)
        return array_of(state, &arrays[H0]);
    return PyTuple_CheckExact(state) && PyTuple_Size(state) == 2 &&
           array_of(PyTuple_GetItem(state, 0), &arrays[H0]) &&
           array_of(PyTuple_GetItem(state, 1), &arrays[C0]) && arrays[H0] && arrays[C0];
}

enum {
    ARG_X,
    ARG_STATE,
    ARG_LENGTHS,
    ARG_MASK,
    ARG_OUT,
    ARG_H_OUT,
    ARG_C_OUT,
    ARG_AXES,
    ARG_REPEATS_MASKED,
    NUM_ARGS
};

/* Read the arguments of a call and make it ready: 1; 0: an array does not fit; -1: an exception is
 * set. checked: see run(). */
static int read_call(const rnn_object *self, PyObject *const *args, int checked, rnn_call *call)
{
    const long axes = PyLong_AsLong(args[ARG_AXES]);
    call->axes = (int)axes;
    call->core.repeats_masked = PyObject_IsTrue(args[ARG_REPEATS_MASKED]);
    if (PyErr_Occurred())
        return -1;
    const int fits = axes >= STEP && axes < NUM_AXES && array_of(args[ARG_X], &call->arrays[X]) &&
                     call->arrays[X] && states_of(self, args[ARG_STATE], call->arrays) &&
                     array_of(args[ARG_LENGTHS], &call->lengths) &&
                     array_of(args[ARG_MASK], &call->mask) &&
                     array_of(args[ARG_OUT], &call->arrays[Y]) &&
                     array_of(args[ARG_H_OUT], &call->arrays[HN]) &&
                     array_of(args[ARG_C_OUT], &call->arrays[CN]) &&
                     (rnl_cell_facts_of(self->spec.cell)->has_c || !call->arrays[CN]);
    const int ready = fits ? prepare_call(self, call, checked) : 0;
    if (ready == 0 && checked)
        PyErr_SetString(PyExc_TypeError,
                        "an array does not have the type or shape that the core needs");
    return ready == 0 && checked ? -1 : ready;
}

/* Release what the call has made. */
static void end(rnn_call *call)
{
    for (int k = 0; k < NUM_CALL_ARRAYS; k++)
        Py_XDECREF(call->new_arrays[k]);
    Py_XDECREF(call->new_lengths);
}

static PyObject *rnn_run(PyObject *object, PyObject *const *args, Py_ssize_t n)
{
    const rnn_object *const self = (rnn_object *)object;
    PyObject *result = NULL;
    rnn_call call = {0};
    if (n != NUM_ARGS + 1)
        return PyErr_Format(PyExc_TypeError, "run() takes %d arguments, got %zd", NUM_ARGS + 1, n);
    const int ready = read_call(self, args, PyObject_IsTrue(args[NUM_ARGS]), &call);
    if (ready == 0)
        result = Py_NewRef(Py_None);
    else if (ready > 0 && run(PyType_GetModuleState(Py_TYPE(object)), self, call.core) == 0)
        result = result_to_tuple((PyObject *)call.arrays[Y], (PyObject *)call.arrays[HN],
                                 (PyObject *)call.arrays[CN]);
    end(&call);
    return result;
}

/* --------------------------------------------------------------------------------- bound calls */

typedef struct bound_run {
    rnn_call call;
    PyObject *arguments; /* a tuple that keeps the arrays alive */
} bound_run;

static int bound_run_run(const native_state *state, PyObject *native, void *bound)
{
    return run(state, (rnn_object *)native, ((bound_run *)bound)->call.core);
}

static void bound_run_end(void *bound)
{
    end(&((bound_run *)bound)->call);
    Py_XDECREF(((bound_run *)bound)->arguments);
    PyMem_Free(bound);
}

static PyObject *rnn_bind(PyObject *object, PyObject *args)
{
    static const bound_kind kind = {bound_run_run, bound_run_end};
    PyObject *all[NUM_ARGS + 2]; /* the arguments of a call, then rnn and result */
    if (PyTuple_Size(args) != NUM_ARGS + 2)
        return PyErr_Format(PyExc_TypeError, "bind() takes %d arguments, got %zd", NUM_ARGS + 2,
                            PyTuple_Size(args));
    for (int k = 0; k < NUM_ARGS + 2; k++)
        all[k] = PyTuple_GetItem(args, k);
    bound_run *const bound = PyMem_Calloc(1, sizeof *bound);
    if (!bound)
        return PyErr_NoMemory();
    bound->arguments = Py_NewRef(args);
    if (read_call((rnn_object *)object, all, 1, &bound->call) < 0) {
        bound_run_end(bound);
        return NULL;
    }
    return bound_call_new(PyType_GetModuleState(Py_TYPE(object)), &kind, bound, all[NUM_ARGS],
                          all[NUM_ARGS + 1]);
}

rnl_rnn *rnn_core(PyObject *rnn)
{
    return ((rnn_object *)rnn)->rnn;
}

const rnl_spec *rnn_facts(PyObject *rnn, int64_t *num_params)
{
    *num_params = ((rnn_object *)rnn)->num_params;
    return &((rnn_object *)rnn)->spec;
}

static PyMethodDef rnn_methods[] = {
    {"run", (PyCFunction)(void (*)(void))rnn_run, METH_FASTCALL,
     "run($self, x, state, lengths, mask, out, h_out, c_out, axes, repeats_masked, checked, /)"
     "\n--\n\n"
     "Make one call and return (y, state). axes: STEP, TIME_FIRST, BATCH_FIRST. Return None,"
     " without a call, if an argument does not fit or arrays may overlap. checked: the caller has"
     " checked overlaps, bfloat16 is passed as uint16, and an argument that does not fit is a"
     " TypeError."},
    {"bind", rnn_bind, METH_VARARGS,
     "bind($self, x, state, lengths, mask, out, h_out, c_out, axes, repeats_masked, rnn, result, /)"
     "\n--\n\n"
     "Return a BoundCall of an rnnlayout.RNN, whose arrays the caller has checked: each call runs the"
     " RNN and returns result."},
    {"weights", rnn_weights, METH_NOARGS,
     "weights($self)\n--\n\nReturn the weight space of the RNN; bfloat16 as uint16,"
     " with math int8 the rounded weights."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot rnn_slots[] = {
    {Py_tp_doc,
     "Rnn(spec, weights, clip=None, math='default', borrows=False)\n--\n\nAn RNN"
     " prepared for the CPU. weights: 1-D, in RNL_FORWARD_LAYOUT; clip: (low, high); math:"
     " \"default\", \"bfloat16\" or \"int8\"; borrows: as in rnl_rnn_options."},
    {Py_tp_new, rnn_new},
    {Py_tp_dealloc, rnn_dealloc},
    {Py_tp_methods, rnn_methods},
    {0, NULL}};

PyType_Spec rnn_type_spec = TYPE_SPEC("rnnlayout._native.Rnn", rnn_object, 0, rnn_slots);
