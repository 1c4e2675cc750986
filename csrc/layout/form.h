/*
 * A form: one RNN in one layout with everything resolved, from which names, shapes and places
 * follow. Internal; rnl_form_init makes all checks, what takes a form makes none.
 */
#ifndef RNL_LAYOUT_FORM_H
#define RNL_LAYOUT_FORM_H

#include "layout/format.h"

typedef struct rnl_form {
    const rnl_row *row;
    rnl_spec spec;
    rnl_layout layout;
    unsigned roles; /* 1 << rnl_role: which exist; W of layer 0 is asked of rnl_form_piece */
    rnl_z z;        /* row's or option's */
} rnl_form;

rnl_status rnl_form_init(const rnl_layout *layout, const rnl_spec *spec, unsigned has,
                         rnl_form *form, rnl_error *err);

/* Do the row's slots have a place for this role? */
bool rnl_row_has_role(const rnl_row *row, rnl_role role);

/* Is the piece there in this layer? */
bool rnl_form_has_piece(const rnl_form *form, rnl_role role, int64_t layer);

/* Piece k of a slot in the order of memory, which an option may reverse. */
const rnl_piece *rnl_form_piece(const rnl_form *form, const rnl_slot *slot, int k);
int rnl_num_pieces(const rnl_slot *slot);

/* Is the slot there: has it any piece? (Decided for a deep layer, so alike for all.) */
bool rnl_form_has_slot(const rnl_form *form, const rnl_slot *slot);

/* The number of the gate, which is cuDNN's, in the row's order of gates. */
int rnl_form_gate_place(const rnl_form *form, rnl_role role, int gate);

/* Number of elements along one axis, for a role in a layer. */
int64_t rnl_axis_extent(const rnl_form *form, char axis, rnl_role role, int64_t layer);

/* Number of elements that a piece takes along the `+`. */
int64_t rnl_fill_extent(const rnl_form *form, const rnl_piece *piece, int64_t layer);

/* Number of elements along one dimension, which is the axes [from, to) of the slot's shape. */
int64_t rnl_slot_dimension(const rnl_form *form, const rnl_slot *slot, const char *from,
                           const char *to, int64_t layer);

/* Dimensions of one slot's tensor, or of one turn of its walk. Returns their number. */
int rnl_slot_shape(const rnl_form *form, const rnl_slot *slot, int64_t layer, int64_t *shape);

/* Elements of a walking slot before (layer, direction); layer == num_layers: all of them. */
int64_t rnl_walk_nelems(const rnl_form *form, const rnl_slot *slot, int64_t layer, int direction);

/* The tensor that holds (slot, layer, direction, gate), and the reverse. */
int64_t rnl_form_num_tensors(const rnl_form *form);
int64_t rnl_form_tensor_index(const rnl_form *form, const rnl_slot *slot, int64_t layer,
                              int direction, int gate);
void rnl_form_tensor(const rnl_form *form, int64_t k, rnl_tensor *tensor);

/* Where a block lies; view->tensor -1 when it has no place. */
void rnl_form_locate(const rnl_form *form, const rnl_block *block, rnl_view *view);

#endif
