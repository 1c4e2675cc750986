/* What follows from a spec: numbers of gates and directions, widths, and its blocks in order. */
#ifndef RNL_MODEL_SPEC_H
#define RNL_MODEL_SPEC_H

#include "rnnlayout.h"

/* More layers than any network has; it bounds the lists that grow with their number. */
enum { RNL_MAX_LAYERS = 65536, RNL_NUM_CELLS = RNL_RNN_RELU + 1 };

/* How many gates a cell has. */
int rnl_num_gates(rnl_cell cell);

int rnl_num_directions(const rnl_spec *spec);

/* P': the width of h, which the recurrent matrices and the next layer read. */
int64_t rnl_state_size(const rnl_spec *spec);

/* What layer `layer` reads: I, then D * P'. */
int64_t rnl_layer_input(const rnl_spec *spec, int64_t layer);

/* Rows and columns of a block: (outputs, inputs), (H, 1) for vectors. */
void rnl_block_shape(const rnl_spec *spec, const rnl_block *block, int64_t *rows, int64_t *cols);

#endif
