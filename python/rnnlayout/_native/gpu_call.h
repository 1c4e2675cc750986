/* A call on GPU arrays: what its files share. */
#ifndef RNNLAYOUT_GPU_CALL_H
#define RNNLAYOUT_GPU_CALL_H

#include "gpu_arrays.h"
#include "gpu_rnn.h"

enum { X, H0, C0, Y, HN, CN, WORK, NUM_ARRAYS }; /* WORK: the workspace, if x's library makes it */
enum { NUM_INPUTS = Y, NUM_NAMED = WORK };

typedef struct gpu_call {
    foreign arrays[NUM_ARRAYS];
    foreign_reader reader;
    array_shape shapes[NUM_ARRAYS]; /* the required ones */
    int axes;
    int is_ordered;  /* all arrays are used in the stream of x's library: the call does not wait */
    PyObject *empty; /* x's library makes new arrays; NULL: outputs are DeviceArrays */
    PyObject *made[NUM_ARRAYS]; /* new outputs, NULL for the others */
    rnl_gpu_call core;
} gpu_call;

/* gpu_fits.c: do the shapes of the arrays, once they are taken, and the lengths fit? */
int gpu_call_fits(const rnl_spec *spec, PyObject *lengths, gpu_call *call);
int gpu_call_has_shape(const foreign *array, const array_shape *shape);

#endif
