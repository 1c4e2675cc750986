/*
 * What a row of the table of layouts says (formats.c), and in which grammar.
 *
 * An axis is a letter: l layer, d direction, g gate, o output unit, i input unit.
 * shape   the tensor as its user sees it, slowest axis first, a comma between dimensions:
 *         "go,i" is (G*H, I). A `+` is where pieces are joined one after the other; each piece
 *         gives the axes that fill its share: "+,go" with two pieces is (2, G*H), "d,+" with
 *         fills "go" and "go" is (D, 2*G*H), "o,+" with fills "i" and "i" is (H, H + I).
 * per     which of l and d make separate tensors.
 * name    {s} prefix of a stack, {l} layer, {r} "_reverse" for the second direction, {g} gate; a
 *         slot with {g} in its name has a tensor for each gate.
 */
#ifndef RNL_LAYOUT_FORMAT_H
#define RNL_LAYOUT_FORMAT_H

#include <stdbool.h>

#include "model/spec.h"

enum { RNL_MAX_PIECES = 3, RNL_MAX_SLOTS = 6 };

typedef struct rnl_piece {
    rnl_role role;    /* RNL_NO_ROLE ends the list */
    const char *fill; /* its axes along the `+`, NULL for an extent of 1 */
} rnl_piece;

typedef struct rnl_slot {
    const char *name;
    const char *shape;
    rnl_piece pieces[RNL_MAX_PIECES + 1];
    bool walks;     /* looped over layers, then directions, inside one tensor                  */
    bool continues; /* its elements follow the slot before it, in the same tensor              */
    bool ravels;    /* each gate's (i, o) window, read row by row, is the (o, i) matrix        */
} rnl_slot;

typedef enum rnl_z { RNL_Z_KEEPS_STATE, RNL_Z_TAKES_CANDIDATE } rnl_z;

typedef struct rnl_row {
    const char *layout;
    const char *gates[RNL_NUM_CELLS]; /* order in memory, in letters; NULL: cell not held     */
    unsigned resets;                  /* 1 << rnl_reset, for GRUs                             */
    unsigned activations;             /* 1 << rnl_activation                                  */
    rnl_z z;
    const char *per;
    rnl_slot slots[RNL_MAX_SLOTS];
    bool bias_by_mode; /* spec->bias says which biases there are, and skip_input drops W    */
    bool bias_always;  /* there is no such layer without biases                             */
    unsigned options;  /* 1 << index into rnl_options                                       */
    const char *source;
} rnl_row;

extern const rnl_row rnl_rows[];
extern const int rnl_num_rows;
extern const int rnl_num_listed; /* the first so many are for users */

/* The options of all layouts. */
enum { RNL_OPT_INPUTS, RNL_OPT_Z, RNL_OPT_VERSION };
extern const rnl_option rnl_options[RNL_NUM_OPTIONS];

#endif
