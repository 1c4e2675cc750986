/*
 * A call while it runs: how its work is split.
 *
 * The work of a call is split into parts: some of the batch's rows, or one direction, or all of it.
 * A part has its own states and buffers. Members of the team that share a part split its blocks of
 * hidden units, and wait for each other once per step (twice where a second matrix follows the
 * first).
 *
 * With lengths, the rows of the batch are sorted by falling length and dealt to the parts in turn,
 * so that all parts have as much work. In a part, the rows that are active at a time come first.
 */
#ifndef RNL_FORWARD_RUNNING_H
#define RNL_FORWARD_RUNNING_H

#include "forward/recurrence.h"
#include "forward/team.h"
#include "kernels/subnormals.h"
#include "system/min.h"

typedef struct rnl_portion {
    int64_t first_row, rows;
    int turn, turns; /* sorted by falling length, its rows are turn, turn + turns ... */
    int first_direction, last_direction; /* last is included */
    char *input, *sums;
    rnl_buffers states;
    rnl_barrier barrier;
    _Atomic int64_t stop_at;    /* the step after which all members of the part leave          */
    _Atomic int64_t alone_from; /* the step of the call after which all but the first one leave */
    int64_t since_poll;
} rnl_portion;

typedef struct rnl_running {
    rnl_rnn *rnn;
    const rnl_rnn_call *call;
    int64_t units, state; /* padded widths */
    int64_t steps_at_once;
    int64_t *order;  /* row in the parts -> row of the call; NULL without lengths */
    int64_t *active; /* number of active rows at each time, or NULL               */
    char *scratch;   /* of each member: scratch_nbytes                          */
    int64_t scratch_nbytes;
    char *between[2]; /* outputs of all layers but the last: REAL (T, N, D * P') */
    int num_parts;
    bool by_direction;
    rnl_portion *parts;
    rnl_barrier all;
    int64_t began_ns;
    rnl_float_mode callers_mode;
    atomic_int stop;
    _Atomic int64_t stop_layer; /* after which all members leave */
} rnl_running;

/* Member k of the team that runs a call. arg: the rnl_running. It computes a share of one part, or
 * several whole parts. */
void rnl_run_member(void *arg, int k, int members);

static inline int64_t rnl_real_nbytes(const rnl_running *run)
{
    return rnl_dtype_nbytes(run->rnn->real);
}

#endif
