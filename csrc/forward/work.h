/* How much work justifies a thread, a poll or a pause, and pieces of a product. Work is counted in
 * multiplications. */
#ifndef RNL_FORWARD_WORK_H
#define RNL_FORWARD_WORK_H

#include "forward/prepared.h"
#include "system/min.h"

enum {
    RNL_WORK_OF_A_CALL = 1 << 20,   /* justifies waking a thread ...                        */
    RNL_WORK_OF_A_MEMBER = 1 << 14, /* ... and, between two waits, a further member         */
    RNL_WORK_OF_A_PIECE = 1 << 28,  /* between two checks whether to stop: 0.1 s            */
    RNL_WORK_OF_A_POLL = 1 << 25    /* between two calls of the caller's poll               */
};

/* Return the work of a step of the recurrence, per row. */
static inline double rnl_recurrence_work(const rnl_rnn *rnn)
{
    const double state = (double)rnl_padded(rnn, rnn->state_blocks);
    const double units = (double)rnl_padded(rnn, rnn->blocks);
    return units * state * (rnn->gates + (rnn->spec.proj_size ? 1 : 0));
}

/* Return the number of members worth having for so much work between two waits, at least 1. */
static inline int64_t rnl_members_worth(const rnl_rnn *rnn, double work)
{
    const double worth = work / RNL_WORK_OF_A_MEMBER;
    const int64_t members = worth < (double)rnn->blocks ? (int64_t)worth : rnn->blocks;
    return members > 1 ? members : 1;
}

/* Return the work of a product, per row. */
static inline int64_t rnl_product_work(const rnl_product *job, int lanes)
{
    return job->of->K * job->of->gates * (job->last - job->first) * lanes;
}

/* Return the part of a product that computes at most so many rows from a row on. */
static inline rnl_product rnl_product_piece(const rnl_product *job, int64_t row, int64_t most_rows,
                                            int64_t real_nbytes)
{
    rnl_product piece = *job;
    piece.rows = rnl_min(most_rows, job->rows - row);
    piece.x = (const char *)job->x + row * job->x_row * real_nbytes;
    piece.start = (const char *)job->start + row * job->start_row * real_nbytes;
    piece.acc = (char *)job->acc + row * job->acc_row * real_nbytes;
    return piece;
}

#endif
