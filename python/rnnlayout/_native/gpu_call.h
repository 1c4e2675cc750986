/* A call on arrays of the GPU by the short way: what its files share. */
#ifndef RNNLAYOUT_GPU_CALL_H
#define RNNLAYOUT_GPU_CALL_H

#include "gpu_rnn.h"

#include "device_array.h"

enum { X, H0, C0, Y, HN, CN, NUM_ARRAYS };
enum { NUM_INPUTS = Y };

typedef struct gpu_call {
    foreign arrays[NUM_ARRAYS];
    foreign_reader reader;
    array_shape shapes[NUM_ARRAYS]; /* as they have to be */
    int axes, asked;                /* asked: the stream is the caller's wish */
    int64_t *lengths;               /* a copy, which nobody changes meanwhile; NULL: all are T */
    rnl_gpu_call core;
} gpu_call;

/* Each gives 1; 0: that is for the long way; or -1: an exception. */

/* gpu_fits.c: once the arrays are taken, their shapes and the lengths, as the core needs them. */
int gpu_call_fits(const rnl_spec *spec, PyObject *lengths, gpu_call *call);

/* gpu_order.c: the caller's wish; the stream that the call runs in, once its arrays are looked at.
 */
int gpu_call_read_stream(PyObject *stream, gpu_call *call);
int gpu_call_choose_stream(gpu_call *call);

/* Those of the inputs that have to live as long as the work may read them: a tuple, or NULL. */
PyObject *gpu_call_list_kept(const gpu_call *call);

/* Order the other streams of the arrays: the call comes behind what is in them, and what its owners
 * do next behind the call. Without the interpreter's lock. */
rnl_status gpu_call_order_before(const gpu_call *call, rnl_error *err);
rnl_status gpu_call_order_behind(const gpu_call *call, rnl_error *err);

#endif
