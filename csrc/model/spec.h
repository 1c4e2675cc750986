/* What follows from a spec: numbers of gates and directions, widths, shapes of blocks. */
#ifndef RNL_MODEL_SPEC_H
#define RNL_MODEL_SPEC_H

#include "rnnlayout.h"

/* RNL_MAX_LAYERS bounds the lists that grow with the number of layers. No network has so many
 * layers. */
enum { RNL_MAX_LAYERS = 65536, RNL_NUM_CELLS = RNL_RNN_RELU + 1 };

/* Return the key of a family in JSON, which is the name of a field of rnl_spec. */
const char *rnl_family_key(rnl_family family);

int rnl_num_gates(rnl_cell cell);

int rnl_num_directions(const rnl_spec *spec);

/* P': the width of h, which is the input of the recurrent matrices and of the next layer. */
int64_t rnl_state_size(const rnl_spec *spec);

/* The number of inputs of a layer: I for the first layer, D * P' for the others. */
int64_t rnl_layer_input(const rnl_spec *spec, int64_t layer);

/* The rows and columns of a block: (outputs, inputs) of a matrix, (H, 1) of a vector. */
void rnl_block_shape(const rnl_spec *spec, const rnl_block *block, int64_t *rows, int64_t *cols);

#endif
