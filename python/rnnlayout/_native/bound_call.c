/* The type BoundCall: a call of an RNN whose arrays are fixed. */
#include "native.h"

typedef struct bound_call_object {
    PyObject_HEAD
    PyObject *rnn, *result;
    void *call;
    const bound_kind *kind;
} bound_call_object;

PyObject *bound_call_new(const native_state *state, const bound_kind *kind, void *call,
                         PyObject *rnn, PyObject *result)
{
    bound_call_object *const self = (bound_call_object *)object_new(state->bound_call_type);
    if (!self) {
        kind->end(call);
        return NULL;
    }
    self->rnn = Py_NewRef(rnn);
    self->result = Py_NewRef(result);
    self->call = call;
    self->kind = kind;
    return (PyObject *)self;
}

static void bound_call_dealloc(PyObject *object)
{
    bound_call_object *const self = (bound_call_object *)object;
    self->kind->end(self->call);
    Py_CLEAR(self->rnn);
    Py_CLEAR(self->result);
    object_free(object);
}

/* Run with the weights that the RNN has now: an update replaces the prepared RNN. */
static PyObject *bound_call_run(PyObject *object, PyObject *args, PyObject *kwargs)
{
    bound_call_object *const self = (bound_call_object *)object;
    const native_state *state = PyType_GetModuleState(Py_TYPE(object));
    if (PyTuple_Size(args) || (kwargs && PyDict_Size(kwargs))) {
        PyErr_SetString(PyExc_TypeError,
                        "a bound call takes no arguments: write into the arrays that are bound");
        return NULL;
    }
    PyObject *const native = PyObject_GetAttr(self->rnn, state->words[WORD_NATIVE]);
    if (!native)
        return NULL;
    const int failed = self->kind->run(state, native, self->call);
    Py_DECREF(native);
    return failed ? NULL : Py_NewRef(self->result);
}

static PyType_Slot bound_call_slots[] = {
    {Py_tp_doc, "An RNN with fixed arrays, from RNN.bind(): y, state = bound()."},
    {Py_tp_dealloc, bound_call_dealloc},
    {Py_tp_call, bound_call_run},
    {0, NULL}};

PyType_Spec bound_call_type_spec = TYPE_SPEC("rnnlayout._native.BoundCall", bound_call_object,
                                             Py_TPFLAGS_DISALLOW_INSTANTIATION, bound_call_slots);
