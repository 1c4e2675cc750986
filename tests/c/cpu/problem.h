/* A problem for the forward pass, and its answer. */
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
    int64_t lengths[MOST_ROWS];
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

/* Elements of the weights in the layout RNL_FORWARD_LAYOUT. */
int64_t num_weights_of(const rnl_spec *spec);

/* A value rounded to a dtype. */
double rounded(rnl_dtype dtype, double value);

#endif
