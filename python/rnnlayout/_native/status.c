/* The core's statuses as exceptions. */
#include "native.h"

/* Raise CudnnError with the text, and with the failed function and the returned number as
 * attributes. */
static void raise_cudnn_error(const native_state *state, const rnl_error *err)
{
    PyObject *status = PyLong_FromLong(err->number);
    PyObject *call = status ? PyUnicode_FromString(err->call ? err->call : "") : NULL;
    PyObject *error = call ? PyObject_CallFunction(state->cudnn_error, "s", err->text) : NULL;
    if (error && PyObject_SetAttrString(error, "status", status) == 0 &&
        PyObject_SetAttrString(error, "call", call) == 0)
        PyErr_SetObject(state->cudnn_error, error);
    Py_XDECREF(status);
    Py_XDECREF(call);
    Py_XDECREF(error);
}

PyObject *raise_status(const native_state *state, const rnl_error *err)
{
    switch (err->status) {
    case RNL_E_SPEC: PyErr_SetString(state->spec_error, err->text); break;
    case RNL_E_LAYOUT: PyErr_SetString(state->layout_error, err->text); break;
    case RNL_E_LOSSY: PyErr_SetString(state->lossy_error, err->text); break;
    case RNL_E_NO_CUDNN: PyErr_SetString(state->no_cudnn_error, err->text); break;
    case RNL_E_CUDNN: raise_cudnn_error(state, err); break;
    case RNL_E_NOMEM: PyErr_SetString(PyExc_MemoryError, err->text); break;
    default: /* interrupted: the signal handler's exception is already set */
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_RuntimeError, err->text);
    }
    return NULL;
}
