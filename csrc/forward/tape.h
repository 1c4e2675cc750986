/* A tape, which a recorded call fills and a backward pass reads, and what both calls share. */
#ifndef RNL_FORWARD_TAPE_H
#define RNL_FORWARD_TAPE_H

#include "forward/prepared.h"
#include "forward/team.h"
#include "kernels/subnormals.h"

/*
 * The places in a tape. Arrays are REAL. A row is a sequence at a step; the rows of a step follow
 * each other, longest sequence first, without sequences that have ended.
 *   x     [row][I]                     a copy
 *   h, c  [T + 1][sequence][lane]      the states between the steps, of a layer and direction; c of
 *                                      an LSTM. Step t is between the states t and t + 1
 *   sums  [row][block][sum][lane]      likewise; none of a plain RNN, whose slopes follow from h
 * The arrays of the next direction, or layer, begin `apart` bytes later.
 */
typedef struct rnl_tape {
    char *x, *h, *c, *sums;
    int64_t apart, nbytes;
} rnl_tape;

/* Does the tape keep the sums of the gates? */
static inline bool rnl_tape_has_sums(const rnl_rnn *rnn)
{
    return rnl_num_sums(rnn->kind) > 1;
}

/* Place the arrays of a call with T steps of N sequences in memory. RNL_E_SPEC: too large. */
rnl_status rnl_tape_place(const rnl_rnn *rnn, int64_t T, int64_t N, void *memory, rnl_tape *tape,
                          rnl_error *err);

/* The rows of a call. */
typedef struct rnl_rows {
    int64_t T, N;
    int64_t *order;   /* rank by falling length -> sequence of the call */
    int64_t *lengths; /* of each rank                                   */
    int64_t *first;   /* the first row of each step; first[T]: the number of rows */
    bool all;         /* every length is T                              */
} rnl_rows;

/* Place the lists in the arena and, if it has memory, fill them. lengths NULL: every length is T.
 */
void rnl_rows_place(rnl_rows *rows, int64_t T, int64_t N, const int64_t *lengths, rnl_arena *arena);

static inline int64_t rnl_rows_of(const rnl_rows *rows, int64_t t)
{
    return rows->first[t + 1] - rows->first[t];
}

/* Copy the first `width` elements of n rows between an array of the caller, by sequence, and one by
 * rank: gather to ranks, scatter to sequences. from_row, to_row: elements from row to row. */
void rnl_rows_gather(const rnl_rows *rows, int64_t n, const char *from, rnl_dtype from_dtype,
                     int64_t from_row, char *to, rnl_dtype to_dtype, int64_t to_row, int64_t width);
void rnl_rows_scatter(const rnl_rows *rows, int64_t n, const char *from, rnl_dtype from_dtype,
                      int64_t from_row, char *to, rnl_dtype to_dtype, int64_t to_row,
                      int64_t width);

/* A team whose members divide the blocks of every layer, and stop together. */
typedef struct rnl_crew {
    rnl_barrier barrier;
    int (*poll)(void *);
    void *poll_arg;
    rnl_float_mode callers_mode;
    int64_t since_poll;
    _Atomic int64_t stop_at; /* all members leave at the end of this step */
} rnl_crew;

/* A member of a crew. */
typedef struct rnl_mate {
    rnl_crew *crew;
    int member, members;
    int64_t now; /* the number of the step, over all layers and directions */
} rnl_mate;

/* Run member(arg, k, members) in a crew whose size is worth the steps. */
rnl_status rnl_crew_run(rnl_crew *crew, const rnl_rnn *rnn, const rnl_rows *rows,
                        void (*member)(void *, int, int), void *arg, rnl_error *err);

/* Must the step end early? Called after so many multiplications of a member. */
bool rnl_mate_stops(const rnl_mate *mate, int64_t work);

/* Wait for the other members. False: leave. */
bool rnl_mate_wait(const rnl_mate *mate);

/* Wait at the end of a step. False: leave. */
bool rnl_mate_end_step(rnl_mate *mate);

/* Compute a product of many rows in pieces, between which the crew may stop. */
void rnl_mate_multiply(const rnl_mate *mate, const rnl_rnn_kernels *kernels, const rnl_product *job,
                       int64_t real_nbytes);

/* The part of n things that belongs to a member. */
static inline int64_t rnl_mate_first(const rnl_mate *mate, int64_t n)
{
    return n * mate->member / mate->members;
}

static inline int64_t rnl_mate_last(const rnl_mate *mate, int64_t n)
{
    return n * (mate->member + 1) / mate->members;
}

#endif
