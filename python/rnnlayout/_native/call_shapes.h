/* The arrays of a call, on a CPU and on a GPU. */
#ifndef RNNLAYOUT_CALL_SHAPES_H
#define RNNLAYOUT_CALL_SHAPES_H

#include "native.h"

enum { X, H0, C0, Y, HN, CN, NUM_CALL_ARRAYS };
enum { MAX_DIMS = 3 };

typedef struct array_shape {
    int ndim;
    int64_t sizes[MAX_DIMS];
} array_shape;

/* What follows from the shape of x: sizes, axes (-1: no such axis), and the shapes of all arrays.
 */
typedef struct call_shapes {
    int64_t T, N;
    int time_axis, batch_axis; /* of x and y */
    array_shape of[NUM_CALL_ARRAYS];
} call_shapes;

/* Find the shapes of a call. 0: the shape of x does not fit. */
int call_shapes_find(const rnl_spec *spec, int axes, const array_shape *x, call_shapes *shapes);

/* P', the width of h. */
static inline int64_t state_size_of(const rnl_spec *spec)
{
    return spec->proj_size ? spec->proj_size : spec->hidden_size;
}

#endif
