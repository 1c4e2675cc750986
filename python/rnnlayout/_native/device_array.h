/* What the files of the binding know of arrays in a GPU's memory. */
#ifndef RNNLAYOUT_DEVICE_ARRAY_H
#define RNNLAYOUT_DEVICE_ARRAY_H

#include "native.h"

#include "dlpack.h"

enum { MAX_DIMS = 3 };

typedef struct array_shape {
    int ndim;
    int64_t sizes[MAX_DIMS];
} array_shape;

typedef struct device_array {
    PyObject_HEAD
    PyObject *block; /* a capsule that owns the memory, which other arrays may lie in too */
    void *address;
    void *stream;    /* the one in which it is filled ... */
    uint64_t thread; /* ... by this thread                */
    rnl_dtype dtype;
    int device;
    array_shape shape;
    int64_t nelems, at; /* at: bytes of the block before it */
} device_array;

/* streams.c: note the stream in which the array is written from now on; and the stream that this
 * thread has to wait for: it cannot name another thread's own stream, but the legacy default stream
 * waits for all of those. */
void device_array_fill_in(device_array *self, void *stream);
void *device_array_stream(const device_array *self);

/* device_protocols.c: methods and an attribute of the type. */
PyObject *device_array_dlpack(PyObject *object, PyObject *args, PyObject *kwargs);
PyObject *device_array_dlpack_device(PyObject *object, PyObject *unused);
PyObject *device_array_interface(PyObject *object, void *unused);

/* device_memory.c: a tuple of n arrays in one block; keeps: what lives as long as it. */
PyObject *device_arrays_new(const native_state *state, int device, rnl_dtype dtype,
                            const array_shape *shapes, int n, void *stream, PyObject *keeps);

/* dlpack.c */
typedef struct dl_taken {
    PyObject *kept; /* owns what follows */
    const dl_tensor *tensor;
    int read_only;
} dl_taken;

/* Take the array of a capsule: 0, or -1 with an exception set. */
int dlpack_take(const native_state *state, PyObject *capsule, dl_taken *taken);

/* A type's table of functions: 1, or 0: it has none that is known here; -1 on error. */
int dlpack_exchange_of(const native_state *state, PyTypeObject *type, const dl_exchange **table);

/* Take an array by its type's table, and the stream in use where it lies on a GPU: 0, or -1. */
int dlpack_take_by(const native_state *state, const dl_exchange *table, PyObject *array,
                   dl_taken *taken, void **stream);

/* foreign.c: an array that a call can use as it lies there, as its owner describes it. */
typedef struct foreign {
    PyObject *value; /* the caller's own, borrowed; NULL: not given */
    PyObject *keeps; /* what keeps its memory; NULL: it does */
    int waits;       /* it is only had for a stream, by foreign_take() */
    int is_ours;     /* a DeviceArray */
    int knows_stream, read_only;
    void *address, *stream;
    rnl_dtype dtype;
    array_shape shape;
} foreign;

/* For the arrays of one call. */
typedef struct foreign_reader {
    const native_state *state;
    int device;
    PyTypeObject *type; /* of the last array, since all are often of one; NULL: there was none */
    const dl_exchange *table;
    PyObject *options, *old_options; /* of __dlpack__; old: before DLPack 1.0. NULL: not made yet */
} foreign_reader;

/* All of it, or that it has to be taken. 1; 0: it is none that can be used as it is, or not by this
 * short way; -1: an exception. */
int foreign_look(foreign_reader *reader, PyObject *value, foreign *array);

/* Take one that waits, for a stream. The same. */
int foreign_take(foreign_reader *reader, void *stream, foreign *array);

void foreign_end(foreign_reader *reader);

#endif
