/* The type GpuRnn: an RNN uploaded to a GPU. */
#include "gpu_rnn.h"

#include <numpy/arrayobject.h>
#include <string.h>

/* -------------------------------------------------------------------------- making and ending --
 */

static int read_weights(const native_state *state, gpu_rnn_object *self, const rnl_spec *spec,
                        PyObject *weights, const rnl_gpu_options *options)
{
    rnl_error err;
    rnl_status status = RNL_OK;
    borrowed in = {0};
    const int failed = weights_borrow(state, "cudnn", spec, weights, &in);
    if (!failed) {
        self->spec = *spec;
        self->device = options->device;
        self->num_params = PyArray_SIZE((PyArrayObject *)weights);
        Py_BEGIN_ALLOW_THREADS
        status = rnl_gpu_rnn_new(spec, in.data[0], options, &self->rnn, &err);
        Py_END_ALLOW_THREADS
        if (status != RNL_OK)
            raise_status(state, &err);
    }
    arrays_release(&in);
    return failed || status != RNL_OK ? -1 : 0;
}

/* The index of a name in a list that ends with NULL. */
static int choice_of(const char *const *names, const char *name, const char *what)
{
    for (int k = 0; names[k]; k++)
        if (strcmp(names[k], name) == 0)
            return k;
    PyErr_Format(PyExc_TypeError, "%s is '%s': not supported", what, name);
    return -1;
}

static PyObject *gpu_rnn_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"spec", "weights", "device", "math", "algo", NULL};
    static const char *const maths[] = {"default", "tf32", NULL};
    static const char *const algos[] = {"auto", "standard", NULL};
    const native_state *state = PyType_GetModuleState(type);
    PyObject *spec_object, *weights;
    const char *math, *algo;
    rnl_spec spec;
    rnl_gpu_options options = {0};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOiss:GpuRnn", names, &spec_object, &weights,
                                     &options.device, &math, &algo) ||
        spec_from_object(state, spec_object, &spec) < 0)
        return NULL;
    const int m = choice_of(maths, math, "math"), a = m < 0 ? -1 : choice_of(algos, algo, "algo");
    if (a < 0)
        return NULL;
    options.math = (rnl_gpu_math)m;
    options.algo = (rnl_gpu_algo)a;
    gpu_rnn_object *self = (gpu_rnn_object *)object_new(type);
    if (self)
        self->kept = PyDict_New();
    if (self && (!self->kept || read_weights(state, self, &spec, weights, &options) < 0))
        Py_CLEAR(self);
    return (PyObject *)self;
}

static void gpu_rnn_dealloc(PyObject *object)
{
    gpu_rnn_object *self = (gpu_rnn_object *)object;
    Py_BEGIN_ALLOW_THREADS /* freeing waits for its calls */
    rnl_gpu_rnn_free(self->rnn);
    Py_END_ALLOW_THREADS
    Py_CLEAR(self->kept);
    object_free(object);
}

static PyObject *gpu_rnn_weights(PyObject *object, PyObject *unused)
{
    (void)unused;
    gpu_rnn_object *self = (gpu_rnn_object *)object;
    npy_intp nelems = (npy_intp)self->num_params;
    rnl_error err;
    rnl_status status;
    PyObject *array = PyArray_SimpleNew(1, &nelems, numpy_type_of(self->spec.dtype));
    if (!array)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = rnl_gpu_rnn_weights(self->rnn, PyArray_DATA((PyArrayObject *)array), &err);
    Py_END_ALLOW_THREADS
    if (status == RNL_OK)
        return array;
    Py_DECREF(array);
    return raise_status(PyType_GetModuleState(Py_TYPE(object)), &err);
}

/* --------------------------------------------------------------------------------------- calls --
 */

/* The memory of an argument: None, or a NumPy array that the caller has checked. */
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
    long_call meanwhile;
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
    const native_state *state = PyType_GetModuleState(Py_TYPE(object));
    if (long_call_begin(state, LONG_WORK, &meanwhile) < 0)
        return NULL;
    call.poll = meanwhile.poll;
    call.poll_arg = &meanwhile;
    const rnl_status status = rnl_gpu_rnn_run(((gpu_rnn_object *)object)->rnn, &call, &err);
    long_call_end(&meanwhile);
    if (status != RNL_OK)
        return raise_status(state, &err);
    Py_RETURN_NONE;
}

static PyObject *get_kept(PyObject *object, void *unused)
{
    (void)unused;
    return Py_NewRef(((gpu_rnn_object *)object)->kept);
}

static PyGetSetDef gpu_rnn_attributes[] = {
    {"kept", get_kept, NULL, "By stream: objects kept alive until the next call in it.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

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
    {"weights", gpu_rnn_weights, METH_NOARGS,
     "weights($self)\n--\n\nReturn the weight space that was uploaded; bfloat16 as uint16."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot gpu_rnn_slots[] = {
    {Py_tp_doc, "GpuRnn(spec, weights, device, math, algo)\n--\n\nAn RNN on a GPU. weights:"
                " 1-D, in layout \"cudnn\"; device: its number."},
    {Py_tp_new, gpu_rnn_new},
    {Py_tp_dealloc, gpu_rnn_dealloc},
    {Py_tp_methods, gpu_rnn_methods},
    {Py_tp_getset, gpu_rnn_attributes},
    {0, NULL}};

PyType_Spec gpu_rnn_type_spec = {.name = "rnnlayout._native.GpuRnn",
                                 .basicsize = sizeof(gpu_rnn_object),
                                 .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
                                 .slots = gpu_rnn_slots};
