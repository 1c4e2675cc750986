/* The rows of a layout that is read from JSON (rnl_layout_from_json), and the parts of the reader.
 */
#ifndef RNL_LAYOUT_USER_ROWS_H
#define RNL_LAYOUT_USER_ROWS_H

#include "core/json.h"
#include "core/status.h"
#include "layout/form.h"

enum {
    RNL_MAX_USER_ROWS = 4,
    RNL_MAX_USER_SLOTS = RNL_MAX_SLOTS - 1,
    RNL_MAX_USER_NAME = 40, /* bytes of the layout's name, with the NUL */
    RNL_USER_TEXTS = 16384, /* bytes of all texts: 4 * 8 slots of two words (RNL_WORD) need less */
    RNL_MAX_LAYOUT_JSON = 65536
};

#define RNL_UNNAMED "custom" /* the name of a layout without a name */

/* The rows, and the texts that they point to. */
typedef struct rnl_user_rows {
    rnl_row rows[RNL_MAX_USER_ROWS];
    char name[RNL_MAX_USER_NAME];
    size_t used; /* bytes of texts */
    char texts[RNL_USER_TEXTS];
} rnl_user_rows;

/* A reader of rows. `place` is the name of the field that is read, for errors:
 * "rows[1].tensors.kernel". */
typedef struct rnl_row_reader {
    rnl_user_rows *user_rows;
    rnl_row *row;
    int num_rows, num_slots; /* num_slots: of `row` */
    bool in_rows;            /* `row` is an item of the field "rows" */
    unsigned fields;         /* that were read: of `row` if in_rows, else of the layout */
    char place[2 * RNL_WORD];
    rnl_error *err;
} rnl_row_reader;

/* Fail because of the field that is read. */
rnl_status rnl_wrong_field(const rnl_row_reader *reader, const char *format, ...) RNL_PRINTF(2, 3);

/* Keep a text as long as the rows. */
const char *rnl_keep_text(rnl_row_reader *reader, const char *text);

/* Read the name and the contents of a tensor, "W + R (I + H, G*H)", into a slot. */
rnl_status rnl_read_slot_name(rnl_row_reader *reader, const char *text, rnl_slot *slot);
rnl_status rnl_read_slot(rnl_row_reader *reader, const char *text, rnl_slot *slot);

/* Write the name of a slot as a row has it: "W_l{layer}". */
void rnl_slot_name_as_written(const rnl_slot *slot, char *text, size_t nbytes);

/* Do the slots of a row fit together? Every axis that a piece needs is present, once. */
rnl_status rnl_check_axes(rnl_row_reader *reader);

/* Is every element of a tensor in exactly one block, in every RNN of the layout? */
rnl_status rnl_check_tiles(const rnl_layout *layout, rnl_error *err);

/* Return the letters of the axes of a piece: of the slot's shape and of the fill. */
void rnl_axes_of_piece(const rnl_slot *slot, const rnl_piece *piece, char *letters, size_t nbytes);

#endif
