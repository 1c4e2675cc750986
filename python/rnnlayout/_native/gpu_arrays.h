/* Arrays in a GPU's memory: DeviceArrays, and arrays of other libraries. */
#ifndef RNNLAYOUT_GPU_ARRAYS_H
#define RNNLAYOUT_GPU_ARRAYS_H

#include "call_shapes.h"

/* device_array.c: make a DeviceArray, for a result of a call that returns when all work is done. */
PyObject *device_array_new(const native_state *state, int device, rnl_dtype dtype,
                           const array_shape *shape, void **address);

/* foreign.c: an array of another library on a GPU, exported by DLPack, that a call uses in place.
 */
typedef struct foreign {
    const char *name; /* of the argument */
    PyObject *value;  /* the argument, borrowed; NULL: no argument */
    PyObject *keeps;  /* the capsule that keeps the memory alive; NULL: value keeps it */
    void *address;
    array_shape shape;
} foreign;

/* The requirements for all arrays of a call. */
typedef struct foreign_reader {
    const native_state *state;
    int device;
    rnl_dtype dtype;
    void *stream; /* of the call; the legacy default stream is 1 */
    PyTypeObject
        *at_home; /* the class of the arrays of the library that works in this stream, or NULL */
    const struct dl_exchange *exchange; /* of this class, or NULL */
} foreign_reader;

/* Return the functions of a class of arrays; NULL: no functions of a known version. Sets no
 * exception. */
const struct dl_exchange *exchange_of(const native_state *state, PyTypeObject *type);

/* Take an array for the stream: 1; 0: the array is in the host's memory, or lacks DLPack; -1: a
 * LayoutError, or another exception. */
int foreign_take(const foreign_reader *reader, PyObject *value, foreign *array);

/* Set a LayoutError: "h_0 is a Tensor " and the reason. Returns -1. */
int foreign_refuse(const foreign_reader *reader, const foreign *array, const char *why);

#endif
