/* The arguments of the kernels for the steps of a layer in a direction: set once, and completed per
 * step with the addresses of arrays. */
#ifndef RNL_FORWARD_RECURRENCE_H
#define RNL_FORWARD_RECURRENCE_H

#include "forward/prepared.h"

typedef struct rnl_recurrence {
    rnl_product input;  /* adds W x, or without gates x itself by add_input() */
    rnl_rnn_step step;  /* up to the next state, or to `renew` or `project`  */
    rnl_rnn_step renew; /* GRU with reset before: from r h to the next state */
    bool renews;
    rnl_product project; /* of an LSTM's state                               */
    bool projects;
} rnl_recurrence;

/* Buffers of a layer: REAL, [row][block][lane]. */
typedef struct rnl_buffers {
    char *h[2], *c, *full, *reset; /* full: before a projection; reset: r h */
} rnl_buffers;

/* Return the arguments for all blocks. rows and the addresses of x, sums and states are not set. */
rnl_recurrence rnl_recurrence_of(const rnl_rnn *rnn, const rnl_weights *weights,
                                 const rnl_buffers *buffers);

/* Set the scratch memory of the products, see rnl_product. */
void rnl_recurrence_scratch(rnl_recurrence *r, void *scratch);

/* Restrict the step to some blocks of hidden units, and to some blocks of the projected state. */
void rnl_recurrence_blocks(rnl_recurrence *r, int64_t first, int64_t last, int64_t first_state,
                           int64_t last_state);

static inline void rnl_recurrence_rows(rnl_recurrence *r, int64_t rows)
{
    r->step.state.rows = r->step.gates.rows = rows;
    r->renew.state.rows = r->renew.gates.rows = rows;
    r->input.rows = r->project.rows = rows;
}

/* Set the sums of the step. Before the step, the sums contain the input's product. */
static inline void rnl_recurrence_sums(rnl_recurrence *r, char *sums)
{
    r->step.state.start = r->step.state.acc = sums;
    r->step.gates.acc = sums;
    r->renew.state.start = r->renew.state.acc = sums;
    r->renew.gates.acc = sums;
}

/* Set the state before and after the step. backwards: the last block first. Every second step goes
 * backwards, because the blocks read last are still in the caches. */
static inline void rnl_recurrence_states(rnl_recurrence *r, const char *before, char *after,
                                         bool backwards)
{
    r->step.state.backwards = r->renew.state.backwards = r->project.backwards = backwards;
    r->step.state.x = r->step.gates.h = before;
    if (r->renews) {
        r->renew.gates.h = before;
        r->renew.gates.out = after;
    } else if (r->projects) {
        r->project.acc = after;
    } else {
        r->step.gates.out = after;
    }
}

/* Compute a step of a single row, from panels. */
static inline void rnl_rnn_step_row(const rnl_rnn_kernels *kernels, const rnl_rnn_step *job)
{
    if (kernels->step) {
        kernels->step(job);
        return;
    }
    if (job->input.rows)
        kernels->product(&job->input);
    kernels->product(&job->state);
    kernels->gates(&job->gates);
}

#endif
