/*
 * A row of the table of layouts (formats.c), and the grammar of a row.
 *
 * axis    a letter: d direction, g gate, o output unit, i input unit, l layer. The axis l has
 *         length 1, because layers of different sizes do not share a tensor of two or more
 *         dimensions. A peephole is the diagonal of a matrix: o and i both mean the units.
 * shape   the shape of the tensor, slowest axis first, with a comma between dimensions: "go,i" is
 *         (G*H, I). A `+` joins pieces one after another; `fill` has the axes of each piece along
 *         the `+`: "+,go" with two pieces is (2, G*H), "d,+" with fills "go" and "go" is
 *         (D, 2*G*H), "o,+" with fills "i" and "i" is (H, H + I). A piece may contain only some of
 *         the gates; a slot does not exist in a cell without any of these gates.
 * per     the axes, of l and d, that make separate tensors.
 * name    {s} prefix of a stack: the layer, and the direction unless the name has {d:a|b};
 *         {l} layer, {p} number of the layer and direction (D * l + d), {d:a|b} `a` in the first
 *         direction and `b` in the second, {g} gate. A slot with {g} in the name has a tensor per
 *         gate of the first piece. The name of a gate is the letter, unless gate_names replaces the
 *         letter: "f:forget g:cell".
 */
#ifndef RNL_LAYOUT_FORMAT_H
#define RNL_LAYOUT_FORMAT_H

#include <stdbool.h>

#include "model/spec.h"

/* An empty slot ends the list of slots, so a row has at most RNL_MAX_SLOTS - 1. */
enum { RNL_MAX_PIECES = 3, RNL_MAX_SLOTS = 9 };

typedef struct rnl_piece {
    rnl_role role;     /* RNL_NO_ROLE ends the list */
    const char *fill;  /* axes along the `+`; NULL: a single element */
    const char *gates; /* the gates in the piece; NULL: all gates    */
} rnl_piece;

typedef struct rnl_slot {
    const char *name;
    const char *shape;
    rnl_piece pieces[RNL_MAX_PIECES + 1];
    const char *gate_names; /* "letter:name letter:name ..."; NULL: the letters */
    const char *repeats;    /* "ld": the tensor repeats the slot per layer and direction; "l": per
                               layer, and d is in the fills; NULL: not repeated */
    bool continues; /* follows the previous slot in the same tensor                             */
    bool ravels;    /* the (i, o) window of a gate, read row by row, is the (o, i) matrix       */
} rnl_slot;

typedef enum rnl_z { RNL_Z_KEEPS_STATE, RNL_Z_TAKES_CANDIDATE } rnl_z;

typedef struct rnl_row {
    const char *layout;
    const char *gates[RNL_NUM_CELLS]; /* letters in memory order; NULL: cell not supported      */
    unsigned resets;                  /* of the GRUs: bits 1 << rnl_reset                       */
    unsigned activations;             /* bits 1 << rnl_activation                               */
    const char *per;
    rnl_slot slots[RNL_MAX_SLOTS];
    unsigned options; /* bits 1 << index into rnl_options */
    rnl_z z;
    double forget_bias; /* added to the bias of f at run time, not stored; needs bias_always  */
    bool bias_by_mode;  /* spec->bias selects the biases, and skip_input leaves out W         */
    bool bias_always;   /* every layer has biases                                             */
    bool must_name;     /* read only if the caller names the layout: the tensors look like the
                           tensors of another layout                                          */
    bool has_relu;      /* LSTMs and GRUs may have relu in place of tanh                      */
    rnl_checked checked;
    const char *source;
} rnl_row;

extern const rnl_row rnl_rows[];
extern const int rnl_num_rows;
extern const int rnl_num_listed; /* the first rows, which rnl_row_at() lists */

/* Aliases of layouts. */
extern const rnl_alias rnl_aliases[];
extern const int rnl_num_aliases;

/* The options of all layouts. */
enum { RNL_OPT_INPUTS, RNL_OPT_Z, RNL_OPT_VERSION, RNL_OPT_FORGET_BIAS };
extern const rnl_option rnl_options[RNL_NUM_OPTIONS];

#endif
