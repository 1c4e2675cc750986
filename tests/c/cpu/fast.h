/* The forward pass itself, asked as a problem says. */
#ifndef CPU_FAST_H
#define CPU_FAST_H

#include "cpu/problem.h"

/* n numbers of a dtype, to be freed. */
void *packed(const double *from, int64_t n, rnl_dtype dtype);

/* The problem's RNN. */
rnl_rnn *prepared(const problem *p);

/* Sequences first ... first + N - 1, steps from ... from + T - 1 of the problem, out of `states` if
 * there are some. */
typedef struct slice {
    int64_t first, N, from, T;
    const answer *states;
} slice;

answer fast(const problem *p, rnl_rnn *rnn, slice s);

#endif
