/*
 * A running call, and the split of a call into tasks.
 *
 * A task is some rows of the batch, or a direction, or the whole call, and has separate states and
 * buffers. The members of the team that share a task divide the blocks of hidden units, and wait
 * for each other once per step (twice if a second matrix follows the first).
 *
 * With lengths, the rows of the batch are sorted by falling length and dealt to the tasks in turn,
 * so that all tasks have equal work. In a task, the rows that are active at a time come first.
 *
 * With a mask, the steps that count are the steps of the computation: step k of a sequence reads
 * and writes at the time of its step k that counts, and their number is its length.
 */
#ifndef RNL_FORWARD_RUNNING_H
#define RNL_FORWARD_RUNNING_H

#include "forward/recurrence.h"
#include "forward/team.h"
#include "kernels/subnormals.h"
#include "system/min.h"

typedef struct rnl_task {
    int64_t first_row, rows;
    int first_rank, rank_step; /* by falling length the rows rank first_rank, + rank_step, ... */
    int first_direction, last_direction; /* last is included */
    char *input, *sums;
    rnl_buffers states;
    rnl_barrier barrier;
    _Atomic int64_t stop_at;    /* all members of the task leave after this step               */
    _Atomic int64_t alone_from; /* all members but the first leave after this step of the call */
    int64_t since_poll;
} rnl_task;

typedef struct rnl_running {
    rnl_rnn *rnn;
    const rnl_rnn_call *call;
    int64_t units, state; /* padded widths */
    int64_t T;            /* steps to compute: call->T, or with a mask the most that count */
    int64_t steps_at_once;
    const int64_t *lengths; /* of the caller, or counts; NULL: every length is T               */
    int64_t *order;         /* row in the tasks -> row of the call; NULL without lengths       */
    int64_t *active;        /* number of active rows at each time, or NULL                     */
    int64_t *counts;        /* with a mask, the steps of each sequence that count              */
    int64_t *times;         /* (N, call->T): the times of these steps; NULL without a mask     */
    char *scratch;          /* of each member: scratch_nbytes                          */
    int64_t scratch_nbytes;
    char *between[2]; /* outputs of all layers but the last: REAL (T, N, D * P') */
    int num_tasks;
    bool by_direction;
    rnl_task *tasks;
    rnl_barrier all;
    int64_t began_ns;
    rnl_float_mode callers_mode;
    atomic_int stop;
    _Atomic int64_t stop_layer; /* all members leave after this layer */
} rnl_running;

/* Compute as member k of the team that runs a call: some blocks of a task, or several whole tasks.
 * arg: the rnl_running. */
void rnl_run_member(void *arg, int k, int members);

/* Find the steps that count, from the mask of the call. The mask is read here only. */
void rnl_mask_read(rnl_running *run);

/* Write y of the steps that do not count. False: the caller's poll says stop. */
bool rnl_mask_fill(const rnl_running *run);

static inline int64_t rnl_real_nbytes(const rnl_running *run)
{
    return rnl_dtype_nbytes(run->rnn->real);
}

#endif
