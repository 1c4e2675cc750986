/* The forward pass itself, run on a problem. */
#ifndef CPU_FAST_H
#define CPU_FAST_H

#include "cpu/problem.h"

/* n numbers in a dtype; the caller frees them. */
void *packed(const double *from, int64_t n, rnl_dtype dtype);

/* Prepare the problem's RNN. */
rnl_rnn *prepared(const problem *p);

/* Sequences first ... first + N - 1 and steps from ... from + T - 1 of the problem; states: the
 * initial ones, NULL: the problem's. */
typedef struct slice {
    int64_t first, N, from, T;
    const answer *states;
} slice;

answer fast(const problem *p, rnl_rnn *rnn, slice s);

#endif
