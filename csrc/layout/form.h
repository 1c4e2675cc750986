/*
 * A form: one RNN in one layout, with all options resolved. Names, shapes and places follow from
 * it. rnl_form_init() makes all checks; functions that take a form make none.
 */
#ifndef RNL_LAYOUT_FORM_H
#define RNL_LAYOUT_FORM_H

#include "layout/format.h"

typedef struct rnl_form {
    const rnl_row *row;
    rnl_spec spec;
    rnl_layout layout;
    unsigned roles;     /* those that exist, bits 1 << rnl_role; but see rnl_form_has_piece() */
    rnl_z z;            /* of the option if the row has it, else of the row */
    double forget_bias; /* likewise */
} rnl_form;

rnl_status rnl_form_init(const rnl_layout *layout, const rnl_spec *spec, unsigned has,
                         rnl_form *form, rnl_error *err);

/* Does a slot of the row contain this role? */
bool rnl_row_has_role(const rnl_row *row, rnl_role role);

/* The gates of this cell that a piece contains: their number, the position of one of them (given by
 * cuDNN's number) in the row's order, and the letter of the k-th. */
int rnl_form_num_gates(const rnl_form *form, const rnl_piece *piece);
int rnl_form_gate_place(const rnl_form *form, const rnl_piece *piece, int gate);
char rnl_form_gate_letter(const rnl_form *form, const rnl_piece *piece, int k);

/* Does the piece exist in this layer? With skip_input, W does not exist in layer 0. */
bool rnl_form_has_piece(const rnl_form *form, const rnl_piece *piece, int64_t layer);

/* The piece that contains a block, and its slot; NULL if the layout does not contain it. */
const rnl_piece *rnl_form_find(const rnl_form *form, const rnl_block *block, const rnl_slot **slot);

/* Piece k of a slot, in memory order, which an option may reverse. */
const rnl_piece *rnl_form_piece(const rnl_form *form, const rnl_slot *slot, int k);
int rnl_num_pieces(const rnl_slot *slot);

/* Does any piece of the slot exist? The same for all layers: skip_input has no effect here. */
bool rnl_form_has_slot(const rnl_form *form, const rnl_slot *slot);

/* The number of elements along one axis, for a piece in a layer. */
int64_t rnl_axis_extent(const rnl_form *form, char axis, const rnl_piece *piece, int64_t layer);

/* The number of elements of a piece along the `+`. */
int64_t rnl_fill_extent(const rnl_form *form, const rnl_piece *piece, int64_t layer);

/* The number of elements along one dimension: the axes [from, to) of the slot's shape. */
int64_t rnl_slot_dimension(const rnl_form *form, const rnl_slot *slot, const char *from,
                           const char *to, int64_t layer);

/* The dimensions of a slot's tensor, or of one turn of its walk. Return their number. */
int rnl_slot_shape(const rnl_form *form, const rnl_slot *slot, int64_t layer, int64_t *shape);

/* The number of elements of a walking slot before (layer, direction); the direction has no effect
 * if the slot walks along layers only. For layer == num_layers: the number of all its elements. */
int64_t rnl_walk_nelems(const rnl_form *form, const rnl_slot *slot, int64_t layer, int direction);

/* The index of the tensor that contains a slot in a layer, direction and gate; and tensor k. */
int64_t rnl_form_num_tensors(const rnl_form *form);
int64_t rnl_form_tensor_index(const rnl_form *form, const rnl_slot *slot, int64_t layer,
                              int direction, int gate);
void rnl_form_tensor(const rnl_form *form, int64_t k, rnl_tensor *tensor);

/* Find the place of a block; view->tensor is -1 if the layout does not contain it. */
void rnl_form_locate(const rnl_form *form, const rnl_block *block, rnl_view *view);

#endif
