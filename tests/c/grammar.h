/* Is a row of the table written in the grammar of format.h? */
#ifndef GRAMMAR_H
#define GRAMMAR_H

#include <string.h>

#include "layout/form.h"

/* Does every letter of the text occur in `letters`, and none of them twice? NULL is empty. */
static inline bool only(const char *text, const char *letters)
{
    for (const char *c = text ? text : ""; *c; c++)
        if (!strchr(letters, *c) || strchr(c + 1, *c))
            return false;
    return true;
}

/* The text after a placeholder of a name that begins at `c`, or NULL if it is wrong. */
static inline const char *after_placeholder(const char *c)
{
    const char *end = c + strcspn(c, "}");
    if (!*end)
        return NULL;
    if (end == c + 1)
        return strchr("slpg", *c) ? end + 1 : NULL;
    const char *bar = memchr(c, '|', (size_t)(end - c)); /* {d:a|b} */
    return c[0] == 'd' && c[1] == ':' && bar && !strchr(bar + 1, '|') ? end + 1 : NULL;
}

static inline bool name_is_good(const char *name)
{
    for (const char *c = name; c && *c;)
        if (*c == '}')
            return false;
        else if (*c != '{')
            c++;
        else if (!(c = after_placeholder(c + 1)))
            return false;
    return true;
}

/* Is it a list of "letter:name", without a letter twice? */
static inline bool gate_names_are_good(const char *names)
{
    char seen[16] = "";
    for (const char *c = names ? names : ""; *c;) {
        const size_t n = strcspn(c, " ");
        const bool ends = !c[n];
        if (n < 2 || c[1] != ':' || !strchr("ifgorznh", *c) || strchr(seen, *c))
            return false;
        strncat(seen, c, 1);
        c += n + !ends;
        if (!ends && !*c)
            return false;
    }
    return true;
}

/* Read the dimensions of a shape. Return their number, or 0 if one is wrong; *joins: is one a `+`?
 */
static inline int num_dimensions(const char *shape, bool *joins)
{
    int n = 1;
    *joins = false;
    for (const char *from = shape;; from++) {
        const char *to = from + strcspn(from, ",");
        const bool joined = to == from + 1 && *from == '+';
        if (to == from || (joined && *joins))
            return 0;
        for (const char *axis = from; axis < to && !joined; axis++)
            if (!strchr("ldgoi", *axis) || strchr(axis + 1, *axis))
                return 0;
        *joins |= joined;
        if (!*to)
            return n <= RNL_MAX_DIMS ? n : 0;
        from = to;
        n++;
    }
}

static inline bool same_gates(const rnl_piece *a, const rnl_piece *b)
{
    return strcmp(a->gates ? a->gates : "", b->gates ? b->gates : "") == 0;
}

/* Return what is wrong with a slot, or NULL. */
static inline const char *slot_mistake(const rnl_slot *slot)
{
    bool joins;
    if (!name_is_good(slot->name))
        return "a placeholder of the name";
    if (!gate_names_are_good(slot->gate_names) || (slot->gate_names && !strstr(slot->name, "{g}")))
        return "the names of gates";
    if (!num_dimensions(slot->shape, &joins))
        return "the shape";
    const bool each_gate = strchr(slot->shape, 'g') || strstr(slot->name, "{g}");
    if (slot->walks && (strcmp(slot->walks, "ld") != 0 && strcmp(slot->walks, "l") != 0))
        return "the walk";
    if (slot->walks && (strcmp(slot->shape, "+") != 0 || strstr(slot->name, "{")))
        return "a walk in a tensor that has more than one dimension, or per gate";
    const int n = rnl_num_pieces(slot);
    if (n < 1 || (n > 1 && !joins))
        return "the number of pieces";
    for (const rnl_piece *piece = slot->pieces; piece < slot->pieces + n; piece++) {
        if (!only(piece->fill, "dgoi") || (piece->fill && !joins))
            return "a fill";
        if (!only(piece->gates, "ifgorznh"))
            return "the gates of a piece";
        if (each_gate && !same_gates(piece, slot->pieces))
            return "pieces with different gates that share the axis g";
        if (slot->walks && !strchr(slot->walks, 'd') != (piece->fill && strchr(piece->fill, 'd')))
            return "a direction that is walked and in a fill, or in neither";
        for (const char *axis = piece->fill; axis && *axis; axis++)
            if (strchr(slot->shape, *axis))
                return "an axis of a fill that is in the shape too";
    }
    return NULL;
}

/* Does the row order all gates of the cell, or none? */
static inline bool gates_are_good(const rnl_row *row, rnl_cell cell)
{
    const char *gates = row->gates[cell];
    if (!gates)
        return true;
    for (int k = 0; k < rnl_num_gates(cell); k++)
        if (!strchr(gates, rnl_gate_letter(cell, k)))
            return false;
    return (int)strlen(gates) == rnl_num_gates(cell);
}

/* Return what is wrong with a row, or NULL. */
static inline const char *row_mistake(const rnl_row *row)
{
    for (rnl_cell cell = RNL_LSTM; cell <= RNL_RNN_RELU; cell++)
        if (!gates_are_good(row, cell))
            return "the gates";
    if (!only(row->per, "ld"))
        return "per";
    if ((row->forget_bias != 0 || row->options >> RNL_OPT_FORGET_BIAS & 1) && !row->bias_always)
        return "a forget bias without biases";
    for (int k = 0; k < RNL_MAX_SLOTS && row->slots[k].name; k++) {
        const char *mistake = slot_mistake(&row->slots[k]);
        if (strchr(row->slots[k].shape, 'l') && !strchr(row->per, 'l'))
            return "layers that share a tensor with an axis l";
        if (mistake || (k == 0 && row->slots[k].continues))
            return mistake ? mistake : "the first slot continues another";
    }
    return NULL;
}

#endif
