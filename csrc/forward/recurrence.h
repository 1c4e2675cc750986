/* What the kernels need for the steps of one layer in one direction: found once, and completed for
 * each step with the addresses of its arrays. */
#ifndef RNL_FORWARD_RECURRENCE_H
#define RNL_FORWARD_RECURRENCE_H

#include "forward/prepared.h"

typedef struct rnl_recurrence {
    rnl_product input;  /* adds x: with add_input() if it has no gates      */
    rnl_rnn_step step;  /* up to the next state; see the other two          */
    rnl_rnn_step renew; /* GRU with reset before: the rest, from r h        */
    bool renews;
    rnl_product project; /* of the LSTM's state                              */
    bool projects;
} rnl_recurrence;

/* Buffers of one layer: REAL, [row][block][lane]. */
typedef struct rnl_buffers {
    char *h[2], *c, *full, *reset; /* full: before a projection; reset: r h */
} rnl_buffers;

/* For all blocks. rows and addresses of x, sums and states are not set. */
rnl_recurrence rnl_recurrence_of(const rnl_rnn *rnn, const rnl_weights *weights,
                                 const rnl_buffers *buffers);

/* Memory for the products, as rnl_product says. */
void rnl_recurrence_scratch(rnl_recurrence *r, void *scratch);

/* Compute these blocks of hidden units, and of the projected state. */
void rnl_recurrence_share(rnl_recurrence *r, int64_t first, int64_t last, int64_t first_state,
                          int64_t last_state);

static inline void rnl_recurrence_rows(rnl_recurrence *r, int64_t rows)
{
    r->step.state.rows = r->step.gates.rows = rows;
    r->renew.state.rows = r->renew.gates.rows = rows;
    r->input.rows = r->project.rows = rows;
}

/* The sums of the step; before it, the input's share. */
static inline void rnl_recurrence_sums(rnl_recurrence *r, char *sums)
{
    r->step.state.start = r->step.state.acc = sums;
    r->step.gates.acc = sums;
    r->renew.state.start = r->renew.state.acc = sums;
    r->renew.gates.acc = sums;
}

/* The step leads from one state to another. backwards: the last block first. In turns, so that the
 * blocks read last are still in the caches. */
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

/* One step of one row, from panels. */
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
