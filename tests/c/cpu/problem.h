/* A random problem for the forward pass, and its answers. */
#ifndef CPU_PROBLEM_H
#define CPU_PROBLEM_H

#include <stdbool.h>
#include <stdint.h>

#include "rnnlayout.h"

enum { MOST_STEPS = 7, MOST_ROWS = 15, MOST_UNITS = 40, LARGER = 3 };

typedef struct problem {
    rnl_spec spec;
    rnl_rnn_options options;
    int64_t T, N, D, H, S; /* S: width of the state */
    rnl_dtype dtype;       /* of the call */
    int64_t num_weights;
    double *weights, *x, *h0, *c0; /* exact in their dtypes */
    int64_t *lengths;              /* N */
    bool has_lengths, has_states, batch_first;
} problem;

typedef struct answer {
    double *y, *hn, *cn;
} answer;

problem random_problem(void);
void problem_free(problem *p);

/* An answer of the problem's sizes, all zero. */
answer answer_new(const problem *p);
void answer_free(answer *a);

/* The answer of slow.c, the slow twin of the forward pass: a plain recurrence in double. It shares
 * nothing with it except the order of cuDNN's weight space, and also computes for the fake cuDNN.
 */
answer slow(const problem *p);

/* Elements of the weights in the layout RNL_FORWARD_LAYOUT. */
int64_t num_weights_of(const rnl_spec *spec);

/* ---- the answer of the forward pass itself ---- */

/* n numbers in a dtype; the caller frees them. */
void *packed(const double *from, int64_t n, rnl_dtype dtype);

/* Prepare an RNN, which is possible; options: NULL for the usual ones. */
rnl_rnn *new_rnn(const rnl_spec *spec, const void *weights, const rnl_rnn_options *options);

/* Prepare the problem's RNN. */
rnl_rnn *prepared(const problem *p);

/* Sequences first ... first + N - 1 and steps from ... from + T - 1 of the problem; states: the
 * initial ones, NULL: the problem's. masked: the steps are among others, which a mask leaves out.
 */
typedef struct slice {
    int64_t first, N, from, T;
    const answer *states;
    bool masked;
} slice;

answer fast(const problem *p, rnl_rnn *rnn, slice s);

/* ---- how close two answers have to be ---- */

/* Check that b, an answer of the fast one, is within the rounding bound of a, the slow one's. */
void check_close(const problem *p, const answer *a, const answer *b);

/* Check one step from the fast one's states: this bound is tight. */
void check_one_step(const problem *p, int64_t t, const answer *states, const answer *next);

#endif
