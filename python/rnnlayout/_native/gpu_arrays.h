/* Arrays in a GPU's memory: our own, and those of other libraries. */
#ifndef RNNLAYOUT_GPU_ARRAYS_H
#define RNNLAYOUT_GPU_ARRAYS_H

#include "native.h"

enum { MAX_DIMS = 3 };

typedef struct array_shape {
    int ndim;
    int64_t sizes[MAX_DIMS];
} array_shape;

/* device_array.c: a new DeviceArray, which is for the results of a call that waits for its work. */
PyObject *device_array_new(const native_state *state, int device, rnl_dtype dtype,
                           const array_shape *shape, void **address);

/* foreign.c: an array on a GPU that a call can use in place, as its owner exports it by DLPack. */
typedef struct foreign {
    const char *what; /* the name of the argument */
    PyObject *value;  /* the argument, borrowed; NULL: not given */
    PyObject *keeps;  /* the capsule that keeps the memory alive; NULL: value does */
    void *address;
    array_shape shape;
} foreign;

/* What all arrays of a call need. */
typedef struct foreign_reader {
    const native_state *state;
    int device;
    rnl_dtype dtype;
    void *stream;          /* of the call; the legacy default stream is 1 */
    PyTypeObject *at_home; /* the class of arrays whose library works in this stream; NULL: none */
    const struct dl_exchange *exchange; /* of this class; NULL: it has none */
} foreign_reader;

/* The functions of a class of arrays, or NULL if it has none that we know. Sets no exception. */
const struct dl_exchange *exchange_of(const native_state *state, PyTypeObject *type);

/* Take an array for the stream: 1; 0: it is in the host's memory, or lacks DLPack; -1: a
 * LayoutError, or another exception. */
int foreign_take(const foreign_reader *reader, PyObject *value, foreign *array);

/* Set a LayoutError: "h_0 is a Tensor " and the reason. Returns -1. */
int foreign_refuse(const foreign_reader *reader, const foreign *array, const char *why);

#endif
