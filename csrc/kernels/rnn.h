/*
 * The kernels of the forward pass, for one kind of CPU, one dtype of weights and its arithmetic
 * (REAL: double for float64 weights, else float).
 *
 * Units of the hidden state stand in blocks of as many as a vector has lanes. A panel holds a
 * matrix of some gates for such vectors: [block][k][gate][lane], of bfloat16 weights two k in a
 * lane, [block][k / 2][gate][lane][k % 2]; sums stand as [row][block][slot][lane], states as
 * [row][block][lane], the lanes past the last unit being zero weights. All aligned to 64.
 *
 * Every sum is one chain: start, then k = 0, 1, ... with one multiply-add each. Whatever is tiled,
 * split or batched, its bits are the same.
 */
#ifndef RNL_KERNELS_RNN_H
#define RNL_KERNELS_RNN_H

#include "core/dtype.h"

enum { RNL_MAX_GATES = 4, RNL_MAX_LANES = 16 };

/* Matrices of some gates as they are given: (units, K) each, at `row` elements from unit to unit.
 */
typedef struct rnl_matrices {
    const void *of_gate[RNL_MAX_GATES]; /* NULL once they are packed */
    int64_t row, units, K;
    int gates;
} rnl_matrices;

/* One slot of what sums begin with, [block][slot][lane]: two biases added; NULL: none. */
typedef struct rnl_start {
    const void *biases[2];
    int64_t units;
    int slots, slot;
    void *start; /* REAL */
} rnl_start;

/* acc[row][block][slot[g]] = start[row][block][slot[g]] + sum over k of x[row][k] *
 * panel[block][k][g] */
typedef struct rnl_product {
    const void *panel;
    const rnl_matrices *of;  /* what the panel holds; direct() reads them themselves          */
    int slots;               /* of the sums                                                   */
    int slot[RNL_MAX_GATES]; /* where the sums of a gate stand                                */
    int copied;              /* one more slot, which is start's; -1: none                     */
    int64_t first, last;     /* blocks first ... last - 1                                     */
    bool backwards;          /* the last block first                                          */
    int64_t rows;
    const void *x; /* REAL */
    int64_t x_row; /* elements from row to row */
    const void *start;
    int64_t start_row; /* 0: all rows alike */
    void *acc;         /* may be start */
    int64_t acc_row;
} rnl_product;

typedef enum rnl_step_kind {
    RNL_STEP_LSTM,       /* slots i f g o                                                     */
    RNL_STEP_GRU,        /* slots r z and n of the input, n of the state: reset after         */
    RNL_STEP_RESET,      /* slots r z n: out = r h, for the matrix of a GRU with reset before */
    RNL_STEP_GRU_BEFORE, /* slots r z n                                                       */
    RNL_STEP_TANH,
    RNL_STEP_RELU
} rnl_step_kind;

/* From sums to the next state. */
typedef struct rnl_gates {
    rnl_step_kind kind;
    rnl_activation activation;
    bool clips;
    double low, high;
    int slots;
    int64_t first, last, rows;
    const void *acc;
    int64_t acc_row;
    const void *h; /* of GRUs: the state before */
    void *c;       /* of LSTMs */
    void *out;
    int64_t state_row; /* of h, c and out */
} rnl_gates;

typedef void rnl_product_fn(const rnl_product *job);

typedef struct rnl_rnn_kernels {
    int lanes;
    int pair; /* k in a lane of a panel */
    void (*pack)(const rnl_matrices *from, void *panel, bool stream);
    void (*start)(const rnl_start *job);
    rnl_product_fn *product;
    rnl_product_fn *direct;    /* the same without a panel; NULL: there is none */
    rnl_product_fn *add_input; /* acc = start + x in all slots but the copied one,
                                                  which is start's; x is [row][block][lane] */
    void (*gates)(const rnl_gates *job);
} rnl_rnn_kernels;

/* Which are there: one row a dtype of weights, and one for bfloat16 weights with x rounded to
 * bfloat16 in products, whose sums stay in float. */
enum { RNL_ROUNDED = RNL_NUM_DTYPES, RNL_NUM_RNN_KERNELS };

/* Of the tier that runs (kernels/tier.h). */
const rnl_rnn_kernels *rnl_rnn_kernels_get(int which);

#endif
