/*
 * The kernels of the forward pass, for a kind of CPU, a dtype of weights and an arithmetic (REAL:
 * double for float64 weights, otherwise float).
 *
 * A block is as many units of the hidden state as a vector has lanes. The arrays are:
 *   panel   a matrix of some gates, [block][k][gate][lane]; of bfloat16 weights with two k in a
 *           lane, [block][k / 2][gate][lane][k % 2]; zero in lanes after the last unit; of
 *           RNL_BYTES see kernels/rnn_bytes.inc
 *   sums    [row][block][sum][lane]
 *   states  [row][block][lane]
 * All are aligned to 64 bytes.
 *
 * Every sum is a chain of multiply-adds: from start, for k = 0, 1, ... (in a backward pass a chain
 * of chains, see `terms`). So the bits of a sum do not depend on tiles, threads or the batch.
 */
#ifndef RNL_KERNELS_RNN_H
#define RNL_KERNELS_RNN_H

#include "core/dtype.h"

enum { RNL_MAX_GATES = 4, RNL_MAX_LANES = 16, RNL_NUM_PEEPHOLES = 3 };

/* The matrices of some gates in the caller's weights: (units, K) each, with `row` elements from
 * unit to unit. */
typedef struct rnl_matrices {
    const void *of_gate[RNL_MAX_GATES]; /* NULL after packing */
    int64_t row, units, K;
    int gates;
} rnl_matrices;

/* The start values of a sum, or the peepholes of a gate, in [block][sum][lane]: the sum of two
 * vectors (NULL: no vector). */
typedef struct rnl_start {
    const void *biases[2];
    int64_t units;
    int num_sums, sum;
    void *start; /* REAL */
} rnl_start;

/* acc[row][block][sum_of_gate[g]] = start[row][block][sum_of_gate[g]] + sum over k of
 * x[row][k] * panel[block][k][g] */
typedef struct rnl_product {
    const void *panel;
    const rnl_matrices *of; /* the matrices in the panel; direct() reads the matrices */
    int num_sums;           /* per unit                                               */
    int sum_of_gate[RNL_MAX_GATES];
    int gate;            /* used by the kernels: the first gate in the panel that is multiplied */
    int copied_sum;      /* a sum that is copied from start; -1: no sum */
    int64_t terms;       /* of a single gate: so many terms are added up by themselves, and then to
                            the sum, which rounds less than one chain of many; 0: one chain */
    int64_t first, last; /* blocks first ... last - 1                   */
    bool backwards;      /* process the last block first                */
    int64_t rows;
    const void *x; /* REAL */
    int64_t x_row; /* elements from row to row */
    const void *start;
    int64_t start_row; /* 0: all rows have the same start */
    void *acc;         /* may be start */
    int64_t acc_row;
    void *scratch; /* rnl_rnn_kernels.scratch() bytes for this thread alone; may be NULL */
} rnl_product;

typedef enum rnl_step_kind {
    RNL_STEP_LSTM,       /* sums i f g o                                                          */
    RNL_STEP_PEEPHOLES,  /* the same, with peepholes                                              */
    RNL_STEP_GRU,        /* reset after; sums r z, n of the input, n of the state                 */
    RNL_STEP_RESET,      /* sums r z n: out = r h, the input of R_n in a GRU with reset before    */
    RNL_STEP_GRU_BEFORE, /* reset before; sums r z n                                              */
    RNL_STEP_TANH,
    RNL_STEP_RELU
} rnl_step_kind;

/* Compute the next state from the sums. */
typedef struct rnl_gates {
    rnl_step_kind kind;
    rnl_activation activation;
    bool relu; /* LSTM, GRU: relu replaces tanh */
    bool clips;
    double low, high;
    int64_t first, last, rows;
    const void *acc;
    int64_t acc_row;
    const void *h;         /* GRU: the previous state */
    const void *c;         /* LSTM: the cell state        */
    void *c_next;          /* LSTM: after the step; may be c */
    const void *peepholes; /* RNL_STEP_PEEPHOLES: of i f o, [block][sum][lane] */
    void *out;
    int64_t state_row; /* of h, c, c_next and out */
} rnl_gates;

