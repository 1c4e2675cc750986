/* What the files of the backward pass share: a running pass, and its matrices.
 *
 * Each matrix M of some gates takes part in two products with dS, the gradients of the gates' sums.
 * `back`: dS M is the gradient of M's operand, which is the previous state or the layer's input.
 * `gradient`: dS^T operand, added up over all rows, is the gradient of M. A row of ones in the
 * operand gives that of the bias.
 *
 * Both are products of the forward pass (kernels/rnn.h) with a single gate. The panel of `back` has
 * M by columns. The panel of `gradient` is dS, and its x is the operand, transposed. */
#ifndef RNL_FORWARD_BACKWARD_H
#define RNL_FORWARD_BACKWARD_H

#include "forward/tape.h"

/* A matrix of a layer and direction. */
typedef struct rnl_factor {
    rnl_operand operand;      /* no gates: absent, and x itself is added to the sums              */
    int gates;                /* of dS that belong to the matrix, also if it is absent; 0: unused */
    int first_slot;           /* of dsums, see rnl_gates_backward                                 */
    int slot[RNL_MAX_GATES];  /* of each gate, counted from first_slot                            */
    int64_t K, parts;         /* columns; of so many states that are padded one by one            */
    int64_t units, in_blocks; /* rows of a gate, padded; blocks of columns                        */
    char *panel;              /* of `back`: [block of columns][slot][unit][lane]                  */
    char *gradient;           /* [column][slot][unit], then a row for the bias                    */
    int64_t gradient_row;     /* elements from row to row                                         */
    char *transposed;         /* the operand: [column][row of the group], then a row of ones      */
    char *dsums, *dsums_panel; /* of the group of steps                                           */
    int64_t dsums_row;
} rnl_factor;

typedef struct rnl_going_back {
    rnl_rnn *rnn;
    const rnl_gradients *call;
    const rnl_rnn_kernels *kernels;
    rnl_layout cpu; /* RNL_FORWARD_LAYOUT */
    rnl_crew crew;
    rnl_tape tape;
    rnl_rows rows;
    int64_t real, units, state, inputs; /* bytes; padded widths                              */
    int64_t steps_at_once, group;       /* steps, and at most rows, of a group of steps      */
    char *weights;         /* a copy of the weights; NULL: the operands point to the caller's */
    char *between[2];      /* gradients of a layer's outputs and inputs: [row][width]        */
    char *dh, *dc, *dfull; /* [rank][lane]                                                   */
    char *out;             /* of a group: r h, or the state before a projection, [row][lane] */
    char *dsums, *dsums_panel, *dprojected, *dprojected_panel; /* of a group                 */
    char *zeros, *dpeepholes;
    char *panel[RNL_NUM_OPERANDS], *gradient[RNL_NUM_OPERANDS], *transposed[RNL_NUM_OPERANDS];
} rnl_going_back;

/* A member in a layer and direction. */
typedef struct rnl_back_worker {
    const rnl_going_back *run;
    rnl_mate mate;
    int64_t layer, k; /* k: number of the layer and direction */
    int direction;
    const char *h, *c, *sums; /* in the tape                                           */
    const char *doutput;      /* [row], doutput_row elements apart; NULL: zeros        */
    char *dinput;             /* [row], dinput_row elements apart; NULL: not computed  */
    int64_t doutput_row, dinput_row;
    rnl_factor factors[RNL_NUM_OPERANDS];
} rnl_back_worker;

/* A group of steps, from ... to - 1, and their rows. */
typedef struct rnl_step_group {
    int64_t from, to, first, rows;
} rnl_step_group;

/* Place the buffers of all factors; see rnl_arena. */
void rnl_factors_place(rnl_going_back *run, rnl_arena *arena);

/* Describe the factors of the worker's layer and direction. */
void rnl_factors_describe(rnl_back_worker *w);

/* Put the member's columns of the matrices into the panels, and clear the member's part of the
 * gradients. */
void rnl_factors_begin(const rnl_back_worker *w);

/* Copy the member's part of the gradients from the weight space, or `back` to it. */
void rnl_factors_copy(const rnl_back_worker *w, bool back);

/* result = dS M, or with `adds` result += dS M, of some rows of the group. */
void rnl_factor_multiply(const rnl_back_worker *w, int j, int64_t row, int64_t rows, char *result,
                         int64_t result_row, bool adds);

/* Add the gradients of the matrices and biases of a group, whose operands are transposed. */
void rnl_factors_add(const rnl_back_worker *w, const rnl_step_group *steps);

static inline int64_t rnl_whole_lanes(const rnl_rnn_kernels *kernels, int64_t n)
{
    return (n + kernels->lanes - 1) / kernels->lanes * kernels->lanes;
}

#endif
