/*
 * A row of the table of layouts (formats.c), and its grammar.
 *
 * An axis is a letter: d direction, g gate, o output unit, i input unit; l layer, of length 1,
 *         because layers that differ in size do not share a tensor of more than one dimension. A
 *         peephole is the diagonal of a matrix: both o and i are its units.
 * shape   the shape of the tensor, slowest axis first, with a comma between dimensions: "go,i" is
 *         (G*H, I). A `+` joins pieces one after the other; `fill` gives the axes of each piece
 *         along it: "+,go" with two pieces is (2, G*H), "d,+" with fills "go" and "go" is
 *         (D, 2*G*H), "o,+" with fills "i" and "i" is (H, H + I). A piece may contain some of the
 *         gates only; a slot does not exist in cells that have none of them.
 * per     those of l (layer) and d that make separate tensors.
 * name    {s} prefix of a stack, which names the layer, and the direction unless {d:a|b} does;
 *         {l} layer, {p} number of the layer and direction (D * l + d), {d:a|b} `a` in the first
 *         direction and `b` in the second, {g} gate. A slot with {g} in its name has one tensor per
 *         gate of its first piece. A gate is named by its letter, unless gate_names has another
 *         name for it: "f:forget g:cell".
 */
#ifndef RNL_LAYOUT_FORMAT_H
#define RNL_LAYOUT_FORMAT_H

#include <stdbool.h>

#include "model/spec.h"

enum { RNL_MAX_PIECES = 3, RNL_MAX_SLOTS = 6 };

typedef struct rnl_piece {
    rnl_role role;     /* RNL_NO_ROLE ends the list */
    const char *fill;  /* its axes along the `+`; NULL: one element */
    const char *gates; /* those that it contains; NULL: all */
} rnl_piece;

typedef struct rnl_slot {
    const char *name;
    const char *shape;
    rnl_piece pieces[RNL_MAX_PIECES + 1];
    const char *gate_names; /* "letter:name letter:name ..."; NULL: the letters */
    const char *walks; /* "ld": repeated inside one tensor for each layer, each direction of it;
                          "l": for each layer, and d is in the fills; NULL: not repeated */
    bool continues; /* follows the slot before it in the same tensor                            */
    bool ravels;    /* the (i, o) window of a gate, read row by row, is the (o, i) matrix       */
} rnl_slot;

typedef enum rnl_z { RNL_Z_KEEPS_STATE, RNL_Z_TAKES_CANDIDATE } rnl_z;

typedef struct rnl_row {
    const char *layout;
    const char *gates[RNL_NUM_CELLS]; /* letters in memory order; NULL: cell not supported      */
    unsigned resets;                  /* those of its GRUs: bits 1 << rnl_reset                 */
    unsigned activations;             /* bits 1 << rnl_activation                               */
    const char *per;
    rnl_slot slots[RNL_MAX_SLOTS];
    unsigned options; /* bits 1 << index into rnl_options */
    rnl_z z;
    double forget_bias; /* added to the bias of f at run time, not stored; needs bias_always */
    bool bias_by_mode;  /* spec->bias decides which biases exist, and skip_input leaves out W */
    bool bias_always;   /* every layer has biases                                             */
    bool must_name;     /* tensors that look like another layout's are read only if it is named */
    bool has_relu;      /* LSTMs and GRUs may have relu where others have tanh                 */
    rnl_checked checked;
    const char *source;
} rnl_row;

extern const rnl_row rnl_rows[];
extern const int rnl_num_rows;
extern const int rnl_num_listed; /* rows before this one are for users */

/* Other names of layouts. */
extern const rnl_alias rnl_aliases[];
extern const int rnl_num_aliases;

/* The options of all layouts. */
enum { RNL_OPT_INPUTS, RNL_OPT_Z, RNL_OPT_VERSION, RNL_OPT_FORGET_BIAS };
extern const rnl_option rnl_options[RNL_NUM_OPTIONS];

#endif
