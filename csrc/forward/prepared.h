/* An RNN prepared for the CPU, and the memory that calls of the RNN reuse. */
#ifndef RNL_FORWARD_PREPARED_H
#define RNL_FORWARD_PREPARED_H

#include <stdatomic.h>

#include "forward/arena.h"
#include "kernels/rnn.h"
#include "model/spec.h"

/* The matrices of some gates, and the panel of these gates (kernels/rnn.h) in the dtype of the
 * weights. */
typedef struct rnl_operand {
    rnl_matrices of;
    int64_t at[RNL_MAX_GATES]; /* the offset of each matrix in the weights, elements */
    char *panel;               /* NULL: not packed                                   */
} rnl_operand;

enum {
    RNL_OF_W,     /* all gates; no gates where x itself is added         */
    RNL_OF_R,     /* all gates; in a GRU with reset before, r and z      */
    RNL_OF_R_NEW, /* the gate n of a GRU with reset before               */
    RNL_OF_P,
    RNL_NUM_OPERANDS
};

/* The weights of a layer and direction. An operand without gates: the RNN lacks the matrix. */
typedef struct rnl_weights {
    rnl_operand operands[RNL_NUM_OPERANDS];
    char *start;     /* start values of sums, the biases: REAL [block][sum][lane] */
    char *peepholes; /* likewise, of the gates i, f and o; NULL: no peepholes  */
} rnl_weights;

enum { RNL_NUM_WORKSPACES = 8 };

/* Memory for a call. */
typedef struct rnl_workspace {
    int64_t nbytes;
    _Alignas(RNL_ALIGNMENT) char data[];
} rnl_workspace;

struct rnl_rnn {
    rnl_spec spec;
    rnl_rnn_options options;
    const rnl_rnn_kernels *kernels;
    rnl_dtype real; /* of the arithmetic */
    rnl_step_kind kind;
    int gates, num_sums;  /* per unit                                              */
    int copied_sum;       /* the sum without a product with the input, or -1       */
    int64_t blocks;       /* of hidden_size                                        */
    int64_t state_blocks; /* of the state's width P'                               */
    rnl_weights *weights; /* num_layers times directions                           */
    char *zeros;          /* start values without biases: REAL, of state_blocks    */
    char *vectors;        /* a copy of the biases and peepholes, for rnl_rnn_weights() */
    int64_t num_vectors;  /* elements                                              */
    void *memory;         /* of weights, start values, zeros and vectors           */
    void *panels;         /* NULL: a call reads the caller's weights               */
    _Atomic(rnl_workspace *) workspaces[RNL_NUM_WORKSPACES]; /* free, for the next calls */
};

/* Allocate and fill the panels. RNL_E_NOMEM. */
rnl_status rnl_rnn_pack(rnl_rnn *rnn, rnl_error *err);

/* The layout of the weights, RNL_FORWARD_LAYOUT; the number of weights; and the place of a block,
 * no tensor if the RNN lacks the block. The gates of a matrix or a bias are contiguous and follow
 * each other. */
rnl_layout rnl_forward_layout(void);
int64_t rnl_num_weights(const rnl_rnn *rnn, const rnl_layout *cpu);
rnl_view rnl_forward_view(const rnl_rnn *rnn, const rnl_layout *cpu, rnl_block block);

/* Fail with RNL_E_SPEC unless x may have this dtype. */
rnl_status rnl_rnn_check_dtype(const rnl_rnn *rnn, rnl_dtype dtype, rnl_error *err);

/* Return a workspace of at least nbytes; NULL: out of memory. rnl_workspace_give() keeps a small
 * workspace for the next call, and frees a large workspace. */
rnl_workspace *rnl_workspace_take(rnl_rnn *rnn, int64_t nbytes);
void rnl_workspace_give(rnl_rnn *rnn, rnl_workspace *workspace);

/* Return the number of elements of whole blocks: the width of a state in memory. */
static inline int64_t rnl_padded(const rnl_rnn *rnn, int64_t blocks)
{
    return blocks * rnn->kernels->lanes;
}

/* Return the number of elements from row to row of the sums. A cache line is added: if the length
 * of a row were a power of two, all rows would have the same place in a first-level cache. */
static inline int64_t rnl_sums_row(const rnl_rnn *rnn)
{
    return rnl_padded(rnn, rnn->blocks) * rnn->num_sums +
           RNL_ALIGNMENT / rnl_dtype_nbytes(rnn->real);
}

/* Return the bytes of scratch memory that a thread needs for products of so many rows. */
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
