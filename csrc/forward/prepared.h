/* An RNN prepared for the CPU: what it consists of, and the room a call needs. */
#ifndef RNL_FORWARD_PREPARED_H
#define RNL_FORWARD_PREPARED_H

#include <stdatomic.h>

#include "kernels/rnn.h"
#include "model/spec.h"

/* Matrices of some gates, and their panel (kernels/rnn.h) in the dtype of the weights. */
typedef struct rnl_operand {
    rnl_matrices of;
    int64_t at[RNL_MAX_GATES]; /* of each in the weights, elements */
    char *panel;               /* NULL: not packed                 */
} rnl_operand;

enum {
    RNL_OF_W,     /* all gates; none where x is added itself            */
    RNL_OF_R,     /* all gates; of a GRU with reset before, r and z     */
    RNL_OF_R_NEW, /* of such a GRU, n                                   */
    RNL_OF_P,
    RNL_NUM_OPERANDS
};

/* One layer, one direction; no gates where there is no such matrix. */
typedef struct rnl_weights {
    rnl_operand operands[RNL_NUM_OPERANDS];
    char *start; /* what sums begin with, the biases: REAL [block][slot][lane] */
} rnl_weights;

enum { RNL_NUM_ROOMS = 8 };

/* Memory of one call at a time, aligned to 64. */
typedef struct rnl_room {
    int64_t nbytes;
    char *data;
} rnl_room;

struct rnl_rnn {
    rnl_spec spec;
    rnl_rnn_options options;
    const rnl_rnn_kernels *kernels;
    rnl_dtype real; /* of the arithmetic */
    rnl_step_kind kind;
    int gates, slots;
    int copied;           /* the slot that no input is added to, or -1             */
    int64_t blocks;       /* of hidden_size                                        */
    int64_t state_blocks; /* of the state's width P'                               */
    rnl_weights *weights; /* num_layers times directions                           */
    char *zeros;          /* a start without biases: REAL, of state_blocks         */
    char *biases;         /* as they were given, for rnl_rnn_weights               */
    int64_t num_biases;   /* elements                                              */
    void *memory;         /* what all of these point into, but the panels          */
    bool streams;         /* the panels are written past the caches                 */
    void *panels;         /* those; NULL: a call reads the weights as they are given */
    _Atomic(rnl_room *) rooms[RNL_NUM_ROOMS]; /* that wait for the next call              */
};

/* Have panels, if there are none yet. RNL_E_NOMEM. */
rnl_status rnl_rnn_pack(rnl_rnn *rnn, rnl_error *err);

/* A room of at least so many bytes; NULL where there is no memory. */
rnl_room *rnl_room_take(rnl_rnn *rnn, int64_t nbytes);
void rnl_room_give(rnl_rnn *rnn, rnl_room *room);

/* Width of a state in memory, elements: whole blocks. */
static inline int64_t rnl_padded(const rnl_rnn *rnn, int64_t blocks)
{
    return blocks * rnn->kernels->lanes;
}

static inline const rnl_weights *rnl_weights_of(const rnl_rnn *rnn, int64_t layer, int direction)
{
    return &rnn->weights[layer * rnl_num_directions(&rnn->spec) + direction];
}

#endif
