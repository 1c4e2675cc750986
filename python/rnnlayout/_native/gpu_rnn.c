/* The type GpuRnn: an RNN uploaded to a GPU. */
#include "gpu_rnn.h"

#include <numpy/arrayobject.h>
#include <string.h>

/* -------------------------------------------------------------------------- making and ending */

static int read_weights(const native_state *state, gpu_rnn_object *self, const rnl_spec *spec,
                        PyObject *weights, const rnl_gpu_options *options)
{
    rnl_error err;
    rnl_status status = RNL_OK;
    borrowed in = {0};
    self->spec = *spec;
    self->device = options->device;
    self->weights = PyArray_NewCopy((PyArrayObject *)weights, NPY_CORDER);
    const int failed = !self->weights || weights_borrow(state, "cudnn", spec, weights, &in);
    if (!failed) {
        Py_BEGIN_ALLOW_THREADS
        status = rnl_gpu_rnn_new(spec, in.data[0], options, &self->rnn, &err);
        Py_END_ALLOW_THREADS
        if (status != RNL_OK)
            raise_status(state, &err);
    }
    arrays_release(&in);
    return failed || status != RNL_OK ? -1 : 0;
}

static PyObject *gpu_rnn_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"spec", "weights", "device", "tf32", "standard", NULL};
    const native_state *state = PyType_GetModuleState(type);
    PyObject *spec_object, *weights;
    int tf32, standard;
    rnl_spec spec;
    rnl_gpu_options options = {0};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO!ipp:GpuRnn", names, &spec_object,
                                     &PyArray_Type, &weights, &options.device, &tf32, &standard) ||
        spec_from_object(state, spec_object, &spec) < 0)
        return NULL;
    options.math = tf32 ? RNL_GPU_MATH_TF32 : RNL_GPU_MATH_DEFAULT;
    options.algo = standard ? RNL_GPU_STANDARD : RNL_GPU_AUTO;
    gpu_rnn_object *self = (gpu_rnn_object *)object_new(type);
    if (self && read_weights(state, self, &spec, weights, &options) < 0)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static void gpu_rnn_dealloc(PyObject *object)
{
    gpu_rnn_object *self = (gpu_rnn_object *)object;
    Py_BEGIN_ALLOW_THREADS /* waits for the calls of the RNN */
    rnl_gpu_rnn_free(self->rnn);
    Py_END_ALLOW_THREADS
    Py_CLEAR(self->weights);
    object_free(object);
}

static PyObject *gpu_rnn_update(PyObject *object, PyObject *args)
{
    gpu_rnn_object *const self = (gpu_rnn_object *)object;
    const native_state *state = PyType_GetModuleState(Py_TYPE(object));
    PyObject *weights, *number;
    borrowed in = {0};
    rnl_error err;
    rnl_status status = RNL_OK;
    if (!PyArg_ParseTuple(args, "O!O:update", &PyArray_Type, &weights, &number))
        return NULL;
    void *const stream = PyLong_AsVoidPtr(number); /* 1 is the legacy default stream */
    if (PyErr_Occurred())
        return NULL;
    PyObject *copy = PyArray_NewCopy((PyArrayObject *)weights, NPY_CORDER);
    const int failed = !copy || weights_borrow(state, "cudnn", &self->spec, copy, &in);
    if (!failed) {
        Py_BEGIN_ALLOW_THREADS
        status = rnl_gpu_rnn_update(self->rnn, in.data[0], stream == (void *)1 ? NULL : stream,
                                    &err);
        Py_END_ALLOW_THREADS
        if (status != RNL_OK)
            raise_status(state, &err);
    }
    arrays_release(&in);
    if (failed || status != RNL_OK) {
        Py_XDECREF(copy);
        return NULL;
    }
    PyObject *const old = self->weights;
    self->weights = copy;
    Py_DECREF(old);
    Py_RETURN_NONE;
}

