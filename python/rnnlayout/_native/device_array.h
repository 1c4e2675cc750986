/* Arrays in a GPU's memory: our own, and those of other libraries. */
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
    PyObject *keeps; /* what the work that writes the array still reads */
    void *address;
    void *stream; /* in which it is written; see device_array_fill_in() */
    rnl_dtype dtype;
    int device;
    array_shape shape;
    int64_t nbytes;
} device_array;

/* Note the stream in which the array is written from now on. Another thread cannot name the stream
 * of this one (2), but the legacy default stream waits for it: that is noted instead. */
void device_array_fill_in(device_array *self, void *stream);

/* A new array. keeps: an object that lives as long. */
PyObject *device_array_new(const native_state *state, int device, rnl_dtype dtype,
                           const array_shape *shape, void *stream, PyObject *keeps);

/* dlpack.c */
typedef struct dl_taken {
    PyObject *kept; /* owns the tensor */
    const dl_tensor *tensor;
    int read_only;
} dl_taken;

/* Take over the array of a capsule: 0, or -1 with an exception set. */
int dlpack_take(const native_state *state, PyObject *capsule, dl_taken *taken);

/* A type's table of functions: 1; 0: none of a supported version; -1 on error. */
int dlpack_exchange_of(const native_state *state, PyTypeObject *type, const dl_exchange **table);

/* Take an array by its type's table, and on a GPU the stream in use: 0, or -1. */
int dlpack_take_by(const native_state *state, const dl_exchange *table, PyObject *array,
                   dl_taken *taken, void **stream);

PyObject *dlpack_dtype_to_text(const dl_tensor *tensor);

/* foreign.c: an array on a GPU that a call can use in place, as its owner exports it by DLPack. */
typedef struct foreign {
    const char *what; /* the name of the argument */
    PyObject *value;  /* the argument, borrowed; NULL: not given */
    PyObject *keeps;  /* the object that keeps the memory alive; NULL: value does */
    int waits;        /* it must be taken for a stream, by foreign_take() */
    int is_ours;      /* a DeviceArray */
    int is_new;       /* made for this call */
    int knows_stream, read_only;
    void *address, *stream;
    array_shape shape;
} foreign;

/* State for reading the arrays of one call. */
typedef struct foreign_reader {
    const native_state *state;
    int device;         /* that all arrays must be on ... */
    rnl_dtype dtype;    /* ... with this dtype            */
    PyTypeObject *like; /* of x: arrays of this type are used in the stream home ... */
    int has_home;       /* ... if that is known by other means than DLPack           */
    void *home;
    PyTypeObject *type; /* of the last array, as all often have one type; NULL: no array yet */
    const dl_exchange *table;
    PyObject *options,
        *old_options; /* for __dlpack__; old: before DLPack 1.0. NULL: not made yet */
} foreign_reader;

/* Read all of it, or find that it has to be taken for a stream: 1; 0: it is in the host's memory,
 * or lacks DLPack; -1: a LayoutError, or another exception. */
int foreign_look(foreign_reader *reader, PyObject *value, foreign *array);

/* Take an array that waits, for a stream: 1 or -1. */
int foreign_take(foreign_reader *reader, void *stream, foreign *array);

/* Set a LayoutError: "h_0 is a Tensor " and the reason. Returns -1. */
int foreign_refuse(const foreign_reader *reader, const foreign *array, const char *why);

void foreign_end(foreign_reader *reader);

#endif