/*
 * Compute the gradients of the sums from the gradient of the next state. A gradient is that of a
 * loss. The gates are computed again from the sums. Gradients of sums are written twice:
 *   dsums  [row][slot][block][lane], an operand of products with transposed matrices
 *   panel  [slot][block][row][lane], a panel for products that add over rows
 * A cell's slots: LSTM i f g o; GRU n of the input, r, z, n of the state; reset before r z n. So in
 * dsums the gates of W, and those of R, follow each other.
 */
typedef struct rnl_gates_backward {
    rnl_step_kind kind; /* RNL_STEP_RESET comes after RNL_STEP_GRU_BEFORE, and reads r h's gradient
                           from dy */
    bool projects;      /* no step, slot 0 alone: dsums = dh + dy, of the projected state */
    rnl_activation activation;
    bool relu;
    int64_t first, last, blocks, rows;
    const void *acc; /* the sums of the step; not of a plain RNN */
    int64_t acc_row;
    const void *h, *h_next; /* GRU: the state before. Plain RNN: the state after */
    const void *c, *c_next; /* LSTM: the cell state before and after         */
    void *out;      /* reset before: r h. LSTM: the state, before a projection; may be NULL */
    void *dh;       /* gradient of the next state; GRU: then that of h, but for the sums' part */
    const void *dy; /* added to dh; may be NULL                      */
    int64_t dy_row;
    void *dc;                  /* LSTM: gradient of c_next, then of c */
    int64_t state_row, dh_row; /* of h, c, c_next and out; of dh and dc */
    const void *peepholes;
    void *dpeepholes; /* their gradient is added, in the same order */
    void *dsums;
    int64_t dsums_row;
    void *panel;
    int64_t panel_rows; /* rows from block to block */
} rnl_gates_backward;

/* A step: the input's product and then the state's product are added to the sums, and gates()
 * computes the next state. acc of input, start and acc of state, and acc of gates are the sums. */
typedef struct rnl_rnn_step {
    rnl_product input; /* no rows: state.start contains the input's product already */
    rnl_product state;
    rnl_gates gates;
} rnl_rnn_step;

/* Return the number of sums per unit. */
static inline int rnl_num_sums(rnl_step_kind kind)
{
    return kind >= RNL_STEP_TANH                                   ? 1
           : kind == RNL_STEP_RESET || kind == RNL_STEP_GRU_BEFORE ? 3
                                                                   : 4;
}

typedef void rnl_product_fn(const rnl_product *job);

typedef struct rnl_rnn_kernels {
    int lanes;
    int pair;   /* number of k in a lane of the panel              */
    int nbytes; /* of a weight in the panel                         */
    int head;   /* bytes per gate and unit before the weights       */
    void (*pack)(const rnl_matrices *from, void *panel);
    /* of a gate; NULL: the panel has the bits of the weights */
    void (*unpack)(const rnl_matrices *of, const void *panel, int gate, void *to);
    void (*start)(const rnl_start *job);
    rnl_product_fn *product;
    int64_t (*scratch)(int64_t rows, int64_t K); /* bytes that product() needs for so many rows and
                                          k, or for fewer; NULL: none */
    int rows; /* number of rows that product() gets at a time from a call with as many rows, to read
                 the panel once for all; 0: any number */
    rnl_product_fn *direct;    /* the same without a panel; may be NULL */
    rnl_product_fn *add_input; /* acc = start + x, but acc = start in copied_sum; x is
                                  [row][block][lane] */
    void (*gates)(const rnl_gates *job);
    void (*gates_backward)(
        const rnl_gates_backward *job);    /* of rows of float32 and float64 alone */
    void (*step)(const rnl_rnn_step *job); /* of a single row: both products and gates(); writes acc
                                              for RNL_STEP_RESET only; may be NULL */
} rnl_rnn_kernels;

/* The kernels of a tier: a row per dtype of weights, and two rows with products that round:
 * RNL_ROUNDED has bfloat16 weights and rounds x to bfloat16; RNL_BYTES rounds float32 weights to a
 * byte and x to two bytes (kernels/rnn_bytes.inc). Sums are float. */
enum { RNL_ROUNDED = RNL_NUM_DTYPES, RNL_BYTES, RNL_NUM_RNN_KERNELS };

/* Return a row of the tier in use (kernels/tier.h), for RNNs with this number of units. */
const rnl_rnn_kernels *rnl_rnn_kernels_get(int index, int64_t units);

#endif