static PyObject *gpu_rnn_weights(PyObject *object, PyObject *unused)
{
    (void)unused;
    return Py_NewRef(((gpu_rnn_object *)object)->weights);
}

/* -------------------------------------------------------------------------------------- calls */

/* Return the memory of an argument: None, or a NumPy array that the caller has checked. */
static void *data_of(PyObject *object)
{
    return object == Py_None ? NULL : PyArray_DATA((PyArrayObject *)object);
}

static PyObject *gpu_rnn_run(PyObject *object, PyObject *args)
{
    PyObject *x, *lengths, *h0, *c0, *y, *hn, *cn;
    long long T, N;
    rnl_gpu_call call = {.on_host = 1};
    rnl_error err;
    rnl_status status;
    if (!PyArg_ParseTuple(args, "LLpOOOOOOO:run", &T, &N, &call.batch_first, &x, &lengths, &h0, &c0,
                          &y, &hn, &cn))
        return NULL;
    call.T = T;
    call.N = N;
    call.x = data_of(x);
    call.lengths = data_of(lengths);
    call.h0 = data_of(h0);
    call.c0 = data_of(c0);
    call.y = data_of(y);
    call.hn = data_of(hn);
    call.cn = data_of(cn);
    Py_BEGIN_ALLOW_THREADS
    status = rnl_gpu_rnn_run(((gpu_rnn_object *)object)->rnn, &call, &err);
    Py_END_ALLOW_THREADS
    if (status != RNL_OK)
        return raise_status(PyType_GetModuleState(Py_TYPE(object)), &err);
    Py_RETURN_NONE;
}

static PyMethodDef gpu_rnn_methods[] = {
    {"run", gpu_rnn_run, METH_VARARGS,
     "run($self, T, N, batch_first, x, lengths, h0, c0, y, hn, cn, /)\n--\n\nMake one call on NumPy"
     " arrays that the caller has checked. None: not given."},
    {"call", (PyCFunction)(void (*)(void))gpu_rnn_call, METH_FASTCALL,
     "call($self, x, state, lengths, out, h_out, c_out, axes, stream, empty, home, /)\n--\n\nMake one"
     " call on GPU arrays and return (y, state). Return None if x is not on a GPU or the arguments"
     " are not those of a call, and a list of the arrays' shapes if these or the number of lengths"
     " do not fit. lengths: int64, (N,). empty: a function that makes a new array from its shape, for"
     " outputs and the workspace; None: outputs are DeviceArrays. home: the stream of x's library, if"
     " DLPack does not tell it."},
    {"bind", (PyCFunction)(void (*)(void))gpu_rnn_bind, METH_FASTCALL,
     "bind($self, x, state, lengths, out, h_out, c_out, axes, stream, empty, home, rnn, /)\n--\n\n"
     "Return a BoundCall of an rnnlayout.RNN, which makes this call again and again; or what call()"
     " returns for arguments that do not fit."},
    {"update", gpu_rnn_update, METH_VARARGS,
     "update($self, weights, stream, /)\n--\n\nReplace the weights at the same address, in order"
     " with the calls and with the stream."},
    {"weights", gpu_rnn_weights, METH_NOARGS,
     "weights($self)\n--\n\nReturn the weight space that was uploaded; bfloat16 as uint16."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot gpu_rnn_slots[] = {
    {Py_tp_doc, "GpuRnn(spec, weights, device, tf32, standard)\n--\n\nAn RNN on a GPU. weights:"
                " 1-D, in layout \"cudnn\"; device: its number."},
    {Py_tp_new, gpu_rnn_new},
    {Py_tp_dealloc, gpu_rnn_dealloc},
    {Py_tp_methods, gpu_rnn_methods},
    {0, NULL}};

PyType_Spec gpu_rnn_type_spec = TYPE_SPEC("rnnlayout._native.GpuRnn", gpu_rnn_object, 0,
                                          gpu_rnn_slots);
