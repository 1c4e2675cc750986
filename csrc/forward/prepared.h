/* An RNN prepared for the CPU: what it consists of, and the room a call needs. */
#ifndef RNL_FORWARD_PREPARED_H
#define RNL_FORWARD_PREPARED_H

#include <stdatomic.h>

#include "kernels/rnn.h"
#include "model/spec.h"

/* One layer, one direction: matrices as panels (kernels/rnn.h) in the dtype of the weights. */
typedef struct rnl_panels {
    char *w;     /* all gates; NULL where x is added itself                       */
    char *r;     /* all gates; of a GRU with reset before, r and z               */
    char *r_new; /* of such a GRU, n                                              */
    char *p;
    char *start; /* what sums begin with, the biases: REAL [block][slot][lane]    */
} rnl_panels;

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
    rnl_panels *panels;   /* num_layers times directions                           */
    char *zeros;          /* a start without biases: REAL, of state_blocks         */
    char *biases;         /* as they were given, for rnl_rnn_weights               */
    int64_t num_biases;   /* elements                                              */
    void *memory;         /* what all of these point into                          */
    _Atomic(rnl_room *) rooms[RNL_NUM_ROOMS]; /* that wait for the next call              */
};

/* A room of at least so many bytes; NULL where there is no memory. */
rnl_room *rnl_room_take(rnl_rnn *rnn, int64_t nbytes);
void rnl_room_give(rnl_rnn *rnn, rnl_room *room);

/* Width of a state in memory, elements: whole blocks. */
static inline int64_t rnl_padded(const rnl_rnn *rnn, int64_t blocks)
{
    return blocks * rnn->kernels->lanes;
}

static inline const rnl_panels *rnl_panels_of(const rnl_rnn *rnn, int64_t layer, int direction)
{
    return &rnn->panels[layer * rnl_num_directions(&rnn->spec) + direction];
}

#endif
