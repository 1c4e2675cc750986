/* A stepper in memory of the caller. */
#ifndef RNL_FORWARD_STEPPER_H
#define RNL_FORWARD_STEPPER_H

#include "forward/recurrence.h"

typedef struct rnl_stepped {
    rnl_recurrence job;
    rnl_buffers states;
    int current; /* the index in states.h of the buffer with the state */
} rnl_stepped;

struct rnl_stepper {
    const rnl_rnn *rnn;
    rnl_dtype dtype; /* of x, y and the states that are set and got */
    bool copies_x;
    int64_t num_layers, state_size;
    int64_t x_nbytes, y_nbytes; /* of a step, in dtype                         */
    int64_t sums_nbytes;        /* of a step                                   */
    int64_t at_once;            /* maximum number of steps per product of x    */
    char *x;                    /* the inputs of STEPS_AT_ONCE steps: REAL      */
    char *sums;                 /* of the first layer, for STEPS_AT_ONCE steps */
    rnl_stepped *layers;
};

/* Place a stepper of an RNN with panels and a single direction in memory and return the size;
 * memory NULL: only the size. The state is not set. */
rnl_size rnl_stepper_place(rnl_stepper *stepper, const rnl_rnn *rnn, rnl_dtype dtype, char *memory);

#endif
