/*
 * A form: an RNN in a layout, with all options resolved. Names, shapes and places follow from the
 * form. rnl_form_init() makes all checks; functions with a form as argument make no checks.
 */
#ifndef RNL_LAYOUT_FORM_H
#define RNL_LAYOUT_FORM_H

#include "layout/format.h"

typedef struct rnl_form {
    const rnl_row *row;
    rnl_spec spec;
    rnl_layout layout;
    unsigned roles;     /* roles that exist, bits 1 << rnl_role; but see rnl_form_has_piece() */
    rnl_z z;            /* of the row, or of the option RNL_OPT_Z if the row has this option */
    double forget_bias; /* likewise */
} rnl_form;

rnl_status rnl_form_init(const rnl_layout *layout, const rnl_spec *spec, unsigned optional,
                         rnl_form *form, rnl_error *err);

/* Return the form of a row without an RNN: the options alone are resolved. */
rnl_form rnl_form_of_row(const rnl_layout *layout, const rnl_row *row);

/* Does a slot of the row contain this role? */
bool rnl_row_has_role(const rnl_row *row, rnl_role role);

/* The gates of this cell in a piece. Return the number of gates, the position of a gate (cuDNN's
 * number) in the row's order, and the letter of the gate at position k. */
int rnl_form_num_gates(const rnl_form *form, const rnl_piece *piece);
int rnl_form_gate_place(const rnl_form *form, const rnl_piece *piece, int gate);
char rnl_form_gate_letter(const rnl_form *form, const rnl_piece *piece, int k);

/* Does the piece exist in this layer? With skip_input, W does not exist in layer 0. */
bool rnl_form_has_piece(const rnl_form *form, const rnl_piece *piece, int64_t layer);

/* Return the piece that contains a block, and the slot of the piece; NULL: the layout does not
 * contain the block. */
const rnl_piece *rnl_form_find(const rnl_form *form, const rnl_block *block, const rnl_slot **slot);

/* Return piece k of a slot in memory order. An option may reverse the order. */
const rnl_piece *rnl_form_piece(const rnl_form *form, const rnl_slot *slot, int k);
int rnl_num_pieces(const rnl_slot *slot);

/* Does any piece of the slot exist? The same for all layers: skip_input has no effect here. */
bool rnl_form_has_slot(const rnl_form *form, const rnl_slot *slot);

/* Return the number of elements along an axis, for a piece in a layer. */
int64_t rnl_axis_extent(const rnl_form *form, char axis, const rnl_piece *piece, int64_t layer);

/* Return the number of elements of a piece along the `+`. */
int64_t rnl_fill_extent(const rnl_form *form, const rnl_piece *piece, int64_t layer);

/* Return the number of elements along a dimension, the axes [from, to) of the slot's shape. */
int64_t rnl_slot_dimension(const rnl_form *form, const rnl_slot *slot, const char *from,
                           const char *to, int64_t layer);

/* Get the shape of a slot's tensor, or of a single repetition of the slot. Return the number of
 * dimensions. */
int rnl_slot_shape(const rnl_form *form, const rnl_slot *slot, int64_t layer, int64_t *shape);

/* Return the number of elements of a repeated slot before (layer, direction); the direction has no
 * effect if the slot repeats per layer only. For layer == num_layers: of all repetitions. */
int64_t rnl_repeated_nelems(const rnl_form *form, const rnl_slot *slot, int64_t layer,
                            int direction);

/* Return the number of tensors, and the index of the tensor that contains a slot in a layer,
 * direction and gate. Get tensor k. */
int64_t rnl_form_num_tensors(const rnl_form *form);
int64_t rnl_form_tensor_index(const rnl_form *form, const rnl_slot *slot, int64_t layer,
                              int direction, int gate);
void rnl_form_tensor(const rnl_form *form, int64_t k, rnl_tensor *tensor);

/* Find the place of a block; view->tensor is -1 if the layout does not contain the block. */
void rnl_form_locate(const rnl_form *form, const rnl_block *block, rnl_view *view);

#endif
