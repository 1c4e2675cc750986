/* An RNN prepared for the CPU, and the memory that its calls reuse. */
#ifndef RNL_FORWARD_PREPARED_H
#define RNL_FORWARD_PREPARED_H

#include <stdatomic.h>

#include "forward/arena.h"
#include "kernels/rnn.h"
#include "model/spec.h"

/* The matrices of some gates, and their panel (kernels/rnn.h) in the dtype of the weights. */
typedef struct rnl_operand {
    rnl_matrices of;
    int64_t at[RNL_MAX_GATES]; /* where each begins in the weights, elements */
    char *panel;               /* NULL: not packed                           */
} rnl_operand;

enum {
    RNL_OF_W,     /* all gates; no gates where x itself is added         */
    RNL_OF_R,     /* all gates; in a GRU with reset before, r and z      */
    RNL_OF_R_NEW, /* n of such a GRU                                     */
    RNL_OF_P,
    RNL_NUM_OPERANDS
};

/* One layer, one direction. An operand without gates: no such matrix. */
typedef struct rnl_weights {
    rnl_operand operands[RNL_NUM_OPERANDS];
    char *start;     /* start values of sums, the biases: REAL [block][slot][lane] */
    char *peepholes; /* likewise, those of i, f and o; NULL: it has none       */
} rnl_weights;

enum { RNL_NUM_ROOMS = 8 };

/* Memory for one call at a time. */
typedef struct rnl_room {
    int64_t nbytes;
    _Alignas(RNL_ALIGNMENT) char data[];
} rnl_room;

struct rnl_rnn {
    rnl_spec spec;
    rnl_rnn_options options;
    const rnl_rnn_kernels *kernels;
    rnl_dtype real; /* of the arithmetic */
    rnl_step_kind kind;
    int gates, slots;
    int copied;           /* the slot to which no input is added, or -1            */
    int64_t blocks;       /* of hidden_size                                        */
    int64_t state_blocks; /* of the state's width P'                               */
    rnl_weights *weights; /* num_layers times directions                           */
    char *zeros;          /* start values without biases: REAL, of state_blocks    */
    char *vectors;        /* biases and peepholes as they were given, for rnl_rnn_weights */
    int64_t num_vectors;  /* elements                                              */
    void *memory;         /* the pointers above, but not panels, point into it     */
    void *panels;         /* NULL: a call reads the weights as they were given     */
    _Atomic(rnl_room *) rooms[RNL_NUM_ROOMS]; /* free, for the next calls           */
};

/* Make the panels, if they do not exist yet. RNL_E_NOMEM. */
rnl_status rnl_rnn_pack(rnl_rnn *rnn, rnl_error *err);

/* RNL_E_SPEC: x cannot have this dtype. */
rnl_status rnl_rnn_check_dtype(const rnl_rnn *rnn, rnl_dtype dtype, rnl_error *err);

/* A room of at least nbytes; NULL: out of memory. One that is given back is kept for the next call,
 * unless it is large. */
rnl_room *rnl_room_take(rnl_rnn *rnn, int64_t nbytes);
void rnl_room_give(rnl_rnn *rnn, rnl_room *room);

/* Width of a state in memory, elements: whole blocks. */
static inline int64_t rnl_padded(const rnl_rnn *rnn, int64_t blocks)
{
    return blocks * rnn->kernels->lanes;
}

/* Elements from row to row of the sums: one cache line more than they need, so that not all rows
 * are in the same place of a first-level cache where the number of units is a power of two. */
static inline int64_t rnl_sums_row(const rnl_rnn *rnn)
{
    return rnl_padded(rnn, rnn->blocks) * rnn->slots + RNL_ALIGNMENT / rnl_dtype_nbytes(rnn->real);
}

/* Bytes that one thread's products of so many rows need. */
static inline int64_t rnl_scratch_nbytes(const rnl_rnn *rnn, int64_t rows, int64_t widest)
{
    const int64_t padded = rnl_padded(rnn, rnn->blocks); /* the widest state */
    return rnn->kernels->scratch ? rnn->kernels->scratch(rows, widest > padded ? widest : padded)
                                 : 0;
}

static inline const rnl_weights *rnl_weights_of(const rnl_rnn *rnn, int64_t layer, int direction)
{
    return &rnn->weights[layer * rnl_num_directions(&rnn->spec) + direction];
}

#endif
