/* A call on GPU arrays: what its files share. */
#ifndef RNNLAYOUT_GPU_CALL_H
#define RNNLAYOUT_GPU_CALL_H

#include "gpu_rnn.h"

#include "device_array.h"

enum { X, H0, C0, Y, HN, CN, WORK, NUM_ARRAYS }; /* WORK: the workspace, if x's library makes it */
enum { NUM_INPUTS = Y, NUM_NAMED = WORK };

typedef struct gpu_call {
    foreign arrays[NUM_ARRAYS];
    foreign_reader reader;
    array_shape shapes[NUM_ARRAYS]; /* the required ones */
    int axes, asked;                /* asked: the caller has passed a stream */
    PyObject *made[NUM_ARRAYS];     /* new outputs, NULL for the others */
    rnl_gpu_call core;
} gpu_call;

/* gpu_fits.c: do the shapes of the arrays, once they are taken, and the lengths fit? */
int gpu_call_fits(const rnl_spec *spec, PyObject *lengths, gpu_call *call);
int gpu_call_has_shape(const foreign *array, const array_shape *shape);

/* gpu_order.c: read the caller's stream; choose the stream of the call, once its arrays are read.
 * 1, or -1: an exception. */
int gpu_call_read_stream(PyObject *stream, gpu_call *call);
int gpu_call_choose_stream(gpu_call *call);

/* The inputs that must live as long as the work may read them: a tuple, or NULL. */
PyObject *gpu_call_list_kept(const gpu_call *call);

/* Order the call after the work in the arrays' other streams, and the next work in those streams
 * after the call. Called without the interpreter's lock. */
rnl_status gpu_call_order_before(const gpu_call *call, rnl_error *err);
rnl_status gpu_call_order_behind(const gpu_call *call, rnl_error *err);

#endif
