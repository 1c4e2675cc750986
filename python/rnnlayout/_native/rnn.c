/* The type Rnn: an RNN prepared for the CPU, to be run on many arrays. */
#include "native.h"

#include <numpy/arrayobject.h>
#include <string.h>

typedef struct rnn_object {
    PyObject_HEAD
    rnl_rnn *rnn;
    rnl_spec spec;
    int64_t states, state_size, output_size; /* L * D, P', D * P' */
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
    const int64_t directions = spec.bidirectional ? 2 : 1;
    self->spec = spec;
    self->states = spec.num_layers * directions;
    self->state_size = spec.proj_size ? spec.proj_size : spec.hidden_size;
    self->output_size = directions * self->state_size;
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

/* The arrays that a call reads and writes; NULL: no array. */
typedef struct call_arrays {
    PyArrayObject *x, *h0, *c0, *lengths, *y, *hn, *cn;
} call_arrays;

enum { NEW_Y, NEW_HN, NEW_CN, NEW_LENGTHS, NUM_NEW };

typedef struct rnn_call {
    call_arrays arrays;
    PyObject *new_arrays[NUM_NEW]; /* arrays that the call makes: references to release */
    int axes, batched, type;
    rnl_rnn_call core;
} rnn_call;

/* Does the array have this type and a form that the core can read? */
static int is_plain(PyArrayObject *array, int type)
{
    return PyArray_CheckExact((PyObject *)array) && PyArray_TYPE(array) == type &&
           PyArray_ISNOTSWAPPED(array) && PyArray_ISALIGNED(array);
}

/* Get the elements between neighbours along an axis; -1: not a whole number of elements. */
static int stride_of(PyArrayObject *array, int axis, int64_t *stride)
{
    const npy_intp nbytes = PyArray_STRIDE(array, axis), itemsize = PyArray_ITEMSIZE(array);
    *stride = PyArray_DIM(array, axis) > 1 ? nbytes / itemsize : 0;
    return PyArray_DIM(array, axis) > 1 && nbytes % itemsize ? -1 : 0;
}

/* Read x or y as rows of `width` elements per time and sequence: 0; -1: the array does not fit. */
static int find_rows(PyArrayObject *array, const rnn_call *call, int64_t width, int64_t *T,
                     int64_t *N, int64_t *time, int64_t *batch)
{
    const int last = call->batched + (call->axes != STEP);
    const int time_axis = call->batched && call->axes == BATCH_FIRST;
    const int batch_axis = call->axes == TIME_FIRST;
    int64_t last_stride;
    *T = *N = 1;
    *time = *batch = 0;
    if (!is_plain(array, call->type) || PyArray_NDIM(array) != last + 1 ||
        PyArray_DIM(array, last) != width || stride_of(array, last, &last_stride) < 0 ||
        (width > 1 && last_stride != 1 && PyArray_SIZE(array) > 0))
        return -1;
    if (call->axes != STEP) {
        *T = PyArray_DIM(array, time_axis);
        if (stride_of(array, time_axis, time) < 0)
            return -1;
    }
    if (call->batched) {
        *N = PyArray_DIM(array, batch_axis);
        if (stride_of(array, batch_axis, batch) < 0)
            return -1;
    }
    return 0;
}

static int is_state(const rnn_object *self, const rnn_call *call, PyArrayObject *array,
                    int64_t width)
{
    return is_plain(array, call->type) && PyArray_IS_C_CONTIGUOUS(array) &&
           PyArray_NDIM(array) == 2 + call->batched && PyArray_DIM(array, 0) == self->states &&
           (!call->batched || PyArray_DIM(array, 1) == call->core.N) &&
           PyArray_DIM(array, 1 + call->batched) == width;
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

static int fits_input(const rnn_object *self, int checked, rnn_call *call)
{
    const call_arrays *a = &call->arrays;
    rnl_rnn_call *core = &call->core;
    if (find_dtype(self, a->x, checked, call) < 0)
        return 0;
    call->batched = PyArray_NDIM(a->x) == 2 + (call->axes != STEP);
    if (find_rows(a->x, call, self->spec.input_size, &core->T, &core->N, &core->x_time,
                  &core->x_batch) < 0)
        return 0;
    if (a->lengths &&
        !(call->batched && is_plain(a->lengths, NPY_INT64) && PyArray_NDIM(a->lengths) == 1 &&
          PyArray_IS_C_CONTIGUOUS(a->lengths) && PyArray_DIM(a->lengths, 0) == core->N))
        return 0;
    return (!a->h0 || is_state(self, call, a->h0, self->state_size)) &&
           (!a->c0 || is_state(self, call, a->c0, self->spec.hidden_size));
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
    const int64_t span = n_inner > 1 ? (n_inner - 1) * inner + width : width;
    return n_outer == 1 || outer >= span;
}

static int fits_output(const rnn_object *self, rnn_call *call)
{
    const call_arrays *a = &call->arrays;
    rnl_rnn_call *core = &call->core;
    int64_t T, N;
    if (find_rows(a->y, call, self->output_size, &T, &N, &core->y_time, &core->y_batch) < 0 ||
        T != core->T || N != core->N || !PyArray_ISWRITEABLE(a->y) ||
        !is_apart(core, self->output_size))
        return 0;
    if (!is_state(self, call, a->hn, self->state_size) || !PyArray_ISWRITEABLE(a->hn))
        return 0;
    return !a->cn ||
           (is_state(self, call, a->cn, self->spec.hidden_size) && PyArray_ISWRITEABLE(a->cn));
}

/* ----------------------------------------------------------------------------------- overlaps */

typedef struct span {
    const char *from, *to; /* all bytes of an array are in [from, to) */
} span;

static span span_of(PyArrayObject *array)
{
    span s = {PyArray_BYTES(array), PyArray_BYTES(array) + PyArray_ITEMSIZE(array)};
    for (int axis = 0; axis < PyArray_NDIM(array); axis++) {
        const npy_intp n = PyArray_DIM(array, axis), stride = PyArray_STRIDE(array, axis);
        if (n == 0)
            return (span){0};
        if (stride < 0)
            s.from += (n - 1) * stride;
        else
            s.to += (n - 1) * stride;
    }
    return s;
}

static int may_meet(PyArrayObject *a, PyArrayObject *b)
{
    if (!a || !b)
        return 0;
    const span x = span_of(a), y = span_of(b);
    return x.from < y.to && y.from < x.to;
}

/* May an output of the caller overlap another array? A new state may be written over the old state,
 * and the output of a step over the input. */
static int may_overlap(const rnn_call *call)
{
    const call_arrays *a = &call->arrays;
    const rnl_rnn_call *core = &call->core;
    PyArrayObject *const out[] = {a->y, a->hn, a->cn}, *const in[] = {a->x, a->h0, a->c0};
    const int same[] = {call->axes == STEP && core->y == core->x && core->y_batch == core->x_batch,
                        core->hn == core->h0, core->cn == core->c0};
    for (int k = 0; k < 3; k++)
        for (int j = 0; j < 3; j++)
            if ((j < k && may_meet(out[k], out[j])) ||
                (!(j == k && same[k]) && may_meet(out[k], in[j])))
                return 1;
    return 0;
}

/* -------------------------------------------------------------------------------------- calls */

/* Make an array, unless the caller has passed an array. */
static int make(PyArrayObject **array, PyObject **new_array, int ndim, npy_intp *shape, int type)
{
    if (*array)
        return 0;
    *new_array = PyArray_SimpleNew(ndim, shape, type);
    *array = (PyArrayObject *)*new_array;
    return *new_array ? 0 : -1;
}

/* Copy the lengths: the core first checks and later uses the lengths, and meanwhile another thread
 * may change the caller's array. */
static int copy_lengths(rnn_call *call)
{
    call_arrays *arrays = &call->arrays;
    if (!arrays->lengths)
        return 0;
    call->new_arrays[NEW_LENGTHS] = PyArray_NewCopy(arrays->lengths, NPY_CORDER);
    arrays->lengths = (PyArrayObject *)call->new_arrays[NEW_LENGTHS];
    return arrays->lengths ? 0 : -1;
}

/* Make the outputs that the caller does not pass. */
static int make_outputs(const rnn_object *self, rnn_call *call)
{
    const rnl_rnn_call *core = &call->core;
    npy_intp y[3], h[3] = {self->states, core->N, self->state_size};
    npy_intp c[3] = {self->states, core->N, self->spec.hidden_size};
    int ndim = 0;
    if (call->batched && call->axes != TIME_FIRST)
        y[ndim++] = core->N;
    if (call->axes != STEP)
        y[ndim++] = core->T;
    if (call->batched && call->axes == TIME_FIRST)
        y[ndim++] = core->N;
    y[ndim++] = self->output_size;
    if (!call->batched) {
        h[1] = h[2];
        c[1] = c[2];
    }
    call_arrays *arrays = &call->arrays;
    if (make(&arrays->y, &call->new_arrays[NEW_Y], ndim, y, call->type) < 0 ||
        make(&arrays->hn, &call->new_arrays[NEW_HN], 2 + call->batched, h, call->type) < 0)
        return -1;
    return rnl_cell_facts_of(self->spec.cell)->has_c
               ? make(&arrays->cn, &call->new_arrays[NEW_CN], 2 + call->batched, c, call->type)
               : 0;
}

/* Return the number of multiply-adds: a weight counts once per step and sequence, and the gates of
 * a step as about a thousand. */
static double work_of(const rnn_object *self, const rnl_rnn_call *core)
{
    return ((double)self->num_params + 1000) * (double)core->T * (double)core->N;
}

static PyObject *run(const native_state *state, rnn_object *self, rnn_call *call)
{
    const call_arrays *a = &call->arrays;
    rnl_rnn_call *const core = &call->core;
    rnl_error err;
    long_call meanwhile;
    if (long_call_begin(state, work_of(self, core), &meanwhile) < 0)
        return NULL;
    core->poll = meanwhile.poll;
    core->poll_arg = &meanwhile;
    const rnl_status status = rnl_rnn_run(self->rnn, core, &err);
    long_call_end(&meanwhile);
    return status == RNL_OK
               ? result_to_tuple((PyObject *)a->y, (PyObject *)a->hn, (PyObject *)a->cn)
               : raise_status(state, &err);
}

static void *data_of(PyArrayObject *array)
{
    return array ? PyArray_DATA(array) : NULL;
}

/* 1: ready to run; 0: an array does not fit; -1: an exception is set. */
static int prepare_call(const rnn_object *self, rnn_call *call, int checked)
{
    call_arrays *a = &call->arrays;
    rnl_rnn_call *core = &call->core;
    const int has_output = a->y || a->hn || a->cn;
    if ((call->axes == STEP && self->spec.bidirectional) || !fits_input(self, checked, call))
        return 0;
    if (copy_lengths(call) < 0 || make_outputs(self, call) < 0)
        return -1;
    if (!fits_output(self, call))
        return 0;
    core->x = data_of(a->x);
    core->lengths = data_of(a->lengths);
    core->h0 = data_of(a->h0);
    core->c0 = data_of(a->c0);
    core->y = data_of(a->y);
    core->hn = data_of(a->hn);
    core->cn = data_of(a->cn);
    return checked || !has_output || !may_overlap(call);
}

/* Is the argument an array or None? The Python path converts or refuses everything else. */
static int array_of(PyObject *object, PyArrayObject **array)
{
    *array = object == Py_None ? NULL : (PyArrayObject *)object;
    return object == Py_None || PyArray_CheckExact(object);
}

static int states_of(const rnn_object *self, PyObject *state, call_arrays *a)
{
    if (!rnl_cell_facts_of(self->spec.cell)->has_c || state == Py_None)
        return array_of(state, &a->h0);
    return PyTuple_CheckExact(state) && PyTuple_Size(state) == 2 &&
           array_of(PyTuple_GetItem(state, 0), &a->h0) &&
           array_of(PyTuple_GetItem(state, 1), &a->c0) && a->h0 && a->c0;
}

static PyObject *rnn_run(PyObject *object, PyObject *const *args, Py_ssize_t n)
{
    rnn_object *self = (rnn_object *)object;
    PyObject *result = NULL;
    if (n != 8) {
        PyErr_Format(PyExc_TypeError, "run() takes 8 arguments, got %zd", n);
        return NULL;
    }
    const long axes = PyLong_AsLong(args[6]);
    const int checked = PyObject_IsTrue(args[7]);
    if (PyErr_Occurred())
        return NULL;
    rnn_call call = {.axes = (int)axes};
    int ready = axes >= STEP && axes < NUM_AXES && array_of(args[0], &call.arrays.x) &&
                call.arrays.x && states_of(self, args[1], &call.arrays) &&
                array_of(args[2], &call.arrays.lengths) && array_of(args[3], &call.arrays.y) &&
                array_of(args[4], &call.arrays.hn) && array_of(args[5], &call.arrays.cn) &&
                (rnl_cell_facts_of(self->spec.cell)->has_c || !call.arrays.cn);
    if (ready)
        ready = prepare_call(self, &call, checked);
    if (ready > 0)
        result = run(PyType_GetModuleState(Py_TYPE(object)), self, &call);
    else if (ready == 0 && checked)
        PyErr_SetString(PyExc_TypeError,
                        "run(): an array does not have the type or shape that the core needs");
    else if (ready == 0)
        result = Py_NewRef(Py_None);
    for (int k = 0; k < NUM_NEW; k++)
        Py_XDECREF(call.new_arrays[k]);
    return result;
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
     "run($self, x, state, lengths, out, h_out, c_out, axes, checked, /)\n--\n\n"
     "Make one call and return (y, state). axes: STEP, TIME_FIRST, BATCH_FIRST. Return None,"
     " without a call, if an argument does not fit or arrays may overlap. checked: the caller has"
     " checked overlaps, bfloat16 is passed as uint16, and an argument that does not fit is a"
     " TypeError."},
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
