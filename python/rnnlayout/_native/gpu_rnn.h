/* The type GpuRnn, and the fast path of calls. */
#ifndef RNNLAYOUT_GPU_RNN_H
#define RNNLAYOUT_GPU_RNN_H

#include "native.h"

typedef struct gpu_rnn_object {
    PyObject_HEAD
    rnl_gpu_rnn *rnn;
    rnl_spec spec;
    int device;
    PyObject *weights; /* a copy, for pickles */
} gpu_rnn_object;

/* gpu_call.c */
PyObject *gpu_rnn_call(PyObject *object, PyObject *const *args, Py_ssize_t n);
PyObject *gpu_rnn_bind(PyObject *object, PyObject *const *args, Py_ssize_t n);

#endif
