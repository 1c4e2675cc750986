/* The type GpuRnn, and the fast path of its calls. */
#ifndef RNNLAYOUT_GPU_RNN_H
#define RNNLAYOUT_GPU_RNN_H

#include "native.h"

typedef struct gpu_rnn_object {
    PyObject_HEAD
    rnl_gpu_rnn *rnn;
    rnl_spec spec;
    int device;
    int64_t num_params;
    PyObject *kept; /* by stream: inputs of the last call in it that no result keeps alive */
} gpu_rnn_object;

/* gpu_call.c */
PyObject *gpu_rnn_call(PyObject *object, PyObject *const *args, Py_ssize_t n);

#endif
